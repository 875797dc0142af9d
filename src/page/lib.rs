//! The web page: files that are part of the program, and how browsers are to treat them. What it shows it gets from the
//! REST API, with the token of whoever looks; the files themselves tell nothing of any cluster, so they need no login.
//!
//! All addresses are relative: behind a proxy the page works under any prefix.

use std::sync::LazyLock;

use axum::{
    Router,
    extract::Path,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use sha2::{Digest, Sha256};

/// Where it is served.
const PATH: &str = "/ui";

/// Scripts, styles and requests of its own origin only; nothing may frame it, and no text becomes markup, not even by a
/// mistake in a script. `data:` is for the icon.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Of files that never change under their address.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// One that is asked for under [`PATH`], under a folder named by what all of them hold.
struct Asset {
    name: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($folder:literal / $name:literal),* $(,)?) => {
        &[$(Asset { name: $name, text: include_str!(concat!($folder, "/", $name)) }),*]
    };
}

const ASSETS: &[Asset] = assets![
    "assets" / "ansi.js",
    "assets" / "chart.js",
    "assets" / "format.js",
    "assets" / "http.js",
    "assets" / "live.js",
    "assets" / "main.js",
    "assets" / "merge.js",
    "assets" / "route.js",
    "assets" / "style.css",
    "assets" / "ui.js",
    "assets" / "views/audit.js",
    "assets" / "views/claims.js",
    "assets" / "views/edit.js",
    "assets" / "views/fleet.js",
    "assets" / "views/history.js",
    "assets" / "views/log.js",
    "assets" / "views/placements.js",
    "assets" / "views/queues.js",
    "assets" / "views/task.js",
    "assets" / "views/tasks.js",
    "vendor" / "preact.js",
    "vendor" / "uplot.css",
    "vendor" / "uplot.js",
];

const INDEX: &str = include_str!("assets/index.html");
/// Stands for the folder in [`INDEX`].
const FOLDER: &str = "{folder}";

/// The page as this program serves it.
struct Page {
    index: String,
    /// Names the folder of the assets: another version has another, so nothing old is taken from a cache.
    version: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    for Asset { name, text } in ASSETS.iter().chain([&Asset { name: "index.html", text: INDEX }]) {
        // With their lengths: where one ends and the next begins counts as well.
        for part in [name, text] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
    }
    let version =
        digest.finalize()[..8].iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    Page { index: INDEX.replace(FOLDER, &format!("assets/{version}")), version }
});

/// All that is under `/ui`.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        // Relative, since a proxy may have taken a prefix off the path.
        .route(PATH, get(async || (StatusCode::TEMPORARY_REDIRECT, HEADERS, [(header::LOCATION, "ui/")])))
        .route(&format!("{PATH}/"), get(index))
        .route(&format!("{PATH}/assets/{{version}}/{{*name}}"), get(asset))
}

async fn index() -> Response {
    let tag = HeaderValue::from_str(&format!("\"{}\"", PAGE.version)).expect("a digest is text");
    let media = HeaderValue::from_static("text/html; charset=utf-8");
    let revalidated = HeaderValue::from_static("no-cache");
    let headers = [(header::CONTENT_TYPE, media), (header::CACHE_CONTROL, revalidated), (header::ETAG, tag)];
    (HEADERS, headers, PAGE.index.as_str()).into_response()
}

async fn asset(Path((version, name)): Path<(String, String)>) -> Response {
    let found = ASSETS.iter().find(|asset| asset.name == name && version == PAGE.version);
    let Some(asset) = found else {
        let headers = [(header::CONTENT_TYPE, "text/plain"), (header::CACHE_CONTROL, "no-store")];
        let text = "There is no such file in this version of the page: load the page anew.\n";
        return (StatusCode::NOT_FOUND, HEADERS, headers, text).into_response();
    };
    let headers = [(header::CONTENT_TYPE, media(asset.name)), (header::CACHE_CONTROL, FOR_EVER)];
    let tag = [(header::ETAG, format!("\"{version}\""))];
    (HEADERS, headers, tag, asset.text).into_response()
}

fn media(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    }
}
