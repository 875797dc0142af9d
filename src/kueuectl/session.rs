//! What a command works with: its flags, the streams, the clock, and the clusters, which are found when they are first needed.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::rc::Rc;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::{
    api::Api,
    error::Error,
    flags::Given,
    fleet::{self, Cluster, Fleet, Later, Place},
    kubeconfig,
    resource::DryRun,
};

/// Runs a program with arguments on an input.
pub type Run = dyn Fn(&OsString, &[OsString], &[u8]) -> io::Result<Output>;

/// Puts another program in the place of this one, with a kubeconfig of its own where one is given; it comes back only with an
/// error.
pub type Replace = dyn Fn(&OsString, &[OsString], Option<&str>) -> io::Error;

/// Everything outside of the program.
pub struct World<'a> {
    pub input: &'a mut dyn BufRead,
    pub output: &'a mut dyn Write,
    pub errors: &'a mut dyn Write,
    pub now: &'a dyn Fn() -> Timestamp,
    pub variables: &'a dyn Fn(&str) -> Option<OsString>,
    pub replace: &'a Replace,
    /// Runs a program on this input, for what it writes.
    pub run: &'a Run,
    /// Whether the output is a terminal that keys come from.
    pub terminal: bool,
    /// Waits until somebody wants the command to end.
    pub interrupted: &'a dyn Fn() -> Later<'a, ()>,
    /// What `fedq kueue` asks where flags name clusters of a daemon. Without it all is as in kueuectl.
    pub fleet: Option<&'a dyn Fleet>,
    /// A client instead of what the kubeconfig says, for tests.
    pub client: Option<Client>,
}

/// Other programs.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    pub run: &'a Run,
    variables: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Tools<'_> {
    /// Where `$PATH` has kubectl.
    pub fn kubectl(self) -> Option<OsString> {
        let paths = (self.variables)("PATH").unwrap_or_default();
        // An empty or relative folder depends on where one stands: anybody may have put a kubectl there.
        let folders = std::env::split_paths(&paths).filter(|folder| folder.is_absolute());
        let found = folders.map(|folder| folder.join("kubectl")).find(|path| is_program(path));
        found.map(OsString::from)
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

pub struct Session<'a, 'w> {
    pub given: Given,
    pub world: &'a mut World<'w>,
    namespace: Option<String>,
    clusters: Option<Rc<[Cluster]>>,
    failed: bool,
}

impl<'a, 'w> Session<'a, 'w> {
    pub fn new(given: Given, world: &'a mut World<'w>) -> Self {
        Self { given, world, namespace: None, clusters: None, failed: false }
    }

    pub fn tools(&self) -> Tools<'w> {
        Tools { run: self.world.run, variables: self.world.variables }
    }

    pub fn namespace(&mut self) -> Result<String, Error> {
        if let Some(namespace) = &self.namespace {
            return Ok(namespace.clone());
        }
        let given = self.given.text("namespace");
        let namespace = if self.world.client.is_none() && self.fleet().is_none() {
            kubeconfig::choose(&self.given, self.world.variables)?.namespace
        } else if given.is_empty() {
            "default".to_owned()
        } else {
            given.to_owned()
        };
        self.namespace = Some(namespace.clone());
        Ok(namespace)
    }

    /// The namespace to list: none for all.
    pub fn scope(&mut self) -> Result<String, Error> {
        if self.given.is("all-namespaces") { Ok(String::new()) } else { self.namespace() }
    }

    /// Where flags name clusters of a daemon, that daemon.
    pub fn fleet(&self) -> Option<&'w dyn Fleet> {
        self.world.fleet.filter(|_| fleet::is_asked(&self.given))
    }

    /// The clusters to ask: one at least.
    pub async fn clusters(&mut self) -> Result<Rc<[Cluster]>, Error> {
        if let Some(clusters) = &self.clusters {
            return Ok(Rc::clone(clusters));
        }
        let clusters = if let Some(client) = self.world.client.clone() {
            vec![Cluster { place: None, api: Api::new(client, "http://localhost".to_owned(), None) }]
        } else if let Some(fleet) = self.fleet() {
            let places = fleet::places(&self.given, fleet).await?;
            fleet::connect(places, &self.given, fleet)?
        } else {
            let chosen = kubeconfig::choose(&self.given, self.world.variables)?;
            vec![Cluster { place: None, api: chosen.connect(&self.given).await? }]
        };
        let clusters: Rc<[Cluster]> = clusters.into();
        self.clusters = Some(Rc::clone(&clusters));
        Ok(clusters)
    }

    /// The one cluster that is asked, for commands that work on one.
    pub async fn api(&mut self) -> Result<&Api, Error> {
        self.clusters().await?;
        match self.clusters.as_deref().unwrap_or_default() {
            [only] => Ok(&only.api),
            several => {
                let places: Vec<&Place> =
                    several.iter().filter_map(|cluster| cluster.place.as_ref()).collect();
                Err(not_one(&places))
            }
        }
    }

    /// For programs that speak to the one cluster themselves: a kubeconfig, where flags name a cluster of a daemon.
    pub async fn kubeconfig(&self) -> Result<Option<String>, Error> {
        let Some(fleet) = self.fleet() else { return Ok(None) };
        let places = fleet::places(&self.given, fleet).await?;
        let [place] = &places[..] else { return Err(not_one(&places.iter().collect::<Vec<_>>())) };
        fleet.kubeconfig(place).map(Some).map_err(Error::said)
    }

    /// Says that one of several clusters failed: the others are shown, and the exit code tells of it.
    pub fn fail(&mut self, cluster: &Cluster, error: &Error) -> Result<(), Error> {
        self.failed = true;
        self.complain(&format!("Error: {}\n", cluster.error(error)))
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    pub fn dry_run(&self) -> Result<DryRun, Error> {
        match self.given.text("dry-run") {
            "none" => Ok(DryRun::None),
            "client" => Ok(DryRun::Client),
            "server" => Ok(DryRun::Server),
            other => Err(Error::said(format!(
                "invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\""
            ))),
        }
    }

    pub fn print(&mut self, text: &str) -> Result<(), Error> {
        self.tell_warnings()?;
        Ok(self.world.output.write_all(text.as_bytes())?)
    }

    pub fn complain(&mut self, text: &str) -> Result<(), Error> {
        self.tell_warnings()?;
        Ok(self.world.errors.write_all(text.as_bytes())?)
    }

    /// Servers' warnings, on stderr before what comes of the answer.
    pub fn tell_warnings(&mut self) -> Result<(), Error> {
        for cluster in self.clusters.as_deref().unwrap_or_default() {
            let of = if cluster.name().is_empty() { String::new() } else { format!("{}: ", cluster.name()) };
            for text in cluster.api.take_warnings() {
                writeln!(self.world.errors, "Warning: {of}{text}")?;
            }
        }
        Ok(())
    }
}

/// Nobody means to change several clusters by one line.
fn not_one(places: &[&Place]) -> Error {
    let names: Vec<&str> = places.iter().take(5).map(|place| place.shown()).collect();
    let more = if names.len() < places.len() { ", …" } else { "" };
    Error::said(format!(
        "this command works on one cluster, and the flags name {} ({}{more}): name one with --cluster, or --hub alone",
        places.len(),
        names.join(", ")
    ))
}

/// A text of an object, empty where it is not.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
