//! Placements decide which clusters MultiKueue uses.

use anyhow::{Context, Result, ensure};

use super::multikueue_stage::{
    check_says, checks, completes, config_is, decide, evictions, hub_queue, install_ocm, is_active, mk,
    runs_on, worker_queue,
};
use super::stage::{GPU, Stage, clear, finish, job};
use crate::support::cluster::id;
use crate::support::fleet::Fleet;

const LONG: &str = "10m";

pub async fn jobs_run_where_a_placement_decides_and_no_change_of_it_evicts_them(fleet: &Fleet) -> Result<()> {
    let case = "place";
    let name = "jobs_run_where_a_placement_decides_and_no_change_of_it_evicts_them";
    clear(fleet).await?;
    install_ocm(&fleet.hub).await?;
    let stage = Stage::start(fleet, name, case, super::stage::Setup::default()).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    for (cluster, worker) in [("place-one", one), ("place-two", two)] {
        worker_queue(worker, case, 8).await?;
        stage.join(cluster, worker).await?;
    }
    hub.apply(&checks(case, "gpu")).await?;
    check_says(hub, "placement-place", "False", "PlacementNotFound").await?;
    hub_queue(hub, case, 16).await?;
    decide(hub, "gpu", &["place-one"]).await?;
    config_is(hub, "gpu", &["gpu-place-one"]).await?;
    check_says(hub, "placement-place", "True", "Active").await?;
    is_active(hub, "MultiKueueCluster", "gpu-place-one").await?;
    is_active(hub, "ClusterQueue", case).await?;

    hub.apply_object("fedq-test", job(case, "first", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "first", "gpu-place-one").await.context("dispatched with both checks")?;

    decide(hub, "gpu", &["place-two"]).await?;
    config_is(hub, "gpu", &["gpu-place-two", "gpu-place-one"])
        .await
        .context("the one that drains is last")?;
    let says = check_says(hub, "placement-place", "True", "Active").await?;
    ensure!(says["message"].to_string().contains("draining: gpu-place-one"), "{says}");
    is_active(hub, "MultiKueueCluster", "gpu-place-two").await?;

    finish(one, case, "first").await?;
    completes(hub, case, "first").await?;
    ensure!(evictions(hub, case, "first").await? == 0, "it was evicted");
    config_is(hub, "gpu", &["gpu-place-two"]).await.context("removed when empty")?;
    hub.wait_gone(mk("MultiKueueCluster", "gpu-place-one"), super::stage::SOON).await?;
    let secret = id("v1", "Secret", "fedq-multikueue-place-one").within("kueue-system");
    hub.wait_gone(secret, super::stage::SOON).await?;
    Ok(())
}
