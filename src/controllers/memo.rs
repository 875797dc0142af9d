//! Values that are remade only when what they are made from is another.
//!
//! A controller looks at everything in each round, and nearly all of it is as it was. What takes time to make is kept with
//! what it was made from: the count of changes of a table ([`Table::revision`]), the identity of something published
//! ([`Identity`]), or a small value itself. While these compare equal, the value stands.
//!
//! That holds only if the sources are all that the value rests on. So debug builds make the value anew each time that
//! it is found to stand, and compare: every test that runs a controller checks every memo of it.
//!
//! [`Table::revision`]: fedq_k8s::list_watch::Table::revision

use std::{
    any::type_name,
    fmt::{self, Debug},
    ops::Deref,
    sync::Arc,
};

/// A value and what it was made from. `N`: the time it was made at, where that is in the value.
pub struct Memo<S, T, N = ()>(Option<Made<S, T, N>>);

struct Made<S, T, N> {
    sources: S,
    at: N,
    value: T,
    /// Whatever its sources are by then.
    is_due: bool,
}

impl<S, T, N> Default for Memo<S, T, N> {
    fn default() -> Self {
        Self(None)
    }
}

impl<S, T, N> Memo<S, T, N> {
    /// Has it remade at the next look: because it is due by time, or its turn to be looked at whatever is known.
    pub fn expire(&mut self) {
        if let Some(made) = &mut self.0 {
            made.is_due = true;
        }
    }

    /// As it was made last.
    pub fn value(&self) -> Option<&T> {
        self.0.as_ref().map(|made| &made.value)
    }
}

impl<S: PartialEq, T: Debug + PartialEq> Memo<S, T> {
    /// The value, remade if its sources are others. One that comes out the same stays the same, so that what is made
    /// from its identity stands too.
    pub fn get(&mut self, sources: impl Fn() -> S, make: impl Fn(&S) -> T) -> &T {
        self.refresh(sources, make);
        self.value().expect("it was just made")
    }

    /// Whether it was remade.
    pub fn refresh(&mut self, sources: impl Fn() -> S, make: impl Fn(&S) -> T) -> bool {
        self.refresh_at((), sources, |sources, ()| make(sources))
    }
}

impl<S: PartialEq, T: Debug + PartialEq, N: Copy> Memo<S, T, N> {
    /// As [`Memo::refresh`], of a value that has the time in it.
    pub fn refresh_at(&mut self, now: N, sources: impl Fn() -> S, make: impl Fn(&S, N) -> T) -> bool {
        // Before the value is made: what changes in between makes it be remade next time.
        let found = sources();
        if let Some(made) = self.0.as_ref().filter(|made| !made.is_due && made.sources == found) {
            verify(&made.value, || make(&found, made.at), || sources() == found);
            return false;
        }
        let value = make(&found, now);
        let value = match self.0.take() {
            Some(made) if made.value == value => made.value,
            _ => value,
        };
        self.0 = Some(Made { sources: found, at: now, value, is_due: false });
        true
    }
}

/// In debug builds: whether what is taken to stand is what would be made now. `stands` tells whether it is still taken to,
/// since tables change while they are read.
///
/// For what is kept in another way than as a [`Memo`].
#[track_caller]
pub fn verify<T: Debug + PartialEq>(known: &T, make: impl FnOnce() -> T, stands: impl FnOnce() -> bool) {
    if !cfg!(debug_assertions) {
        return;
    }
    let afresh = make();
    assert!(
        afresh == *known || !stands(),
        "a {} was taken to stand, and what it is made from has changed unseen\nkept: {known:?}\nanew: {afresh:?}",
        type_name::<T>(),
    );
}

/// Something published, told apart by identity: whoever publishes something else makes another one.
pub struct Identity<T: ?Sized>(pub Arc<T>);

impl<T: ?Sized> Identity<T> {
    pub fn of(one: &Arc<T>) -> Self {
        Self(Arc::clone(one))
    }

    pub fn of_some(one: Option<&Arc<T>>) -> Option<Self> {
        one.map(Self::of)
    }
}

impl<T: ?Sized> PartialEq for Identity<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: ?Sized> Deref for Identity<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Identity<T> {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl<T: ?Sized> Debug for Identity<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:p}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_is_remade_when_a_source_is_another_and_when_it_is_due() {
        let (source, made) = (Cell::new(1), Cell::new(0));
        let mut memo = Memo::default();
        let mut is_remade = |is_due: bool| {
            if is_due {
                memo.expire();
            }
            memo.refresh(
                || source.get(),
                |source| {
                    made.set(made.get() + 1);
                    source * 10
                },
            )
        };
        assert!(is_remade(false));
        assert!(!is_remade(false));
        source.set(2);
        assert!(is_remade(false));
        assert!(is_remade(true));
        assert_eq!(memo.value(), Some(&20));
    }

    #[test]
    fn a_value_that_comes_out_the_same_stays_the_same() {
        let mut memo = Memo::default();
        let first = Arc::clone(memo.get(|| 1, |_| Arc::new("x".to_owned())));
        assert!(Arc::ptr_eq(&first, memo.get(|| 2, |_| Arc::new("x".to_owned()))));
        assert!(!Arc::ptr_eq(&first, memo.get(|| 3, |_| Arc::new("y".to_owned()))));
    }

    #[test]
    fn a_value_with_the_time_in_it_is_compared_with_one_of_that_time() {
        let mut memo: Memo<u32, String, u32> = Memo::default();
        assert!(memo.refresh_at(5, || 1, |source, at| format!("{source} at {at}")));
        assert!(!memo.refresh_at(6, || 1, |source, at| format!("{source} at {at}")));
        assert_eq!(memo.value().map(String::as_str), Some("1 at 5"));
    }

    #[test]
    #[should_panic(expected = "has changed unseen")]
    fn a_source_that_is_not_among_its_sources_is_found() {
        let mut memo = Memo::default();
        let hidden = Cell::new(1);
        memo.refresh(|| (), |()| hidden.get());
        hidden.set(2);
        memo.refresh(|| (), |()| hidden.get());
    }

    #[test]
    fn what_changes_while_it_is_compared_is_not_held_against_it() {
        let (mut memo, source) = (Memo::default(), Cell::new(1));
        assert!(memo.refresh(|| source.get(), |_| source.get()));
        // Another thread writes between the look at the sources and the reading.
        let read = |_: &u32| {
            source.set(source.get() + 1);
            source.get()
        };
        assert!(!memo.refresh(|| source.get(), read));
    }
}
