use serde_json::Value;

use super::*;
use crate::testing::{authority, certificate, kubeconfig_of};

const SECRET: &str = "secret-token";

fn good() -> Value {
    let text = kubeconfig_of("https://api.example.com:6443", &authority().pem());
    serde_json::from_str(&text).expect("JSON")
}

/// The good kubeconfig with one value set, checked under the strictest rules.
fn with(pointer: &str, value: Value) -> Result<CheckedKubeconfig, KubeconfigError> {
    with_rules(pointer, value, &Rules::default())
}

fn with_rules(pointer: &str, value: Value, rules: &Rules) -> Result<CheckedKubeconfig, KubeconfigError> {
    let mut file = good();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    file.pointer_mut(parent).expect("a parent")[key] = value;
    check(file.to_string().as_bytes(), None, rules)
}

macro_rules! refused {
    ($result:expr, $variant:pat) => {{
        let error = $result.expect_err("refused");
        assert!(matches!(error, $variant), "{error:?}");
        assert!(!format!("{error} {error:?}").contains(SECRET), "a secret in {error:?}");
    }};
}

const USER: &str = "/users/0/user";
const CLUSTER: &str = "/clusters/0/cluster";

#[test]
fn a_good_kubeconfig_reads_back_as_it_is_rendered() {
    let mut file = good();
    file["contexts"][0]["context"]["namespace"] = json!("team");
    let checked = check(file.to_string().as_bytes(), None, &Rules::default()).expect("good");
    assert_eq!(checked.server().to_string(), "https://api.example.com:6443/");
    let again = check(checked.render().as_bytes(), None, &Rules::default()).expect("good");
    assert_eq!(again.render(), checked.render());
    let config = again.config().expect("a configuration");
    assert_eq!(config.default_namespace, "team");
    assert_eq!(config.root_cert.map(|certificates| certificates.len()), Some(1));
    assert!(!format!("{checked:?}").contains(SECRET));
}

#[test]
fn yaml_as_people_write_it_is_read() {
    let ca = json!(k8s_openapi::ByteString(authority().pem().into_bytes()));
    let yaml = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\npreferences: {{}}\n\
         contexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster:\n    server: https://10.0.0.1\n    certificate-authority-data: {ca}\n\
         users:\n- name: u\n  user:\n    token: \"  {SECRET}\\n\"\n"
    );
    check(yaml.as_bytes(), None, &Rules::default()).expect("good");
}

#[test]
fn what_cannot_be_read_is_refused_without_quoting_it() {
    refused!(check(&vec![b' '; MAX_BYTES + 1], None, &Rules::default()), KubeconfigError::TooLarge);
    refused!(check(&[0xff, 0xfe], None, &Rules::default()), KubeconfigError::NotText);
    let broken = format!("users:\n- name: u\n  user: {{token: {SECRET}\n");
    refused!(check(broken.as_bytes(), None, &Rules::default()), KubeconfigError::Malformed { .. });
    let wrong = format!("users: {SECRET}\n");
    refused!(check(wrong.as_bytes(), None, &Rules::default()), KubeconfigError::Malformed { line: 1 });
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
        d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: [*f,*f,*f,*f,*f,*f,*f,*f]\n";
    refused!(check(laughs.as_bytes(), None, &Rules::default()), KubeconfigError::Malformed { .. });
    let deep = "[".repeat(100_000);
    refused!(check(deep.as_bytes(), None, &Rules::default()), KubeconfigError::Malformed { .. });
}

#[test]
fn dangling_names_are_named() {
    refused!(check(b"{}", None, &Rules::default()), KubeconfigError::NoCurrentContext);
    refused!(with("/current-context", json!("x")), KubeconfigError::UnknownContext { .. });
    refused!(with("/contexts/0/context/cluster", json!("x")), KubeconfigError::UnknownCluster { .. });
    refused!(with("/contexts/0/context/user", json!("x")), KubeconfigError::UnknownUser { .. });
    refused!(
        check(good().to_string().as_bytes(), Some("other"), &Rules::default()),
        KubeconfigError::UnknownContext { .. }
    );
}

