//! Reads kubectl's JSONPath templates.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Value, json};

pub enum Segment {
    Text(String),
    Action(Vec<Node>),
    /// For each result of the first, the second.
    Range(Vec<Node>, Vec<Segment>),
}

pub enum Node {
    Constant(Value),
    Text(String),
    Field(String),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    Index(i64),
    Slice(Option<i64>, Option<i64>, Option<i64>),
    Filter(Filter),
}

pub struct Filter {
    pub left: Vec<Node>,
    /// Without it the left side only has to be there.
    pub right: Option<(Compare, Vec<Node>)>,
}

#[derive(Clone, Copy)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

static KEY: OnceLock<Regex> = OnceLock::new();
static COMPARED: OnceLock<Regex> = OnceLock::new();

pub fn parse(text: &str) -> Result<Vec<Segment>, String> {
    let mut rest = text;
    let (segments, ended) = block(&mut rest)?;
    if ended { Err("not in range, nothing to end".to_owned()) } else { Ok(segments) }
}

/// Segments up to the `{end}` of this block, and whether there was one.
fn block(rest: &mut &str) -> Result<(Vec<Segment>, bool), String> {
    let mut segments = Vec::new();
    loop {
        let brace = rest.find('{').unwrap_or(rest.len());
        if 0 < brace {
            segments.push(Segment::Text(rest[..brace].to_owned()));
        }
        if brace == rest.len() {
            *rest = "";
            return Ok((segments, false));
        }
        *rest = &rest[brace + 1..];
        let mut action = Action { rest, nodes: Vec::new(), word: None };
        action.read()?;
        let (nodes, word) = (action.nodes, action.word);
        match word {
            None => segments.push(Segment::Action(nodes)),
            Some(Word::End) => return Ok((segments, true)),
            Some(Word::Range) => segments.push(Segment::Range(nodes, block(rest)?.0)),
        }
    }
}

enum Word {
    Range,
    End,
}

struct Action<'a, 't> {
    rest: &'a mut &'t str,
    nodes: Vec<Node>,
    word: Option<Word>,
}

/// One expression, as a filter and a union have them.
fn expression(text: &str) -> Result<Vec<Node>, String> {
    let closed = format!("{text}}}");
    let mut rest = closed.as_str();
    let mut action = Action { rest: &mut rest, nodes: Vec::new(), word: None };
    action.read()?;
    Ok(action.nodes)
}

