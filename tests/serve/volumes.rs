//! `/api/v1/volumes`.

use std::{sync::Arc, time::Duration};

use fedq_domain::task::{
    names::TaskId,
    spec::{Mount, MountedClaim},
    view::{VolumePhase, VolumeState},
};
use fedq_store::TaskRow;
use fedq_values::ids::ClusterName;
use serde_json::{Value, json};

use super::{
    server::{ANN, BOB, ROOT, STRANGER, VIEWER, served},
    tasks::submit,
};

#[tokio::test]
async fn a_volume_is_wanted_used_and_let_go() {
    let served = served().await;
    let asked = json!({"name": "data", "size": "10Gi", "cluster": "east", "accessModes": ["ReadWriteMany"]});
    let (status, volume) = served.call(ANN, "POST /volumes", asked.clone()).await;
    assert_eq!(
        (status, &volume["state"], &volume["cluster"]),
        (201, &json!("Pending"), &json!("east")),
        "{volume}"
    );
    let id = volume["id"].as_str().unwrap().to_owned();
    assert_eq!(volume["claim"], format!("data-{id}"));
    assert_eq!(served.call(ANN, "POST /volumes", asked).await.0, 409, "tasks could not tell them apart");
    let known = VolumeState { phase: VolumePhase::Bound, reason: None };
    served.volume_views.send_replace(Arc::new([(TaskId::parse(&id).unwrap(), known)].into()));
    let task = submit(&served, ANN, "run: x\nvolumes: {/data: data}\n").await;
    let (_, list) = served.call(ANN, "GET /volumes", Value::Null).await;
    assert_eq!((&list["items"][0]["state"], &list["items"][0]["usedBy"]), (&json!("Bound"), &json!([task])));
    let (status, problem) = served.call(ANN, &format!("DELETE /volumes/{id}"), Value::Null).await;
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().contains(&task), "{problem}");
    served.call(ANN, &format!("POST /tasks/{task}/stop"), Value::Null).await;
    let (status, volume) = served.call(ANN, "DELETE /volumes/data", Value::Null).await;
    assert_eq!((status, &volume["state"]), (202, &json!("Terminating")));
    assert!(served.store.volume(&TaskId::parse(&id).unwrap()).await.unwrap().unwrap().deleting);
}

#[tokio::test]
async fn bad_volumes_are_refused_by_field() {
    let served = served().await;
    for (asked, field) in [
        (json!({"name": "a b", "size": "1Gi"}), "name"),
        (json!({"name": "a", "size": "lots"}), "size"),
        (json!({"name": "a", "size": "0"}), "size"),
        (json!({"name": "a", "size": "1Gi", "accessModes": ["Often"]}), "accessModes"),
        (json!({"name": "a", "size": "1Gi", "storageClass": "A"}), "storageClass"),
    ] {
        let (status, problem) = served.call(ANN, "POST /volumes", asked.clone()).await;
        assert_eq!((status, &problem["causes"][0]["field"]), (422, &json!(field)), "{asked}");
    }
    let (status, _) =
        served.call(ANN, "POST /volumes", json!({"name": "a", "size": "1Gi", "cluster": "north"})).await;
    assert_eq!(status, 404);
    assert!(served.store.volumes(None).await.unwrap().is_empty());
}

/// What is shown of clusters is made now and then, and lags behind.
#[tokio::test]
async fn a_cluster_can_be_named_as_soon_as_it_is_joined() {
    let served = served().await;
    let volume = json!({"name": "data", "size": "1Gi", "cluster": "north"});
    assert_eq!(served.call(ANN, "POST /volumes", volume.clone()).await.0, 404);
    let north = ClusterName::new("north").unwrap();
    served.joined.send_modify(|joined| _ = Arc::make_mut(joined).insert(north.clone(), Arc::default()));
    assert_eq!(served.call(ANN, "POST /volumes", volume.clone()).await.0, 201);
    assert!(!served.overview.borrow().clusters.contains_key(&north));
}

#[tokio::test]
async fn no_cluster_is_taken_for_unknown_before_the_hub_is_read() {
    let served = served().await;
    served.joined.send_replace(Arc::default());
    served.overview.send_replace(Arc::default());
    let volume = json!({"name": "data", "size": "1Gi", "cluster": "east"});
    let (status, problem) = served.call(ANN, "POST /volumes", volume.clone()).await;
    assert_eq!(
        (status, problem["detail"].as_str().unwrap().contains("is starting")),
        (503, true),
        "{problem}"
    );
    let read = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let east = ClusterName::new("east").unwrap();
        served.joined.send_modify(|joined| _ = Arc::make_mut(joined).insert(east, Arc::default()));
        served.overview.send_modify(|overview| Arc::make_mut(overview).revision = 1);
    };
    let ((status, _), ()) = tokio::join!(served.call(ANN, "POST /volumes", volume), read);
    assert_eq!(status, 201);
}

