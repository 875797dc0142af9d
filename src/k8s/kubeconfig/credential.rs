//! The one credential of a kubeconfig, and when it expires.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::config::AuthInfo;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde::{Deserialize, de::IntoDeserializer};
use serde_json::{Value, json};

use super::{KubeconfigError, User, embedded};
use crate::join_token::{NAMESPACE, SERVICE_ACCOUNT, Validity};

/// Until when a credential is good, as far as it says so.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub expires: Option<Timestamp>,
    /// Of a token of fedq's own account, which can be made anew.
    pub renewable: Option<Validity>,
}

/// Deliberately without `Debug`.
#[derive(Clone)]
pub(super) enum Credential {
    Token(String),
    /// Read again each minute, as kubelets rotate it.
    TokenFile(PathBuf),
    Certificate {
        certificate_pem: Vec<u8>,
        key_pem: Vec<u8>,
    },
}

impl Credential {
    pub(super) fn check(user: User, files: Option<&Path>) -> Result<(Self, Times), KubeconfigError> {
        if user.exec.is_some() {
            return Err(KubeconfigError::Exec);
        }
        if user.auth_provider.is_some() {
            return Err(KubeconfigError::AuthProvider);
        }
        if user.username.is_some() || user.password.is_some() {
            return Err(KubeconfigError::BasicAuth);
        }
        if user.impersonate.is_some()
            || user.as_uid.is_some()
            || user.as_groups.is_some()
            || user.as_user_extra.is_some()
        {
            return Err(KubeconfigError::Impersonation);
        }
        let certificate_pem = embedded(
            "client-certificate-data",
            user.client_certificate_data,
            "client-certificate",
            user.client_certificate,
            files,
        )?;
        let key_pem =
            embedded("client-key-data", user.client_key_data, "client-key", user.client_key, files)?;
        let token = user.token.filter(|token| !token.is_empty());
        match (user.token_file, files) {
            (Some(_), None) => return Err(KubeconfigError::FilePath { field: "tokenFile" }),
            (Some(path), Some(folder)) if token.is_none() => {
                return Ok((Self::TokenFile(folder.join(path)), Times::default()));
            }
            _ => {}
        }
        // As in kubectl, a token wins over a certificate.
        if let Some(token) = token {
            return check_token(&token);
        }
        match (certificate_pem, key_pem) {
            (Some(certificate_pem), Some(key_pem)) => check_certificate(certificate_pem, key_pem),
            _ => Err(KubeconfigError::NoCredential),
        }
    }

    /// The user's part of a kubeconfig.
    pub(super) fn render(&self) -> Value {
        match self {
            Self::Token(token) => json!({ "token": token }),
            Self::TokenFile(path) => json!({ "tokenFile": path }),
            Self::Certificate { certificate_pem, key_pem } => json!({
                "client-certificate-data": ByteString(certificate_pem.clone()),
                "client-key-data": ByteString(key_pem.clone()),
            }),
        }
    }
}

impl From<&Credential> for AuthInfo {
    fn from(credential: &Credential) -> Self {
        let text = |pem: &[u8]| match json!(ByteString(pem.to_vec())) {
            Value::String(text) => Some(text),
            _ => None,
        };
        match credential {
            Credential::Token(token) => Self { token: Some(token.clone().into()), ..Self::default() },
            Credential::TokenFile(path) => {
                Self { token_file: Some(path.to_string_lossy().into_owned()), ..Self::default() }
            }
            Credential::Certificate { certificate_pem, key_pem } => Self {
                client_certificate_data: text(certificate_pem),
                client_key_data: text(key_pem).map(Into::into),
                ..Self::default()
            },
        }
    }
}

fn check_token(token: &str) -> Result<(Credential, Times), KubeconfigError> {
    let token = token.trim();
    // What a header may carry, and no tool ever prints: visible ASCII.
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(KubeconfigError::BadData { field: "token", expected: "one line of visible characters" });
    }
    Ok((Credential::Token(token.to_owned()), token_times(token).unwrap_or_default()))
}

fn check_certificate(
    certificate_pem: Vec<u8>,
    key_pem: Vec<u8>,
) -> Result<(Credential, Times), KubeconfigError> {
    let bad =
        KubeconfigError::BadData { field: "client-certificate-data", expected: "a certificate in PEM form" };
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&certificate_pem) else { return Err(bad) };
    let Ok(certificate) = pem.parse_x509() else { return Err(bad) };
    let expires = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok();
    if PrivateKeyDer::from_pem_slice(&key_pem).is_err() {
        return Err(KubeconfigError::BadData {
            field: "client-key-data",
            expected: "a private key in PEM form",
        });
    }
    Ok((Credential::Certificate { certificate_pem, key_pem }, Times { expires, renewable: None }))
}

/// What a JSON web token says, unverified: only to act in time. Other tokens say nothing.
fn token_times(token: &str) -> Option<Times> {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
        iat: Option<i64>,
        sub: Option<String>,
    }
    let payload = token.split('.').nth(1)?.replace('-', "+").replace('_', "/");
    let padding = "=".repeat((4 - payload.len() % 4) % 4);
    let claims: Claims = serde_json::from_slice(&base64(&(payload + &padding))?).ok()?;
    let expires = Timestamp::from_second(claims.exp).ok();
    let is_own = claims.sub == Some(format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"));
    let issued = claims.iat.filter(|_| is_own).and_then(|issued| Timestamp::from_second(issued).ok());
    let renewable = issued.zip(expires).map(|(issued, expires)| Validity { issued, expires });
    Some(Times { expires, renewable })
}

/// Kubernetes' own reader of base64, with line breaks allowed.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    let reader: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        text.as_str().into_deserializer();
    ByteString::deserialize(reader).ok().map(|bytes| bytes.0)
}
