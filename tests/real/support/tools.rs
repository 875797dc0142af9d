//! The programs of the real clusters: Go tools, pinned in `tools/go.mod`, built once and kept in the target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// A folder with every program and every manifest; it needs neither Go nor its module cache any more.
pub struct Tools {
    dir: PathBuf,
    assets: Option<PathBuf>,
}

const PACKAGES: [(&str, &str); 9] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("jobset", "sigs.k8s.io/jobset"),
    ("kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    ("kueuectl", "sigs.k8s.io/kueue/cmd/kueuectl"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
];

/// (module, folder or file in it, where it goes)
const MANIFESTS: [(&str, &str, &str); 7] = [
    ("sigs.k8s.io/kueue", "config/components/crd/bases", "kueue-crds"),
    ("sigs.k8s.io/kueue", "config/components/webhook/manifests.yaml", "kueue-webhooks"),
    ("sigs.k8s.io/jobset", "config/components/crd/bases", "jobset-crds"),
    ("sigs.k8s.io/jobset", "config/components/webhook/manifests.yaml", "jobset-webhooks"),
    ("sigs.k8s.io/kwok", "kustomize/stage/node/fast", "kwok-stages"),
    ("sigs.k8s.io/kwok", "kustomize/stage/node/heartbeat", "kwok-stages"),
    ("sigs.k8s.io/kwok", "kustomize/stage/pod/general", "kwok-stages"),
];

/// Without a version the API server calls itself `v0.0.0-master+$Format` and kubectl fails.
const LD_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
                        -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36";

impl Tools {
    pub fn find_or_build() -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        if let Some(dir) = std::env::var_os("FEDQ_REAL_TOOLS").map(PathBuf::from) {
            let tools = Self { dir, assets };
            for (name, _) in PACKAGES {
                let path = tools.program(name);
                ensure!(path.is_file(), "FEDQ_REAL_TOOLS is set, but {} is missing", path.display());
            }
            return Ok(tools);
        }
        Ok(Self { dir: build()?, assets })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn program(&self, name: &str) -> PathBuf {
        // `KUBEBUILDER_ASSETS` holds etcd, kube-apiserver and, often, kubectl.
        self.assets
            .iter()
            .filter(|_| ["etcd", "kube-apiserver", "kubectl"].contains(&name))
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
            .unwrap_or_else(|| self.dir.join(name))
    }

    /// The text of every manifest of one kind, as one YAML stream.
    pub fn manifests(&self, kind: &str) -> Result<String> {
        let dir = self.dir.join("manifests").join(kind);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            paths.push(entry?.path());
        }
        paths.sort();
        let mut all = String::new();
        for path in paths {
            all.push_str("\n---\n");
            all.push_str(&fs::read_to_string(&path).with_context(|| path.display().to_string())?);
        }
        Ok(all)
    }
}

fn build() -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tools");
    let version = go(&module).args(["env", "GOVERSION"]).output().context(
        "the tests on real clusters build Kubernetes and Kueue with Go 1.26: install it, or set FEDQ_REAL_TOOLS",
    )?;
    ensure!(version.status.success(), "go env: {}", String::from_utf8_lossy(&version.stderr));

    let mut hash = Sha256::new();
    hash.update(&version.stdout);
    hash.update(LD_FLAGS);
    for (name, package) in PACKAGES {
        hash.update(name);
        hash.update(package);
    }
    for file in ["go.mod", "go.sum"] {
        hash.update(fs::read(module.join(file)).with_context(|| format!("read {file}"))?);
    }
    let digest = hash.finalize();
    let key = format!(
        "{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2], digest[3], digest[4], digest[5]
    );

    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real-tools");
    fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    let lock = File::create(root.join("lock")).context("create the build lock")?;
    // Two runs at once would compile the same 3,000 packages twice.
    lock.lock().context("wait for another run that builds the tools")?;
    let done = root.join(key);
    if done.is_dir() {
        return Ok(done);
    }
    // What an older go.mod built will not be asked for again, and is 0.6 GB.
    for entry in fs::read_dir(&root)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    let fresh = done.with_extension("building");
    fs::create_dir_all(fresh.join("manifests")).context("create the tools folder")?;
    copy_manifests(&module, &fresh.join("manifests"))?;
    compile(&module, &fresh)?;
    fs::rename(&fresh, &done).context("put the built tools in their place")?;
    Ok(done)
}