#[test]
fn only_the_chosen_context_is_looked_at() {
    let mut file = good();
    file["users"]
        .as_array_mut()
        .expect("users")
        .push(json!({"name": "p", "user": {"exec": {"command": "x"}}}));
    file["contexts"]
        .as_array_mut()
        .expect("contexts")
        .push(json!({"name": "p", "context": {"cluster": "c", "user": "p"}}));
    let text = file.to_string();
    let checked = check(text.as_bytes(), None, &Rules::default()).expect("good");
    assert!(!checked.render().contains("exec"));
    refused!(check(text.as_bytes(), Some("p"), &Rules::default()), KubeconfigError::Exec);
}

#[test]
fn credentials_other_than_tokens_and_certificates_are_refused() {
    refused!(with(&format!("{USER}/exec"), json!({"command": "sh"})), KubeconfigError::Exec);
    refused!(with(&format!("{USER}/auth-provider"), json!({"name": "gcp"})), KubeconfigError::AuthProvider);
    refused!(with(&format!("{USER}/username"), json!("admin")), KubeconfigError::BasicAuth);
    refused!(with(&format!("{USER}/password"), json!(SECRET)), KubeconfigError::BasicAuth);
    refused!(with(&format!("{USER}/as"), json!("admin")), KubeconfigError::Impersonation);
    refused!(with(&format!("{USER}/as-groups"), json!(["system:masters"])), KubeconfigError::Impersonation);
    refused!(with("/users/0/user", json!({})), KubeconfigError::NoCredential);
    refused!(with("/users/0/user", Value::Null), KubeconfigError::NoCredential);
    refused!(
        with(&format!("{USER}/token"), json!("two\nlines")),
        KubeconfigError::BadData { field: "token", .. }
    );
}

#[test]
fn paths_of_files_are_refused_in_a_secret() {
    for (part, field) in [
        (USER, "tokenFile"),
        (USER, "client-certificate"),
        (USER, "client-key"),
        (CLUSTER, "certificate-authority"),
    ] {
        refused!(with(&format!("{part}/{field}"), json!("/etc/shadow")), KubeconfigError::FilePath { .. });
    }
}

#[test]
fn the_hub_may_name_files_relative_to_its_kubeconfig() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = authority();
    let (pem, key) = certificate(&authority, &rcgen::CertificateParams::default());
    for (name, text) in [("ca", authority.pem()), ("crt", pem), ("key", key)] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let mut file = good();
    file["clusters"][0]["cluster"] = json!({"server": "https://10.0.0.1", "certificate-authority": "ca"});
    file["users"][0]["user"] = json!({"client-certificate": "crt", "client-key": "key"});
    let rules = Rules { files_from: Some(folder.path().to_owned()), ..Rules::default() };
    let checked = check(file.to_string().as_bytes(), None, &rules).expect("good");
    check(checked.render().as_bytes(), None, &Rules::default()).expect("embedded");
    file["users"][0]["user"] = json!({"client-certificate": "none", "client-key": "key"});
    refused!(
        check(file.to_string().as_bytes(), None, &rules),
        KubeconfigError::ReadFile { field: "client-certificate", .. }
    );
    file["users"][0]["user"] = json!({"tokenFile": "token"});
    let checked = check(file.to_string().as_bytes(), None, &rules).expect("read again each minute");
    let token_file = checked.config().expect("a configuration").auth_info.token_file;
    assert_eq!(token_file, Some(folder.path().join("token").display().to_string()));
}

#[test]
fn servers_that_cannot_be_verified_are_refused() {
    refused!(
        with(&format!("{CLUSTER}/insecure-skip-tls-verify"), json!(true)),
        KubeconfigError::InsecureSkipTlsVerify
    );
    let no_ca = json!({"server": "https://10.0.0.1"});
    refused!(with(CLUSTER, no_ca.clone()), KubeconfigError::NoCa);
    let rules = Rules { allow_system_roots: true, ..Rules::default() };
    with_rules(CLUSTER, no_ca, &rules).expect("allowed");
    for (bad, expected) in [("%%%", "base64"), ("aGVsbG8=", "certificates in PEM form")] {
        let error = with(&format!("{CLUSTER}/certificate-authority-data"), json!(bad)).expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
    }
    refused!(with(&format!("{CLUSTER}/tls-server-name"), json!("a b")), KubeconfigError::BadData { .. });
}

