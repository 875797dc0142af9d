//! Ours killed at every request of an AppWrapper's life, and its API server stopped at every one.

use anyhow::{Context, Result};

use super::appwrapper_life::{Blow, Fate, Lanes};
use crate::support::fleet::Fleet;

pub async fn killed_at_each_request_it_makes_each_component_once_and_holds_its_quota(
    fleet: &Fleet,
) -> Result<()> {
    let name = "killed_at_each_request_it_makes_each_component_once_and_holds_its_quota";
    let lanes = Lanes::open(fleet, name, "aw-kills").await?;
    lanes.struck_at_each(Blow::Kill, 5).await?;
    lanes.close().await
}

/// To ours alone, which to it is the same, so that Kueue and the nodes go on; at those requests on which most depends the API
/// server itself is killed.
pub async fn cut_off_at_each_request_it_makes_each_component_once_and_holds_its_quota(
    fleet: &Fleet,
) -> Result<()> {
    let name = "cut_off_at_each_request_it_makes_each_component_once_and_holds_its_quota";
    let lanes = Lanes::open(fleet, name, "aw-away").await?;
    let requests = lanes.struck_at_each(Blow::Away, 8).await?;
    let mut of_plain = requests.iter().filter(|(fate, _)| *fate == Fate::Nothing).map(|(_, request)| request);
    let last_status = of_plain.rfind(|request| request.contains(": status ")).context("a last status")?;
    let one = ["1 Resuming: create jobs".to_owned(), last_status.clone()];
    let other = ["1 Running: delete jobs", "1 Terminating: patch appwrappers"].map(str::to_owned);
    lanes.struck_at(Blow::Restart, [&one, &other]).await?;
    lanes.close().await
}
