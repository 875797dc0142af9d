//! The terminal, handed to a program elsewhere.

use std::io::{IsTerminal, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Every key goes on as it is, until this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// `None` where nobody sits at a terminal.
    pub fn begin() -> Option<Self> {
        let before = tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put back.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// As Kubernetes reads it.
pub fn size() -> Option<String> {
    let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col != 0)?;
    Some(format!("{{\"Width\":{},\"Height\":{}}}", size.ws_col, size.ws_row))
}
