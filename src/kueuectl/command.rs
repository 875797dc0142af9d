//! The tree of commands, read from `commands.json`: names, aliases, flags and help. What is marked as `fedq`'s there is only in the
//! tree of `fedq kueue`: the program under kueuectl's names has kueuectl's own.

use std::sync::OnceLock;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are fields of a file, each on its own")]
pub struct Command {
    /// The name, then what a usage line shows after it.
    #[serde(rename = "use")]
    pub usage: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Aliases of KEP-2076 that kueuectl's help does not list.
    #[serde(default)]
    pub also: Vec<String>,
    /// Words that are no aliases, but bring a suggestion.
    #[serde(default)]
    pub suggest_for: Vec<String>,
    pub short: String,
    #[serde(default)]
    pub long: String,
    #[serde(default)]
    pub example: String,
    /// The usage line ends without `[flags]`.
    #[serde(default)]
    pub plain_use: bool,
    #[serde(default)]
    pub runnable: bool,
    /// kueuectl does not have it.
    #[serde(default)]
    pub fedq: bool,
    /// What help shows besides kueuectl's own examples.
    #[serde(default)]
    pub fedq_example: String,
    /// Has `-o` and what belongs to it, from the root's `printFlags`.
    #[serde(default)]
    pub prints: bool,
    #[serde(default)]
    pub flags: Vec<Flag>,
    /// Flags of this command and of all below it.
    #[serde(default)]
    pub persistent_flags: Vec<Flag>,
    #[serde(default)]
    pub print_flags: Vec<Flag>,
    #[serde(default)]
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Flag {
    pub name: String,
    #[serde(default)]
    pub short: String,
    #[serde(rename = "type")]
    pub kind: FlagKind,
    #[serde(default)]
    pub default: String,
    pub usage: String,
    #[serde(default)]
    pub required: bool,
    /// Help and completion leave it out.
    #[serde(default)]
    pub hidden: bool,
    /// kueuectl does not have it, or has another of this name.
    #[serde(default)]
    pub fedq: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum FlagKind {
    Bool,
    String,
    /// Each use adds a value.
    StringArray,
    /// Each use adds values, separated by commas.
    StringSlice,
    StringToString,
    BoolSlice,
}

/// A command and the commands it was reached through, the root first.
#[derive(Clone)]
pub struct Path(Vec<&'static Command>);

/// Whose commands and flags a command line may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tree {
    /// Those of the program that this one stands in for.
    Kueuectl,
    /// Those, and fedq's.
    Fedq,
}

pub fn root(tree: Tree) -> &'static Command {
    static KUEUECTL: OnceLock<Command> = OnceLock::new();
    static FEDQ: OnceLock<Command> = OnceLock::new();
    let read =
        || -> Command { serde_json::from_str(include_str!("commands.json")).expect("a test reads the file") };
    match tree {
        Tree::Fedq => FEDQ.get_or_init(|| {
            let mut root = read();
            root.prefer_fedqs();
            root
        }),
        Tree::Kueuectl => KUEUECTL.get_or_init(|| {
            let mut root = read();
            root.leave_out_fedqs();
            root
        }),
    }
}

impl Command {
    pub fn name(&self) -> &str {
        self.usage.split(' ').next().unwrap_or_default()
    }

    fn leave_out_fedqs(&mut self) {
        for flags in [&mut self.flags, &mut self.persistent_flags, &mut self.print_flags] {
            flags.retain(|flag| !flag.fedq);
        }
        self.commands.retain(|command| !command.fedq);
        self.commands.iter_mut().for_each(Self::leave_out_fedqs);
    }

    /// Of two flags of one name, kueuectl's goes.
    fn prefer_fedqs(&mut self) {
        for flags in [&mut self.flags, &mut self.persistent_flags] {
            let fedqs: Vec<String> =
                flags.iter().filter(|flag| flag.fedq).map(|flag| flag.name.clone()).collect();
            flags.retain(|flag| flag.fedq || !fedqs.contains(&flag.name));
        }
        if !self.fedq_example.is_empty() {
            let gap = if self.example.is_empty() { "" } else { "\n  \n" };
            self.example = format!("{}{gap}{}", self.example, self.fedq_example);
        }
        self.commands.iter_mut().for_each(Self::prefer_fedqs);
    }

    pub fn answers_to(&self, word: &str) -> bool {
        self.name() == word || self.aliases.iter().chain(&self.also).any(|alias| alias == word)
    }
}

impl Path {
    pub fn root(tree: Tree) -> Self {
        Self(vec![root(tree)])
    }

    /// The root of the tree that this is in.
    pub fn up(&self) -> Self {
        Self(vec![self.0[0]])
    }

    pub fn command(&self) -> &'static Command {
        self.0.last().expect("it begins with the root")
    }

    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    pub fn parent(&self) -> Option<&'static Command> {
        self.0.len().checked_sub(2).map(|index| self.0[index])
    }

    pub fn below(&self, word: &str) -> Option<Self> {
        let next = self.command().commands.iter().find(|command| command.answers_to(word))?;
        Some(Self(self.0.iter().copied().chain([next]).collect()))
    }

    /// Names without the root's, as `list clusterqueue`.
    pub fn names(&self) -> String {
        self.0[1..].iter().map(|command| command.name()).collect::<Vec<_>>().join(" ")
    }

    /// Names with the program's, as a usage line begins.
    pub fn full(&self, program: &str) -> String {
        if self.is_root() { program.to_owned() } else { format!("{program} {}", self.names()) }
    }

    /// Flags that this command has and its parents have not, by name.
    pub fn local_flags(&self) -> Vec<Flag> {
        let command = self.command();
        let printing = self.0[0].print_flags.iter().filter(|_| command.prints);
        let mut flags: Vec<Flag> =
            command.flags.iter().chain(&command.persistent_flags).chain(printing).cloned().collect();
        flags.push(help(command.name()));
        flags.sort_by(|a, b| a.name.cmp(&b.name));
        flags
    }

    /// Flags that its parents hand down, by name.
    pub fn inherited_flags(&self) -> Vec<Flag> {
        let parents = &self.0[..self.0.len() - 1];
        let mut flags: Vec<Flag> =
            parents.iter().flat_map(|command| command.persistent_flags.iter().cloned()).collect();
        flags.sort_by(|a, b| a.name.cmp(&b.name));
        flags
    }

    pub fn flags(&self) -> Vec<Flag> {
        let mut flags = self.local_flags();
        flags.extend(self.inherited_flags());
        flags
    }
}

fn help(command: &str) -> Flag {
    Flag {
        name: "help".to_owned(),
        short: "h".to_owned(),
        kind: FlagKind::Bool,
        default: String::new(),
        usage: format!("help for {command}"),
        required: false,
        hidden: false,
        fedq: false,
    }
}
