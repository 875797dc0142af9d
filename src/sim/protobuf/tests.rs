use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::*;
use fedq_k8s::list_watch::protobuf::Node;

/// A node of which every field is set that the table knows.
fn full_node() -> Value {
    json!({
        "metadata": {
            "name": "n-1", "generateName": "n-", "selfLink": "/n-1", "uid": "u-1", "resourceVersion": "12",
            "generation": 3, "creationTimestamp": "2026-11-20T10:00:00Z",
            "deletionTimestamp": "2026-11-21T10:00:00Z", "deletionGracePeriodSeconds": 0,
            "labels": { "zone": "a", "pool": "gpu" }, "annotations": { "b": "2", "a": "" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Machine", "name": "m", "uid": "u-2",
                "controller": true, "blockOwnerDeletion": false }],
            "finalizers": ["example.com/one", "example.com/two"],
            "managedFields": [
                { "manager": "kubelet", "operation": "Update", "apiVersion": "v1",
                  "time": "2026-11-21T09:59:00Z", "fieldsType": "FieldsV1",
                  "fieldsV1": { "f:status": { "f:conditions": {} } }, "subresource": "status" },
                { "manager": "kubectl", "operation": "Apply", "apiVersion": "v1" },
            ],
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"], "providerID": "cloud:///n-1",
            "externalID": "old", "unschedulable": true,
            "taints": [{ "key": "gpu", "value": "true", "effect": "NoSchedule" },
                { "key": "gone", "effect": "NoExecute", "timeAdded": "2026-11-21T09:00:00Z" }],
            "configSource": { "configMap": { "namespace": "a", "name": "b", "uid": "c",
                "resourceVersion": "4", "kubeletConfigKey": "d" } },
        },
        "status": {
            "capacity": { "memory": "1056763908Ki", "cpu": "128" },
            "allocatable": { "nvidia.com/gpu": "8", "cpu": "127500m" },
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T10:00:00Z",
                "lastTransitionTime": "2026-11-20T10:00:00Z", "reason": "KubeletReady", "message": "it is" }],
            "addresses": [{ "type": "InternalIP", "address": "10.1.1.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "nodeInfo": { "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.8",
                "osImage": "Linux", "containerRuntimeVersion": "containerd://2.0.1",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64", "swap": { "capacity": 1024 } },
            "images": [{ "names": ["a@sha256:1", "a:1"], "sizeBytes": 12_345_678_901_u64 },
                { "names": ["b:1"] }],
            "volumesInUse": ["v-1"],
            "volumesAttached": [{ "name": "v-1", "devicePath": "/dev/sdb" }],
            "config": { "error": "none", "active": { "configMap": { "namespace": "a", "name": "b",
                "kubeletConfigKey": "d" } } },
            "runtimeHandlers": [{ "name": "runc",
                "features": { "recursiveReadOnlyMounts": true, "userNamespaces": false } }, { "name": "" }],
            "features": { "supplementalGroupsPolicy": true },
            "declaredFeatures": ["InPlaceResize"],
        },
    })
}

/// Of bytes that Kubernetes' own serializer (`k8s.io/apimachinery` v0.36.3) wrote of the same objects.
fn assert_as_kubernetes(bytes: &[u8], digest: &str) {
    let found = Sha256::digest(bytes)
        .as_slice()
        .iter()
        .fold(String::new(), |found, byte| found + &format!("{byte:02x}"));
    assert_eq!(found, digest, "{} bytes", bytes.len());
}

#[test]
fn nodes_have_the_bytes_that_kubernetes_writes() {
    let (node, empty) = (full_node(), json!({}));
    assert_as_kubernetes(
        &encode(ProtoKind::Node, &node),
        "efc150e155f61d2b5715bb3cf293db96d7f21d73859dc2f7c7e69e897785e8fe",
    );
    assert_as_kubernetes(
        &encode(ProtoKind::Node, &empty),
        "5d18248b79f9757328229c2024a0f2ea27577d138e3886468c82059eefde4127",
    );
    let bookmark = json!({ "metadata": { "resourceVersion": "12", "creationTimestamp": null } });
    assert_as_kubernetes(
        &encode(ProtoKind::Node, &bookmark),
        "cae888e4e63cc682458360316704642e4890ba4a192e23bba623a04f2f65a469",
    );
    let meta = ListMeta { resource_version: "99", next: Some("abc"), remaining: Some(7) };
    assert_as_kubernetes(
        &encode_list(ProtoKind::Node, &[&node, &empty], meta),
        "598bd42850c820c5929754fca4cbf58e9b960a65a70c2af6cf66e46331af98cc",
    );
    assert_as_kubernetes(
        &encode(ProtoKind::PartialObjectMetadata, &node),
        "a1b1f9d72a4c011147f09a14f9ada67adc7a16e4ce4583bf8a944d75f188afe2",
    );
}

