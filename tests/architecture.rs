//! What the compiler does not check: generated files match the code, and modules keep to their edges.

#![expect(clippy::panic, reason = "a test fails by it")]

#[path = "architecture/chart.rs"]
mod chart;
#[path = "architecture/documents.rs"]
mod documents;
#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/observability.rs"]
mod observability;
#[path = "architecture/purity.rs"]
mod purity;

use std::{fs, path::Path};

/// Fails when `path` does not hold `expected`; `UPDATE_EXPECT=1` rewrites it instead.
fn expect_file(path: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, expected).expect("the file is writable");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{path} is stale: run the tests once with UPDATE_EXPECT=1 and commit it");
}

#[test]
fn the_crd_manifest_matches_the_types() {
    expect_file("deploy/crds/clusterresourceclaims.yaml", &fedq_k8s::types::claim::crds_yaml());
}

#[test]
fn the_api_document_matches_the_handlers() {
    expect_file("deploy/openapi.json", &format!("{:#}\n", fedq_api::openapi()));
}

#[test]
fn the_manifest_of_ocms_kinds_matches_the_types() {
    expect_file("deploy/ocm/crds.yaml", &fedq_k8s::types::ocm::crds::crds_yaml());
}
