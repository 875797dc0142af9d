//! Values that many nodes share, kept once with the number of nodes that have them.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

/// A pool of values. An id stays valid while something holds it.
#[derive(Debug)]
pub(super) struct Pool<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Ids by the hash of their value. Values of one hash are few, and compared.
    by_hash: HashMap<u64, Vec<u32>>,
    state: RandomState,
}

#[derive(Debug)]
struct Slot<T> {
    value: T,
    held: u32,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_hash: HashMap::new(), state: RandomState::new() }
    }
}

impl<T: Default + Eq + Hash> Pool<T> {
    /// Holds the value once more.
    pub(super) fn hold(&mut self, value: T) -> u32 {
        let hash = self.state.hash_one(&value);
        let ids = self.by_hash.entry(hash).or_default();
        if let Some(id) = ids.iter().copied().find(|id| self.slots[*id as usize].value == value) {
            self.slots[id as usize].held += 1;
            return id;
        }
        let slot = Slot { value, held: 1 };
        let id = if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("a cluster has fewer than 2^32 kinds of node")
        };
        ids.push(id);
        id
    }

    /// Drops the value when nothing holds it any more.
    pub(super) fn release(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.held -= 1;
        if slot.held == 0 {
            let hash = self.state.hash_one(&slot.value);
            slot.value = T::default();
            if let Some(ids) = self.by_hash.get_mut(&hash) {
                ids.retain(|found| *found != id);
                if ids.is_empty() {
                    self.by_hash.remove(&hash);
                }
            }
            self.free.push(id);
        }
    }

    pub(super) fn get(&self, id: u32) -> &T {
        &self.slots[id as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_id_until_released() {
        let mut pool = Pool::<String>::default();
        let a = pool.hold("a".into());
        assert_eq!(pool.hold("a".into()), a);
        let b = pool.hold("b".into());
        assert_ne!(a, b);
        pool.release(a);
        assert_eq!(pool.get(a), "a");
        pool.release(a);
        assert_eq!(pool.hold("c".into()), a, "the place is used again");
        assert_ne!(pool.hold("a".into()), a);
        assert_eq!(pool.get(b), "b");
    }
}
