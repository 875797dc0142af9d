//! What is asked of a cluster itself, now and then: which controllers work there.

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};

/// What a cluster said the last time. Clones share it.
pub(super) struct Asked<T>(Arc<Mutex<Known<T>>>);

struct Known<T> {
    /// `None`: nobody has answered yet.
    answer: Option<T>,
    ask_at: Option<Timestamp>,
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Known { answer: None, ask_at: None })))
    }
}

impl<T> Clone for Asked<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + PartialEq> Asked<T> {
    pub fn answer(&self) -> Option<T> {
        self.lock().answer.clone()
    }

    /// Whether the answer is on its way.
    pub fn is_asked(&self) -> bool {
        let known = self.lock();
        known.answer.is_none() && known.ask_at.is_some()
    }

    /// Whether it is time to ask; the next time is a period later.
    pub fn is_due(&self, now: Timestamp, period: SignedDuration) -> bool {
        let mut known = self.lock();
        let due = known.ask_at.is_none_or(|at| at <= now);
        if due {
            known.ask_at = now.checked_add(period).ok();
        }
        due
    }

    /// Something else is to be asked than before, and not only at the next period. What is said yet to the question before
    /// counts no more.
    pub fn ask_anew(&mut self) {
        let answer = self.answer();
        *self = Self(Arc::new(Mutex::new(Known { answer, ask_at: None })));
    }

    /// Whether the answer is another than before.
    pub fn put(&self, answer: T) -> bool {
        let mut known = self.lock();
        let differs = known.answer.as_ref() != Some(&answer);
        known.answer = Some(answer);
        differs
    }

    fn lock(&self) -> MutexGuard<'_, Known<T>> {
        self.0.lock().expect("no code panics while holding this lock")
    }
}
