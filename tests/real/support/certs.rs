//! The certificates of one control plane: its authority, its servers and whoever calls them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub ca_pem: String,
    dir: PathBuf,
}

/// A certificate and its key, both PEM.
pub struct Identity {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Authority {
    /// Writes `ca.crt`, `tls.crt`, `tls.key` (servers) and `sa.key`, `sa.pub` (service accounts) into `dir`.
    pub fn create(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "fedq-test-ca");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let ca_pem = params.self_signed(&key)?.pem();
        let authority = Self { issuer: Issuer::new(params, key), ca_pem, dir: dir.to_owned() };

        let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "127.0.0.1");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server = authority.issue(server)?;
        let service_accounts = KeyPair::generate()?;
        for (name, text) in [
            ("ca.crt", &authority.ca_pem),
            ("tls.crt", &server.cert_pem),
            ("tls.key", &server.key_pem),
            ("sa.key", &service_accounts.serialize_pem()),
            ("sa.pub", &service_accounts.public_key_pem()),
        ] {
            std::fs::write(authority.path(name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(authority)
    }

    /// A client certificate: the API server reads the user from CN and the groups from O.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        self.issue(Self::of_client(user, groups)?)
    }

    /// The same, past its time.
    pub fn expired_client(&self, user: &str, group: &str) -> Result<Identity> {
        let mut params = Self::of_client(user, &[group])?;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.issue(params)
    }

    fn of_client(user: &str, groups: &[&str]) -> Result<CertificateParams> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        // rcgen keeps one value a type, and one group is all that the tests have needed.
        anyhow::ensure!(groups.len() <= 1, "a test certificate carries at most one group");
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}