#[test]
fn server_addresses_that_lead_elsewhere_are_refused() {
    let server = |text: &str| with(&format!("{CLUSTER}/server"), json!(text));
    refused!(with(&format!("{CLUSTER}/server"), Value::Null), KubeconfigError::NoServer);
    for bad in ["", "api.example.com", "https://", "https://a b", "https://h:99999", "https://h:0"] {
        refused!(server(bad), KubeconfigError::BadServer);
    }
    refused!(server("http://api.example.com"), KubeconfigError::NotHttps);
    refused!(server(&format!("https://admin:{SECRET}@api.example.com")), KubeconfigError::UserInfo);
    refused!(server(&format!("https://api.example.com/?token={SECRET}")), KubeconfigError::QueryOrFragment);
    refused!(server("https://api.example.com/#a"), KubeconfigError::QueryOrFragment);
    for bad in [
        "https://169.254.169.254",
        "https://[fe80::1]:6443",
        "https://[::ffff:169.254.169.254]",
        "https://metadata.google.internal",
        "https://0.0.0.0",
        "https://224.0.0.1",
        "https://127.0.0.1:6443",
        "https://localhost",
        "https://[::1]",
    ] {
        refused!(server(bad), KubeconfigError::Address { .. });
    }
    for (text, is_loopback) in [("https://127.0.0.1:6443", true), ("https://169.254.169.254", false)] {
        let refused = server(text).expect_err("refused");
        assert_eq!(refused.is_loopback(), is_loopback, "{text}");
    }
    server("https://rancher.example.com/k8s/clusters/c-1").expect("a path is fine");
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    with_rules(&format!("{CLUSTER}/server"), json!("https://127.0.0.1:6443"), &rules).expect("allowed");
}

#[test]
fn a_proxy_is_refused_unless_allowed_and_never_carries_a_password() {
    let pointer = format!("{CLUSTER}/proxy-url");
    refused!(with(&pointer, json!("http://proxy.example.com:3128")), KubeconfigError::Proxy);
    let rules = Rules { allow_proxy: true, ..Rules::default() };
    with_rules(&pointer, json!("http://proxy.example.com:3128"), &rules).expect("allowed");
    for bad in ["socks5://proxy", "http://u:secret-token@proxy", "https://proxy", "proxy"] {
        refused!(with_rules(&pointer, json!(bad), &rules), KubeconfigError::BadProxy);
    }
    refused!(with_rules(&pointer, json!("http://169.254.169.254"), &rules), KubeconfigError::Address { .. });
}

#[test]
fn expiry_is_read_from_certificates_and_tokens() {
    let authority = authority();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(2031, 5, 6);
    let (pem, key) = certificate(&authority, &params);
    let data = |text: String| json!(k8s_openapi::ByteString(text.into_bytes()));
    let user = json!({"client-certificate-data": data(pem.clone()), "client-key-data": data(key)});
    let checked = with("/users/0/user", user).expect("good");
    assert_eq!(checked.expires().map(|time| time.to_string()), Some("2031-05-06T00:00:00Z".to_owned()));

    // {"exp":1900000000}, without padding and with the URL's alphabet.
    let token = "e30.eyJleHAiOjE5MDAwMDAwMDB9.c2ln";
    let checked = with(&format!("{USER}/token"), json!(token)).expect("good");
    assert_eq!(checked.expires().map(Timestamp::as_second), Some(1_900_000_000));
    assert_eq!(with(&format!("{USER}/token"), json!("opaque.x.y")).expect("good").expires(), None);

    let lonely = json!({"client-certificate-data": data(pem.clone())});
    refused!(with("/users/0/user", lonely), KubeconfigError::NoCredential);
    let bad_key = json!({"client-certificate-data": data(pem), "client-key-data": data(SECRET.to_owned())});
    refused!(with("/users/0/user", bad_key), KubeconfigError::BadData { field: "client-key-data", .. });
    let bad =
        json!({"client-certificate-data": data(SECRET.to_owned()), "client-key-data": data("x".to_owned())});
    refused!(with("/users/0/user", bad), KubeconfigError::BadData { field: "client-certificate-data", .. });
}
