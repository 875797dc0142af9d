//! `fedq login`: try what is given, then remember it.

use super::{
    DONE, Session,
    args::LoginArgs,
    client::Api,
    error::CliError,
    settings::{self, ConfigFile, Settings},
};
use fedq_k8s::onboard;
use fedq_wire::{claim::Claim, list::List, problem::Code};

pub async fn run(args: LoginArgs, session: &mut Session) -> Result<u8, CliError> {
    let server = session.connection.server.clone().ok_or_else(|| {
        CliError::usage("which server?", "fedq login --server https://fedq.example.com --token -")
    })?;
    let ca = match &session.connection.ca_file {
        Some(path) => Some(settings::read_text(path)?),
        None => session.connection.ca.clone(),
    };
    let (token, stored) = token(&args, session).await?;
    let settings = Settings { server: server.clone(), ca: ca.clone(), token: Some(token.clone()) };
    // Whoever may not read can log in nevertheless, but should hear of it now.
    let refused = match Api::new(&settings)?.get::<List<Claim>>("/claims?limit=1").await {
        Ok(_) => None,
        Err(error) if error.code() == Some(Code::Forbidden) => Some(error),
        Err(error) => return Err(error),
    };
    let file = ConfigFile {
        server: Some(server.clone()),
        ca,
        token: stored.then_some(token),
        token_command: args.token_command,
    };
    let path = settings::config_path(&session.connection);
    settings::write(&path, &file)?;
    session.printer.note(&format!("Logged in to {server}; remembered in {}", path.display()));
    if let Some(refused) = refused {
        session.printer.warning(&format!("you may not read claims: {refused}"));
        if let Some(next) = refused.next() {
            session.printer.note(&format!("next: {next}"));
        }
    }
    Ok(DONE)
}

/// The token, and whether it is to be remembered itself.
async fn token(args: &LoginArgs, session: &mut Session) -> Result<(String, bool), CliError> {
    if let Some(command) = &args.token_command {
        return Ok((settings::run_token_command(command)?, false));
    }
    if let (Some(path), Some(account)) = (&args.kubeconfig, &args.service_account) {
        let kubeconfig = settings::read_text(path)?;
        let Some((namespace, name)) = account.split_once('/') else {
            return Err(CliError::usage(
                format!("`{account}` is not NAMESPACE/NAME"),
                "name the ServiceAccount such as team-a/alice",
            ));
        };
        let request = onboard::TokenFor {
            namespace,
            name,
            audience: &args.audience,
            seconds: i64::from(args.hours) * 3600,
        };
        let token =
            onboard::request_token(kubeconfig.as_bytes(), args.context.as_deref(), path.parent(), &request);
        return Ok((token.await.map_err(|error| refused(&error))?, true));
    }
    let token = match session.connection.token.as_deref() {
        Some("-") => settings::read_text(std::path::Path::new("-"))?.trim().to_owned(),
        Some(token) => token.to_owned(),
        None => String::new(),
    };
    if token.is_empty() {
        return Err(CliError::usage(
            "no token",
            "fedq login --token - reads it from stdin; see fedq login --help",
        ));
    }
    Ok((token, true))
}

fn refused(error: &onboard::OnboardError) -> CliError {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let message = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let next =
        "your rights must allow to create serviceaccounts/token there; or give a token: fedq login --token -";
    CliError::Failed { message, next: Some(next.to_owned()) }
}