impl<'t> Action<'_, 't> {
    /// Up to the closing brace.
    fn read(&mut self) -> Result<(), String> {
        loop {
            let Some(letter) = self.rest.chars().next().filter(|letter| !matches!(letter, '\n' | '\r'))
            else {
                return Err("unclosed action".to_owned());
            };
            if letter == '}' {
                self.skip(1);
                return Ok(());
            }
            match letter {
                _ if self.rest.starts_with("[?(") => self.filter()?,
                _ if self.rest.starts_with("..") => self.recursive()?,
                ' ' | '@' | '$' => self.skip(1),
                '[' => self.brackets()?,
                '"' | '\'' => self.quoted(letter)?,
                '.' => {
                    self.skip(1);
                    self.field();
                }
                '+' | '-' | '0'..='9' => self.number()?,
                _ if letter.is_alphanumeric() || letter == '_' => self.word()?,
                _ => {
                    return Err(format!(
                        "unrecognized character in action: U+{:04X} '{letter}'",
                        u32::from(letter)
                    ));
                }
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        *self.rest = &self.rest[bytes..];
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        *self.rest = rest;
        taken
    }

    fn recursive(&mut self) -> Result<(), String> {
        if matches!(self.nodes.last(), Some(Node::Recursive)) {
            return Err("invalid multiple recursive descent".to_owned());
        }
        self.skip(2);
        self.nodes.push(Node::Recursive);
        if self.rest.chars().next().is_some_and(|next| next.is_alphanumeric() || next == '_') {
            self.field();
        }
        Ok(())
    }

    /// A name up to what cannot belong to it; a backslash takes the next letter as it is.
    fn field(&mut self) {
        let mut escaped = false;
        let end = self.rest.find(|letter: char| {
            let ends = !escaped && terminates(letter);
            escaped = !escaped && letter == '\\';
            ends
        });
        let name = self.take(end.unwrap_or(self.rest.len()));
        self.nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name.replace('\\', "")) });
    }

    fn word(&mut self) -> Result<(), String> {
        let end = self.rest.find(terminates).unwrap_or(self.rest.len());
        match self.take(end) {
            "range" => self.word = Some(Word::Range),
            "end" => self.word = Some(Word::End),
            "true" => self.nodes.push(Node::Constant(json!(true))),
            "false" => self.nodes.push(Node::Constant(json!(false))),
            other => return Err(format!("unrecognized identifier {other}")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let end = self.rest[sign..].find(|letter: char| letter != '.' && !letter.is_ascii_digit());
        let text = self.take(end.map_or(self.rest.len(), |end| end + sign));
        let number = text.parse::<i64>().map(|number| json!(number));
        let number = number.or_else(|_| text.parse::<f64>().map(|number| json!(number)));
        self.nodes.push(Node::Constant(number.map_err(|_| format!("cannot parse number {text}"))?));
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\n' => break,
                _ if letter == quote => {
                    self.skip(at + 1);
                    self.nodes.push(Node::Text(text));
                    return Ok(());
                }
                '\\' => match letters.next().map(|(_, letter)| letter) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other @ ('\\' | '"' | '\'')) => text.push(other),
                    Some(_) => return Err(format!("unquote string {} error invalid syntax", self.rest)),
                    None => break,
                },
                _ => text.push(letter),
            }
        }
        Err("unterminated quoted string".to_owned())
    }

    /// `[0]`, `[1:3]`, `[*]`, `['name']`, `[0,2]`.
    fn brackets(&mut self) -> Result<(), String> {
        let end = self.rest.find([']', '\n']).filter(|&end| self.rest[end..].starts_with(']'));
        let end = end.ok_or("unterminated array")?;
        let inner = &self.take(end + 1)[1..end];
        if inner.contains(',') {
            let paths = inner.split(',').map(|one| expression(&format!("[{}]", one.trim_matches(' '))));
            self.nodes.push(Node::Union(paths.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = KEY.get_or_init(|| Regex::new(r"^'([^']*)'$").expect("it is a constant"));
        if let Some(name) = key.captures(inner) {
            self.nodes.extend(expression(&format!(".{}", &name[1]))?);
            return Ok(());
        }
        self.nodes.push(index(inner)?);
        Ok(())
    }

    fn filter(&mut self) -> Result<(), String> {
        self.skip(3);
        let end = filter_end(self.rest)?;
        let inner = self.take(end + 2).get(..end).unwrap_or_default();
        let compared =
            COMPARED.get_or_init(|| Regex::new(r"^([^!<>=]+)([!<>=]+)(.+?)$").expect("it is a constant"));
        let filter = match compared.captures(inner) {
            None => Filter { left: expression(inner)?, right: None },
            Some(parts) => {
                let compare = match &parts[2] {
                    "==" => Compare::Equal,
                    "!=" => Compare::NotEqual,
                    "<" => Compare::Less,
                    "<=" => Compare::LessOrEqual,
                    ">" => Compare::Greater,
                    ">=" => Compare::GreaterOrEqual,
                    other => return Err(format!("unrecognized filter operator {other}")),
                };
                Filter { left: expression(&parts[1])?, right: Some((compare, expression(&parts[3])?)) }
            }
        };
        self.nodes.push(Node::Filter(filter));
        Ok(())
    }
}

/// Where a filter's closing `)]` is; one in quotes does not close it.
fn filter_end(text: &str) -> Result<usize, String> {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            ('\n', _) => break,
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open && before != '\\' => quote = None,
            (')', None) if text[at + 1..].starts_with(']') => return Ok(at),
            (')', None) => return Err("unclosed array expect ]".to_owned()),
            _ => {}
        }
        before = letter;
    }
    Err("unterminated filter".to_owned())
}

fn index(text: &str) -> Result<Node, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| format!("invalid array index {text}")),
    };
    let parts: Vec<&str> = if text == "*" { vec!["", ""] } else { text.split(':').collect() };
    match parts[..] {
        [one] => Ok(Node::Index(number(one)?.ok_or_else(|| format!("invalid array index {text}"))?)),
        [start, end] => Ok(Node::Slice(number(start)?, number(end)?, None)),
        [start, end, step] => Ok(Node::Slice(number(start)?, number(end)?, number(step)?)),
        _ => Err(format!("invalid array index {text}")),
    }
}

fn terminates(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
