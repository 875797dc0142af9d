//! What a command works with: its flags, the streams, the clock, and the server, which is found when it is first needed.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use crate::{api::Api, error::Error, flags::Given, kubeconfig, resource::DryRun};

/// Runs a program with arguments on an input.
pub type Run = dyn Fn(&OsString, &[OsString], &[u8]) -> io::Result<Output>;

/// Everything outside of the program.
pub struct World<'a> {
    pub input: &'a mut dyn BufRead,
    pub output: &'a mut dyn Write,
    pub errors: &'a mut dyn Write,
    pub now: &'a dyn Fn() -> Timestamp,
    pub variables: &'a dyn Fn(&str) -> Option<OsString>,
    /// Puts another program in the place of this one; it comes back only with an error.
    pub replace: &'a dyn Fn(&OsString, &[OsString]) -> io::Error,
    /// Runs a program on this input, for what it writes.
    pub run: &'a Run,
    /// Whether the output is a terminal that keys come from.
    pub terminal: bool,
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
    api: Option<Api>,
}

impl<'a, 'w> Session<'a, 'w> {
    pub fn new(given: Given, world: &'a mut World<'w>) -> Self {
        Self { given, world, namespace: None, api: None }
    }

    pub fn tools(&self) -> Tools<'w> {
        Tools { run: self.world.run, variables: self.world.variables }
    }

    pub fn namespace(&mut self) -> Result<String, Error> {
        if let Some(namespace) = &self.namespace {
            return Ok(namespace.clone());
        }
        let namespace = match &self.world.client {
            None => kubeconfig::choose(&self.given, self.world.variables)?.namespace,
            Some(_) if self.given.text("namespace").is_empty() => "default".to_owned(),
            Some(_) => self.given.text("namespace").to_owned(),
        };
        self.namespace = Some(namespace.clone());
        Ok(namespace)
    }

    /// The namespace to list: none for all.
    pub fn scope(&mut self) -> Result<String, Error> {
        if self.given.is("all-namespaces") { Ok(String::new()) } else { self.namespace() }
    }

    pub async fn api(&mut self) -> Result<&Api, Error> {
        if self.api.is_none() {
            let api = if let Some(client) = self.world.client.clone() {
                Api::new(client, "http://localhost".to_owned(), None)
            } else {
                let chosen = kubeconfig::choose(&self.given, self.world.variables)?;
                chosen.connect(&self.given).await?
            };
            self.api = Some(api);
        }
        Ok(self.api.as_ref().expect("it was made above"))
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
        for text in self.api.iter().flat_map(Api::take_warnings) {
            writeln!(self.world.errors, "Warning: {text}")?;
        }
        Ok(())
    }
}

/// A text of an object, empty where it is not.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