/// The program that reads metrics as Prometheus does, built from `tools/prometheus` when a case needs it: in 110 s of one
/// core when Go's cache is empty. It has a module of its own, since Prometheus' dependencies are not those of Kubernetes.
pub fn prometheus() -> Result<PathBuf> {
    go_program("prometheus", &["go.mod", "go.sum", "main.go"], ".")
}

/// What holds manifests to schemas, at the version that `tools/kubeconform` pins: built in seconds.
pub fn kubeconform() -> Result<PathBuf> {
    go_program("kubeconform", &["go.mod", "go.sum"], "github.com/yannh/kubeconform/cmd/kubeconform")
}

/// Where upstream's operator finds the name of its namespace, and the port of its webhooks.
pub const OPERATORS_NAMESPACE_FILE: &str = "OPERATORS_NAMESPACE_FILE";
pub const OPERATORS_WEBHOOK_PORT: &str = "OPERATORS_WEBHOOK_PORT";

/// Upstream's operator of AppWrappers, at the version that `tools/appwrapper` pins. In a pod it has a file at a fixed path and
/// a port to itself; here there are several on one machine, so both come from the environment.
pub fn appwrapper_operator() -> Result<PathBuf> {
    let namespace = format!("var inClusterNamespacePath = os.Getenv(\"{OPERATORS_NAMESPACE_FILE}\")");
    let port = format!(
        "\tif port, err := strconv.Atoi(os.Getenv(\"{OPERATORS_WEBHOOK_PORT}\")); err == nil {{\n\t\to.Port = port\n\t}} else if \
         o.Port <= 0 {{"
    );
    let library = Edited {
        module: "sigs.k8s.io/controller-runtime",
        lines: vec![
            (
                "pkg/leaderelection/leader_election.go",
                "const inClusterNamespacePath = \"/var/run/secrets/kubernetes.io/serviceaccount/namespace\"",
                namespace,
            ),
            ("pkg/webhook/server.go", "\tif o.Port <= 0 {", port),
        ],
    };
    let package = "github.com/project-codeflare/appwrapper/cmd";
    go_program_with("appwrapper", &["go.mod", "go.sum"], package, Some(&library))
}

/// Argo CD's Application controller, fed from a folder (`tools/argocd`).
pub fn argo_cd() -> Result<PathBuf> {
    go_program("argocd", &["go.mod", "go.sum", "main.go"], ".")
}

/// Flux' kustomize-controller, at the version that `tools/flux` pins.
pub fn flux() -> Result<PathBuf> {
    go_program("flux", &["go.mod", "go.sum"], "github.com/fluxcd/kustomize-controller")
}

/// Helm, at the version that `tools/helm` pins.
pub fn helm() -> Result<PathBuf> {
    go_program("helm", &["go.mod", "go.sum"], "helm.sh/helm/v3/cmd/helm")
}

/// What judges manifests of kubectl's plugins, at the version of Krew that `tools/krew` pins.
pub fn krew() -> Result<PathBuf> {
    go_program("krew", &["go.mod", "go.sum"], "sigs.k8s.io/krew/cmd/validate-krew-manifest")
}

/// The kinds of Prometheus' operator that the chart has objects of.
pub fn prometheus_operators_crds() -> Result<Vec<String>> {
    let of = |kind| {
        let file = format!("example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml");
        module_file("prometheus_operator", "github.com/prometheus-operator/prometheus-operator", &file)
    };
    ["servicemonitors", "prometheusrules"].into_iter().map(of).collect()
}

