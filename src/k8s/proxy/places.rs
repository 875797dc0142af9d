//! How many requests are under way at a time, of all people and of one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::ProxyError;

/// How long somebody waits for a place.
const PATIENCE: Duration = Duration::from_secs(2);

/// Clones share the places.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

struct Inner {
    free: Arc<Semaphore>,
    of_one: usize,
    /// Of each person who has one or waits for one, and how many requests that is.
    own: Mutex<HashMap<String, (Arc<Semaphore>, usize)>>,
}

impl Places {
    /// `of_one`: how many of `all` one person may have.
    pub fn new(all: usize, of_one: usize) -> Self {
        Self(Arc::new(Inner { free: Arc::new(Semaphore::new(all)), of_one, own: Mutex::default() }))
    }

    pub async fn take(&self, user: &str) -> Result<Place, ProxyError> {
        let (asker, own) = self.asker(user);
        let both = async { (own.acquire_owned().await, Arc::clone(&self.0.free).acquire_owned().await) };
        match timeout(PATIENCE, both).await {
            Ok((Ok(own), Ok(free))) => Ok(Place { _held: [own, free], _asker: asker }),
            // Nobody closes them, so it is the time that is over.
            Ok(_) | Err(_) => Err(ProxyError::Busy),
        }
    }

    fn asker(&self, user: &str) -> (Asker, Arc<Semaphore>) {
        let mut all = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || (Arc::new(Semaphore::new(self.0.of_one)), 0);
        let (own, askers) = all.entry(user.to_owned()).or_insert_with(fresh);
        *askers += 1;
        (Asker { places: Arc::clone(&self.0), user: user.to_owned() }, Arc::clone(own))
    }
}

/// A place for one request, given back when dropped.
pub struct Place {
    _held: [OwnedSemaphorePermit; 2],
    _asker: Asker,
}

/// Somebody who has a place or waits for one.
struct Asker {
    places: Arc<Inner>,
    user: String,
}

impl Drop for Asker {
    fn drop(&mut self) {
        let mut all = self.places.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, askers)) = all.get_mut(&self.user) {
            *askers -= 1;
            if *askers == 0 {
                all.remove(&self.user);
            }
        }
    }
}
