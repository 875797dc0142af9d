//! A serving certificate that signs itself in: an authority made for it alone, whose key is thrown away at once. Both are
//! replaced together; what trusted the old authority goes on doing so until it expires.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

/// Keys of the Secret, which is of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const END: &str = "-----END CERTIFICATE-----";

const LIFE: Duration = Duration::from_hours(365 * 24);
/// For callers whose clocks are behind.
const BACKDATED: Duration = Duration::from_hours(1);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot issue a certificate for the webhooks")]
    Issue(#[from] rcgen::Error),
    #[error("cannot read the certificate of the webhooks: {0}")]
    Unreadable(#[from] rustls::pki_types::pem::Error),
    #[error("cannot use the certificate of the webhooks")]
    Use(#[from] rustls::Error),
}

/// Its `Debug` shows no key.
#[derive(Clone, Eq, PartialEq)]
pub struct Certificate {
    serving: String,
    key: String,
    /// The newest first.
    authorities: Vec<String>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("authorities", &self.authorities.len()).finish_non_exhaustive()
    }
}

impl Certificate {
    pub fn issue(names: &[String], now: Timestamp) -> Result<Self, CertificateError> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        let name = format!("fedq-appwrapper authority {}", now.as_second());
        authority.distinguished_name.push(DnType::CommonName, name);
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        live(&mut authority, now);
        let authorities = vec![authority.self_signed(&authority_key)?.pem()];
        let mut serving = CertificateParams::new(names)?;
        serving.distinguished_name.push(DnType::CommonName, crate::FIELD_MANAGER);
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        live(&mut serving, now);
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &Issuer::new(authority, &authority_key))?.pem();
        Ok(Self { serving: certificate, key: key.serialize_pem(), authorities })
    }

    /// What replaces it: at two thirds of its life, when its names changed, or when it cannot be used.
    pub fn renewed(&self, names: &[String], now: Timestamp) -> Result<Option<Self>, CertificateError> {
        let serves = facts(&self.serving).is_some_and(|facts| {
            let mut wanted = names.to_vec();
            wanted.sort();
            facts.names == wanted && now < facts.due
        });
        if serves && self.server_config().is_ok() {
            return Ok(None);
        }
        let mut new = Self::issue(names, now)?;
        let alive = |pem: &&String| facts(pem).is_some_and(|facts| now < facts.until);
        new.authorities.extend(self.authorities.iter().filter(alive).cloned());
        Ok(Some(new))
    }

    /// PEM, for `caBundle`.
    pub fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// `None` if something is missing.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(data.get(key)?.clone()).ok();
        let bundle = text(AUTHORITIES)?;
        let parts = bundle.split_inclusive(END).filter(|part| part.contains(END));
        let authorities = parts.map(|part| format!("{}\n", part.trim())).collect();
        Some(Self { serving: text(CERTIFICATE)?, key: text(KEY)?, authorities })
    }

    pub fn to_secret(&self) -> BTreeMap<String, Vec<u8>> {
        [(CERTIFICATE, self.serving.clone()), (KEY, self.key.clone()), (AUTHORITIES, self.bundle())]
            .map(|(key, text)| (key.to_owned(), text.into_bytes()))
            .into()
    }

    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.serving.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        // Named, since a process may have no default provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn live(params: &mut CertificateParams, now: Timestamp) {
    let now =
        date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    params.not_before = now - BACKDATED;
    params.not_after = now + LIFE;
}

struct Facts {
    names: Vec<String>,
    due: Timestamp,
    until: Timestamp,
}

fn facts(pem: &str) -> Option<Facts> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok()?;
    let alternatives = alternatives.iter().flat_map(|names| &names.value.general_names);
    let mut names: Vec<String> = alternatives.filter_map(name).collect();
    names.sort();
    let until = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
    let since = Timestamp::from_second(certificate.validity().not_before.timestamp()).ok()?;
    Some(Facts { names, due: until.checked_sub(until.duration_since(since) / 3).ok()?, until })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_in_time_and_its_authority_stays_trusted() {
        let names = ["127.0.0.1".to_owned(), "webhook.example.svc".to_owned()];
        let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let after = |days: u32| start.checked_add(Duration::from_hours(24) * days).unwrap();
        let old = Certificate::issue(&names, start).unwrap();
        assert_eq!(old.renewed(&names, after(240)).unwrap(), None);
        let new = old.renewed(&names, after(245)).unwrap().expect("due");
        assert!(new.bundle().ends_with(&old.bundle()) && new.bundle() != old.bundle());
        assert_eq!(Certificate::from_secret(&new.to_secret()).as_ref(), Some(&new));
        let newest = new.renewed(&names, after(500)).unwrap().expect("due");
        assert!(newest.bundle().contains(&new.authorities[0]) && !newest.bundle().contains(&old.bundle()));
        assert!(old.renewed(&names[1..], start).unwrap().is_some());
        let torn = Certificate { key: String::new(), ..old.clone() };
        assert!(torn.renewed(&names, start).unwrap().is_some());
        assert!(Certificate::from_secret(&BTreeMap::new()).is_none());
        assert!(!format!("{old:?}").contains("PRIVATE"));
    }
}