/// A file of a module that a folder under `tools` pins.
pub fn module_file(folder: &str, module: &str, file: &str) -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tools").join(folder);
    let path = module_folder(&folder, module)?.join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Ours, of this workspace. Cargo builds the program of another package only for tests of that package, so it is asked for
/// one of those here: by the same choice of packages as `cargo test`, which mostly has built it already. With `--package` the
/// crates under it would have other features, and all of them would be compiled once more.
pub fn fedq_appwrapper() -> Result<PathBuf> {
    let path = fedq_appwrapper_path();
    let target = path.ancestors().nth(2).context("a target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // What cargo tells the test of itself is news to build scripts under it, which would run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "LD_LIBRARY_PATH"
        {
            build.env_remove(&name);
        }
    }
    let what: &[&str] = if as_shipped() {
        &["build", "--locked", "--release", "--package", "fedq-appwrapper"]
    } else {
        &["test", "--locked", "--no-run", "--test", "program"]
    };
    let built = build
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(what)
        .arg("--target-dir")
        .arg(target)
        .output()
        .context("run cargo")?;
    ensure!(built.status.success(), "cargo {}: {}", what.join(" "), String::from_utf8_lossy(&built.stderr));
    Ok(path)
}

pub fn fedq_appwrapper_path() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_fedqd")).with_file_name("fedq-appwrapper");
    if !as_shipped() {
        return beside;
    }
    let target = beside.ancestors().nth(2).unwrap_or(&beside);
    target.join("release/fedq-appwrapper")
}

/// Benchmarks measure what is shipped, whatever they are built as themselves.
static AS_SHIPPED: AtomicBool = AtomicBool::new(false);

pub fn measure_what_is_shipped() {
    AS_SHIPPED.store(true, Ordering::Relaxed);
}

fn as_shipped() -> bool {
    AS_SHIPPED.load(Ordering::Relaxed)
}

/// A library of which lines are compiled as other ones: file, line, what it becomes.
struct Edited {
    module: &'static str,
    lines: Vec<(&'static str, &'static str, String)>,
}

/// A program of one folder under `tools` with a module of its own.
fn go_program(folder: &str, files: &[&str], package: &str) -> Result<PathBuf> {
    go_program_with(folder, files, package, None)
}

fn go_program_with(folder: &str, files: &[&str], package: &str, library: Option<&Edited>) -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tools").join(folder);
    let version = go(&module)
        .args(["env", "GOVERSION"])
        .output()
        .context("this test builds a program with Go 1.26: install it")?;
    ensure!(version.status.success(), "go env: {}", String::from_utf8_lossy(&version.stderr));
    let mut hash = Sha256::new();
    hash.update(&version.stdout);
    for file in files {
        hash.update(fs::read(module.join(file)).with_context(|| format!("read {file}"))?);
    }
    for (_, _, becomes) in library.iter().flat_map(|library| &library.lines) {
        hash.update(becomes);
    }
    let key = hash.finalize().iter().take(6).fold(String::new(), |key, byte| key + &format!("{byte:02x}"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(format!("real-{folder}"));
    fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    let lock = File::create(root.join("lock")).context("create the build lock")?;
    lock.lock().context("wait for another run that builds it")?;
    let done = root.join(key);
    if done.is_file() {
        return Ok(done);
    }
    println!("Building {folder} for the tests on real clusters (once; minutes when Go's cache is empty).");
    let fresh = done.with_extension("building");
    let mut build = go(&module);
    build.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&fresh);
    let with = library.map(|library| edited(&module, library)).transpose()?;
    if let Some(with) = &with {
        build.arg("-modfile").arg(with.path().join("go.mod"));
    }
    let built = build.arg(package).output()?;
    ensure!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&fresh, &done).context("put the program in its place")?;
    Ok(done)
}

