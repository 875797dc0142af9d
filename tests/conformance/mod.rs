//! What fedq and kubectl rely on of a Kubernetes API server with Kueue, as requests and expected answers. The same
//! themes run against real servers and against the simulated ones; whatever differs from what is written here fails.
//!
//! A tier includes this folder as a module, describes its server in a [`Server`] and runs every theme of [`with_themes`].
//! The server must serve Kueue's kinds with its webhooks and the kind ClusterResourceClaim. Themes keep to objects of
//! their own, so they may run at the same time.

#![allow(clippy::similar_names, reason = "a patch goes to a path, and a stale object is on the stage")]
#![allow(clippy::needless_pass_by_value, reason = "bodies and expectations are made where they are used")]

pub mod client;
pub mod expect;
pub mod stage;
pub mod subject;

pub mod apply;
pub mod creation;
pub mod deletion;
pub mod discovery;
pub mod encodings;
pub mod identity;
pub mod jobs;
pub mod kueue;
pub mod lists;
pub mod patches;
pub mod propagation;
pub mod selectors;
pub mod status;
pub mod tokens;
pub mod updates;
pub mod versions;
pub mod watches;
pub mod webhooks;

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;
use serde_json::Value;

use client::Credential;
use stage::Stage;
use subject::{Nodes, Subject};

/// The server under test, and who may ask it what.
pub struct Server {
    /// For the messages of failures: `real` or `simulated`.
    pub flavour: &'static str,
    /// `https://127.0.0.1:6443`.
    pub base: String,
    pub ca_pem: String,
    /// In the group system:masters.
    pub admin: Credential,
    /// Authenticated as [`NOBODY`], without any right.
    pub nobody: Credential,
    /// A certificate that the server's authority signed, and whose time is over.
    pub expired: Credential,
    /// A bearer token and the name of its user.
    pub token: (String, String),
    pub kubelet: Kubelet,
    /// Makes the server forget versions of the past, as it would by itself after some minutes. It may take a while
    /// to have effect.
    pub forget: Box<dyn Fn() -> Forgetting>,
    /// Of a server that is there for its nodes alone: some themes have nodes then where they have Secrets else.
    pub nodes: Option<Nodes>,
}

/// Whatever plays kubelet in the server's cluster.
pub struct Kubelet {
    /// Conditions that a new node must come with; none where it is made ready by itself.
    pub conditions: Option<Value>,
    /// Annotations that end a pod after so many seconds.
    pub pods_end_after: fn(u32) -> Value,
}

/// Polled by the thread of its theme, so it need not be `Send`.
pub type Forgetting = Pin<Box<dyn Future<Output = Result<()>>>>;

pub const NOBODY: &str = "conformance-nobody";

/// Hands the names of all themes to a macro of the tier, which makes cases of them.
macro_rules! with_themes {
    ($cases:ident) => {
        $cases! {
            discovery, lists, versions, selectors, watches, creation, updates, patches, apply, status,
            deletion, propagation, identity, tokens, encodings, webhooks, kueue, jobs
        }
    };
}
pub(crate) use with_themes;

/// Runs one theme by its name.
pub async fn run(server: &Server, theme: &str) -> Result<()> {
    let stage = Stage::open(server, theme).await?;
    macro_rules! choose {
        ($($name:ident),*) => {
            match theme {
                $(stringify!($name) => $name::run(&stage).await,)*
                _ => Err(anyhow::anyhow!("no theme is called {theme}")),
            }
        };
    }
    let ended = with_themes!(choose);
    stage.close(ended).await
}

/// Runs what nodes are held to on a server that is there for its nodes alone, one theme after the other.
pub async fn run_on_nodes(server: &Server) -> Result<()> {
    let mut differences = Vec::new();
    macro_rules! on_nodes {
        ($($name:ident),*) => {
            $(
                let stage = Stage::open(server, stringify!($name)).await?;
                let subject = Subject::of(&stage);
                subject.clear().await;
                let ended = Box::pin($name::of(&stage, &subject)).await;
                if let Err(error) = stage.close(ended).await {
                    differences.push(format!("{}: {error:#}", stringify!($name)));
                }
            )*
        };
    }
    // Lists come first, which nobody has written to yet.
    on_nodes!(encodings, lists, versions, selectors, watches, updates, patches, status, deletion);
    anyhow::ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}
