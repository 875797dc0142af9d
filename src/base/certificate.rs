//! A serving certificate that fedqd issues to itself: its own authority, a certificate for the
//! addresses it is called by, and their renewal. No client and no clock: the caller keeps it in a
//! Secret and says what time it is.
//!
//! The authority lives longer than what it signs, because clients keep it: the hub's API server as
//! `caBundle`, `fedq login` in a file. A new authority is published while certificates of the old one
//! still serve, so that at no time a client must trust what it has not been told of.

use std::{collections::BTreeMap, io, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

/// Keys of the Secret; the first two are those of `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";

const CERTIFICATE_LIFE: Duration = Duration::from_hours(90 * 24);
/// Renewed at two thirds, which leaves 243 days of trust to the last certificate that it signed.
const AUTHORITY_LIFE: Duration = Duration::from_hours(2 * 365 * 24);
/// Certificates are valid from a little before they are made, for callers whose clocks are behind.
const BACKDATED: Duration = Duration::from_hours(1);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate Secret lacks `{0}`")]
    Missing(&'static str),
    #[error("`{0}` in the certificate Secret is not what it should be: {1}")]
    Unreadable(&'static str, String),
    #[error("cannot issue a certificate for `{names}`")]
    Issue { names: String, source: rcgen::Error },
    #[error("cannot use the certificate for TLS")]
    Use(#[source] rustls::Error),
}

/// An authority and the certificate it signed. Its `Debug` shows no keys.
#[derive(Clone, Eq, PartialEq)]
pub struct ServingCertificate {
    certificate: String,
    key: String,
    /// The signing authority first, then older ones that certificates in use may stem from.
    authorities: Vec<String>,
    authority_key: String,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

impl ServingCertificate {
    /// A new authority with a certificate for `names`: DNS names and IP addresses.
    pub fn issue(names: &[String], now: Timestamp) -> Result<Self, CertificateError> {
        let authority = Authority::new(now).map_err(issuing(names))?;
        let (certificate, key) = authority.sign(names, now).map_err(issuing(names))?;
        let (authorities, authority_key) = (vec![authority.certificate], authority.key.serialize_pem());
        Ok(Self { certificate, key, authorities, authority_key })
    }

    /// What replaces this certificate now, or `None` while it is good: each part is renewed at two
    /// thirds of its life, the certificate also when its names changed. Something unreadable is
    /// replaced as a whole.
    pub fn renewed(&self, names: &[String], now: Timestamp) -> Result<Option<Self>, CertificateError> {
        let mut next = self.clone();
        next.drop_expired_authorities(now);
        let Some(signs) = next.authorities.first().and_then(|pem| Facts::read(pem)) else {
            return Self::issue(names, now).map(Some);
        };
        if next.server_config().is_err() || !signs.fits_key(&next.authority_key) {
            return Self::issue(names, now).map(Some);
        }
        if signs.is_due(now) {
            let authority = Authority::new(now).map_err(issuing(names))?;
            next.authority_key = authority.key.serialize_pem();
            next.authorities.insert(0, authority.certificate);
        }
        if !next.serves(names, now) {
            let authority = next.authority().ok_or_else(|| {
                CertificateError::Unreadable(AUTHORITY_KEY, "it was readable a moment ago".to_owned())
            })?;
            (next.certificate, next.key) = authority.sign(names, now).map_err(issuing(names))?;
        }
        Ok((next != *self).then_some(next))
    }

    /// PEM of the authorities to trust: the `caBundle` of a webhook, the CA of a client.
    pub fn ca_bundle(&self) -> String {
        self.authorities.concat()
    }

    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, CertificateError> {
        let text = |key: &'static str| {
            let bytes = data.get(key).ok_or(CertificateError::Missing(key))?;
            let text = std::str::from_utf8(bytes);
            text.map(str::to_owned).map_err(|_| CertificateError::Unreadable(key, "not text".to_owned()))
        };
        let authorities = split_pem(&text(AUTHORITIES)?);
        if authorities.is_empty() {
            return Err(CertificateError::Unreadable(AUTHORITIES, "no certificate".to_owned()));
        }
        let (certificate, key, authority_key) = (text(CERTIFICATE)?, text(KEY)?, text(AUTHORITY_KEY)?);
        Ok(Self { certificate, key, authorities, authority_key })
    }

    pub fn to_secret(&self) -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([
            (CERTIFICATE.to_owned(), self.certificate.clone().into_bytes()),
            (KEY.to_owned(), self.key.clone().into_bytes()),
            (AUTHORITIES.to_owned(), self.ca_bundle().into_bytes()),
            (AUTHORITY_KEY.to_owned(), self.authority_key.clone().into_bytes()),
        ])
    }

    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        server_config(self.certificate.as_bytes(), self.key.as_bytes())
    }

    /// The same for a server whose clients may show certificates too.
    pub fn server_config_for(
        &self,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        config(self.certificate.as_bytes(), self.key.as_bytes(), clients)
    }

    fn drop_expired_authorities(&mut self, now: Timestamp) {
        self.authorities.retain(|pem| Facts::read(pem).is_some_and(|facts| now < facts.until));
    }

    /// Whether the certificate is for exactly these names, not due for renewal, and of an authority
    /// that clients trust.
    fn serves(&self, names: &[String], now: Timestamp) -> bool {
        let Some(facts) = Facts::read(&self.certificate) else { return false };
        let trusted = self.authorities.iter().filter_map(|pem| Facts::read(pem));
        let mut wanted = names.to_vec();
        wanted.sort();
        let issuers: Vec<String> = trusted.map(|authority| authority.subject).collect();
        !facts.is_due(now) && facts.names == wanted && issuers.contains(&facts.issuer)
    }

    fn authority(&self) -> Option<Authority> {
        let certificate = self.authorities.first()?.clone();
        let name = Facts::read(&certificate)?.subject;
        let key = KeyPair::from_pem(&self.authority_key).ok()?;
        Some(Authority { name, certificate, key })
    }
}

/// Server side TLS from PEM, for HTTP/2 and HTTP/1.1.
pub fn server_config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    config(certificates, key, WebPkiClientVerifier::no_client_auth())
}