/// What is wrong is said before the cluster is asked, which these tests do not have; the rest is in `tests/sim/tasks/volumes.rs`.
#[tokio::test]
async fn a_claim_is_adopted_by_who_has_the_right_to_it() {
    let served = served().await;
    let asked =
        |name: &str, cluster: &str, claim: &str| json!({"name": name, "cluster": cluster, "claim": claim});
    for (asked, field) in [
        (asked("a b", "east", "c"), "name"),
        (asked("a", "east", "../c"), "claim"),
        (asked("a", "east", ""), "claim"),
        (asked("a", "E", "c"), "cluster"),
    ] {
        let (status, problem) = served.call(ANN, "POST /volume-adoptions", asked.clone()).await;
        assert_eq!((status, &problem["causes"][0]["field"]), (422, &json!(field)), "{asked} {problem}");
    }
    let data = asked("data", "east", "held");
    assert_eq!(served.call(ANN, "POST /volume-adoptions", asked("data", "north", "held")).await.0, 404);
    let (status, problem) = served.call(ANN, "POST /volume-adoptions", data.clone()).await;
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!((status, detail), (409, "cluster `east` cannot be asked for the claim now"));
    assert_eq!(served.call(STRANGER, "POST /volume-adoptions", data.clone()).await.0, 403);
    let right = ("bob@example.com".to_owned(), "volumes/adopt".to_owned());
    served.hub.world().denied.insert(right);
    for (who, resource) in [(VIEWER, "volumes"), (BOB, "volumes/adopt")] {
        let (status, problem) = served.call(who, "POST /volume-adoptions", data.clone()).await;
        let detail = problem["detail"].as_str().unwrap();
        let told = detail.contains(&format!("cannot create resource \"{resource}\""));
        assert_eq!((status, told), (403, true), "{detail}");
    }
    let (_, problem) = served.call(BOB, "POST /volume-adoptions", data).await;
    assert!(problem["detail"].as_str().unwrap().contains("\"held\""), "the claim is named: {problem}");
    assert!(problem["next"].as_str().unwrap().contains("fedq-volume-adopter"), "{problem}");
    assert!(served.store.volumes(None).await.unwrap().is_empty());
}

/// What the cluster said of the claim is stored with the task, and no part of what is asked for again.
#[tokio::test]
async fn a_task_with_a_claim_of_its_own_may_be_handed_in_again() {
    let served = served().await;
    submit(&served, ANN, "run: x\n").await;
    let plain = served.store.live_tasks().await.unwrap().remove(0);
    let mut stored = TaskRow { id: TaskId::parse("0a1b2c3d").unwrap(), ..plain };
    let claim =
        MountedClaim { cluster: ClusterName::new("east").unwrap(), name: "held".to_owned(), shared: true };
    stored.spec.volumes = vec![Mount {
        path: "/data".to_owned(),
        volume: "east/held".to_owned(),
        sub_path: None,
        read_only: true,
        claim: Some(claim),
    }];
    assert!(served.store.insert_task(&stored).await.unwrap());
    let again = |claim: &str| {
        let volumes = format!("volumes: {{/data: {{claim: {claim}, cluster: east, read_only: true}}}}");
        json!({"file": format!("run: x\n{volumes}\n"), "id": "0a1b2c3d"})
    };
    let (status, answer) = served.call(ANN, "POST /tasks", again("held")).await;
    assert_eq!((status, &answer["id"]), (201, &json!("0a1b2c3d")), "{answer}");
    assert_eq!(served.call(ANN, "POST /tasks", again("another")).await.0, 409);
    let mut new = again("held");
    new["id"] = json!("0a1b2c3e");
    let (status, problem) = served.call(ANN, "POST /tasks", new).await;
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!((status, detail), (409, "cluster `east` cannot be asked for the claim now"));
}

#[tokio::test]
async fn volumes_are_their_owners_alone() {
    let served = served().await;
    let (_, volume) = served.call(ANN, "POST /volumes", json!({"name": "data", "size": "1Gi"})).await;
    let id = volume["id"].as_str().unwrap();
    for line in ["GET", "DELETE"] {
        assert_eq!(served.call(BOB, &format!("{line} /volumes/{id}"), Value::Null).await.0, 404);
        assert_eq!(served.call(BOB, &format!("{line} /volumes/data"), Value::Null).await.0, 404);
    }
    assert_eq!(served.call(BOB, "GET /volumes?allUsers=true", Value::Null).await.0, 403);
    assert_eq!(served.call(STRANGER, "GET /volumes", Value::Null).await.0, 403);
    let (_, all) = served.call(ROOT, "GET /volumes?allUsers=true", Value::Null).await;
    assert_eq!(all["items"][0]["user"], "ann");
}
