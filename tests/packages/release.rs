//! `deploy/release`, without its builds: small programs are packed in place of the real ones, which only print their pages.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{said, tools};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-musl"];
const EPOCH: u64 = 1_700_000_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As somebody with this umask runs it.
fn release(arguments: &[&str], umask: &str) -> String {
    let real = Path::new(env!("CARGO_BIN_EXE_fedq")).parent().unwrap();
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(format!("umask {umask}; exec deploy/release \"$@\"")).arg("release").args(arguments);
    shell.current_dir(root()).env("SOURCE_DATE_EPOCH", EPOCH.to_string());
    let (ended_well, text) = said(shell.env("FEDQ_RELEASE_HOST_PROGRAMS", real));
    assert!(ended_well, "{arguments:?}: {text}");
    text
}

/// All but what takes a build.
fn packed(umask: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    for program in ["fedq", "fedqd", "fedq-appwrapper"] {
        fs::write(programs.join(program), format!("#!/bin/sh\necho {program}\n")).unwrap();
    }
    let out = folder.path().join("out");
    let (out, programs) = (out.to_str().unwrap(), programs.to_str().unwrap());
    for target in TARGETS {
        release(&["pack", out, target, programs], umask);
    }
    release(&["chart", out], umask);
    release(&["krew", out, "https://downloads.example.com/fedq/"], umask);
    release(&["sums", out], umask);
    folder
}

/// What is in an archive: (mode, text) by name.
fn unpacked(archive: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(archive).unwrap()));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let (header, path) = (entry.header().clone(), entry.path().unwrap().into_owned());
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0), "{}", path.display());
        assert_eq!(header.mtime().unwrap(), EPOCH, "{}", path.display());
        let kind = header.entry_type();
        assert!(kind.is_file() || kind.is_dir(), "{}: a link would lead out", path.display());
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut text).unwrap();
        if kind.is_file() {
            files.insert(path, (header.mode().unwrap(), text));
        }
    }
    files
}

#[test]
fn packed_twice_it_is_the_same_to_the_byte() {
    let (one, other) = (packed("022"), packed("077"));
    let sums = |folder: &tempfile::TempDir| read(&folder.path().join("out/SHA256SUMS"));
    assert_eq!(sums(&one), sums(&other));
    let out = one.path().join("out");
    let listed: Vec<(String, String)> = sums(&one)
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (sum.to_owned(), name.to_owned()))
        .collect();
    let names: Vec<&str> = listed.iter().map(|(_, name)| name.as_str()).collect();
    let archives = TARGETS.map(|target| format!("fedq-{VERSION}-{target}.tar.gz"));
    assert_eq!(
        names,
        [
            &format!("fedq-{VERSION}-aarch64-unknown-linux-musl.tar.gz"),
            &archives[0],
            &format!("fedq-{VERSION}.tgz"),
            "krew/fedq.yaml",
            "krew/kueue.yaml"
        ]
    );
    for (sum, name) in &listed {
        assert_eq!(*sum, sum_of(&out.join(name)), "{name}");
    }

    let folder = PathBuf::from(format!("fedq-{VERSION}-{}", TARGETS[0]));
    let files = unpacked(&out.join(&archives[0]));
    for program in ["fedq", "fedqd", "fedq-appwrapper"] {
        let (mode, text) = &files[&folder.join(program)];
        assert_eq!(
            (*mode & 0o777, text.as_slice()),
            (0o755, format!("#!/bin/sh\necho {program}\n").as_bytes())
        );
    }
    let text = |name: &str| {
        let found =
            files.get(&folder.join(name)).unwrap_or_else(|| panic!("no {name} in {:?}", files.keys()));
        String::from_utf8(found.1.clone()).unwrap()
    };
    for (name, part) in [
        ("man/man1/fedq.1", ".SH NAME"),
        ("man/man1/fedq-claim-edit.1", ".SH SYNOPSIS"),
        ("man/man1/kueuectl-list-workload.1", ".SH SYNOPSIS"),
        ("man/man1/fedqd.1", ".SH OPTIONS"),
        ("completions/fedq", "complete "),
        ("completions/_fedq", "compdef"),
        ("completions/fedq.fish", "complete -c fedq"),
        ("LICENSE", "Apache License"),
        ("docs/CHANGELOG.md", VERSION),
        ("docs/tasks.md", "# Tasks"),
        ("README.md", "# fedq"),
        ("SECURITY.md", "#"),
        ("fedqd.yaml", "clusters:"),
        ("systemd/fedqd.service", "Type=notify"),
    ] {
        assert!(text(name).contains(part), "{name} has no {part:?}");
    }

    let chart = unpacked(&out.join(format!("fedq-{VERSION}.tgz")));
    for (name, file) in
        [("files/rbac.yaml", "deploy/hub/rbac.yaml"), ("Chart.yaml", "deploy/chart/Chart.yaml")]
    {
        let (_, text) = &chart[&PathBuf::from("fedq").join(name)];
        assert_eq!(String::from_utf8_lossy(text), read(&root().join(file)), "{name}");
    }
}

