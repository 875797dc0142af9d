//! Callers with certificates: the authority of a cluster's clients, and who shows what it has signed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConnection, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::rbac::User;
use fedq_base::certificate::CertificateError;

/// Signs who calls, and recognizes them.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// What the caller showed when a connection began, the certificate itself first; empty without one.
#[derive(Clone, Default)]
pub struct Shown(Arc<[CertificateDer<'static>]>);

/// It was not signed by this authority, or its time is over or has not come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAccepted;

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    pub fn new() -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let names = "the authority of clients";
        let issuer = KeyPair::generate().and_then(|key| CertifiedIssuer::self_signed(params, key));
        let issuer = issuer.map_err(|source| CertificateError::Issue { names: names.to_owned(), source })?;
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).map_err(CertificateError::Use)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier =
            verifier.map_err(|error| CertificateError::Use(rustls::Error::General(error.to_string())))?;
        Ok(Self { issuer, verifier })
    }

    /// A certificate for somebody in one group, good for those who ask before `until`.
    pub fn sign(&self, user: &str, group: &str, until: Timestamp) -> Result<Identity, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let since_1970 = Duration::from_secs(u64::try_from(until.as_second()).unwrap_or_default());
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970;
        let failed = |source| CertificateError::Issue { names: user.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Whose certificate that is now; `None` where none was shown, or one that names nobody. An open connection does
    /// not make up for a time that is over.
    pub fn caller(&self, shown: &Shown, now: Timestamp) -> Result<Option<User>, NotAccepted> {
        let Some((own, others)) = shown.0.split_first() else { return Ok(None) };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap_or(0)));
        self.verifier.verify_client_cert(own, others, now).map_err(|_| NotAccepted)?;
        let (_, certificate) = X509Certificate::from_der(own).map_err(|_| NotAccepted)?;
        let subject = certificate.subject();
        let names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
        let groups: Vec<&str> = subject.iter_organization().filter_map(|name| name.as_str().ok()).collect();
        Ok(names.last().filter(|name| !name.is_empty()).map(|name| User::new(name, &groups)))
    }

    /// For the greeting: who calls is asked for a certificate, and heard in any case. As on real servers a bad one is
    /// no reason to hang up, but for a 401.
    pub fn asks(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asks(Arc::clone(&self.verifier)))
    }
}

impl Shown {
    pub fn on(connection: &ServerConnection) -> Self {
        let chain = connection.peer_certificates().unwrap_or_default();
        Self(chain.iter().map(|certificate| certificate.clone().into_owned()).collect())
    }
}

#[derive(Debug)]
struct Asks(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // `Authority::caller` looks at it with each request.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(identity: &Identity) -> Shown {
        use rustls::pki_types::pem::PemObject;
        Shown([CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()].into())
    }

    #[test]
    fn a_certificate_says_who_calls_until_its_time_is_over() {
        let authority = Authority::new().unwrap();
        let until: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
        let identity = authority.sign("jane", "makers", until).unwrap();
        let shown = shown(&identity);
        let jane = User::new("jane", &["makers"]);
        assert_eq!(authority.caller(&shown, until), Ok(Some(jane)));
        assert_eq!(authority.caller(&shown, until + Duration::from_secs(1)), Err(NotAccepted));
        assert_eq!(Authority::new().unwrap().caller(&shown, until), Err(NotAccepted));
        assert_eq!(authority.caller(&Shown::default(), until), Ok(None));
    }
}
