//! What the cases and their fedqd say to each other is held against the API's document.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

use crate::checked;

/// The cases that run, and the API of each one's fedqd.
static SERVERS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Where the case of that name reaches `server` so that what is said is checked.
pub fn before(case: &str, server: &str) -> String {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.push((case.to_owned(), server.to_owned()));
    checked::before(server)
}

/// An error with what was said in the case that the document does not have.
pub fn fits(case: &str) -> Result<()> {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_case = servers.extract_if(.., |(name, _)| name == case);
    let differences: Vec<String> = of_case.flat_map(|(_, server)| checked::take(&server)).collect();
    ensure!(differences.is_empty(), "the API's document does not have:\n{}", differences.join("\n"));
    Ok(())
}
