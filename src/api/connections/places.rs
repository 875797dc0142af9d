//! Places for connections: a cap on all, and one on each address, so that no single caller takes them all.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone)]
pub(super) struct Places {
    all: usize,
    of_address: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// Free again when it is dropped.
pub(super) struct Place {
    places: Places,
    address: IpAddr,
}

impl Places {
    pub(super) fn new(all: usize, of_address: usize) -> Self {
        Self { all, of_address, taken: Arc::default() }
    }

    pub(super) fn take(&self, address: IpAddr) -> Option<Place> {
        let mut taken = self.lock();
        if self.all <= taken.all || taken.of.get(&address).is_some_and(|of| self.of_address <= *of) {
            return None;
        }
        taken.all += 1;
        *taken.of.entry(address).or_default() += 1;
        Some(Place { places: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Numbers only, each changed at once.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(of) = taken.of.get_mut(&self.address) {
            *of = of.saturating_sub(1);
            if *of == 0 {
                taken.of.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_a_share_of_the_places_and_all_together_no_more_than_there_are() {
        const ALL: usize = 64;
        const OF_ADDRESS: usize = 16;
        let places = Places::new(ALL, OF_ADDRESS);
        let address = |last: usize| IpAddr::from([10, 0, 0, u8::try_from(last).expect("small")]);
        let mut taken: Vec<Place> = (0..OF_ADDRESS).filter_map(|_| places.take(address(1))).collect();
        assert_eq!(taken.len(), OF_ADDRESS);
        assert!(places.take(address(1)).is_none());
        taken.extend((2..200).filter_map(|last| places.take(address(last))));
        assert_eq!(taken.len(), ALL);
        assert!(places.take(address(250)).is_none());
        taken.clear();
        assert!(places.take(address(1)).is_some());
        assert!(places.lock().of.is_empty());
    }
}
