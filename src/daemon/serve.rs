//! What `fedqd` listens on: metrics and probes, the REST API, the admission webhook.

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State as Extract,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use axum_server::tls_rustls::RustlsConfig;
use flate2::{Compression, write::GzEncoder};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Daemon, FIRST_RETRY, host};
use crate::config::Listen;
use fedq_api::{
    Authenticator, Callers, Diagnose, TokenFile, UnprovenNames, UploadBounds,
    connections::{self, Bounds},
    webhook::{Webhook, review::Judge},
};
use fedq_base::{
    certificate::{service_names, url_names},
    clock::Clock,
    telemetry::{Format, Metrics},
};
use fedq_controllers::{
    driver::Driver,
    webhook::{Registration, Settings, WebhookController},
};
use fedq_domain::{
    check::Finding,
    overview::{FlavorOverview, Overview},
};
use fedq_k8s::{
    check::{self, Role, Subject},
    client::ClusterClient,
    hub::Hub,
    session::Sessions,
    worker::JoinedClusters,
};
use fedq_values::ids::ClusterName;

/// The file of tokens is read again this often: whose token is taken out of it is out soon.
const REREAD: Duration = Duration::from_secs(10);
/// Certificates given as files are read again this often.
const RELOAD: Duration = Duration::from_mins(1);
/// Probes and scrapers are few. Clients that keep idle connections for longer than that open new ones.
const METRICS_BOUNDS: Bounds =
    Bounds { all: 64, of_address: 16, patience: Duration::from_secs(30), streams: 200 };
const WHOAMI_TRIES: u32 = 5;
/// The Service in `deploy/hub/service.yaml` that people reach the API by.
const API_SERVICE: &str = "fedqd";