#[test]
fn namespaces_and_statuses_have_the_bytes_that_kubernetes_writes() {
    let namespace = json!({
        "metadata": { "name": "a" },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active", "conditions": [{ "type": "X", "status": "True",
            "lastTransitionTime": "2026-11-20T10:00:00Z", "reason": "r", "message": "m" }] },
    });
    assert_as_kubernetes(
        &encode(ProtoKind::Namespace, &namespace),
        "8ead8adc97864c4b846e7a788a48a727236c5171668e3a1d5fa4cb68554752ec",
    );
    let meta = ListMeta { resource_version: "99", ..ListMeta::default() };
    assert_as_kubernetes(
        &encode_list(ProtoKind::Namespace, &[&namespace], meta),
        "7f58e9c3f2989126d255bb339a1af4f043b222d8408eff41d538514bdd581fa7",
    );
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
        "reason": "Expired", "code": 410,
        "details": { "name": "n", "group": "g", "kind": "k", "uid": "u", "retryAfterSeconds": 3,
            "causes": [{ "reason": "r", "message": "m", "field": "f" }] },
    });
    assert_as_kubernetes(
        &encode_status(&status),
        "8791b5e306733eea07f4c9ee1a9f1503fa74b1a6a4d8782acc78ec4c1a3fc05e",
    );
    assert_as_kubernetes(
        &encode_status(&json!({ "status": "Success" })),
        "1c86ac5f34c44c7beb637cea7d32cb46c54314db98feafaf224715faf6d42290",
    );
}

#[test]
fn what_cannot_be_asked_for_in_protobuf_is_known() {
    assert_eq!(ProtoKind::of("v1", "Node"), Some(ProtoKind::Node));
    assert_eq!(ProtoKind::of("kueue.x-k8s.io/v1beta2", "ClusterQueue"), None);
    assert_eq!(ProtoKind::of("v2", "Node"), None);
}

#[test]
fn a_value_of_another_type_counts_as_absent() {
    let odd = json!({
        "metadata": { "name": 7, "labels": ["a"], "creationTimestamp": "yesterday", "finalizers": "x" },
        "spec": { "taints": { "key": "gpu" }, "unschedulable": "yes", "nobodyKnows": { "this": 1 } },
        "status": "fine",
    });
    let node = json!({ "metadata": { "labels": {} }, "spec": {}, "status": {} });
    assert_eq!(message(ProtoKind::Node, &odd), message(ProtoKind::Node, &node));
}

#[test]
fn a_list_in_pieces_is_the_list_in_one() {
    let (node, empty) = (full_node(), json!({}));
    let meta = ListMeta { resource_version: "99", next: Some("abc"), remaining: Some(7) };
    let items = [&node, &empty].map(|node| {
        let message = message(ProtoKind::Node, node);
        [list_item(message.len()).0, message].concat()
    });
    let whole = encode_list(ProtoKind::Node, &[&node, &empty], meta);
    let begun = list_start(ProtoKind::Node, meta, items.concat().len());
    let pieces = [&begun, &items.concat()[..], ENVELOPE_TAIL].concat();
    assert_eq!(pieces, whole);
    let message = message(ProtoKind::Node, &node);
    let pieces = [&start(ProtoKind::Node, message.len()), &message[..], ENVELOPE_TAIL].concat();
    assert_eq!(pieces, encode(ProtoKind::Node, &node));
}

#[test]
fn a_frame_says_its_length() {
    let frame = watch_frame("ADDED", &[7; 300]);
    assert_eq!(frame[..4], u32::try_from(frame.len() - 4).unwrap().to_be_bytes());
    assert_eq!(frame[4..11], *b"\x0a\x05ADDED");
    assert!(frame.ends_with(&[7; 300]));
}

#[test]
fn varints_have_the_length_that_is_said() {
    for value in [0, 1, 127, 128, 16_383, 16_384, usize::MAX] {
        assert_eq!(Message::default().varint(value as u64).0.len(), varint_len(value), "{value}");
    }
}

/// Name, labels, taints, allocatable; cordoned, ready, being deleted.
type Kept = (String, Vec<(String, String)>, Vec<[String; 3]>, Vec<(String, String)>, [bool; 3]);

