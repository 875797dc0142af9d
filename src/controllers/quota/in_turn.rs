//! Going through all clusters at once, and through a few at a time.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::Bound,
    time::Duration,
};

use tokio::time::Instant;

/// A map that is asked for one key after the other, in order: each is found where the last one was, not anew.
pub(super) struct InOrder<'a, K, V>(Peekable<btree_map::Iter<'a, K, V>>);

impl<'a, K: Ord, V> InOrder<'a, K, V> {
    pub fn of(map: &'a BTreeMap<K, V>) -> Self {
        Self(map.iter().peekable())
    }

    /// Asked for an earlier key than before, it has nothing.
    pub fn get(&mut self, key: &K) -> Option<&'a V> {
        while let Some((next, value)) = self.0.peek() {
            match (*next).cmp(key) {
                Ordering::Less => _ = self.0.next(),
                Ordering::Equal => return Some(value),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// Looks at everything once in a period, a part at a time: all at once would hold up what comes in between.
pub(super) struct Turns<K> {
    period: Duration,
    last: Option<K>,
    pub due: Instant,
}

/// A period has so many.
const PARTS: u32 = 15;

impl<K: Clone + Ord> Turns<K> {
    pub fn new(period: Duration) -> Self {
        Self { period, last: None, due: Instant::now() + period / PARTS }
    }

    /// Those whose turn it is, if it is time.
    pub fn next<V>(&mut self, all: &BTreeMap<K, V>, now: Instant) -> Vec<K> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + self.period / PARTS;
        let count = all.len().div_ceil(PARTS as usize);
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = all.range((after, Bound::Unbounded));
        let keys: Vec<K> = rest.chain(all).take(count).map(|(key, _)| key.clone()).collect();
        self.last = keys.last().cloned();
        keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_in_order_are_found_as_in_the_map() {
        let mut draw = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let map: BTreeMap<u8, u8> = (0..draw.u8(..20)).map(|_| (draw.u8(..30), draw.u8(..))).collect();
            let mut in_order = InOrder::of(&map);
            for key in (0..30).filter(|_| draw.bool()) {
                assert_eq!(in_order.get(&key), map.get(&key));
                assert_eq!(in_order.get(&key), map.get(&key), "asked again");
            }
        }
    }

    #[test]
    fn each_has_its_turn_within_a_period() {
        let period = Duration::from_secs(15);
        for count in [0, 1, 7, 15, 16, 100, 1_000] {
            let all: BTreeMap<u32, u32> = (0..count).map(|key| (key, key)).collect();
            let (mut turns, mut seen) = (Turns::new(period), BTreeSet::new());
            let start = turns.due;
            assert_eq!(turns.next(&all, start - Duration::from_millis(1)), [0; 0]);
            for second in 0..15 {
                let part = turns.next(&all, start + Duration::from_secs(second));
                assert!(part.len() <= all.len().div_ceil(15), "{part:?}");
                seen.extend(part);
            }
            assert_eq!(seen.len(), all.len());
        }
    }

    #[test]
    fn who_comes_and_goes_meanwhile_takes_nobodys_turn() {
        let mut all: BTreeMap<u32, u32> = (0..30).map(|key| (key, key)).collect();
        let mut turns = Turns::new(Duration::from_secs(15));
        let mut now = turns.due;
        let mut seen = Vec::new();
        for step in 0..15 {
            seen.extend(turns.next(&all, now));
            now = turns.due;
            all.remove(&(step * 2));
            all.insert(100 + step, step);
        }
        for key in all.keys().filter(|key| **key < 30) {
            assert!(seen.contains(key), "{key} of {seen:?}");
        }
    }
}
