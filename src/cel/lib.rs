//! CEL, the expression language of a Placement's `celSelector`, as OCM's placement controller
//! evaluates it: cel-go with optionals, strings, Kubernetes' libraries and OCM's own functions.
//!
//! Expressions come from whoever may write a Placement, so nothing they say may cost much: a text has at
//! most [`MAX_LENGTH`] bytes, its tree a bounded height, and evaluation ends when what cel-go counts or
//! what it really takes exceeds [`meter`]'s limits. No crate is used for it because those there are
//! evaluate without any budget.

use std::sync::Arc;

use self::{ast::Expr, library::regexes::Regexes};

mod ast;
mod check;
mod eval;
mod library;
pub mod meter;
mod parse;
mod signatures;
mod token;
mod types;
pub mod value;

#[cfg(test)]
mod tests;

use meter::Meter;
use value::Value;

/// Bytes in one expression.
pub const MAX_LENGTH: usize = 4096;

/// An expression that is ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Program {
    expr: Arc<Expr>,
    regexes: Arc<Regexes>,
}

/// Why an expression cannot be used, as cel-go says it: with the place, and the text under it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("compilation failed: {0}")]
pub struct CompileError(String);

/// Why an evaluation has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Error(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    OverBudget,
}

/// The AddOnPlacementScores of clusters.
pub trait Scores {
    /// What `resource` scores the cluster, by name of the score; none where there is no such object.
    fn scores(&self, cluster: &str, resource: &str) -> Option<&[(Arc<str>, i64)]>;
}

/// What one evaluation came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub value: Result<Value, Fault>,
    /// As cel-go counts it.
    pub cost: u64,
    /// What it really took.
    pub work: u64,
}

impl Program {
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        if MAX_LENGTH < text.len() {
            let length = text.len();
            return Err(CompileError(format!("the expression has {length} bytes, at most {MAX_LENGTH}")));
        }
        let mut expr = parse::parse(text)?;
        let mut regexes = Regexes::default();
        check::check(text, &mut expr, &mut regexes)?;
        Ok(Self { expr: Arc::new(expr), regexes: Arc::new(regexes) })
    }

    /// Evaluates with `managedCluster` as given, spending no more than `work_limit`.
    pub fn evaluate(&self, cluster: &Value, scores: &dyn Scores, work_limit: u64) -> Outcome {
        let mut meter = Meter::new(work_limit);
        let mut evaluator = eval::Evaluator {
            scope: vec![(check::ROOT.into(), cluster.clone())],
            scores,
            regexes: &self.regexes,
            meter: &mut meter,
        };
        let value = evaluator.eval(&self.expr);
        Outcome { value, cost: meter.cost(), work: meter.work() }
    }
}

impl CompileError {
    fn at(text: &str, at: u32, problem: &str) -> Self {
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line_number = text[..at].matches('\n').count() + 1;
        let column = text[line_start..at].chars().count();
        let line = text[line_start..].lines().next().unwrap_or("");
        let marker = ".".repeat(column);
        Self(format!("ERROR: <input>:{line_number}:{}: {problem}\n | {line}\n | {marker}^", column + 1))
    }
}

impl Fault {
    fn error(problem: String) -> Self {
        Self::Error(problem)
    }

    fn no_overload() -> Self {
        Self::Error("no such overload".to_owned())
    }
}
