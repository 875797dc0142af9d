//! Where the server is and who we are: flags, then environment, then the file that `fedq login` wrote.

use std::{
    env, fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::{Deserialize, Serialize};

use super::{args::Connection, error::CliError};

/// `~/.config/fedq/config.yaml`. Holds a token, so nobody else may read it.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    pub server: Option<String>,
    /// The server's CA, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Prints a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_command: Option<String>,
}

/// What a request needs.
#[derive(Clone)]
pub struct Settings {
    pub server: String,
    pub ca: Option<String>,
    pub token: Option<String>,
}

pub fn config_path(connection: &Connection) -> PathBuf {
    if let Some(path) = &connection.config {
        return path.clone();
    }
    let folder = env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    folder.or_else(home).unwrap_or_default().join("fedq").join("config.yaml")
}

/// Flags and environment are in `connection` already.
pub fn resolve(connection: &Connection) -> Result<Settings, CliError> {
    let file = read(&config_path(connection))?;
    let server = connection.server.clone().or_else(|| file.server.clone()).ok_or(CliError::NoServer)?;
    // What was stored for one server is not shown to another.
    let stored = if file.server.as_deref() == Some(&server) { file } else { ConfigFile::default() };
    let token = match (&connection.token, &stored.token, &stored.token_command) {
        (Some(token), _, _) | (None, Some(token), _) => Some(token.clone()),
        (None, None, Some(command)) => Some(run_token_command(command)?),
        (None, None, None) => None,
    };
    let ca = match (&connection.ca_file, &connection.ca) {
        (Some(path), _) => Some(read_text(path)?),
        (None, Some(pem)) => Some(pem.clone()),
        (None, None) => stored.ca,
    };
    Ok(Settings { server, ca, token })
}

pub fn read_text(path: &Path) -> Result<String, CliError> {
    let read =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    read.map_err(|source| CliError::Read { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<ConfigFile, CliError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(source) => return Err(CliError::Read { path: path.to_owned(), source }),
    };
    // The reader's own message quotes the text, which may be a token.
    serde_saphyr::from_str(&text).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        CliError::Config { path: path.to_owned(), reason: format!("wrong near line {line}") }
    })
}

/// Replaces the file at once, so that a crash leaves either the old or the new one.
pub fn write(path: &Path, file: &ConfigFile) -> Result<(), CliError> {
    let failed = |source: io::Error| CliError::Write { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let text = serde_saphyr::to_string(file).map_err(|error| failed(io::Error::other(error)))?;
    // tempfile makes it readable by its owner only.
    let mut temporary = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    temporary.write_all(text.as_bytes()).map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

pub fn run_token_command(command: &str) -> Result<String, CliError> {
    let failed = |reason: String| CliError::TokenCommand { command: command.to_owned(), reason };
    let output = std::process::Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let token = String::from_utf8(output.stdout).map_err(|_| failed("it prints no text".to_owned()))?;
    let token = token.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(failed("it must print one word".to_owned()));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(path: &Path) -> Connection {
        Connection { config: Some(path.to_owned()), ..Connection::default() }
    }

    #[test]
    fn the_file_is_private_and_its_token_goes_to_its_server_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fedq/config.yaml");
        let file = ConfigFile {
            server: Some("https://a".to_owned()),
            token: Some("secret".to_owned()),
            ..ConfigFile::default()
        };
        write(&path, &file).expect("written");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let settings = resolve(&connection(&path)).expect("settings");
        assert_eq!((settings.server.as_str(), settings.token.as_deref()), ("https://a", Some("secret")));
        let elsewhere = Connection { server: Some("https://b".to_owned()), ..connection(&path) };
        assert_eq!(resolve(&elsewhere).expect("settings").token, None);
    }

    #[test]
    fn a_broken_file_is_told_without_quoting_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "server: https://a\ntokken: hush-hush\n").expect("written");
        let error = resolve(&connection(file.path())).err().expect("refused").to_string();
        assert!(!error.contains("hush-hush"), "{error}");
        assert!(error.contains("wrong near line"), "{error}");
    }

    #[test]
    fn without_a_server_the_next_step_is_to_log_in() {
        let error = resolve(&connection(Path::new("/nowhere/fedq.yaml"))).err().expect("refused");
        assert!(error.next().is_some_and(|next| next.contains("fedq login")));
    }

    #[test]
    fn a_token_command_prints_one_word() {
        assert_eq!(run_token_command("echo abc").expect("a token"), "abc");
        for wrong in ["exit 3", "true", "echo a b"] {
            assert!(matches!(run_token_command(wrong), Err(CliError::TokenCommand { .. })), "{wrong}");
        }
    }
}
