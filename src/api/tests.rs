use super::openapi;

#[test]
fn the_openapi_document_is_the_one_in_deploy() {
    let current = openapi().to_pretty_json().expect("a document of plain data") + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/openapi.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &current).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == current, "deploy/openapi.json is stale: run UPDATE_EXPECT=1 cargo test openapi");
}
