//! `fedq demo`: a hub, three clusters and fedqd in this process, and the story of three claims told with the
//! command line's own output. Nothing but this program is needed.
//!
//! The clusters are simulated (`sim`); fedqd and the `fedq` that is run are the real ones, and what is told
//! is asked of the API servers first.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    folder::Folder,
    screen::Screen,
    stage::{Daemon, Pace, Stage},
};

mod dispatch;
mod facts;
mod folder;
mod objects;
mod quotas;
mod screen;
mod shell;
mod stage;
mod story;
mod switches;
mod task;
mod try_it;

pub struct Options {
    /// `None`: a new folder among those for temporary files, which is removed at the end.
    pub dir: Option<PathBuf>,
    /// Stay up once the stage is set.
    pub serve: bool,
    pub color: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    Told,
    /// By a signal, before the story was.
    Interrupted,
}

/// A demo that failed, with the log of its fedqd if there is one.
#[derive(Debug)]
pub struct Failed {
    pub error: DemoError,
    pub log: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot use the folder {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the folder {} holds {found}, which is no demo's", path.display())]
    Foreign { path: PathBuf, found: String },
    #[error("another demo runs in the folder {}", path.display())]
    Busy { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot set up logging")]
    Log(#[from] fedq_base::telemetry::LogError),
    #[error("cannot listen on 127.0.0.1")]
    Listen(#[source] io::Error),
    #[error("cannot start the simulated cluster {name}")]
    Start { name: String, source: fedq_sim::cluster::StartError },
    #[error("{cluster} refuses an object: {message}")]
    Refused { cluster: String, message: String },
    #[error("a manifest of fedq's own cannot be read")]
    Manifest(#[source] serde_saphyr::Error),
    #[error("cannot write YAML")]
    Yaml(#[source] serde_saphyr::SerializeError),
    #[error("fedqd ended: {reason}")]
    Daemon { reason: String },
    #[error("cannot run `{line}`")]
    Run { line: String, source: io::Error },
    #[error("`{line}` failed: {text}")]
    Command { line: String, text: String },
    #[error("waited {} s in vain until {what}; there is\n{found}", after.as_secs())]
    InVain { what: String, after: Duration, found: String },
    #[error("it is not so that {what}; there is\n{found}")]
    Untrue { what: String, found: String },
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    #[error("cannot print")]
    Print(#[source] io::Error),
}

/// Sets the stage, tells the story or stays up, and leaves nothing behind but a folder that was named, or
/// the log of what failed.
pub async fn run(options: Options) -> Result<Ended, Failed> {
    let without_log = |error| Failed { error, log: None };
    let mut signals = Signals::new().map_err(without_log)?;
    let mut screen = Screen::stdout(options.color);
    let folder = Folder::open(options.dir.as_deref()).map_err(without_log)?;
    let ended = play(&options, &folder, &mut screen, &mut signals).await;
    screen.done();
    match ended {
        Ok(ended) => {
            let path = folder.path().to_owned();
            let removed = folder.close().map_err(without_log)?;
            say_goodbye(&mut screen, ended, removed, &path).map_err(without_log)?;
            Ok(ended)
        }
        // Whoever reads no more wants no files either.
        Err(error @ DemoError::Print(_)) => {
            folder.close().map_err(without_log)?;
            Err(without_log(error))
        }
        Err(error) => {
            let log = Some(folder.path().join(stage::LOG)).filter(|log| log.exists());
            folder.keep();
            Err(Failed { error, log })
        }
    }
}

async fn play(
    options: &Options,
    folder: &Folder,
    screen: &mut Screen,
    signals: &mut Signals,
) -> Result<Ended, DemoError> {
    introduce(folder, screen)?;
    let pace = if options.serve { Pace::Patient } else { Pace::Quick };
    let (stage, mut daemon): (Stage, Daemon) = tokio::select! {
        started = Stage::start(folder.path(), pace, screen) => started?,
        () = signals.next() => return Ok(Ended::Interrupted),
    };
    let ended = tokio::select! {
        told = tell(options, &stage, screen) => told.map(|()| Ended::Told),
        // To serve has no other end.
        () = signals.next() => Ok(if options.serve { Ended::Told } else { Ended::Interrupted }),
        reason = daemon.ended() => Err(DemoError::Daemon { reason }),
    };
    screen.waiting("stopping");
    // What is asked to stop twice is not waited for.
    tokio::select! {
        () = daemon.stop() => {}
        () = signals.next() => {}
    }
    ended
}

async fn tell(options: &Options, stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    if !options.serve {
        return story::tell(stage, screen).await;
    }
    story::set_stage(stage, screen).await?;
    try_it::explain(stage, screen).await?;
    switches::obey(stage, screen).await
}

fn introduce(folder: &Folder, screen: &mut Screen) -> Result<(), DemoError> {
    let path = folder.path().display();
    let stays = if folder.is_temporary() { "is removed at the end; --dir DIR keeps one" } else { "stays" };
    screen.say(&format!(
        "A hub and three worker clusters start in this process, simulated, and fedqd beside them. fedqd and \
         every fedq command below are the real ones. Their files are in {path}, which {stays}. Ctrl-C ends \
         it at any time."
    ))
}

fn say_goodbye(screen: &mut Screen, ended: Ended, removed: bool, path: &Path) -> Result<(), DemoError> {
    let begin = if ended == Ended::Interrupted { "\nInterrupted. " } else { "\n" };
    let path = path.display();
    let folder = if removed { format!("{path} is removed.") } else { format!("The files are in {path}.") };
    screen.line(&format!("{begin}Nothing is left running. {folder}"))
}

struct Signals([Signal; 3]);

impl Signals {
    fn new() -> Result<Self, DemoError> {
        let of = |kind| signal(kind).map_err(DemoError::Signals);
        Ok(Self([
            of(SignalKind::interrupt())?,
            of(SignalKind::terminate())?,
            // The terminal is gone.
            of(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
