//! The client for the cluster.

use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config, client::ClientBuilder};

/// `answer_within` is how long the first byte of an answer may take.
pub async fn client(answer_within: Duration) -> anyhow::Result<Client> {
    let mut config =
        Config::infer().await.context("cannot find the cluster: neither KUBECONFIG nor a service account")?;
    // Errors are tried again by whoever knows what for.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).context("cannot make a client for the cluster")?;
    let timeout = tower::timeout::TimeoutLayer::new(answer_within);
    Ok(builder.with_layer(&timeout).build())
}