fn sum_of(path: &Path) -> String {
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"))
}

#[test]
fn krew_takes_the_manifests_of_the_plugins() {
    let judge = tools::krew().unwrap();
    let judge =
        |manifest: &Path| said(Command::new(&judge).arg("-skip-install").arg("-manifest").arg(manifest));
    let folder = packed("022");
    let out = folder.path().join("out");
    for name in ["fedq", "kueue"] {
        let path = out.join(format!("krew/{name}.yaml"));
        let text = read(&path);
        let (is_right, told) = judge(&path);
        assert!(is_right, "{told}\n{text}");
        let manifest: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        assert_eq!(platforms.len(), TARGETS.len(), "{text}");
        for platform in platforms {
            let uri = platform["uri"].as_str().unwrap();
            let archive = out.join(uri.strip_prefix("https://downloads.example.com/fedq/").unwrap());
            assert_eq!(platform["sha256"], sum_of(&archive), "{uri}");
            let files = unpacked(&archive);
            for file in platform["files"].as_array().unwrap() {
                let from = file["from"].as_str().unwrap();
                assert!(files.contains_key(Path::new(from)), "{from} is not in {uri}");
            }
        }
        for (right, wrong) in
            [("sha256: ", "sha256: 0"), ("version: v", "version: "), ("arch: arm64", "arch: amd64")]
        {
            let broken = folder.path().join(format!("{name}.yaml"));
            fs::write(&broken, text.replacen(right, wrong, 1)).unwrap();
            assert!(!judge(&broken).0, "{wrong:?} is taken");
        }
    }
}

#[test]
fn the_bill_of_materials_has_what_the_lock_has() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&one, &other] {
        release(&["sbom", folder.path().to_str().unwrap()], "022");
    }
    for package in ["fedq", "fedq-appwrapper"] {
        let name = format!("{package}-{VERSION}.cdx.json");
        let text = read(&one.path().join(&name));
        assert_eq!(text, read(&other.path().join(&name)), "twice the same");
        assert!(
            !text.contains(root().to_str().unwrap()) && !text.contains("/tmp"),
            "it tells where it was made"
        );
        let bill: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&bill["bomFormat"], &bill["metadata"]["component"]["name"]),
            (&"CycloneDX".into(), &package.into())
        );
        let components: BTreeMap<&str, &str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| (part["name"].as_str().unwrap(), part["version"].as_str().unwrap()))
            .collect();
        let lock = read(&root().join("Cargo.lock"));
        for (name, version) in [("kube", components["kube"]), ("rustls", components["rustls"])] {
            assert!(
                lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")),
                "{name} {version}"
            );
        }
        assert!(200 < components.len(), "{}", components.len());
    }
}

#[test]
fn what_is_new_in_this_version_is_told() {
    let changes = read(&root().join("docs/CHANGELOG.md"));
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    let (version, day) = newest.split_once(", ").unwrap();
    assert_eq!(version, VERSION);
    assert!(jiff::civil::Date::strptime("%Y-%m-%d", day).is_ok(), "{day}");
    let mode = fs::metadata(root().join("deploy/release")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "it can be run");
}

#[test]
fn what_it_cannot_do_it_says() {
    let run = |arguments: &[&str]| {
        let mut script = Command::new(root().join("deploy/release"));
        said(script.args(arguments).current_dir("/").env("SOURCE_DATE_EPOCH", EPOCH.to_string()))
    };
    let (ended_well, usage) = run(&[]);
    assert!(!ended_well && usage.contains("deploy/release all OUT URL"), "{usage}");
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let wrong: [(&[&str], &str); 3] = [
        (&["pack", empty], "deploy/release pack OUT TARGET PROGRAMS"),
        (&["pack", empty, "t", empty], "has no fedq"),
        (&["krew", empty, "https://example.com"], "has no archive for Linux"),
    ];
    for (arguments, part) in wrong {
        let (ended_well, text) = run(arguments);
        assert!(!ended_well && text.contains(part), "{arguments:?}: {text}");
    }
}
