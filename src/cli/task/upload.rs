//! What of this machine a task file names is sent before the task: packed, and only where the server does not have it yet.

use std::{
    collections::BTreeMap,
    env,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::{Body, Bytes};
use futures::stream;

use super::pack::{self, Packed, pack, size};
use crate::{client::Api, error::CliError, print::Printer};
use fedq_domain::task::{
    sky::{self, Options},
    upload::{Archive, Digest},
};
use fedq_wire::upload::Upload;

/// What is sent at a time, so that it can be told how much of it is.
const CHUNK: usize = 64 << 10;
/// What takes less is not worth a word.
const SLOW: Duration = Duration::from_secs(1);
const TELL_EACH: Duration = Duration::from_millis(500);

/// Packs what the file names, by what it is called there.
pub async fn pack_all(text: &[u8], options: &Options) -> Result<BTreeMap<String, Packed>, CliError> {
    let sources = sky::sources(text, options);
    // It may be much to read and to compress.
    let packed = tokio::task::spawn_blocking(move || {
        let pack = |source: String| Ok((source.clone(), pack(&place(&source)?, &source)?));
        sources.into_iter().map(pack).collect()
    });
    packed
        .await
        .map_err(|error| CliError::Failed { message: format!("packing broke off: {error}"), next: None })?
}

/// As the server would have them, for who only reads the file.
pub fn as_sent(packed: &BTreeMap<String, Packed>) -> BTreeMap<String, Archive> {
    let archive = |packed: &Packed| Archive {
        digest: packed.digest.clone(),
        bytes: u64::try_from(packed.data.len()).unwrap_or(u64::MAX),
        file: packed.file,
    };
    packed.iter().map(|(source, packed)| (source.clone(), archive(packed))).collect()
}

/// The same without reading what it is, since of many files nothing is sent; and what is not here.
pub fn as_if_sent(text: &[u8], options: &Options) -> (BTreeMap<String, Archive>, Vec<String>) {
    let mut missing = Vec::new();
    let archive = |source: String| {
        let file = place(&source).ok().and_then(|place| place.metadata().ok()).map(|found| found.is_file());
        if file.is_none() {
            missing.push(source.clone());
        }
        (source, Archive { digest: Digest::of([0; 32]), bytes: 0, file: file.unwrap_or(false) })
    };
    let sent = sky::sources(text, options).into_iter().map(archive).collect();
    (sent, missing)
}

/// `~` is the home of whoever submits, as with SkyPilot.
fn place(source: &str) -> Result<PathBuf, CliError> {
    let Some(rest) = source.strip_prefix('~') else { return Ok(PathBuf::from(source)) };
    let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    match (home, rest.strip_prefix('/')) {
        (Some(home), Some(below)) => Ok(home.join(below)),
        (Some(home), None) if rest.is_empty() => Ok(home),
        (None, _) => Err(CliError::usage(
            format!("`{source}` is in your home, and the environment names none"),
            "set HOME, or write the whole path",
        )),
        (Some(_), None) => Err(CliError::usage(
            format!("`{source}` is in another one's home"),
            "write the whole path, or one from the current folder on",
        )),
    }
}

/// Sends what the server does not have. With `dry_run` nothing is sent, but it is found out whether it could be.
pub async fn send_all(
    api: &Api,
    packed: BTreeMap<String, Packed>,
    dry_run: bool,
    printer: &mut Printer,
) -> Result<BTreeMap<String, String>, CliError> {
    let mut digests = BTreeMap::new();
    for (source, packed) in packed {
        let digest = packed.digest.to_string();
        let path = format!("/uploads/{digest}");
        let known: Upload = api.get(&path).await?;
        let bytes = u64::try_from(packed.data.len()).unwrap_or(u64::MAX);
        if known.max_bytes < bytes {
            return Err(pack::too_large(&source, (bytes, known.max_bytes), &packed.largest));
        }
        if !known.stored && !dry_run {
            send(api, &path, (&source, packed.data), printer).await?;
        }
        digests.insert(source, digest);
    }
    Ok(digests)
}

async fn send(
    api: &Api,
    path: &str,
    (source, data): (&str, Vec<u8>),
    printer: &mut Printer,
) -> Result<(), CliError> {
    let data = Bytes::from(data);
    let total = data.len();
    let sent = Arc::new(AtomicUsize::new(0));
    let began = tokio::time::Instant::now();
    let sending = api.put_archive(path, (total, body(data, Arc::clone(&sent))));
    tokio::pin!(sending);
    let outcome = loop {
        match tokio::time::timeout(TELL_EACH, &mut sending).await {
            Ok(outcome) => break outcome,
            Err(_) if began.elapsed() < SLOW || !printer.is_interactive() => {}
            Err(_) => {
                let so_far = size(u64::try_from(sent.load(Ordering::Relaxed)).unwrap_or(u64::MAX));
                let all = size(u64::try_from(total).unwrap_or(u64::MAX));
                printer.progress(&format!("sending {source}: {so_far} of {all}"));
            }
        }
    };
    printer.done();
    outcome.map(|_: Upload| ())
}

/// Of known length, and counted as it goes out.
fn body(data: Bytes, sent: Arc<AtomicUsize>) -> Body {
    let chunks = (0..data.len()).step_by(CHUNK).map(move |begin| {
        let chunk = data.slice(begin..data.len().min(begin + CHUNK));
        sent.fetch_add(chunk.len(), Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(chunk)
    });
    Body::from_stream(stream::iter(chunks))
}
