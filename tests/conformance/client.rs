//! Plain requests: what is sent and what comes back is seen byte by byte.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

/// A busy machine answers within seconds; a hanging one must not hang the theme.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub enum Credential {
    Anonymous,
    Token(String),
    Certificate { cert_pem: String, key_pem: String },
}

impl Credential {
    /// A certificate that nobody signed but whoever shows it.
    pub fn of_a_stranger() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "stranger");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(Self::Certificate { cert_pem: params.self_signed(&key)?.pem(), key_pem: key.serialize_pem() })
    }
}

#[derive(Clone)]
pub struct Client {
    base: String,
    token: Option<String>,
    hyper: Hyper<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

/// An answer whose body is still to come.
pub type Open = http::Response<Body>;

impl Client {
    /// Over HTTP/2, one connection for everything.
    pub fn new(base: &str, ca_pem: &str, credential: &Credential) -> Result<Self> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(ca_pem, credential)?)
            .https_only()
            .enable_http2()
            .wrap_connector(http);
        let token = match credential {
            Credential::Token(token) => Some(token.clone()),
            Credential::Anonymous | Credential::Certificate { .. } => None,
        };
        let hyper = Hyper::builder(TokioExecutor::new()).http2_only(true).build(https);
        Ok(Self { base: base.trim_end_matches('/').to_owned(), token, hyper })
    }

    pub async fn open(&self, request: http::request::Builder, body: String) -> Result<Open> {
        let mut request = request.body(Full::new(Bytes::from(body)))?;
        let path = request.uri().path_and_query().context("a request has a path")?;
        *request.uri_mut() = format!("{}{path}", self.base).parse()?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(http::header::AUTHORIZATION, format!("Bearer {token}").parse()?);
        }
        match tokio::time::timeout(ANSWER_WITHIN, self.hyper.request(request)).await {
            Ok(answer) => Ok(answer?.map(Body::new)),
            Err(_) => bail!("no answer within {ANSWER_WITHIN:?}"),
        }
    }

    pub async fn send(&self, request: http::request::Builder, body: String) -> Result<Answer> {
        let (parts, body) = self.open(request, body).await?.into_parts();
        let body =
            tokio::time::timeout(ANSWER_WITHIN, body.collect()).await.context("an endless answer")??;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() })
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body, or null if it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

fn tls(ca_pem: &str, credential: &Credential) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(ca?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match credential {
        Credential::Anonymous | Credential::Token(_) => config.with_no_client_auth(),
        Credential::Certificate { cert_pem, key_pem } => {
            let certs = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(certs, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?)?
        }
    })
}
