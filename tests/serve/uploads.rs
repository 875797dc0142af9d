//! `/api/v1/uploads`, and tasks that bring along what was sent there.

use std::io::Write;

use axum::{body::Body, http::Request};
use fedq_domain::task::upload::{Digest, WORKDIR};
use flate2::{Compression, write::GzEncoder};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::EntryType as Kind;
use tower::ServiceExt;

use super::server::{ANN, BOB, GUEST, STRANGER, Served, served};

/// A `tar.gz` of one folder with one file of so much noise, and its digest.
fn archive(bytes: usize) -> (Vec<u8>, String) {
    let mut noise = Vec::new();
    while noise.len() < bytes {
        noise.extend_from_slice(&Sha256::digest(noise.len().to_le_bytes()));
    }
    noise.truncate(bytes);
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, data) in [("./", Kind::Directory, &[][..]), ("noise", Kind::Regular, &noise)] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(u64::try_from(data.len()).unwrap());
        builder.append_data(&mut header, name, data).unwrap();
    }
    digested(builder.into_inner().unwrap().finish().unwrap())
}

fn digested(data: Vec<u8>) -> (Vec<u8>, String) {
    let digest = Digest::of(Sha256::digest(&data).into()).to_string();
    (data, digest)
}

async fn put(served: &Served, token: &str, digest: &str, body: impl Into<Body>) -> (u16, Value) {
    put_as(served, token, digest, (Some("application/octet-stream"), body.into())).await
}

