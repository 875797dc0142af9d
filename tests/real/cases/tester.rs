//! A tester of the field reads the API's document and tries what it describes, on real servers.

use anyhow::Result;

use super::task_stage::{Bed, LONG, SHORT, stage};
use crate::clients::tester_finds_nothing;
use crate::support::fleet::Fleet;

pub async fn a_tester_by_schemas_finds_nothing(fleet: &Fleet) -> Result<()> {
    let stage = stage(fleet, "a_tester_by_schemas_finds_nothing", "tester", "gang: indexed").await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    // One that is over and one that runs: what lists have, it asks for by name.
    let over = bed.submit((1, 1), SHORT)?;
    bed.reaches(&over, "succeeded").await?;
    let runs = bed.submit((2, 1), LONG)?;
    bed.reaches(&runs, "running").await?;
    // It checks the answers itself.
    tester_finds_nothing(&stage.unchecked, bed.person.token(), |command| {
        fleet.adopt(command);
    });
    Ok(())
}
