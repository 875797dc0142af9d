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

/// Answers that are forgotten after ten seconds.
pub struct Memory<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub fn get(&self, key: &K) -> Option<V> {
        // A panic while it was held cannot have left a half-made entry.
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(at, _)| at.elapsed() < REMEMBER).map(|(_, value)| value.clone())
    }

    pub fn put(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if MOST <= known.len() {
            known.retain(|_, (at, _)| at.elapsed() < REMEMBER);
        }
        if MOST <= known.len() {
            known.clear();
        }
        known.insert(key, (Instant::now(), value));
    }
}