/// What fedq keeps of a node, from its JSON.
fn kept(node: &Value) -> Kept {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = |value: &Value| {
        let pairs = value.as_object().into_iter().flatten();
        let mut pairs: Vec<_> = pairs.map(|(key, value)| (key.clone(), text(value))).collect();
        pairs.sort();
        pairs
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let taints = list(&node["spec"]["taints"]);
    let taints = taints.iter().map(|taint| ["key", "value", "effect"].map(|field| text(&taint[field])));
    let ready = list(&node["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let flags =
        [node["spec"]["unschedulable"] == true, ready, node["metadata"]["deletionTimestamp"].is_string()];
    (
        text(&node["metadata"]["name"]),
        pairs(&node["metadata"]["labels"]),
        taints.collect(),
        pairs(&node["status"]["allocatable"]),
        flags,
    )
}

fn texts(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

proptest! {
    #[test]
    fn fedq_reads_from_protobuf_what_the_json_says(
        name in "[a-zé\"\\\\]{1,40}",
        labels in proptest::collection::btree_map("[a-z./]{1,70}", ".{0,63}", 0..8),
        taints in proptest::collection::vec(("[a-z]{1,9}", proptest::option::of(".{0,9}"), "NoSchedule|NoExecute"), 0..4),
        allocatable in proptest::collection::btree_map("[a-z./-]{1,20}", "[0-9]{1,18}(m|Ki|Gi)?", 0..6),
        cordoned in proptest::option::of(any::<bool>()),
        ready in proptest::option::of("True|False|Unknown"),
        deleted in proptest::option::of(-30_000_000_000_i64..30_000_000_000),
    ) {
        let taints: Vec<_> = taints.iter().map(|(key, value, effect)| match value {
            Some(value) => json!({ "key": key, "value": value, "effect": effect }),
            None => json!({ "key": key, "effect": effect, "unknown": [1] }),
        }).collect();
        let mut node = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "taints": taints },
            "status": { "allocatable": allocatable },
        });
        if let Some(cordoned) = cordoned {
            node["spec"]["unschedulable"] = cordoned.into();
        }
        if let Some(ready) = ready {
            node["status"]["conditions"] = json!([{ "type": "Odd", "status": "True" }, { "type": "Ready", "status": ready }]);
        }
        if let Some(deleted) = deleted {
            node["metadata"]["deletionTimestamp"] = jiff::Timestamp::from_second(deleted).unwrap().to_string().into();
        }
        let bytes = message(ProtoKind::Node, &node);
        let read = Node::parse(&bytes).unwrap();
        let taints: Vec<_> = read.taints.iter()
            .map(|taint| [taint.key, taint.value, taint.effect].map(str::to_owned)).collect();
        let flags = [read.unschedulable, read.ready, read.deleting];
        let found = (read.name.to_owned(), texts(&read.labels), taints, texts(&read.allocatable), flags);
        prop_assert_eq!(found, kept(&node));
        prop_assert_eq!(fedq_k8s::list_watch::protobuf::name(&bytes).unwrap(), name);
    }
}

#[test]
fn data_of_secrets_is_bytes_again() {
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}, "type": "Opaque"});
    let message = message(ProtoKind::Secret, &secret);
    assert!(message.ends_with(b"\x12\x06\x0a\x01k\x12\x01v\x1a\x06Opaque"), "{message:?}");
    let config = json!({"metadata": {"name": "c"}, "data": {"k": "v"}, "binaryData": {"b": "AA=="}});
    let message = self::message(ProtoKind::ConfigMap, &config);
    assert!(message.ends_with(b"\x12\x06\x0a\x01k\x12\x01v\x1a\x06\x0a\x01b\x12\x01\x00"), "{message:?}");
}

#[test]
fn what_is_written_is_read_again() {
    let mut node = full_node();
    node["apiVersion"] = "v1".into();
    node["kind"] = "Node".into();
    let read = decode(&encode(ProtoKind::Node, &node)).expect("a node");
    assert_eq!(encode(ProtoKind::Node, &read), encode(ProtoKind::Node, &node));
    assert_eq!(read["status"]["allocatable"], node["status"]["allocatable"]);
    assert_eq!(read["metadata"]["managedFields"][0], node["metadata"]["managedFields"][0]);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "data": {"a": "aGFsbG8=", "b": ""}, "type": "Opaque"});
    let read = decode(&encode(ProtoKind::Secret, &secret)).expect("a secret");
    assert_eq!((&read["data"], &read["type"]), (&secret["data"], &secret["type"]));
}

#[test]
fn questions_are_read_as_clients_put_them() {
    let attributes =
        Message::default().text(1, "team").text(2, "get").text(5, "pods").text(9, "from the future");
    let spec = Message::default().bytes(1, &attributes.0);
    let review = Message::default().bytes(1, &[]).bytes(2, &spec.0).bytes(3, &[]);
    let asked = envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review.0);
    let read = decode(&asked).expect("a review");
    let attributes = json!({"namespace": "team", "verb": "get", "resource": "pods"});
    assert_eq!(read["spec"], json!({"resourceAttributes": attributes}));
    assert_eq!(read["kind"], "SelfSubjectAccessReview");
    assert_eq!(decode(&envelope("apps/v1", "Deployment", &[])), Err(Unreadable::Kind));
    for broken in [&asked[..asked.len() - 9], b"k8s", b"{}", b"k8s\0\xff"] {
        assert_eq!(decode(broken), Err(Unreadable::Bytes), "{broken:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_of_bodies_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.splice(..0, MAGIC.iter().copied());
        let _ = decode(&bytes);
        let review = envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &bytes);
        let _ = decode(&review);
    }
}
