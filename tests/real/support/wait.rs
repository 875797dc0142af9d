//! Waiting for a condition, with the last thing seen in the error.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What one look showed.
pub enum Seen<T> {
    Done(T),
    /// Not there yet; the text is shown if the deadline passes.
    Still(String),
}

impl Seen<()> {
    pub fn when(done: bool, otherwise: impl FnOnce() -> String) -> Self {
        if done { Self::Done(()) } else { Self::Still(otherwise()) }
    }
}

/// Between two looks: short against what is waited for (a reconcile takes tens of milliseconds), long enough that a
/// waiting case costs the two cores nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until it is done. An error of a look counts as "not yet": servers are stopped and started on purpose here.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let start = Instant::now();
    let mut last = String::from("nothing yet");
    loop {
        let left = limit.saturating_sub(start.elapsed());
        match tokio::time::timeout(left.max(LOOK_EVERY), look()).await {
            Ok(Ok(Seen::Done(value))) => return Ok(value),
            Ok(Ok(Seen::Still(text))) => last = text,
            Ok(Err(error)) => last = format!("error: {error:#}"),
            Err(_) => last = format!("no answer; before that: {last}"),
        }
        if limit <= start.elapsed() {
            bail!("waited {limit:?} in vain for: {what}\nlast seen: {last}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Holds the condition true for a while, to prove that something does not happen.
pub async fn throughout(
    what: &str,
    span: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<()>>,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < span {
        if let Seen::Still(text) = look().await? {
            bail!("did not hold for {span:?}: {what}\nseen after {:?}: {text}", start.elapsed());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