async fn put_as(
    served: &Served,
    token: &str,
    digest: &str,
    (media, body): (Option<&str>, Body),
) -> (u16, Value) {
    let mut request = Request::builder()
        .method("PUT")
        .uri(format!("/api/v1/uploads/{digest}"))
        .header("authorization", format!("Bearer {token}"));
    if let Some(media) = media {
        request = request.header("content-type", media);
    }
    let response = served.send(request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn get(served: &Served, token: &str, digest: &str) -> Value {
    let (status, told) = served.call(token, &format!("GET /uploads/{digest}"), Value::Null).await;
    assert_eq!(status, 200, "{told}");
    told
}

#[tokio::test]
async fn what_was_sent_is_there_for_whoever_sent_it_and_goes_with_their_task() {
    let served = served().await;
    let (data, digest) = archive(100_000);
    assert_eq!(
        get(&served, ANN, &digest).await,
        json!({"digest": digest, "stored": false, "maxBytes": 1 << 20})
    );
    let bytes = data.len();
    let expected = json!({"digest": digest, "stored": true, "bytes": bytes, "maxBytes": 1 << 20});
    for _ in 0..2 {
        assert_eq!(put(&served, ANN, &digest, data.clone()).await, (200, expected.clone()));
        assert_eq!(get(&served, ANN, &digest).await, expected);
    }
    assert_eq!(get(&served, BOB, &digest).await["stored"], false);
    let (mounted, file) = {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        builder.append_data(&mut header, "file", &b"key"[..]).unwrap();
        digested(builder.into_inner().unwrap().finish().unwrap())
    };
    assert_eq!(put(&served, ANN, &file, mounted).await.0, 200);
    let task = json!({
        "file": "workdir: .\nfile_mounts: {~/.key: ./k}\nrun: x\n", "uploads": {".": digest, "./k": file},
    });
    let (status, answer) = served.call(ANN, "POST /tasks", task.clone()).await;
    assert_eq!((status, answer.get("warnings")), (201, None), "{answer}");
    let rows = served.store.live_tasks().await.unwrap();
    let uploads = &rows[0].spec.uploads;
    assert_eq!(
        uploads.iter().map(|upload| (upload.path.as_str(), upload.archive.file)).collect::<Vec<_>>(),
        [(WORKDIR, false), ("~/.key", true)]
    );
    assert_eq!(usize::try_from(uploads[0].archive.bytes), Ok(bytes));
    assert_eq!(served.store.upload_data("ann", &uploads[0].archive.digest).await.unwrap(), Some(data));
    let (status, refused) = served.call(BOB, "POST /tasks", task).await;
    assert_eq!((status, &refused["code"]), (422, &json!("invalid")));
    assert!(
        refused["detail"].as_str().unwrap().starts_with(&format!("you sent no archive {digest}")),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_not_whole_not_harmless_or_too_much_is_refused_and_leaves_nothing() {
    let served = served().await;
    let (whole, digest) = archive(10_000);
    let of_plain = |name: &str, kind: Kind, link: &str| {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, &[][..]).unwrap();
        digested(builder.into_inner().unwrap().finish().unwrap())
    };
    let bomb = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![0; 1 << 20];
        (0..65).for_each(|_| encoder.write_all(&zeros).unwrap());
        digested(encoder.finish().unwrap())
    };
    let cut = digested(whole[..whole.len() - 20].to_vec());
    for ((data, name), status, code, told) in [
        ((whole.clone(), "0".repeat(64)), 422, "invalid", format!("its SHA-256 is {digest}")),
        ((whole[..5000].to_vec(), digest.clone()), 422, "invalid", "is not what the path names".to_owned()),
        (cut, 422, "invalid", "no whole tar.gz".to_owned()),
        (of_plain("../a", Kind::Regular, ""), 422, "invalid", "`../a` leads out".to_owned()),
        (of_plain("/a", Kind::Regular, ""), 422, "invalid", "`/a` is an absolute path".to_owned()),
        (of_plain("a", Kind::Block, ""), 422, "invalid", "`a` is a device".to_owned()),
        (of_plain("a", Kind::Link, "/etc/passwd"), 422, "invalid", "`a` is a hard link".to_owned()),
        (of_plain("a", Kind::Symlink, "../../b"), 422, "invalid", "`a` is a link that leads out".to_owned()),
        (bomb, 422, "invalid", "more than 67108864 bytes when unpacked".to_owned()),
        (archive((1 << 20) + 1), 413, "too-large", "at most 1048576 bytes".to_owned()),
    ] {
        let (found, problem) = put(&served, ANN, &name, data).await;
        assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(&told), "{told}: {problem}");
        assert!(problem["next"].is_string(), "{problem}");
        assert_eq!(get(&served, ANN, &name).await["stored"], false, "{told}");
    }
    // As it comes over the network, not as a whole.
    let frames = |data: &[u8], end: Option<std::io::Error>| {
        let frames: Vec<_> = data.chunks(1000).map(|chunk| Ok(chunk.to_vec())).chain(end.map(Err)).collect();
        Body::from_stream(futures::stream::iter(frames))
    };
    let streamed = async |digest: &str, length: Option<usize>, body: Body| {
        let mut request = Request::builder()
            .method("PUT")
            .uri(format!("/api/v1/uploads/{digest}"))
            .header("authorization", format!("Bearer {ANN}"))
            .header("content-type", "application/octet-stream");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let response = served.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        (status, problem["code"].as_str().unwrap().to_owned())
    };
    let (large, name) = archive((1 << 20) + 1);
    let too_large = (413, "too-large".to_owned());
    assert_eq!(streamed(&name, None, frames(&large, None)).await, too_large, "it says nothing of its size");
    let endless = Body::from_stream(futures::stream::pending::<std::io::Result<Vec<u8>>>());
    assert_eq!(streamed(&name, Some(large.len()), endless).await, too_large, "nothing of it is waited for");
    let broken = frames(&whole[..5000], Some(std::io::Error::other("gone")));
    let bad = (400, "bad-request".to_owned());
    assert_eq!(streamed(&digest, Some(whole.len()), broken).await, bad, "it breaks off");
    for media in [None, Some("application/json"), Some("application/x-tar")] {
        let (status, problem) = put_as(&served, ANN, &digest, (media, Body::from(whole.clone()))).await;
        assert_eq!((status, &problem["code"]), (415, &json!("unsupported-media-type")), "{media:?}");
    }
    for wrong in ["x", &digest.to_uppercase(), &digest[1..]] {
        assert_eq!(put(&served, ANN, wrong, whole.clone()).await.0, 400, "{wrong}");
    }
    for token in [GUEST, STRANGER, "nobody"] {
        let status = put(&served, token, &digest, whole.clone()).await.0;
        assert!(matches!(status, 401 | 403), "{token}: {status}");
    }
    assert_eq!(get(&served, ANN, &digest).await["stored"], false);
}

#[tokio::test]
async fn tasks_name_only_what_is_there_and_no_more_than_one_may_bring_along() {
    let served = served().await;
    let (one, first) = archive(600_000);
    let (other, second) = archive(600_001);
    for (data, digest) in [(one, &first), (other, &second)] {
        assert_eq!(put(&served, ANN, digest, data).await.0, 200);
    }
    let file = "workdir: a\nfile_mounts: {/b: b}\nrun: x\n";
    let submit = async |uploads: Value, query: &str| {
        served.call(ANN, &format!("POST /tasks{query}"), json!({"file": file, "uploads": uploads})).await
    };
    let unknown = "7".repeat(64);
    for (uploads, field, detail) in [
        (json!({"a": "x"}), "uploads.a", "SHA-256"),
        (json!({"a": unknown}), "", "you sent no archive 7777"),
        (json!({"a": first, "b": second}), "", "bytes together, and a task brings along at most 1048576"),
    ] {
        let (status, problem) = submit(uploads.clone(), "").await;
        assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{uploads}: {problem}");
        assert_eq!(problem["causes"][0]["field"].as_str().unwrap_or_default(), field, "{problem}");
    }
    let (status, dry) = submit(json!({"a": first, "b": unknown}), "?dryRun=All").await;
    assert_eq!(status, 200, "what would be sent is taken for granted: {dry}");
    let (status, answer) = submit(json!({"a": first, "c": second}), "").await;
    let warnings = answer["warnings"].to_string();
    assert_eq!(status, 201, "{answer}");
    assert!(
        warnings.contains("`c` was sent with the file") && warnings.contains("file_mounts"),
        "{warnings}"
    );
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_person_sends_no_more_than_their_share() {
    let served = served().await;
    let mut sent = Vec::new();
    for number in 0..4 {
        let (data, digest) = archive(900_000 + number);
        let (status, told) = put(&served, ANN, &digest, data).await;
        if number < 3 {
            assert_eq!(status, 200, "{told}");
            sent.push(digest);
            continue;
        }
        assert_eq!((status, &told["code"]), (429, &json!("too-many-requests")), "{told}");
        assert!(told["detail"].as_str().unwrap().contains("at most 3145728"), "{told}");
        assert!(told["next"].as_str().unwrap().contains("tasks.uploads.maxPerUser"), "{told}");
    }
    for digest in sent {
        assert_eq!(get(&served, ANN, &digest).await["stored"], true);
    }
    let (data, digest) = archive(900_000);
    assert_eq!(put(&served, BOB, &digest, data).await.0, 200, "somebody else has their own");
}
