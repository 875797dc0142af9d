//! `deploy/systemd/fedqd.service`, as systemd itself reads it.

use std::{fs, path::Path, process::Command};

use super::{found, said};

/// Tenths of its points, of which a unit without any hardening has a hundred.
const EXPOSED: &str = "--threshold=15";

fn unit() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd/fedqd.service")).unwrap()
}

#[test]
fn systemd_takes_the_unit_and_finds_little_exposed() {
    let (analyze, folder) = (found("systemd-analyze", "systemd"), tempfile::tempdir().unwrap());
    let path = folder.path().join("fedqd.service");
    let unit = unit().replace("/usr/local/bin/fedqd", env!("CARGO_BIN_EXE_fedqd"));
    fs::write(&path, &unit).unwrap();
    let verify = |path: &Path| said(Command::new(&analyze).args(["verify", "--man=no"]).arg(path));
    assert_eq!(verify(&path), (true, String::new()));
    let secure = |path: &Path| {
        said(Command::new(&analyze).args(["security", "--offline=true", "--no-pager", EXPOSED]).arg(path))
    };
    let (is_secure, table) = secure(&path);
    assert!(is_secure, "{table}");

    // It would say so.
    for (right, wrong) in
        [("ProtectSystem=strict", "ProtectSystems=strict"), ("WatchdogSec=60", "WatchdogSec=soon")]
    {
        let broken = folder.path().join("broken.service");
        fs::write(&broken, unit.replace(right, wrong)).unwrap();
        let (_, said) = verify(&broken);
        assert!(said.contains("broken.service:"), "{wrong}: {said}");
    }
    let bare = folder.path().join("bare.service");
    fs::write(&bare, unit.replace("DynamicUser=yes", "").replace("SystemCallFilter=", "#")).unwrap();
    assert!(!secure(&bare).0, "without most of that it is not");
}

/// What the unit sets in variables, fedqd reads.
#[test]
fn the_units_variables_are_fedqds() {
    let mut fedqd = Command::new(env!("CARGO_BIN_EXE_fedqd"));
    fedqd.arg("--check-config").env_clear();
    let unit = unit();
    let variables = unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
    let variables: Vec<(&str, String)> = variables
        .map(|(name, value)| (name, value.replace("%d", "/run/credentials").replace("%S", "/var/lib")))
        .collect();
    assert_eq!(variables.len(), 2, "{variables:?}");
    let (is_right, config) = said(fedqd.envs(variables));
    assert!(is_right, "{config}");
    for line in ["kubeconfig: /run/credentials/hub.kubeconfig", "path: /var/lib/fedq/fedq.db"] {
        assert!(config.contains(line), "no {line:?} in {config}");
    }
}
