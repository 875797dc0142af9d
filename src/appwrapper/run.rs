//! Puts the parts together: webhooks in each replica, the controller in one.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use jiff::Timestamp;
use kube::{Api, Client};
use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    certificate::Certificate, client::client, config::OperatorConfig, controller, kinds::Kinds, lease,
    metrics::Metrics, review::Judge, serve, trust::Trust, upstream,
};

const LEASE: &str = "fedq-appwrapper";
/// Of the Lease, in seconds; renewed when half of it is over.
const LEASE_SECONDS: u64 = 15;
const RENEW_BEFORE_SECONDS: u64 = 8;
/// To the first byte of an answer; watches go on after it.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const LOOK_FOR_UPSTREAM_EVERY: Duration = Duration::from_mins(1);
const LEASE_ANSWER_WITHIN: Duration = Duration::from_secs(4);

pub async fn run(config: OperatorConfig, namespace: String, identity: String) -> anyhow::Result<()> {
    let client = client(ANSWER_WITHIN).await?;
    refuse_beside_upstream(&client).await?;
    let (metrics, manager) = (Metrics::default(), config.controller_manager.clone());
    let (tell_ready, ready) = watch::channel(false);
    let (mut parts, mut webhooks) = (JoinSet::new(), JoinSet::new());
    let stop = Handle::new();
    if manager.health.bind_address != "0" {
        let address = manager.health.bind_address.clone();
        parts.spawn(async move { serve::health(&address, ready).await });
    }
    let tls = if config.webhooks_enabled {
        let trust = Trust {
            client: client.clone(),
            namespace: namespace.clone(),
            config: config.cert_management.clone(),
            clock: now,
        };
        let tls = trust.establish().await;
        let kept = tls.clone();
        parts.spawn(async move {
            trust.keep(kept).await;
            Ok(())
        });
        let judge = Arc::new(Judge {
            client: client.clone(),
            kinds: Kinds::new(client.clone(), None),
            config: config.appwrapper.clone(),
        });
        let (address, served, stop) = (manager.webhook.bind_address.clone(), tls.clone(), stop.clone());
        webhooks.spawn(async move { serve::webhooks(&address, served, judge, stop).await });
        tls
    } else {
        RustlsConfig::from_config(Certificate::issue(&["localhost".to_owned()], now())?.server_config()?)
    };
    if manager.metrics.bind_address != "0" {
        let (address, shown) = (manager.metrics.bind_address.clone(), (client.clone(), metrics.clone()));
        parts.spawn(async move { serve::metrics(&address, tls, shown).await });
    }
    tell_ready.send_replace(true);
    let leads = manager.leader_election;
    let appwrapper = config.appwrapper;
    parts.spawn(async move {
        if leads {
            lead(client, &namespace, identity, controller_of(appwrapper, metrics)).await
        } else {
            controller::run(client, appwrapper, metrics).await;
            bail!("the controller ended")
        }
    });
    let why = tokio::select! {
        ended = parts.join_next() => ended.context("nothing was started").and_then(|ended| ended?),
        Some(ended) = webhooks.join_next() => return ended?,
        () = told_to_stop() => {
            tracing::info!("Told to stop");
            Ok(())
        }
    };
    // It leads no more, and renews no Lease. Webhooks are answered by every replica, also by one that may not lead.
    parts.shutdown().await;
    if !webhooks.is_empty() {
        serve::wind_down(&stop).await;
    }
    while let Some(ended) = webhooks.join_next().await {
        ended??;
    }
    why
}

fn controller_of(
    config: crate::config::AppWrapperConfig,
    metrics: Metrics,
) -> impl FnOnce(Client) -> futures::future::BoxFuture<'static, ()> {
    |client| Box::pin(controller::run(client, config, metrics))
}

/// Whoever loses the Lease ends, so that two never act at once. Kubernetes starts it anew.
async fn lead(
    client: Client,
    namespace: &str,
    identity: String,
    control: impl FnOnce(Client) -> futures::future::BoxFuture<'static, ()>,
) -> anyhow::Result<()> {
    // Several of its requests fit into the time of the Lease.
    let prompt = self::client(LEASE_ANSWER_WITHIN).await?;
    let manager = LeaseManagerBuilder::new(prompt.clone(), LEASE)
        .with_namespace(namespace)
        .with_identity(identity.clone())
        .with_duration(LEASE_SECONDS)
        .with_grace(RENEW_BEFORE_SECONDS)
        .with_field_manager(crate::FIELD_MANAGER)
        .with_create_mode(LeaseCreateMode::AutoCreate)
        .build()
        .await
        .with_context(|| {
            format!("cannot take part in the election of a leader by the Lease `{namespace}/{LEASE}`")
        })?;
    let (mut leads, _task) = manager.watch().await;
    leads.wait_for(|leads| *leads).await.context("the election of a leader ended")?;
    let leases = Api::namespaced(prompt, namespace);
    tokio::select! {
        () = lease::held(&leases, LEASE, &identity, Duration::from_secs(RENEW_BEFORE_SECONDS / 2), now) => {}
        lost = leads.wait_for(|leads| !*leads) => {
            lost.context("the election of a leader ended")?;
            bail!("another replica leads now")
        }
    }
    let lapse = lease::lapse(leases, LEASE, &identity, Duration::from_secs(LEASE_SECONDS), now);
    // Upstream's may have come while another led.
    refuse_beside_upstream(&client).await?;
    tracing::info!("Leads now");
    let watched = client.clone();
    tokio::select! {
        () = control(client) => bail!("the controller ended"),
        beside = refuse_from_now_on(&watched) => beside,
        lost = leads.wait_for(|leads| !*leads) => {
            lost.context("the election of a leader ended")?;
            bail!("another replica leads now")
        }
        () = lapse => bail!("the Lease `{namespace}/{LEASE}` could not be renewed in time: another replica may lead now"),
    }
}

/// It may be installed at any time.
async fn refuse_from_now_on(client: &Client) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(LOOK_FOR_UPSTREAM_EVERY).await;
        match upstream::find(client, now()).await {
            Ok(None) => {}
            Ok(Some(_)) => return refuse_beside_upstream(client).await,
            Err(error) => tracing::warn!("Cannot look for the upstream operator: {error}"),
        }
    }
}

async fn refuse_beside_upstream(client: &Client) -> anyhow::Result<()> {
    let found = upstream::find(client, now()).await.context("cannot look for the upstream operator")?;
    if let Some(found) = found {
        bail!(
            "the upstream AppWrapper operator is in this cluster ({found}): two controllers would delete each other's \
             work. Remove it first, or leave this cluster to it"
        );
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "handed to whoever needs the time")]
fn now() -> Timestamp {
    Timestamp::now()
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(_) => _ = tokio::signal::ctrl_c().await,
    }
}
