//! Ports of this machine that lead to ports of a task.

use std::{io, net::Ipv4Addr, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::WriteHalf},
    time::timeout,
};

use crate::{
    INTERRUPTED, Session,
    args::{PortForwardArgs, Ports},
    client::{Api, socket::Hears},
    error::CliError,
    print::Printer,
};
use fedq_wire::{problem::Code, task::TaskDetail};

const PROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const ERROR: u8 = 1;
/// How long whoever has no more to say waits for an answer that does not come.
const LAST_WORDS: Duration = Duration::from_secs(10);

pub async fn forward(args: PortForwardArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    // What is wrong with the task shows before anybody connects.
    let detail: TaskDetail = api.get(&crate::task::path(&args.id, "")).await?;
    if matches!(detail.task.phase.as_str(), "succeeded" | "failed" | "stopped") {
        let message = format!("task {} is {}: only what runs has ports", args.id, detail.task.phase);
        return Err(CliError::Failed { message, next: None });
    }
    let mut listeners = Vec::new();
    for ports in &args.ports {
        let listener = listen(ports.local).await?;
        let local = listener.local_addr().map_err(|source| unusable(ports.local, &source))?;
        printer.line(&format!("{local} leads to port {} of node {}", ports.remote, args.node))?;
        listeners.push((listener, ports.remote));
    }
    tokio::select! {
        ended = serve(&args, &listeners, api, printer) => ended,
        _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED),
    }
}

async fn listen(port: u16) -> Result<TcpListener, CliError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|source| unusable(port, &source))
}

fn unusable(port: u16, source: &io::Error) -> CliError {
    CliError::Failed {
        message: format!("cannot listen on port {port} of this machine: {source}"),
        next: Some("name another before the task's port, such as 18888:8888, or 0 for any".to_owned()),
    }
}

/// Until the task or the right to it is gone.
async fn serve(
    args: &PortForwardArgs,
    listeners: &[(TcpListener, u16)],
    api: &Api,
    printer: &mut Printer,
) -> Result<u8, CliError> {
    let mut open = FuturesUnordered::new();
    loop {
        let mut accepting: FuturesUnordered<_> = listeners.iter().map(accept).collect();
        tokio::select! {
            Some((accepted, port)) = accepting.next() => match accepted {
                Ok(stream) => open.push(connect(args, stream, port, api)),
                Err(error) => printer.warning(&format!("a connection could not be accepted: {error}")),
            },
            Some(ended) = open.next() => match ended {
                Ok(()) => {}
                Err(error) if matches!(error.code(), Some(Code::NotFound | Code::Unauthorized | Code::Forbidden)) => {
                    return Err(error);
                }
                Err(error) => printer.error(&error),
            },
        }
    }
}

async fn accept((listener, port): &(TcpListener, u16)) -> (io::Result<TcpStream>, u16) {
    (listener.accept().await.map(|(stream, _)| stream), *port)
}

async fn connect(args: &PortForwardArgs, mut local: TcpStream, port: u16, api: &Api) -> Result<(), CliError> {
    let path = crate::task::path(&args.id, &format!("/portforward?port={port}&node={}", args.node));
    let (hears, mut says) = api.socket(&path, PROTOCOL).await?.split();
    let (mut from_local, mut to_local) = local.split();
    let speaks = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            tokio::select! {
                () = says.ping_due() => says.ping().await?,
                read = from_local.read(&mut buffer) => match read {
                    Ok(read @ 1..) => says.send(DATA, &buffer[..read]).await?,
                    _ => return Ok::<_, CliError>(()),
                },
            }
        }
    };
    let mut hearing = std::pin::pin!(hear(hears, &mut to_local, port));
    tokio::select! {
        ended = &mut hearing => return ended,
        said = speaks => said?,
    }
    // An answer may follow what was said last.
    timeout(LAST_WORDS, hearing).await.unwrap_or(Ok(()))
}

async fn hear(mut hears: Hears, to_local: &mut WriteHalf<'_>, port: u16) -> Result<(), CliError> {
    let mut begun = [false; 2];
    while let Some((channel, bytes)) = hears.next().await? {
        match channel {
            // Each channel begins with the port.
            DATA | ERROR if !begun[usize::from(channel)] => begun[usize::from(channel)] = true,
            // Whoever was connected has gone.
            DATA if to_local.write_all(&bytes).await.is_err() => break,
            ERROR => {
                let message = format!("port {port}: {}", String::from_utf8_lossy(&bytes));
                return Err(CliError::Failed { message, next: None });
            }
            _ => {}
        }
    }
    Ok(())
}

impl std::str::FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no port: write 8888, or 18888:8888 for another one here, or :8888 for any")
        };
        let (local, remote) = match text.split_once(':') {
            Some(("", remote)) => ("0", remote),
            Some(both) => both,
            None => (text, text),
        };
        let local = local.parse().map_err(|_| wrong())?;
        match remote.parse() {
            Ok(remote @ 1..) => Ok(Self { local, remote }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_kubectl() {
        let read = |text: &str| text.parse::<Ports>().map(|ports| (ports.local, ports.remote)).ok();
        assert_eq!(read("8888"), Some((8888, 8888)));
        assert_eq!(read("80:8888"), Some((80, 8888)));
        assert_eq!((read(":8888"), read("0:8888")), (Some((0, 8888)), Some((0, 8888))));
        for wrong in ["", ":", "0", "1:0", "x", "1:2:3", "65536", "-1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
