//! Where a test ends the process: right before or right after the commit of a write. Other programs cannot see
//! that moment, so it has to be here. A release build has nothing of it.
//!
//! `FEDQ_ABORT_AT=before:record the task's move:2` ends the process before the second commit since its start that
//! holds a write of that name; `after:…` once it is on the disk and before anybody is told.

/// Which side of a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    Before,
    After,
}

/// The one of this process, if it has one.
pub(super) struct Failpoints {
    #[cfg(debug_assertions)]
    one: Option<Failpoint>,
}

impl Failpoints {
    pub(super) fn from_environment() -> Self {
        Self {
            #[cfg(debug_assertions)]
            one: Failpoint::from_environment(),
        }
    }

    /// A commit of these writes is about to be made, or was.
    #[cfg(debug_assertions)]
    pub(super) fn reached<'w>(&mut self, side: Side, writes: impl Iterator<Item = &'w str>) {
        if self.one.as_mut().is_some_and(|one| one.counts(side, writes)) {
            // As a crash would, with nothing cleared up.
            std::process::abort();
        }
    }

    #[cfg(not(debug_assertions))]
    pub(super) fn reached<'w>(&mut self, _: Side, _: impl Iterator<Item = &'w str>) {}
}

#[cfg(debug_assertions)]
#[derive(Debug, Eq, PartialEq)]
struct Failpoint {
    side: Side,
    what: String,
    /// Until it is reached.
    left: u32,
}

#[cfg(debug_assertions)]
impl Failpoint {
    fn from_environment() -> Option<Self> {
        const VARIABLE: &str = "FEDQ_ABORT_AT";
        let text = std::env::var_os(VARIABLE)?.into_string().ok()?;
        let failpoint = Self::parse(&text);
        if failpoint.is_none() {
            tracing::warn!("{VARIABLE} is not before|after:NAME OF A WRITE:COUNT, and has no effect");
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

    fn counts<'w>(&mut self, side: Side, mut writes: impl Iterator<Item = &'w str>) -> bool {
        if self.left == 0 || side != self.side || !writes.any(|write| write == self.what) {
            return false;
        }
        self.left -= 1;
        self.left == 0
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn it_is_reached_at_the_commit_that_was_named_and_at_no_other() {
        let mut failpoint = Failpoint::parse("after:record the task's move:2").expect("it is one");
        let mut counts = |side, writes: &[&str]| failpoint.counts(side, &mut writes.iter().copied());
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
