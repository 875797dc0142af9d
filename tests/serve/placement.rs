//! `/api/v1/placements` and `fedq placement`.

use std::{collections::BTreeMap, sync::Arc};

use fedq_domain::placement::{
    Writer,
    changes::Report,
    conditions::{Condition, SATISFIED},
    hub::{Binding, ClusterSet, Decision, Hub, PLACEMENT_LABEL, SetSelection},
    selector::LabelSelector,
    spec::{Placement, PlacementKey},
    view::{PlacementRow, PlacementView},
};
use fedq_k8s::{read, types::ocm};
use serde_json::{Value, json};

use super::{
    cli::{listening, stderr, stdout},
    server::{ANN, STRANGER, served},
};

fn cluster(name: &str, gpu: &str) -> fedq_domain::placement::hub::ManagedCluster {
    let object = json!({"metadata": {"name": name, "labels": {"gpu": gpu}}});
    read::ocm::managed_cluster(&ocm::ManagedCluster::try_from(object).unwrap()).unwrap()
}

/// Two clusters with GPUs of three; the Placement `ns/gpus` wants one, and has `one`.
pub fn view() -> Arc<PlacementView> {
    let key = PlacementKey { namespace: "ns".into(), name: "gpus".into() };
    let mut placement = Placement::new(key.clone());
    placement.number_of_clusters = Some(1);
    let labels = LabelSelector {
        match_labels: BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]),
        ..LabelSelector::default()
    };
    placement.predicates = vec![fedq_domain::placement::spec::Predicate { labels, ..Default::default() }];
    let all = SetSelection::Labels(Some(LabelSelector::default()));
    let decision = Decision {
        namespace: "ns".into(),
        name: "gpus-decision-1".to_owned(),
        labels: BTreeMap::from([(PLACEMENT_LABEL.to_owned(), "gpus".to_owned())]),
        clusters: vec!["one".to_owned()],
    };
    let hub = Hub::new(vec![cluster("one", "yes"), cluster("two", "yes"), cluster("three", "no")])
        .with_sets(
            vec![ClusterSet { name: "all".to_owned(), selection: all }],
            vec![Binding { namespace: "ns".to_owned(), name: "all".to_owned() }],
        )
        .with_decisions(vec![decision]);
    let satisfied = Condition {
        kind: SATISFIED,
        holds: true,
        reason: "AllDecisionsScheduled",
        message: "All cluster decisions scheduled".to_owned(),
    };
    let row = PlacementRow {
        placement: Arc::new(placement),
        writer: Writer::Fedq,
        best: None,
        report: Report { selected: 1, groups: Vec::new(), conditions: vec![satisfied] },
        decided: vec!["one".to_owned()],
        created: None,
        failures: Vec::new(),
    };
    let placements = BTreeMap::from([(key, Arc::new(row))]);
    Arc::new(PlacementView { revision: 1, known: true, hub: Arc::new(hub), placements })
}

fn manifest(spec: &Value) -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "new", "namespace": "ns"}, "spec": spec,
    })
}

#[tokio::test]
async fn a_placement_is_listed_shown_and_explained() {
    let served = served().await;
    let (status, problem) = served.call(ANN, "GET /placements/ns/gpus", Value::Null).await;
    assert_eq!(status, 404);
    assert!(problem["next"].as_str().unwrap().contains("--print-crds=ocm"), "{problem}");
    served.placements.send_replace(view());
    let (status, list) = served.call(ANN, "GET /placements", Value::Null).await;
    assert_eq!((status, &list["items"][0]["decidedBy"]), (200, &json!("fedq")));
    let (_, shown) = served.call(ANN, "GET /placements/ns/gpus", Value::Null).await;
    assert_eq!((&shown["clusters"], &shown["conditions"][0]["status"]), (&json!(["one"]), &json!(true)));
    let (status, explained) = served.call(ANN, "GET /placements/ns/gpus/explanation", Value::Null).await;
    assert_eq!(status, 200);
    let outcomes: Vec<_> = explained["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (one["cluster"].as_str().unwrap(), one["outcome"].as_str().unwrap(), one["total"].as_i64())
        })
        .collect();
    // Balance gives 100 where no other Placement is, Steady 100 to what is chosen already.
    assert_eq!(
        outcomes,
        [("one", "Chosen", Some(200)), ("two", "NotAmongTheBest", Some(100)), ("three", "Filtered", None)]
    );
    assert_eq!(served.call(ANN, "GET /placements/ns/other", Value::Null).await.0, 404);
    assert_eq!(served.call(STRANGER, "GET /placements", Value::Null).await.0, 403);
}

#[tokio::test]
async fn a_placement_that_is_not_there_is_simulated_with_the_api_servers_defaults() {
    let served = served().await;
    served.placements.send_replace(view());
    // Without a weight it counts once, and without a type it is one of those built in.
    let spec = json!({
        "numberOfClusters": 2,
        "prioritizerPolicy": {"mode": "Exact", "configurations": [{"scoreCoordinate": {"builtIn": "Balance"}}]},
    });
    let (status, explained) = served.call(ANN, "POST /placements/simulate", manifest(&spec)).await;
    assert_eq!((status, &explained["prioritizers"]), (200, &json!([{"name": "Balance", "weight": 1}])));
    // `one` is in a decision of another Placement.
    assert_eq!(explained["chosen"], json!(["three", "two"]));
    let cel =
        json!({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": ["1 +"]}}}]});
    let (status, explained) = served.call(ANN, "POST /placements/simulate", manifest(&cel)).await;
    assert_eq!((status, &explained["conditions"][0]["status"]), (200, &json!(true)), "{explained}");
    for wrong in [json!({"kind": "Pod"}), json!({"kind": "Placement"}), json!([]), manifest(&json!(7))] {
        let (status, problem) = served.call(ANN, "POST /placements/simulate", wrong.clone()).await;
        assert_eq!(status, 422, "{wrong}: {problem}");
    }
}

#[test]
fn the_command_line_lists_explains_and_simulates() {
    let server = listening();
    server.served.placements.send_replace(view());
    let list = stdout(&server.run(&["placement", "list"]));
    assert!(list.contains("ns          gpus   fedq         1          True"), "{list}");
    // Columns are as wide as what is in them.
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let explained = squeezed(&stdout(&server.run(&["placement", "explain", "gpus"])));
    assert!(explained.contains("Would choose: one"), "{explained}");
    assert!(
        explained.contains("three Filtered") && explained.contains("dropped by Predicate"),
        "{explained}"
    );
    let shown = stdout(&server.run(&["placement", "show", "gpus", "-n", "ns"]));
    assert!(shown.contains("True (AllDecisionsScheduled)"), "{shown}");
    let missing = server.run(&["placement", "show", "other"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        stderr(&missing).contains("there is no Placement `other` in any namespace"),
        "{}",
        stderr(&missing)
    );

    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("placement.yaml");
    std::fs::write(&file, "kind: Placement\nmetadata: {name: new}\nspec: {}\n").unwrap();
    let file = file.display().to_string();
    let names = server.run(&["placement", "simulate", "-f", &file, "-n", "ns", "-o", "name"]);
    assert_eq!(stdout(&names), "managedcluster/three\nmanagedcluster/two\nmanagedcluster/one\n");
    let nowhere = stdout(&server.run(&["placement", "simulate", "-f", &file]));
    assert!(nowhere.contains("NoManagedClusterSetBindings"), "{nowhere}");
    let unreadable = server.run(&["placement", "simulate", "-f", "/nowhere"]);
    assert_eq!(unreadable.status.code(), Some(1));
}
