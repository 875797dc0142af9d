//! Joined clusters and the hub as kueue's commands ask them: through fedqd, with what says where it is and who we are.

use std::{cell::OnceCell, collections::BTreeMap, io, sync::Arc, time::Duration};

use axum::body::Body;
use fedq_kueuectl::{Client, Fleet, Later, Place, Tell};
use http::Request;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    args::Connection,
    client::{Api, escape},
    complete::in_time,
    error::CliError,
    settings::{self, Settings},
};
use fedq_wire::cluster::Cluster;

/// Clusters that fedqd reports and has no connection to.
const UNREACHED: [&str; 2] = ["clusterMetrics", "managedCluster"];

/// More names than that are not written into an address: all clusters are asked for, and the others' lines are passed over.
const NAMED: usize = 50;
/// fedqd waits two seconds for the slowest cluster, and whoever it says nothing of is asked after that.
const FOLLOWED: Duration = Duration::from_secs(4);

/// What fedqd follows of a cluster.
#[derive(Deserialize)]
struct Followed {
    cluster: String,
    items: Vec<Value>,
}

pub struct Daemon {
    connection: Connection,
    /// Whether somebody waits at a prompt, also for the command that prints a token.
    at_prompt: bool,
    reached: OnceCell<(Settings, Arc<Api>)>,
}

impl Daemon {
    pub fn new(connection: Connection, at_prompt: bool) -> Self {
        Self { connection, at_prompt, reached: OnceCell::new() }
    }

    fn reached(&self) -> Result<&(Settings, Arc<Api>), String> {
        if self.reached.get().is_none() {
            let reach = || {
                let settings = self.settings()?;
                let api = Api::new(&settings).map_err(|error| told(&error))?;
                Ok::<_, String>((settings, Arc::new(api)))
            };
            // It was empty just now, and nobody else fills it.
            let _ = self.reached.set(reach()?);
        }
        Ok(self.reached.get().expect("it was filled above"))
    }

    fn settings(&self) -> Result<Settings, String> {
        let connection = self.connection.clone();
        let resolve = move || settings::resolve(&connection).map_err(|error| told(&error));
        if !self.at_prompt {
            return resolve();
        }
        in_time(resolve).unwrap_or_else(|| Err("nothing says in time how fedqd is reached".to_owned()))
    }
}

impl Fleet for Daemon {
    fn names(&self) -> Later<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            let (_, api) = self.reached()?;
            let clusters: Vec<Cluster> = api.list("/clusters").await.map_err(|error| told(&error))?;
            let reached =
                clusters.into_iter().filter(|cluster| !UNREACHED.contains(&cluster.source.as_str()));
            Ok(reached.map(|cluster| cluster.name).collect())
        })
    }

    fn connect(&self, place: &Place) -> Result<(Client, String), String> {
        let (settings, api) = self.reached()?;
        let root = root(place);
        let server = format!("{}{root}", settings.server.trim_end_matches('/'));
        let api = Arc::clone(api);
        let service = tower::service_fn(move |request: Request<fedq_kueuectl::Body>| {
            let (api, root) = (Arc::clone(&api), root.clone());
            async move {
                let (mut parts, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
                parts.uri = format!("{root}{path}").parse().map_err(io::Error::other)?;
                let answer = api.forward(Request::from_parts(parts, Body::from(body))).await;
                answer.map_err(|error| io::Error::other(told(&error)))
            }
        });
        Ok((Client::new(service, "default"), server))
    }

    fn followed<'a>(
        &'a self,
        clusters: &'a [&'a str],
        path: &'a str,
        tell: &'a mut Tell<'a>,
    ) -> Later<'a, ()> {
        Box::pin(async move {
            let Ok((_, api)) = self.reached() else { return };
            let names = match clusters.len() {
                0 => return,
                1..=NAMED => format!("?clusters={}", escape(&clusters.join(","))),
                _ => String::new(),
            };
            let address = format!("/followed{path}{names}");
            let told = api.lines(&address, |line: Followed| {
                if clusters.binary_search(&line.cluster.as_str()).is_ok() {
                    tell(&line.cluster, line.items);
                }
                Ok(())
            });
            // Whatever is wrong with fedqd or its answer, the clusters that are not told of are asked through it one by one, and
            // that fails with its reason.
            let _ = timeout(FOLLOWED, told).await;
        })
    }

    fn kubeconfig(&self, place: &Place) -> Result<String, String> {
        let (settings, _) = self.reached()?;
        // kubectl says nothing of it: it asks without the token, and is told to log in.
        if settings.token.is_some() && settings.server.starts_with("http://") {
            return Err(format!(
                "kubectl, which answers this command, sends no token to {}: it is not served over TLS\nserve the API over TLS \
                 (api.tls in fedqd's configuration) and log in to its https address, or name the cluster's own kubeconfig with \
                 --context",
                settings.server
            ));
        }
        let server = format!("{}{}", settings.server.trim_end_matches('/'), root(place));
        let mut cluster = BTreeMap::from([("server", json!(server))]);
        if let Some(ca) = &settings.ca {
            cluster
                .insert("certificate-authority-data", json!(k8s_openapi::ByteString(ca.as_bytes().to_vec())));
        }
        let user = settings.token.as_ref().map_or(json!({}), |token| json!({"token": token}));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fedqd",
            "contexts": [{"name": "fedqd", "context": {"cluster": "fedqd", "user": "fedqd"}}],
            "clusters": [{"name": "fedqd", "cluster": cluster}],
            "users": [{"name": "fedqd", "user": user}],
        });
        Ok(kubeconfig.to_string())
    }
}

/// Where fedqd has the place's API server.
fn root(place: &Place) -> String {
    match place {
        Place::Hub => "/api/v1/hub/proxy".to_owned(),
        Place::Cluster(name) => format!("/api/v1/clusters/{}/proxy", escape(name)),
    }
}

fn told(error: &CliError) -> String {
    match error.next() {
        Some(next) => format!("{error}\n{next}"),
        None => error.to_string(),
    }
}
