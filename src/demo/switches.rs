//! How clusters of a demo that stays up are switched off and on: by files in its folder, which any shell can
//! make and remove.

use std::{collections::BTreeSet, time::Duration};

use super::{DemoError, objects, screen::Screen, stage::Stage};

const PERIOD: Duration = Duration::from_millis(250);
const SUFFIX: &str = ".off";

/// The cluster that a file of this name switches off.
pub fn cluster(name: &str) -> Option<&'static str> {
    let cluster = name.strip_suffix(SUFFIX)?;
    objects::WORKERS.iter().map(|worker| worker.name).find(|known| *known == cluster)
}

/// Until the demo ends.
pub async fn obey(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    let mut off = BTreeSet::new();
    loop {
        for worker in &objects::WORKERS {
            let name = worker.name;
            let wanted = stage.folder().join(format!("{name}{SUFFIX}")).exists();
            if wanted == off.contains(name) {
                continue;
            }
            if wanted {
                stage.cluster(name).power_off().await;
                off.insert(name);
                screen.line(&format!("{name} is off."))?;
            } else {
                stage.power_on(name).await?;
                off.remove(name);
                screen.line(&format!("{name} is on."))?;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