fn config(
    certificates: &[u8],
    key: &[u8],
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let unreadable = |part| {
        move |error: rustls::pki_types::pem::Error| CertificateError::Unreadable(part, error.to_string())
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(unreadable(CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(unreadable(KEY))?;
    // Named, since a process may have no default provider, or another's.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CertificateError::Use)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(CertificateError::Use)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The names the hub's API server calls a Service by, and so the ones to be certified.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    ["svc", "svc.cluster.local"].map(|suffix| format!("{service}.{namespace}.{suffix}")).to_vec()
}

/// The host of an https URL, as it has to stand in a certificate.
pub fn url_names(url: &str) -> Result<Vec<String>, io::Error> {
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, format!("`{url}` {reason}"));
    let uri: http::Uri = url.parse().map_err(|_| invalid("is not a URL"))?;
    let host = uri.host().ok_or_else(|| invalid("names no host"))?;
    Ok(vec![host.trim_start_matches('[').trim_end_matches(']').to_owned()])
}

struct Authority {
    name: String,
    certificate: String,
    key: KeyPair,
}

impl Authority {
    fn new(now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        // Each authority has a name of its own, so that two in one bundle can be told apart.
        let name = format!("fedq authority {}", now.as_second());
        let mut params = authority_params(&name);
        set_life(&mut params, now, AUTHORITY_LIFE);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key })
    }

    fn sign(&self, names: &[String], now: Timestamp) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("fedqd");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_life(&mut params, now, CERTIFICATE_LIFE);
        let issuer = Issuer::new(authority_params(&self.name), &self.key);
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn set_life(params: &mut CertificateParams, now: Timestamp, life: Duration) {
    let since_1970 = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let now = date_time_ymd(1970, 1, 1) + since_1970;
    params.not_before = now - BACKDATED;
    params.not_after = now + life;
}

/// What a certificate says about itself.
struct Facts {
    subject: String,
    issuer: String,
    names: Vec<String>,
    public_key: Vec<u8>,
    since: Timestamp,
    until: Timestamp,
}

impl Facts {
    fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let name = |name: &x509_parser::x509::X509Name<'_>| -> Option<String> {
            Some(name.iter_common_name().next()?.as_str().ok()?.to_owned())
        };
        let alternatives = certificate.subject_alternative_name().ok()?;
        let alternatives = alternatives.iter().flat_map(|names| &names.value.general_names);
        let mut names: Vec<String> = alternatives.filter_map(name_of).collect();
        names.sort();
        let validity = certificate.validity();
        Some(Self {
            subject: name(certificate.subject())?,
            issuer: name(certificate.issuer())?,
            names,
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
            since: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            until: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        })
    }

    /// Whether no more than a third of the life is left.
    fn is_due(&self, now: Timestamp) -> bool {
        self.until.duration_since(now) <= self.until.duration_since(self.since) / 3
    }

    fn fits_key(&self, pem: &str) -> bool {
        KeyPair::from_pem(pem).is_ok_and(|key| key.public_key_raw() == self.public_key)
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(v4) => Some(IpAddr::from(v4).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|v6| IpAddr::from(v6).to_string()),
        },
        _ => None,
    }
}

