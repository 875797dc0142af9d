//! What a watch delivers, whatever its encoding.

use super::Skipped;
use crate::client::ApiError;

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event<'a> {
    Set {
        version: u64,
        object: &'a [u8],
    },
    Gone {
        version: u64,
        object: &'a [u8],
    },
    /// Nothing new up to this version.
    Bookmark {
        version: u64,
    },
    Skipped(Skipped),
    /// The version the watch began at is no longer kept.
    Expired,
    Failed(ApiError),
}

impl<'a> Event<'a> {
    pub(super) fn new(kind: &[u8], version: u64, object: &'a [u8]) -> Self {
        match kind {
            b"BOOKMARK" => Self::Bookmark { version },
            b"DELETED" => Self::Gone { version, object },
            _ => Self::Set { version, object },
        }
    }

    /// A Status sent as an event, in a response that began with 200.
    pub(super) fn error(code: u64, reason: &str, message: &str) -> Self {
        if code == 410 || matches!(reason, "Expired" | "Gone") {
            return Self::Expired;
        }
        let code = u16::try_from(code).ok().filter(|code| *code != 0).unwrap_or(500);
        Self::Failed(ApiError::from_answer(code, message.as_bytes()))
    }
}
