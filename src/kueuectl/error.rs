//! What can go wrong, in kueuectl's words.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What a server answered, or what was typed.
    #[error("{0}")]
    Said(String),
    /// The server says that there is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The server says that this is not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// The server says that somebody else wrote first, or that it is another object.
    #[error("{0}")]
    Conflict(String),
    /// What was asked for is too old.
    #[error("{0}")]
    Gone(String),
    /// The server cannot answer now.
    #[error("{0}")]
    Busy(String),
    #[error("cannot read the kubeconfig {path}: {reason}")]
    Kubeconfig { path: String, reason: String },
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    Output(#[from] io::Error),
    /// Nothing failed: a signal of this number ended it, or the key that stands for it.
    #[error("ended by signal {0}")]
    Ended(u8),
}

impl Error {
    pub fn said(text: impl Into<String>) -> Self {
        Self::Said(text.into())
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// Whoever read our output has gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
