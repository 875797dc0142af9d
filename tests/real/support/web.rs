//! Plain requests to one server of the run, whatever certificate it shows.

use anyhow::{Context, Result};
use http_body_util::BodyExt;

use super::certs::Identity;
use super::control_plane::base64;

pub struct Client {
    client: kube::Client,
}

pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Client {
    /// The servers are ours and on the loopback address, so their certificates need no check.
    pub fn new(base: &str, identity: Option<&Identity>) -> Result<Self> {
        let mut config = kube::Config::new(base.parse().with_context(|| base.to_owned())?);
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config.proxy_url = None;
        if let Some(identity) = identity {
            let text = |pem: &str| base64(pem.as_bytes()).as_str().unwrap_or_default().to_owned();
            config.auth_info.client_certificate_data = Some(text(&identity.cert_pem));
            config.auth_info.client_key_data = Some(text(&identity.key_pem).into());
        }
        Ok(Self { client: kube::Client::try_from(config)? })
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(http::Request::get(path), String::new()).await
    }

    /// The request names only a path; the client puts the base URL before it.
    pub async fn send(&self, request: http::request::Builder, body: String) -> Result<Answer> {
        let request = request.body(kube::client::Body::from(body.into_bytes()))?;
        let response = self.client.send(request).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body: String::from_utf8_lossy(&bytes).into_owned() })
    }
}
