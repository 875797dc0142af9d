//! `matches`, `find`, `findAll`. The engine is linear in the text; what compiling may take is capped.

use std::{collections::HashMap, sync::Arc};

use regex::{Regex, RegexBuilder};

use crate::{Fault, meter::Meter, value::Value};

/// A compiled pattern of more bytes is refused: RE2 refuses repetitions beyond 1,000 likewise.
const MAX_COMPILED: usize = 1 << 18;
/// What compiling takes, beyond the pattern's own length, in bytes of work.
const COMPILE_WORK: u64 = 2_000;

/// Patterns that are literals in an expression, compiled once.
#[derive(Clone, Debug, Default)]
pub struct Regexes(HashMap<Arc<str>, Option<Arc<Regex>>>);

pub fn is_regex_function(name: &str) -> bool {
    matches!(name, "matches" | "find" | "findAll")
}

impl Regexes {
    pub fn keep(&mut self, pattern: &Arc<str>) {
        self.0.entry(pattern.clone()).or_insert_with(|| compile(pattern));
    }

    fn get(&self, pattern: &Arc<str>, meter: &mut Meter) -> Result<Arc<Regex>, Fault> {
        let compiled = if let Some(compiled) = self.0.get(pattern) {
            compiled.clone()
        } else {
            meter.spend(COMPILE_WORK + 50 * pattern.len() as u64)?;
            compile(pattern)
        };
        compiled.ok_or_else(|| Fault::error(format!("error parsing regexp: {pattern}")))
    }
}

fn compile(pattern: &str) -> Option<Arc<Regex>> {
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
    compiled.ok().map(Arc::new)
}

pub fn call(
    name: &str,
    args: &[Value],
    regexes: &Regexes,
    meter: &mut Meter,
) -> Result<Option<Value>, Fault> {
    if !is_regex_function(name) {
        return Ok(None);
    }
    let [Value::String(text), Value::String(pattern), rest @ ..] = args else {
        return Err(Fault::no_overload());
    };
    if name == "matches" {
        let text_cost = (1 + args[0].size()).div_ceil(10);
        meter.charge(text_cost.saturating_mul(args[1].size().div_ceil(4)))?;
    } else {
        meter.charge(1)?;
    }
    let regex = regexes.get(pattern, meter)?;
    meter.spend(text.len() as u64 * (1 + pattern.len() as u64 / 16))?;
    let found = match (name, rest) {
        ("matches", []) => Value::Bool(regex.is_match(text)),
        ("find", []) => Value::text(regex.find(text).map_or("", |found| found.as_str())),
        ("findAll", []) => all(&regex, text, usize::MAX),
        ("findAll", [Value::Int(limit)]) => all(&regex, text, usize::try_from(*limit).unwrap_or(usize::MAX)),
        _ => return Err(Fault::no_overload()),
    };
    Ok(Some(found))
}

fn all(regex: &Regex, text: &str, limit: usize) -> Value {
    Value::list(regex.find_iter(text).take(limit).map(|found| Value::text(found.as_str())).collect())
}
