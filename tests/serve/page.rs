//! The files of the web page: how they are served, and that they tell nothing and ask nobody else.

use std::{collections::BTreeSet, fs, path::Path};

use axum::{Router, body::Body, http::Request};
use flate2::read::GzDecoder;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::server::{served, served_as};

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

async fn get(router: &Router, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// What the page's own files name, from the index on: `src` and `href` of markup, imports of scripts.
async fn files(router: &Router) -> Vec<(String, Answer)> {
    let index = get(router, "/ui/", &[]).await;
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut next: Vec<String> = between(&index.text(), &["src=\"", "href=\""]).collect();
    while let Some(name) = next.pop() {
        if name.starts_with("data:") || !known.insert(name.clone()) {
            continue;
        }
        let answer = get(router, &format!("/ui/{name}"), &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}");
        let folder = name.rsplit_once('/').unwrap().0.to_owned();
        if extension(&name) == "js" {
            let imported =
                between(&answer.text(), &["from \"", "import(\"", "import \""]).collect::<Vec<_>>();
            next.extend(imported.into_iter().filter(|to| to.starts_with('.')).map(|to| joined(&folder, &to)));
        }
        found.push((name, answer));
    }
    assert!(5 < found.len());
    found
}

fn between<'a>(text: &'a str, marks: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let of = move |mark: &'a &str| text.split(*mark).skip(1).filter_map(|rest| rest.split('"').next());
    marks.iter().flat_map(of).map(str::to_owned)
}

fn extension(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

fn joined(folder: &str, to: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in to.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[tokio::test]
async fn every_file_is_guarded_and_those_that_never_change_are_kept_for_ever() {
    let served = served().await;
    let index = get(&served.router, "/ui/", &[]).await;
    let files = files(&served.router).await;
    let all = [("ui/".to_owned(), index)].into_iter().chain(files);
    for (name, answer) in all {
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{name}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{name}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{name}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{name}");
        assert!(answer.headers.get("set-cookie").is_none(), "{name}");
        let cached = if name == "ui/" { "no-cache" } else { "public, max-age=31536000, immutable" };
        assert_eq!(answer.header("cache-control"), cached, "{name}");
        let media = match extension(&name) {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(answer.header("content-type"), media, "{name}");
    }
}

#[tokio::test]
async fn what_is_known_is_not_sent_again_and_what_is_sent_is_packed() {
    let served = served().await;
    let plain = get(&served.router, "/ui/", &[]).await;
    let packed = get(&served.router, "/ui/", &[("accept-encoding", "gzip")]).await;
    for (tag, status) in [(plain.header("etag"), 304), (packed.header("etag"), 304), ("\"another\"", 200)] {
        let again = get(&served.router, "/ui/", &[("if-none-match", tag), ("accept-encoding", "gzip")]).await;
        assert_eq!(again.status.as_u16(), status, "{tag}");
    }
    let mut wire = 0;
    for (name, answer) in files(&served.router).await {
        let packed = get(&served.router, &format!("/ui/{name}"), &[("accept-encoding", "gzip")]).await;
        if packed.header("content-encoding") == "gzip" {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut GzDecoder::new(packed.body.as_slice()), &mut text).unwrap();
            assert_eq!(text, answer.text(), "{name}");
        } else {
            assert!(answer.body.len() < 1500, "{name} is sent as it is");
        }
        wire += packed.body.len();
    }
    // All of it, also what the first view does not ask for. The budget of a first view with its data is 300 kB.
    assert!(wire < 130_000, "{wire} bytes");
}

#[tokio::test]
async fn it_works_under_a_prefix_that_a_proxy_takes_off() {
    let served = served().await;
    let answer = get(&served.router, "/ui", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (307, "ui/"), "relative to the request");
    let index = get(&served.router, "/ui/", &[]).await.text();
    let names: Vec<String> = between(&index, &["src=\"", "href=\""]).collect();
    assert!(
        names.iter().all(|name| name.starts_with("assets/") || name.starts_with("data:image/")),
        "{names:?}"
    );
}

#[tokio::test]
async fn files_of_another_version_are_not_there() {
    let served = served().await;
    for path in
        ["/ui/assets/0123456789abcdef/main.js", "/ui/assets/main.js", "/ui/secret", "/ui/assets/x/../main.js"]
    {
        let answer = get(&served.router, path, &[]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.header("cache-control").contains("immutable"), "{path}");
    }
}

#[tokio::test]
async fn it_is_off_where_that_is_configured() {
    let served = served_as(|parts| parts.page = false).await;
    for path in ["/ui", "/ui/"] {
        let answer = get(&served.router, path, &[]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.header("content-type"), "application/problem+json", "{path}");
    }
}

/// Everything is its own, and nobody who is not logged in learns a name from it.
#[tokio::test]
async fn it_asks_nobody_else_and_tells_nothing_of_the_fleet() {
    let served = served().await;
    let index = ("index".to_owned(), get(&served.router, "/ui/", &[]).await);
    for (name, answer) in files(&served.router).await.into_iter().chain([index]) {
        let text = answer.text();
        // But for the name space that drawings have, and what comments name.
        let is_comment = |line: &&str| ["//", "*"].iter().any(|start| line.trim_start().starts_with(start));
        let code = text.lines().filter(|line| !is_comment(line)).collect::<Vec<_>>().join("\n");
        let code = code.replace("http://www.w3.org/", "");
        for address in ["http://", "https://", "\"//", "'//", "@import", "url(http"] {
            assert!(!code.contains(address), "{name} names {address}");
        }
        for told in ["east", "west-", "team-a", "fedq-system/", "api.example.com"] {
            assert!(!text.contains(told), "{name} tells of {told}");
        }
        if !name.contains("preact.js") && !name.contains("uplot") {
            for markup in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "dangerously"]
            {
                assert!(!text.contains(markup), "{name} makes markup of text: {markup}");
            }
            assert!(
                !text.contains("sessionStorage") && !text.contains("document.cookie"),
                "{name} stores something"
            );
        }
    }
}

/// What lies in the folders is served, and nothing is forgotten.
#[tokio::test]
async fn every_file_of_the_folder_is_served() {
    let served = served().await;
    let mut wanted = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
    for (folder, inside) in [("assets", ""), ("assets/views", "views/"), ("vendor", "")] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if ["js", "css"].contains(&extension(&name)) {
                wanted.insert(format!("{inside}{name}"));
            }
        }
    }
    let of = |name: String| name.splitn(3, '/').nth(2).unwrap().to_owned();
    let found: BTreeSet<String> = files(&served.router).await.into_iter().map(|(name, _)| of(name)).collect();
    assert_eq!(found, wanted);
}
