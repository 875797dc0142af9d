//! The loop around state and screen. It takes the terminal over and gives it back, whatever happens.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::time::Duration;

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

pub use crate::draw::Look;
use crate::{
    draw::draw,
    list::Walk,
    news::{News, Source},
    state::{End, Key, State},
};

/// News are gathered for as long before they are drawn.
const FRAME: Duration = Duration::from_millis(100);
/// Ages go on.
const TICK: Duration = Duration::from_secs(1);

/// What the loop is given.
pub struct Inputs<'a> {
    pub news: Receiver<(Source, News)>,
    /// Called whenever the state may want other objects than before.
    pub follow: &'a mut dyn FnMut(Vec<Source>),
    pub now: &'a dyn Fn() -> Timestamp,
    pub look: Look,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    Quit,
    /// By a signal of this number, or the key that stands for it.
    By(u8),
}

const HANGUP: u8 = 1;
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;

pub async fn show(mut state: State, mut inputs: Inputs<'_>) -> io::Result<Ended> {
    let mut signals = Signals::new()?;
    let mut taken = Taken::take()?;
    let mut keys = keys();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_frame = None;
    let mut last_frame = Instant::now();
    (inputs.follow)(state.wanted());
    loop {
        let frame = async {
            match next_frame {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = signals.next() => return Ok(Ended::By(ended)),
            () = frame => {
                state.tick((inputs.now)());
                taken.draw(&mut state, inputs.look)?;
                (next_frame, last_frame) = (None, Instant::now());
            }
            pressed = keys.recv() => {
                let Some(pressed) = pressed else { return Ok(Ended::By(HANGUP)) };
                match pressed?.and_then(|key| state.press(key)) {
                    Some(End::Quit) => return Ok(Ended::Quit),
                    Some(End::Interrupted) => return Ok(Ended::By(INTERRUPT)),
                    None => {}
                }
                (inputs.follow)(state.wanted());
                next_frame = Some(Instant::now());
            }
            Some((source, news)) = inputs.news.recv() => {
                state.tick((inputs.now)());
                state.take(&source, news);
                next_frame.get_or_insert(last_frame + FRAME);
            }
            _ = tick.tick() => {
                next_frame.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// Keys as they are pressed; `None` is something else that the screen has to be drawn anew for, as another size.
fn keys() -> UnboundedReceiver<io::Result<Option<Key>>> {
    let (send, receive) = unbounded_channel();
    // It waits for a key when the loop ends, and goes with the process.
    std::thread::spawn(move || {
        loop {
            let read = event::read();
            let failed = read.is_err();
            let told = match read {
                Ok(Event::Key(pressed)) => match key(pressed) {
                    Some(key) => send.send(Ok(Some(key))),
                    None => continue,
                },
                Ok(_) => send.send(Ok(None)),
                Err(error) => send.send(Err(error)),
            };
            if failed || told.is_err() {
                return;
            }
        }
    });
    receive
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(letter) if !control => Key::Char(letter),
        KeyCode::Up => Key::Walk(Walk::Up),
        KeyCode::Down => Key::Walk(Walk::Down),
        KeyCode::PageUp => Key::Walk(Walk::PageUp),
        KeyCode::PageDown => Key::Walk(Walk::PageDown),
        KeyCode::Home => Key::Walk(Walk::First),
        KeyCode::End => Key::Walk(Walk::Last),
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.terminate.recv() => TERMINATE,
            _ = self.hangup.recv() => HANGUP,
        }
    }
}

/// The terminal, until this is dropped.
struct Taken(Terminal<CrosstermBackend<Stdout>>);

impl Taken {
    fn take() -> io::Result<Self> {
        // First, so that a panic's message is read on the screen that stays.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            hook(panicked);
        }));
        enable_raw_mode()?;
        let opened = execute!(stdout(), EnterAlternateScreen, Hide);
        let taken = opened.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        taken.map(Self).inspect_err(|_| give_back())
    }

    fn draw(&mut self, state: &mut State, look: Look) -> io::Result<()> {
        self.0.draw(|frame| draw(state, look, frame.area(), frame.buffer_mut())).map(|_| ())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Where the terminal itself is gone, there is nothing to give back.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
