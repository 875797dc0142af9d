//! Answers that are asked for again and again: who a token belongs to, what somebody may do. A right that is withdrawn is felt once
//! they are forgotten.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long an answer stands.
const REMEMBER: Duration = Duration::from_secs(10);
/// Whoever tries tokens by the million must not fill the memory.
const MOST: usize = 4096;

/// Answers that are forgotten after a while.
pub struct Memory<K, V> {
    lasts: Duration,
    known: Mutex<HashMap<K, (Instant, V)>>,
}

/// Ten seconds.
impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self::lasting(REMEMBER)
    }
}

impl<K, V> Memory<K, V> {
    pub fn lasting(lasts: Duration) -> Self {
        Self { lasts, known: Mutex::new(HashMap::new()) }
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub fn get(&self, key: &K) -> Option<V> {
        // A panic while it was held cannot have left a half-made entry.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(at, _)| at.elapsed() < self.lasts).map(|(_, value)| value.clone())
    }

    pub fn put(&self, key: K, value: V) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if MOST <= known.len() {
            known.retain(|_, (at, _)| at.elapsed() < self.lasts);
        }
        if MOST <= known.len() {
            known.clear();
        }
        known.insert(key, (Instant::now(), value));
    }
}