impl Daemon {
    pub(super) async fn serve_metrics(&mut self, ready: watch::Receiver<bool>) -> anyhow::Result<()> {
        let router = Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(readyz))
            .with_state(ready)
            .merge(Router::new().route("/metrics", get(exposition)).with_state(self.metrics.clone()));
        let listener = listen(self.config.metrics.address, "metrics.address").await?;
        info!("Metrics are on http://{}/metrics", listener.local_addr()?);
        let served =
            connections::serve(listener.into_std()?, None, router, METRICS_BOUNDS, self.cancel.clone());
        self.tasks.spawn(async move { served.await.context("the listener of metrics failed") });
        Ok(())
    }

    /// The REST API and the webhook, which share a certificate where the API has none of its own.
    pub(super) async fn serve_people(&mut self, hub: &Hub) -> anyhow::Result<()> {
        let own = self.own_certificate(hub).await?;
        self.serve_webhook(hub, own.as_ref()).await?;
        self.serve_api(hub, own).await
    }

    /// The certificate fedqd makes itself, if anything is served with it.
    async fn own_certificate(&mut self, hub: &Hub) -> anyhow::Result<Option<RustlsConfig>> {
        let (api, webhook) = (&self.config.api, &self.config.webhook);
        let for_webhook = matches!(webhook.address, Listen::At(_)) && webhook.cert_file.is_none();
        if !for_webhook && !api.tls.self_signed {
            return Ok(None);
        }
        let namespace = webhook.service.namespace.as_deref().unwrap_or(&self.config.namespace);
        let mut names = match &webhook.url {
            Some(url) => url_names(url).context("webhook.url")?,
            None => service_names(&webhook.service.name, namespace),
        };
        if api.tls.self_signed {
            names.extend(api_names(api.address, &self.config.namespace));
        }
        names.sort();
        names.dedup();
        let registration = for_webhook.then(|| match &webhook.url {
            Some(url) => Registration::url(url),
            None => Registration::Manifests,
        });
        let settings = Settings {
            namespace: self.config.namespace.clone(),
            names,
            registration,
            serves_people: api.tls.self_signed,
            deadline: self.config.clusters.request_timeout,
        };
        let controller = WebhookController::new(hub.client.kube(), self.clock.clone(), settings).await?;
        let tls = controller.tls();
        let driver = Driver { signal: Arc::new(Notify::new()), metrics: self.metrics.clone() };
        self.tasks.spawn(driver.run(controller, self.cancel.clone()));
        Ok(Some(tls))
    }

    async fn serve_webhook(&mut self, hub: &Hub, own: Option<&RustlsConfig>) -> anyhow::Result<()> {
        let Listen::At(address) = self.config.webhook.address else { return Ok(()) };
        let files = (self.config.webhook.cert_file.clone(), self.config.webhook.key_file.clone());
        let tls = match (files, own) {
            ((Some(certificate), Some(key)), _) => self.load_files(&certificate, &key).await?,
            (_, Some(own)) => own.clone(),
            _ => anyhow::bail!("webhook: neither certFile and keyFile nor a certificate of its own"),
        };
        let daemon = self.own_name(hub).await;
        let judge = Arc::new(Judge { aliases: self.config.aliases(), daemon });
        let webhook = Webhook::new(judge, self.published.overview.subscribe());
        let listener = match self.host.webhook.take() {
            Some(listener) => listener,
            None => listen(address, "webhook.address").await?.into_std()?,
        };
        let cancel = self.cancel.clone();
        info!("The webhook listens on {address}");
        self.tasks
            .spawn(async move { webhook.serve(listener, tls, cancel).await.context("the webhook failed") });
        Ok(())
    }

    /// Who the hub takes fedqd for.
    async fn own_name(&self, hub: &Hub) -> Option<String> {
        let mut tries = 0;
        loop {
            let error = match hub.client.whoami(self.config.clusters.request_timeout).await {
                Ok(name) => return Some(name),
                Err(error) => error,
            };
            tries += 1;
            if WHOAMI_TRIES <= tries || !error.is_transient() {
                warn!(
                    "The hub does not say who fedqd is, so the webhook checks fedqd's writes of claims like \
                     anybody's until the next start: {error}"
                );
                return None;
            }
            tokio::time::sleep(FIRST_RETRY).await;
        }
    }

    async fn serve_api(&mut self, hub: &Hub, own: Option<RustlsConfig>) -> anyhow::Result<()> {
        // A connection of its own: callers, even unknown ones, take no slots from the controllers.
        let sessions = Sessions::new(Arc::new(self.hub_client()?), &self.config.namespace);
        let config = &self.config.api;
        let authenticator = match &config.token_file {
            Some(path) => {
                let tokens = TokenFile::read(path).context("api.tokenFile")?;
                self.tasks.spawn(reread(tokens.clone(), path.clone(), self.cancel.clone()));
                Authenticator::token_file(tokens)
            }
            None => Authenticator::token_review(&config.audience),
        };
        let diagnosis = Diagnosis {
            hub: hub.clone(),
            joined: self.published.joined.subscribe(),
            overview: self.published.overview.subscribe(),
            clock: self.clock.clone(),
            deadline: self.config.clusters.request_timeout,
        };
        let state = fedq_api::State::new(fedq_api::Parts {
            overview: self.published.overview.subscribe(),
            store: self.store.clone(),
            hub: sessions,
            authenticator,
            aliases: self.config.aliases(),
            kubeconfig_rules: self.rules(),
            diagnose: Arc::new(diagnosis),
            joined: self.published.joined.subscribe(),
            forwarded: fedq_k8s::proxy::everywhere(),
            task_views: self.published.task_views.subscribe(),
            volume_views: self.published.volume_views.subscribe(),
            placements: self.published.placements.subscribe(),
            task_signal: self.published.task_signal.clone(),
            tenants: self.config.tenants(),
            kept_logs: self.kept_logs.as_ref().map(|logs| logs.kept.clone()),
            max_live: self.config.max_live()?,
            uploads: self.upload_bounds()?,
            unwrap_jobs: self.config.tasks.unwrap_jobs,
            unproven_names: self.unproven_names(),
            callers: Callers::default(),
            clock: self.clock.clone(),
            page: config.page,
        });
        let router = fedq_api::router(state);
        let listener = listen(config.address, "api.address").await?;
        let tls = match (&config.tls.cert_file, &config.tls.key_file) {
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (certificate.clone(), key.clone());
                Some(self.load_files(&certificate, &key).await?)
            }
            _ => own.filter(|_| self.config.api.tls.self_signed),
        };
        let cancel = self.cancel.clone();
        let address = listener.local_addr()?;
        info!(tls = tls.is_some(), "The API listens on {address}");
        self.host.api.send_replace(Some(address));
        let bounds = api_bounds(host::descriptors());
        let served = connections::serve(listener.into_std()?, tls, router, bounds, cancel);
        self.tasks.spawn(async move { served.await.context("the API's listener failed") });
        Ok(())
    }

    fn upload_bounds(&self) -> anyhow::Result<UploadBounds> {
        let (one_task, one_person) = self.config.upload_sizes()?;
        Ok(UploadBounds { one_task, one_person })
    }

    /// Tells whoever reads the log or watches the metrics as well.
    fn unproven_names(&self) -> UnprovenNames {
        let config = &self.config.api;
        self.metrics.insecure("insecureXUser", config.insecure_x_user);
        self.metrics.insecure("insecureAdmin", config.insecure_admin);
        if !config.insecure_x_user {
            return UnprovenNames::Refused;
        }
        warn!("api.insecureXUser: whoever reaches {} is whoever they say in X-User", config.address);
        if !config.insecure_admin {
            return UnprovenNames::Own;
        }
        warn!("api.insecureAdmin: whoever names an administrator there is one");
        UnprovenNames::All
    }

    /// A certificate that somebody else keeps on disk; what they renew is taken over.
    async fn load_files(&mut self, certificate: &Path, key: &Path) -> anyhow::Result<RustlsConfig> {
        let named = || format!("cannot use the certificate {}", certificate.display());
        let tls = RustlsConfig::from_pem_file(certificate, key).await.with_context(named)?;
        let (reloaded, cancel) = (tls.clone(), self.cancel.clone());
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return Ok(()),
                    () = tokio::time::sleep(RELOAD) => {}
                }
                if let Err(error) = reloaded.reload_from_pem_file(&certificate, &key).await {
                    warn!("The certificate {} stays as it was: {error}", certificate.display());
                }
            }
        });
        Ok(tls)
    }
}