fn split_pem(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).filter(|part| part.contains(END));
    parts.map(|part| format!("{}\n", part.trim())).collect()
}

fn issuing(names: &[String]) -> impl Fn(rcgen::Error) -> CertificateError {
    move |source| CertificateError::Issue { names: names.join(", "), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        service_names("fedqd-webhook", "fedq-system")
    }

    fn start() -> Timestamp {
        "2026-11-21T00:00:00Z".parse().unwrap()
    }

    fn after(days: u32) -> Timestamp {
        start().checked_add(Duration::from_hours(24) * days).unwrap()
    }

    #[test]
    fn a_fresh_certificate_is_left_alone_and_survives_its_secret() {
        let certificate = ServingCertificate::issue(&names(), start()).unwrap();
        assert_eq!(certificate.renewed(&names(), start()).unwrap(), None);
        assert_eq!(certificate.renewed(&names(), after(58)).unwrap(), None);
        let read = ServingCertificate::from_secret(&certificate.to_secret()).unwrap();
        assert_eq!(read, certificate);
        assert!(read.server_config().is_ok());
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_by_the_same_authority() {
        let old = ServingCertificate::issue(&names(), start()).unwrap();
        let new = old.renewed(&names(), after(61)).unwrap().expect("renewed");
        assert_ne!((&new.certificate, &new.key), (&old.certificate, &old.key));
        assert_eq!(new.ca_bundle(), old.ca_bundle());
        assert_eq!(new.renewed(&names(), after(61)).unwrap(), None);
        assert!(new.server_config().is_ok());
    }

    #[test]
    fn other_names_need_another_certificate() {
        let old = ServingCertificate::issue(&names(), start()).unwrap();
        let names = url_names("https://[::1]:9443/x").unwrap();
        let new = old.renewed(&names, start()).unwrap().expect("renewed");
        assert_eq!(Facts::read(&new.certificate).unwrap().names, ["::1"]);
        assert_eq!(url_names("https://10.0.0.1:9443").unwrap(), ["10.0.0.1"]);
        assert!(url_names("/x").is_err());
    }

    #[test]
    fn a_new_authority_is_published_before_anything_it_signed_serves() {
        let mut current = ServingCertificate::issue(&names(), start()).unwrap();
        let first = current.authorities[0].clone();
        for day in 0..2000 {
            let before = current.clone();
            let Some(next) = current.renewed(&names(), after(day)).unwrap() else { continue };
            let issuer = Facts::read(&next.certificate).unwrap().issuer;
            if next.authorities != before.authorities && next.authorities.len() == 2 {
                assert_eq!(next.certificate, before.certificate, "day {day}: published first");
            }
            let known: Vec<String> =
                before.authorities.iter().map(|pem| Facts::read(pem).unwrap().subject).collect();
            assert!(known.contains(&issuer), "day {day}: clients of the old bundle trust {issuer}");
            assert!(next.authorities.len() <= 2);
            current = next;
        }
        assert!(!current.authorities.contains(&first), "gone once expired");
    }

    #[test]
    fn damage_is_replaced_as_a_whole() {
        let good = ServingCertificate::issue(&names(), start()).unwrap();
        let other = ServingCertificate::issue(&names(), start()).unwrap();
        for damaged in [
            ServingCertificate { key: other.key.clone(), ..good.clone() },
            ServingCertificate { authority_key: other.authority_key.clone(), ..good.clone() },
            ServingCertificate { certificate: "x".to_owned(), ..good.clone() },
            ServingCertificate { authorities: vec!["x".to_owned()], ..good.clone() },
        ] {
            let new = damaged.renewed(&names(), start()).unwrap().expect("replaced");
            assert!(new.server_config().is_ok());
            assert_eq!(new.renewed(&names(), start()).unwrap(), None);
        }
        let expired = good.renewed(&names(), after(3000)).unwrap().expect("replaced");
        assert_eq!(expired.authorities.len(), 1);
    }

    #[test]
    fn a_secret_that_is_not_ours_is_refused_by_name_of_the_part() {
        let mut data = ServingCertificate::issue(&names(), start()).unwrap().to_secret();
        data.insert(KEY.to_owned(), vec![0xff]);
        let error = ServingCertificate::from_secret(&data).unwrap_err();
        assert!(error.to_string().contains("tls.key"), "{error}");
        data.remove(AUTHORITIES);
        let error = ServingCertificate::from_secret(&data).unwrap_err();
        assert!(matches!(error, CertificateError::Missing(AUTHORITIES)));
    }

    #[test]
    fn keys_are_not_printed() {
        let certificate = ServingCertificate::issue(&names(), start()).unwrap();
        assert!(!format!("{certificate:?}").contains("BEGIN"));
    }
}
