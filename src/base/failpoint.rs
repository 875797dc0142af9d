//! Where a test ends the process: right before or right after a commit to the database or a request to an API
//! server. Other programs cannot see those moments, so it has to be here. A release build has nothing of it.
//!
//! `FEDQ_ABORT_AT=before:record the task's move:2` ends the process before the second commit since its start that
//! holds a write of that name, `before:create jobs:1` before the first such request is sent; `after:…` once the
//! commit is on the disk, or the API server has answered, and before anybody is told. `FEDQ_PANIC_AT` panics there instead.

/// Which side of what is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    Before,
    After,
}

/// Whether this process is to end somewhere.
#[cfg(debug_assertions)]
pub fn is_set() -> bool {
    debug::ONE.is_some()
}

#[cfg(not(debug_assertions))]
pub fn is_set() -> bool {
    false
}

/// All of these are about to be done at once, or were.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "it is what a test asks for")]
pub fn reached<'w>(side: Side, what: impl IntoIterator<Item = &'w str>) {
    let Some((end, one)) = &*debug::ONE else { return };
    let reached =
        one.lock().unwrap_or_else(std::sync::PoisonError::into_inner).counts(side, what.into_iter());
    match end {
        _ if !reached => {}
        // As a crash would, with nothing cleared up.
        debug::End::Abort => std::process::abort(),
        debug::End::Panic => std::panic::panic_any("a test wants it\nhere"),
    }
}

#[cfg(not(debug_assertions))]
pub fn reached<'w>(_: Side, _: impl IntoIterator<Item = &'w str>) {}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::{LazyLock, Mutex};

    use crate::failpoint::Side;

    pub(super) static ONE: LazyLock<Option<(End, Mutex<Failpoint>)>> = LazyLock::new(|| {
        let one = |(variable, end)| Some((end, Mutex::new(Failpoint::from_environment(variable)?)));
        [("FEDQ_ABORT_AT", End::Abort), ("FEDQ_PANIC_AT", End::Panic)].into_iter().find_map(one)
    });

    #[derive(Clone, Copy)]
    pub(super) enum End {
        Abort,
        Panic,
    }

    #[derive(Debug, Eq, PartialEq)]
    pub(super) struct Failpoint {
        side: Side,
        what: String,
        /// Until it is reached.
        left: u32,
    }

    impl Failpoint {
        fn from_environment(variable: &str) -> Option<Self> {
            let text = std::env::var_os(variable)?.into_string().ok()?;
            let failpoint = Self::parse(&text);
            if failpoint.is_none() {
                tracing::warn!("{variable} is not before|after:NAME:COUNT, and has no effect");
            }
            failpoint
        }

        fn parse(text: &str) -> Option<Self> {
            let (side, rest) = text.split_once(':')?;
            let (what, left) = rest.rsplit_once(':')?;
            let side = match side {
                "before" => Side::Before,
                "after" => Side::After,
                _ => return None,
            };
            Some(Self { side, what: what.to_owned(), left: left.parse().ok().filter(|left| 0 < *left)? })
        }

        pub(super) fn counts<'w>(&mut self, side: Side, mut what: impl Iterator<Item = &'w str>) -> bool {
            if self.left == 0 || side != self.side || !what.any(|one| one == self.what) {
                return false;
            }
            self.left -= 1;
            self.left == 0
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn it_is_reached_at_what_was_named_and_at_nothing_else() {
            let mut failpoint = Failpoint::parse("after:record the task's move:2").expect("it is one");
            let mut counts = |side, done: &[&str]| failpoint.counts(side, done.iter().copied());
            assert!(!counts(Side::After, &["accept the task"]));
            assert!(!counts(Side::Before, &["record the task's move"]));
            assert!(!counts(Side::After, &["accept the task", "record the task's move"]));
            assert!(counts(Side::After, &["record the task's move"]));
            assert!(!counts(Side::After, &["record the task's move"]));
            for text in ["", "before", "before:x", "before:x:0", "before:x:y", "during:x:1"] {
                assert_eq!(Failpoint::parse(text), None, "{text}");
            }
        }
    }
}
