//! Tables filled by the loop.

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::list_watch::Limits;

#[tokio::test]
async fn a_table_holds_what_is_followed() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("watch=1", events(&[("MODIFIED", "b", 6), ("DELETED", "a", 7)]));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    let table: Table<ConfigMap> = Table::new();
    assert_eq!(table.state(), State::Waiting);
    let (mut sink, mut changed, stop) = (table.sink(), table.changed(), CancellationToken::new());
    let token = stop.clone();
    let task = tokio::spawn(async move { follow.run(&mut sink, token).await });
    let settled = async {
        while !(table.synced() && table.all().len() == 1) {
            changed.changed().await.expect("a table");
        }
    };
    timeout(WITHIN, settled).await.expect("in time");
    let row = table.get(None, "b").expect("a row");
    assert_eq!(row.metadata.resource_version.as_deref(), Some("6"));
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn a_table_goes_on_from_what_was_known_of_it() {
    let first = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("watch=1", events(&[("MODIFIED", "b", 6)]));
    let second = Script::default()
        .answer("limit=1", list("9", &[]))
        .answer("watch=1", events(&[("DELETED", "a", 7), ("ADDED", "c", 8)]));
    let mut known = None;
    for (script, until, names) in
        [(first, "resourceVersion=5", ["a", "b"]), (second, "resourceVersion=6", ["b", "c"])]
    {
        let server = script.serve();
        let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
        follow.timing = quick();
        let table: Table<ConfigMap> = Table::new();
        if let Some(text) = known.take() {
            let text: String = text;
            table.restore(serde_json::from_str(&text).expect("as it was written"));
            assert!(!table.synced(), "what was known is not what is");
        }
        let stop = CancellationToken::new();
        let (kept, token) = (table.clone(), stop.clone());
        let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
        script.until(until).await;
        let settled = async {
            let mut changed = table.changed();
            let names_now =
                || table.all().iter().filter_map(|one| one.metadata.name.clone()).collect::<Vec<_>>();
            while !table.synced() || names_now() != names || table.version() < Some(6) {
                changed.changed().await.expect("a table");
            }
        };
        timeout(WITHIN, settled).await.expect("in time");
        known = Some(serde_json::to_string(&table.known()).expect("JSON"));
        stop.cancel();
        task.await.expect("no panic");
        let lists = script.requests().iter().filter(|query| query.contains("limit=500")).count();
        assert_eq!(lists, usize::from(until == "resourceVersion=5"));
    }
}

#[tokio::test]
async fn a_table_outlives_a_restored_backup() {
    let script = Script::default()
        .answer("limit=500", list("50", &["a", "b"]))
        .answer("watch=1", answer(200, ""))
        .answer("limit=1", list("20", &[]))
        .answer("limit=500", list("20", &["b"]));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    let table: Table<ConfigMap> = Table::new();
    let stop = CancellationToken::new();
    let (kept, token) = (table.clone(), stop.clone());
    let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
    script.until("resourceVersion=20").await;
    assert_eq!(table.all().len(), 1);
    stop.cancel();
    task.await.expect("no panic");
}

/// What unpacks to a list of very many small objects.
fn packed(objects: usize) -> Response {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(br#"{"metadata":{"resourceVersion":"9"},"items":["#).expect("packed");
    for number in 0..objects {
        let object = format!(r#"{{"metadata":{{"name":"n{number}","resourceVersion":"9"}}}},"#);
        encoder.write_all(object.as_bytes()).expect("packed");
    }
    encoder.write_all(br#"{"metadata":{"name":"last","resourceVersion":"9"}}]}"#).expect("packed");
    let mut listed = answer(200, encoder.finish().expect("packed"));
    listed.headers_mut().insert("content-encoding", "gzip".parse().expect("a header"));
    listed
}

#[tokio::test]
async fn a_list_of_more_objects_than_are_kept_is_given_up_on_the_way() {
    let script = Script::default().answer("limit=500", packed(30_000));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    follow.allowance = Allowance::new(Limits { objects: 1000, bytes: 1 << 30 });
    let table: Table<ConfigMap> = Table::within(&follow.allowance);
    let (mut exceeded, stop) = (follow.allowance.exceeded(), CancellationToken::new());
    let (kept, token) = (table.clone(), stop.clone());
    let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
    let reason = timeout(WITHIN, exceeded.wait_for(Option::is_some)).await.expect("in time").expect("there");
    let reason = reason.clone().expect("a reason");
    assert!(reason.contains("clusters.maxObjects"), "{reason}");
    // Nor is it asked again and again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(script.requests().len(), 1);
    assert_eq!(table.all().len(), 1000);
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn a_watch_of_more_objects_than_are_kept_is_given_up() {
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let added: Vec<_> = (6..).zip(&names).map(|(version, name)| ("ADDED", name.as_str(), version)).collect();
    let script = Script::default().answer("limit=500", list("5", &[])).answer("watch=1", events(&added));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    follow.allowance = Allowance::new(Limits { objects: 30, bytes: 1 << 30 });
    let table: Table<ConfigMap> = Table::within(&follow.allowance);
    let (mut exceeded, stop) = (follow.allowance.exceeded(), CancellationToken::new());
    let (kept, token) = (table.clone(), stop.clone());
    let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
    timeout(WITHIN, exceeded.wait_for(Option::is_some)).await.expect("in time").expect("there");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(table.all().len(), 31);
    stop.cancel();
    task.await.expect("no panic");
}
