//! Completion in real shells: what stands on the line once a person has pressed the tabulator.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use portable_pty::CommandBuilder;

use super::{
    cli::{Listening, listening},
    server::ANN,
    terminal::Terminal,
};

const WITHIN: Duration = Duration::from_mins(1);

/// Lines with a unique end, and what is run once the tabulator and return are pressed.
const UNIQUE: [(&str, &[&str]); 12] = [
    ("cluster unc", &["cluster", "uncordon"]),
    ("--color never claim confirm-", &["--color", "never", "claim", "confirm-removal"]),
    ("claim list --no-h", &["claim", "list", "--no-headers"]),
    ("claim list -o ya", &["claim", "list", "-o", "yaml"]),
    ("claim list --output=na", &["claim", "list", "--output=name"]),
    // What the server knows.
    ("cluster show we", &["cluster", "show", "west"]),
    ("claim edit ea", &["claim", "edit", "east-resource-claim"]),
    ("quota explain te", &["quota", "explain", "team-a"]),
    // kueuectl's part.
    ("kueue mo", &["kueue", "move"]),
    ("kueue list cq --cluster we", &["kueue", "list", "cq", "--cluster", "west"]),
    // Files.
    ("task submit tas", &["task", "submit", "task.yaml"]),
    ("cluster join x --kubeconfig=ku", &["cluster", "join", "x", "--kubeconfig=kubeconfig.yaml"]),
];

/// A shell with fedq's completion, in a folder of its own.
struct Prompt {
    terminal: Terminal,
    folder: tempfile::TempDir,
}

impl Prompt {
    /// `load`: what a person types or has in their start files, where `$COMPLETION` has the script.
    fn open(api: &Listening, (shell, arguments): (&str, &[&str]), load: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let within = |name: &str| folder.path().join(name);
        let shell = found(shell);
        for file in ["task.yaml", "kubeconfig.yaml"] {
            fs::write(within(file), "").unwrap();
        }
        // It completes as the real one; what it is asked to run, it notes.
        let program = format!(
            "#!/bin/sh\ncase \"$1 $*\" in\n\
             __complete*nasty*) printf '%s\\n' 'nasty $(touch owned) `touch owned`' ':4' ;;\n\
             __complete* | completion*) exec {real} \"$@\" ;;\n\
             *) printf '%s\\n' \"$@\" > {ran}.new && mv {ran}.new {ran} ;;\nesac\n",
            real = env!("CARGO_BIN_EXE_fedq"),
            ran = within("ran").display(),
        );
        fs::create_dir(within("bin")).unwrap();
        fs::write(within("bin/fedq"), program).unwrap();
        fs::set_permissions(within("bin/fedq"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = CommandBuilder::new(shell);
        command.args(arguments);
        command.env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", within("bin").display()));
        command.env("HOME", folder.path());
        command.env("LANG", "C.UTF-8");
        command.env("FEDQ_SERVER", &api.url);
        command.env("FEDQ_TOKEN", ANN);
        command.env("FEDQ_CONFIG", "/nowhere/config.yaml");
        command.cwd(folder.path());
        let mut prompt = Self { terminal: Terminal::run(command, (40, 160)), folder };
        prompt.terminal.press(&format!("{load}\recho read{}y\r", "''"));
        prompt.shows("\nready");
        prompt
    }

    fn shows(&self, what: &str) {
        let begun = Instant::now();
        while !self.terminal.text().contains(what) {
            assert!(begun.elapsed() < WITHIN, "no {what:?} on the screen:\n{}", self.terminal.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What is run where this is typed.
    fn runs(&mut self, typed: &str) -> Vec<String> {
        let ran = self.folder.path().join("ran");
        self.terminal.press(&format!("{typed}\r"));
        let begun = Instant::now();
        loop {
            if let Ok(text) = fs::read_to_string(&ran) {
                fs::remove_file(&ran).unwrap();
                return text.lines().map(str::to_owned).collect();
            }
            assert!(begun.elapsed() < WITHIN, "{typed:?} runs nothing:\n{}", self.terminal.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn completes(&mut self) {
        for (typed, expected) in UNIQUE {
            assert_eq!(self.runs(&format!("fedq {typed}\t")), expected, "{typed}");
        }
        // The shell reads no commands in names.
        assert_eq!(self.runs("fedq check nasty\t"), ["check", "nasty $(touch owned) `touch owned`"]);
        assert!(!self.folder.path().join("owned").exists(), "a command was run");
        // Where there are several, they are shown.
        self.terminal.press("fedq cluster show \t\t");
        for name in ["east", "west"] {
            self.shows(name);
        }
    }
}

/// A shell that is not there has not been tried.
fn found(shell: &str) -> PathBuf {
    let places = ["/bin", "/usr/bin", "/usr/local/bin"].map(|folder| Path::new(folder).join(shell));
    let found = places.into_iter().find(|path| path.exists());
    found
        .unwrap_or_else(|| panic!("{shell} is not installed: on Debian `apt-get install zsh fish` brings it"))
}

#[test]
fn bash_completes() {
    let shell = ("bash", ["--norc", "--noprofile", "-i"].as_slice());
    Prompt::open(&listening(), shell, "source <(fedq completion bash)").completes();
}

#[test]
fn zsh_completes() {
    let load = "autoload -U compinit && compinit -D && source <(fedq completion zsh)";
    Prompt::open(&listening(), ("zsh", &["-f", "-i"]), load).completes();
}

#[test]
fn zsh_completes_from_its_folder_of_functions() {
    let load = "mkdir functions && fpath=($PWD/functions $fpath) && fedq completion zsh > \"${fpath[1]}/_fedq\" \
                && autoload -U compinit && compinit -D";
    Prompt::open(&listening(), ("zsh", &["-f", "-i"]), load).completes();
}

#[test]
fn fish_completes() {
    let load =
        "mkdir -p ~/.config/fish/completions; fedq completion fish > ~/.config/fish/completions/fedq.fish";
    Prompt::open(&listening(), ("fish", &["-i"]), load).completes();
}

/// Each is read by its own shell without a word.
#[test]
fn no_script_says_anything_when_it_is_read() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(env!("CARGO_BIN_EXE_fedq")).args(["completion", shell]).output().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        fs::write(&file, script.stdout).unwrap();
        let output = Command::new(found(shell)).arg("-n").arg(&file).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success() && said.is_empty(), "{shell}: {}", String::from_utf8_lossy(&said));
    }
}
