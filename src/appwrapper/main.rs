//! Entry of the controller.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use fedq_appwrapper::{api, config::OperatorConfig, run};
use tracing_subscriber::EnvFilter;

/// Runs AppWrappers on this cluster, in the place of the upstream operator.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A YAML file with the operator's configuration; without it everything has its default.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where the Secret of the certificate and the Lease are.
    #[arg(long, env = "NAMESPACE", default_value = "fedq-appwrapper")]
    namespace: String,
    /// Told apart in the Lease.
    #[arg(long, env = "POD_NAME", default_value = "fedq-appwrapper")]
    identity: String,
    /// Which lines are logged, such as `info` or `fedq_appwrapper=debug`.
    #[arg(long, env = "FEDQ_LOG", default_value = "info")]
    log: String,
    /// Print the definition of the kind instead.
    #[arg(long)]
    print_crd: bool,
}

fn main() -> ExitCode {
    let outcome = started();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
            tracing::error!("{}", chain.join(": "));
            ExitCode::FAILURE
        }
    }
}

fn started() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.print_crd {
        return Ok(std::io::stdout().write_all(serde_saphyr::to_string(&api::crd())?.as_bytes())?);
    }
    let filter = EnvFilter::try_new(&arguments.log).with_context(|| format!("--log `{}`", arguments.log))?;
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    // An error only says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = match &arguments.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            OperatorConfig::read(&text).with_context(|| path.display().to_string())?
        }
        None => OperatorConfig::default(),
    };
    // It waits for the server most of the time: a second thread would cost more than it does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run::run(config, arguments.namespace, arguments.identity))
}