/// What people may call the API by.
fn api_names(address: SocketAddr, namespace: &str) -> Vec<String> {
    let mut names = service_names(API_SERVICE, namespace);
    names.push("localhost".to_owned());
    // Nobody dials 0.0.0.0.
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    names
}

/// `fedq check` for the API.
struct Diagnosis {
    hub: Hub,
    joined: watch::Receiver<Arc<JoinedClusters>>,
    overview: watch::Receiver<Arc<Overview>>,
    clock: Clock,
    deadline: Duration,
}

impl Diagnose for Diagnosis {
    fn diagnose<'a>(&'a self, cluster: Option<&'a ClusterName>) -> BoxFuture<'a, Vec<Finding>> {
        async move {
            let mut found = match cluster {
                None => self.look(&self.hub.client, Role::Hub).await,
                Some(name) => self.look_at_worker(name).await,
            };
            found.extend(fedq_domain::check::conflicts(&self.overview.borrow(), cluster));
            found
        }
        .boxed()
    }
}

impl Diagnosis {
    async fn look(&self, client: &ClusterClient, role: Role<'_>) -> Vec<Finding> {
        let (now, deadline) = (self.clock.now(), self.deadline);
        let client = match client.for_checks() {
            Ok(client) => client,
            Err(error) => return vec![check::undialled(&error)],
        };
        let subject = Subject { client: &client, role, namespace: &self.hub.namespace, now, deadline };
        check::look(&subject).await
    }

    async fn look_at_worker(&self, name: &ClusterName) -> Vec<Finding> {
        let joined = self.joined.borrow().get(name).cloned();
        let Some(joined) = joined else { return Vec::new() };
        let link = check::link(name, &joined.connection);
        let Some(worker) = joined.worker.as_ref().filter(|_| link.is_none()) else {
            return link.into_iter().collect();
        };
        let overview = self.overview.borrow().clone();
        let flavors = overview.clusters.get(name).into_iter().flat_map(|cluster| &cluster.flavors);
        let empty = |flavor: &FlavorOverview| {
            flavor.coming.is_empty() && flavor.capacity.values().all(|amount| amount.is_zero())
        };
        let without_nodes =
            flavors.filter(|(_, flavor)| empty(flavor)).map(|(name, _)| name.clone()).collect();
        let hub = match self.hub.client.for_checks() {
            Ok(hub) => hub,
            Err(error) => return vec![check::undialled(&error)],
        };
        self.look(&worker.client, Role::Worker { hub: &hub, without_nodes }).await
    }
}

