//! A program in a terminal of its own, as a person sees it.

use std::{
    io::{Read, Write},
    sync::{Arc, Mutex},
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

pub struct Terminal {
    seen: Arc<Mutex<vt100::Parser>>,
    keys: Box<dyn Write + Send>,
    master: Box<dyn MasterPty + Send>,
    program: Box<dyn Child + Send + Sync>,
}

impl Terminal {
    pub fn run(mut command: CommandBuilder, (rows, cols): (u16, u16)) -> Self {
        let pair = native_pty_system().openpty(PtySize { rows, cols, ..PtySize::default() }).unwrap();
        command.env("TERM", "xterm");
        let program = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let seen = Arc::new(Mutex::new(vt100::Parser::new(rows, cols, 0)));
        let (mut output, drawn) = (pair.master.try_clone_reader().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal is gone when the program is.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                drawn.lock().unwrap().process(&bytes[..read]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self { seen, keys, master: pair.master, program }
    }

    pub fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub fn resize(&self, (rows, cols): (u16, u16)) {
        self.seen.lock().unwrap().screen_mut().set_size(rows, cols);
        self.master.resize(PtySize { rows, cols, ..PtySize::default() }).unwrap();
    }

    /// Its exit code, once it has ended.
    pub fn ended(&mut self) -> Option<u32> {
        self.program.try_wait().unwrap().map(|status| status.exit_code())
    }

    /// Whether it is as the program found it.
    pub fn is_given_back(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        !seen.screen().alternate_screen() && !seen.screen().hide_cursor()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.program.kill();
    }
}
