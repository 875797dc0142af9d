//! An API server's transport in this process: TLS, HTTP/2 and whatever routes a test gives it.

use std::{net::SocketAddr, sync::Arc};

use axum::Router;
use axum_server::{Handle, tls_rustls::RustlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;

use super::{
    client::{ClientLimits, ClusterClient, connect},
    kubeconfig::{self, Rules},
};

pub struct Server {
    pub address: SocketAddr,
    pub ca_pem: String,
    handle: Handle<SocketAddr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

pub fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
}

/// A certificate and its key, in PEM.
pub fn certificate(
    authority: &CertifiedIssuer<'static, KeyPair>,
    params: &CertificateParams,
) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

impl Server {
    pub fn start(routes: Router) -> Self {
        let authority = authority();
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a TLS configuration");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a non-blocking listener");
        let address = listener.local_addr().expect("an address");
        let handle = Handle::new();
        let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(tls)))
            .expect("a server")
            .handle(handle.clone());
        tokio::spawn(server.serve(routes.into_make_service_with_connect_info::<SocketAddr>()));
        Self { address, ca_pem: authority.pem(), handle }
    }

    pub fn kubeconfig(&self) -> String {
        kubeconfig_of(&format!("https://{}", self.address), &self.ca_pem)
    }

    pub fn client(&self) -> ClusterClient {
        self.client_with(&ClientLimits::default())
    }

    pub fn client_with(&self, limits: &ClientLimits) -> ClusterClient {
        client_of(&self.kubeconfig(), limits)
    }
}

pub fn client_of(kubeconfig: &str, limits: &ClientLimits) -> ClusterClient {
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let checked = kubeconfig::check(kubeconfig.as_bytes(), None, &rules).expect("a good kubeconfig");
    connect(&checked, limits).expect("a client")
}

pub fn kubeconfig_of(server: &str, ca_pem: &str) -> String {
    json!({
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": {
            "server": server,
            "certificate-authority-data": k8s_openapi::ByteString(ca_pem.as_bytes().to_vec()),
        } }],
        "users": [{ "name": "u", "user": { "token": "secret-token" } }],
    })
    .to_string()
}