/// Takes over what somebody changes in the file of tokens.
async fn reread(tokens: TokenFile, path: PathBuf, cancel: CancellationToken) -> anyhow::Result<()> {
    let mut told = false;
    while cancel.run_until_cancelled(tokio::time::sleep(REREAD)).await.is_some() {
        match tokens.reread(&path) {
            Ok(()) => told = false,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!("Tokens stay as they were: {error}");
                }
            }
        }
    }
    Ok(())
}

async fn listen(address: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{key}: cannot listen on {address}"))
}

/// What callers of the API may take. A quarter of what the process may open is theirs, and the rest is kept back: for the
/// clusters, each of which takes from one connection to some dozens while logs are read, and for the database.
fn api_bounds(descriptors: usize) -> Bounds {
    let all = (descriptors / 4).clamp(16, 4096);
    Bounds { all, of_address: all / 2, ..METRICS_BOUNDS }
}

async fn readyz(Extract(ready): Extract<watch::Receiver<bool>>) -> (StatusCode, &'static str) {
    if *ready.borrow() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the hub's objects are not known yet")
    }
}

async fn exposition(
    Extract(metrics): Extract<Metrics>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, StatusCode> {
    let values = |name| headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(values(header::ACCEPT));
    let text = metrics.encode().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let mut body = format.of(text).into_bytes();
    let mut answer = HeaderMap::new();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    answer.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    // With a thousand clusters it is a megabyte or two, most of it the same words. Scrapers that can say so plainly.
    let gzip = |value: &str| value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("gzip"));
    if values(header::ACCEPT_ENCODING).any(gzip) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let written = packed.write_all(&body).and_then(|()| packed.finish());
        body = written.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok((answer, body))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn most_of_what_may_be_open_is_kept_back_for_clusters() {
        let bounds = |descriptors| (api_bounds(descriptors).all, api_bounds(descriptors).of_address);
        assert_eq!([1024, 8192, 1 << 20].map(bounds), [(256, 128), (2048, 1024), (4096, 2048)]);
    }

    #[test]
    fn the_certificate_names_the_service_and_no_address_that_nobody_dials() {
        let names = |address: &str| api_names(address.parse().expect("an address"), "fedq-system");
        let pod = names("0.0.0.0:8750");
        assert_eq!(pod, ["fedqd.fedq-system.svc", "fedqd.fedq-system.svc.cluster.local", "localhost"]);
        assert_eq!(names("[::]:8750"), pod);
        assert_eq!(names("127.0.0.1:8750").last().map(String::as_str), Some("127.0.0.1"));
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_and_packed_as_they_are_asked_for() {
        let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let text = "text/plain; version=0.0.4; charset=utf-8";
        for (accept, encoding, kind, packed) in [
            ("", "", text, false),
            ("text/plain", "", text, false),
            ("application/openmetrics-text;version=1.0.0", "", open_metrics, false),
            ("", "deflate, gzip", text, true),
            ("application/openmetrics-text", "gzip", open_metrics, true),
            ("", "br", text, false),
        ] {
            let asked = [(header::ACCEPT, accept), (header::ACCEPT_ENCODING, encoding)];
            let asked = asked.into_iter().filter(|(_, value)| !value.is_empty());
            let asked = asked.map(|(name, value)| (name, HeaderValue::from_static(value)));
            let answer = exposition(Extract(Metrics::new()), asked.collect()).await.expect("it encodes");
            let answer = answer.into_response();
            let told = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
            assert_eq!(told(header::CONTENT_TYPE), Some(kind));
            assert_eq!(told(header::VARY), Some("accept, accept-encoding"));
            assert_eq!(told(header::CONTENT_ENCODING), packed.then_some("gzip"));
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
            let mut text = String::new();
            let read = if packed {
                GzDecoder::new(&*body).read_to_string(&mut text)
            } else {
                (&*body).read_to_string(&mut text)
            };
            read.expect("text");
            assert!(text.contains("\nfedq_build_info{"), "{text}");
            assert_eq!(text.ends_with("# EOF\n"), kind == open_metrics, "{text}");
        }
    }
}