/// A `go.mod` as that of `module`, but with a copy of a library in which lines are other ones.
fn edited(module: &Path, library: &Edited) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("library");
    let copied = Command::new("cp")
        .args(["-r", "--no-preserve=mode"])
        .arg(module_folder(module, library.module)?)
        .arg(&copy)
        .status();
    ensure!(copied.context("run cp")?.success(), "cannot copy {}", library.module);
    for (file, line, becomes) in &library.lines {
        let path = copy.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(text.lines().any(|there| there == *line), "{file} has no line {line:?}");
        fs::write(&path, text.replace(line, becomes))?;
    }
    for file in ["go.mod", "go.sum"] {
        fs::copy(module.join(file), folder.path().join(file))?;
    }
    let replace = format!("-replace={}={}", library.module, copy.display());
    let edit = go(folder.path()).args(["mod", "edit", &replace]).output()?;
    ensure!(edit.status.success(), "go mod edit: {}", String::from_utf8_lossy(&edit.stderr));
    Ok(folder)
}

/// Where a module lies that a folder under `tools` pins.
fn module_folder(folder: &Path, module: &str) -> Result<PathBuf> {
    let download = go(folder).args(["mod", "download", module]).output()?;
    ensure!(download.status.success(), "go mod download: {}", String::from_utf8_lossy(&download.stderr));
    let found = go(folder).args(["list", "-m", "-f", "{{.Dir}}", module]).output()?;
    ensure!(found.status.success(), "go list {module}: {}", String::from_utf8_lossy(&found.stderr));
    Ok(PathBuf::from(String::from_utf8(found.stdout)?.trim()))
}

fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOBIN");
    command
}

fn compile(module: &Path, out: &Path) -> Result<()> {
    println!(
        "Building etcd, Kubernetes, Kueue, JobSet and kwok for the tests on real clusters (once; about 6 minutes on 2 cores \
         when Go's cache is empty)."
    );
    let log_path = out.join("build.log");
    let log = File::create(&log_path)?;
    // One invocation, so that shared packages are compiled once and every core has work.
    let mut child = go(module)
        .args(["build", "-trimpath", "-ldflags", LD_FLAGS, "-o"])
        .arg(out.join(""))
        .args(PACKAGES.map(|(_, package)| package))
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start go build")?;
    let start = Instant::now();
    let mut told = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if told + Duration::from_secs(30) <= start.elapsed() {
            told = start.elapsed();
            println!("  still building after {} s", told.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!("go build failed ({status}):\n{}", fs::read_to_string(&log_path).unwrap_or_default());
    }
    // Go names a program after the last folder that is not a version.
    fs::rename(out.join("server"), out.join("etcd")).context("name etcd")?;
    println!("Built them in {} s.", start.elapsed().as_secs());
    Ok(())
}

fn copy_manifests(module: &Path, out: &Path) -> Result<()> {
    let download =
        go(module).args(["mod", "download"]).args(MANIFESTS.map(|(module, ..)| module)).output()?;
    ensure!(download.status.success(), "go mod download: {}", String::from_utf8_lossy(&download.stderr));
    for (name, from, to) in MANIFESTS {
        let found = go(module).args(["list", "-m", "-f", "{{.Dir}}", name]).output()?;
        ensure!(found.status.success(), "go list {name}: {}", String::from_utf8_lossy(&found.stderr));
        let from = Path::new(String::from_utf8(found.stdout)?.trim()).join(from);
        let to = out.join(to);
        fs::create_dir_all(&to)?;
        let sources = if from.is_dir() {
            fs::read_dir(&from)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?
        } else {
            vec![from]
        };
        for path in sources {
            let Some(name) = path.file_name().filter(|name| *name != "kustomization.yaml") else { continue };
            if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml") {
                // Not `fs::copy`: Go's module cache is read-only, and a copy of the mode could not be removed.
                fs::write(to.join(name), fs::read(&path)?)
                    .with_context(|| format!("copy {}", path.display()))?;
            }
        }
    }
    Ok(())
}
