//! What is refused, in which words.

use super::{
    super::{denied, validate},
    *,
};

fn queue(edit: impl FnOnce(&mut Value)) -> Value {
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "5"}]});
    let mut queue = json!({"metadata": {"name": "cq"}, "spec": {"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [flavor("default"), flavor("spot")]},
    ]}});
    default("ClusterQueue", None, &mut queue);
    edit(&mut queue["spec"]);
    queue
}

fn quota(queue: &mut Value) -> &mut Value {
    &mut queue["resourceGroups"][0]["flavors"][0]["resources"][0]
}

/// Each as `path: text`; what a webhook says as its whole message.
fn said(kind: &str, before: Option<&Value>, after: &Value) -> Vec<String> {
    let refusals = validate(kind, before, after);
    match denied(&refusals) {
        Some(denial) => vec![denial.message],
        None => refusals.iter().map(|refusal| format!("{}: {refusal}", refusal.path)).collect(),
    }
}

fn of_queue(edit: impl FnOnce(&mut Value)) -> Vec<String> {
    said("ClusterQueue", None, &queue(edit))
}

const RESOURCE: &str = "spec.resourceGroups[0].flavors[0].resources[0]";

fn by_webhook(problem: &str) -> Vec<String> {
    vec![format!("admission webhook \"vclusterqueue.kb.io\" denied the request: {problem}")]
}

/// `pkg/webhooks/clusterqueue_webhook_test.go`, TestValidateClusterQueue.
#[test]
fn the_webhook_refuses_bad_quota() {
    assert_eq!(of_queue(|_| {}), Vec::<String>::new());
    // "flavor quota with negative value", "… zero value"
    assert_eq!(
        of_queue(|spec| quota(spec)["nominalQuota"] = json!("-1")),
        by_webhook(&format!(
            "{RESOURCE}.nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0"
        ))
    );
    assert!(of_queue(|spec| quota(spec)["nominalQuota"] = json!(0)).is_empty());
    // "flavor quota with lendingLimit and empty cohort"
    assert_eq!(
        of_queue(|spec| quota(spec)["lendingLimit"] = json!("1")),
        by_webhook(&format!(
            "{RESOURCE}.lendingLimit: Invalid value: \"1\": must be nil when cohort is empty"
        ))
    );
    // "flavor quota with lendingLimit greater than nominalQuota"
    let lends = |spec: &mut Value| {
        spec["cohortName"] = json!("all");
        quota(spec)["lendingLimit"] = json!("6000m");
    };
    let message = "must be less than or equal to the nominalQuota";
    assert_eq!(
        of_queue(lends),
        by_webhook(&format!("{RESOURCE}.lendingLimit: Invalid value: \"6\": {message}"))
    );
    // "flavor quota with negative borrowingLimit"
    let borrows = |spec: &mut Value| {
        spec["cohortName"] = json!("all");
        quota(spec)["borrowingLimit"] = json!("-1");
    };
    let message = "must be greater than or equal to 0";
    assert_eq!(
        of_queue(borrows),
        by_webhook(&format!("{RESOURCE}.borrowingLimit: Invalid value: \"-1\": {message}"))
    );
}

/// `pkg/webhooks/clusterqueue_webhook_test.go`, "resources in a flavor in different order", "resource in
/// more than one resource group", "flavor in more than one resource group", "invalid resource name".
#[test]
fn the_webhook_refuses_groups_that_overlap_or_are_out_of_order() {
    let order = |spec: &mut Value| {
        spec["resourceGroups"][0]["coveredResources"] = json!(["cpu", "memory"]);
        for at in 0..2 {
            spec["resourceGroups"][0]["flavors"][at]["resources"] = json!([
                {"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "1"},
            ]);
        }
        let list = spec["resourceGroups"][0]["flavors"][1]["resources"].as_array_mut().unwrap();
        list.reverse();
    };
    let message = "must match the name in coveredResources";
    let at = |index| format!("spec.resourceGroups[0].flavors[1].resources[{index}].name");
    assert_eq!(
        of_queue(order),
        by_webhook(&format!(
            "[{}: Invalid value: \"memory\": {message}, {}: Invalid value: \"cpu\": {message}]",
            at(0),
            at(1),
        ))
    );
    let twice = |spec: &mut Value| {
        let group = spec["resourceGroups"][0].clone();
        spec["resourceGroups"].as_array_mut().unwrap().push(group);
    };
    assert_eq!(
        of_queue(twice),
        by_webhook(
            "[spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\", spec.resourceGroups[1].flavors[0].name: Duplicate value: \"default\", spec.resourceGroups[1].flavors[1].name: Duplicate value: \"spot\"]"
        )
    );
    let named = |spec: &mut Value| {
        spec["resourceGroups"][0]["coveredResources"] = json!(["@cpu"]);
        for at in 0..2 {
            spec["resourceGroups"][0]["flavors"][at]["resources"][0]["name"] = json!("@cpu");
        }
    };
    let message = of_queue(named).remove(0);
    assert!(
        message.contains("coveredResources[0]: Invalid value: \"@cpu\": name part must consist of"),
        "{message}"
    );
}

/// `test/integration/singlecluster/webhook/core/clusterqueue_test.go`: "Should have valid flavors
/// quantity", "… at least one flavor", "… qualified flavor name", "… invalid cohort", "… unknown
/// clusterQueueingStrategy", "… missing resources in a flavor", "… borrowingLimit and empty cohort".
#[test]
fn the_schema_refuses_before_the_webhook() {
    let many = |count: usize| -> Value {
        let flavor =
            |at| json!({"name": format!("f{at}"), "resources": [{"name": "cpu", "nominalQuota": "1"}]});
        (0..count).map(flavor).collect()
    };
    let flavors = "spec.resourceGroups[0].flavors";
    assert!(of_queue(|spec| spec["resourceGroups"][0]["flavors"] = many(64)).is_empty());
    assert_eq!(
        of_queue(|spec| spec["resourceGroups"][0]["flavors"] = many(65)),
        [format!("{flavors}: Too many: 65: must have at most 64 items")]
    );
    assert_eq!(
        of_queue(|spec| spec["resourceGroups"][0]["flavors"] = json!([])),
        [format!("{flavors}: Invalid value: 0: {flavors} in body should have at least 1 items")]
    );
    let pattern = r"'^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'";
    assert_eq!(
        of_queue(|spec| spec["resourceGroups"][0]["flavors"][0]["name"] = json!("x_y")),
        [format!(
            "{flavors}[0].name: Invalid value: \"x_y\": {flavors}[0].name in body should match {pattern}"
        )]
    );
    assert_eq!(
        of_queue(|spec| spec["cohortName"] = json!("")),
        [format!("spec.cohortName: Invalid value: \"\": spec.cohortName in body should match {pattern}")]
    );
    assert_eq!(
        of_queue(|spec| spec["cohortName"] = json!("c".repeat(254))),
        ["spec.cohortName: Too long: may not be more than 253 bytes"]
    );
    assert_eq!(
        of_queue(|spec| spec["queueingStrategy"] = json!("unknown")),
        [
            "spec.queueingStrategy: Unsupported value: \"unknown\": supported values: \"StrictFIFO\", \"BestEffortFIFO\""
        ]
    );
    assert_eq!(
        of_queue(|spec| spec["resourceGroups"][0]["coveredResources"] = json!(["cpu", "memory"])),
        [
            "spec.resourceGroups[0]: Invalid value: flavors must have the same number of resources as the coveredResources"
        ]
    );
    assert_eq!(
        of_queue(|spec| quota(spec)["borrowingLimit"] = json!("1")),
        ["spec: Invalid value: borrowingLimit must be nil when cohort is empty"]
    );
    assert_eq!(
        of_queue(|spec| spec["resourceGroups"][0]["flavors"][1]["name"] = json!("default")),
        [format!("{flavors}[1]: Duplicate value: {{\"name\":\"default\"}}")]
    );
}

#[test]
fn the_schema_refuses_what_is_missing_or_of_another_type() {
    assert_eq!(
        of_queue(|spec| drop(child(quota(spec), &[]).remove("nominalQuota"))),
        [format!("{RESOURCE}.nominalQuota: Required value")]
    );
    assert_eq!(
        of_queue(|spec| spec["cohortName"] = json!(3)),
        [
            "spec.cohortName: Invalid value: \"integer\": spec.cohortName in body must be of type string: \"integer\""
        ]
    );
    let bad = queue(|spec| quota(spec)["nominalQuota"] = json!("5 Gi"));
    let message = said("ClusterQueue", Some(&bad), &bad).remove(0);
    assert!(message.starts_with(&format!("{RESOURCE}.nominalQuota: Invalid value: \"5 Gi\": ")), "{message}");
    let denial = denied(&validate("ClusterQueue", None, &bad)).unwrap();
    assert_eq!((denial.code, denial.reason), (400, ""));
    let unreadable = "admission webhook \"mclusterqueue.kb.io\" denied the request: quantities must match";
    assert!(denial.message.starts_with(unreadable), "{}", denial.message);
    assert_eq!(said("ClusterQueue", None, &json!({"spec": []})).len(), 1);
    assert!(said("ClusterQueue", None, &json!({})).is_empty());
    assert!(said("ConfigMap", None, &json!({"spec": 3})).is_empty());
}

/// `test/integration/singlecluster/webhook/core/clusterqueue_test.go`, fair sharing weights, preemption;
/// `pkg/webhooks/clusterqueue_webhook_test.go`, "admissionCheckStrategy refers to a flavor that is not
/// in quota" and "legacy cluster queue with invalid onFlavors allows unrelated updates …".
#[test]
fn other_rules_of_cluster_queues() {
    for (weight, fine) in [("0", true), ("2n", true), ("1n", false), ("-1", false)] {
        let said = of_queue(|spec| spec["fairSharing"] = json!({"weight": weight}));
        assert_eq!(said.is_empty(), fine, "{weight}: {said:?}");
    }
    assert_eq!(
        of_queue(|spec| spec["preemption"]["borrowWithinCohort"]["policy"] = json!("LowerPriority")),
        ["spec.preemption: Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"]
    );
    let check = |spec: &mut Value| {
        spec["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "c", "onFlavors": ["gone"]}]});
    };
    let path = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]";
    let message = format!("{path}: Unsupported value: \"gone\": supported values: \"default\", \"spot\"");
    assert_eq!(of_queue(check), by_webhook(&message));
    let old = queue(check);
    assert!(said("ClusterQueue", Some(&old), &old).is_empty(), "what was always wrong may stay");
    let selector = json!({"matchLabels": {"nospecialchars^=@": "bar"}});
    let message = of_queue(|spec| spec["namespaceSelector"] = selector).remove(0);
    assert!(
        message
            .contains("spec.namespaceSelector.matchLabels: Invalid value: \"nospecialchars^=@\": name part"),
        "{message}"
    );
}

/// `test/integration/singlecluster/webhook/core/localqueue_test.go`, "Should forbid the change of
/// spec.clusterQueue"; `cohort_test.go`, limits without a parent.
#[test]
fn local_queues_and_cohorts() {
    let local = |queue: &str| json!({"spec": {"clusterQueue": queue, "stopPolicy": "None"}});
    assert_eq!(
        said("LocalQueue", Some(&local("a")), &local("b")),
        ["spec.clusterQueue: Invalid value: \"b\": field is immutable"]
    );
    assert!(said("LocalQueue", Some(&local("a")), &local("a")).is_empty());
    let mut cohort = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "1"}]},
    ]}]}});
    assert_eq!(
        said("Cohort", None, &cohort),
        [format!(
            "admission webhook \"vcohort.kb.io\" denied the request: {RESOURCE}.borrowingLimit: Invalid value: \"1\": must be nil when parent is empty"
        )]
    );
    cohort["spec"]["parentName"] = json!("root");
    quota(&mut cohort["spec"])["lendingLimit"] = json!("9");
    assert!(said("Cohort", None, &cohort).is_empty(), "a cohort may lend what its members bring");
}

/// `test/integration/singlecluster/webhook/core/resourceflavor_test.go`.
#[test]
fn flavors() {
    let flavor = |spec: Value| said("ResourceFlavor", None, &json!({"spec": spec}));
    assert!(
        flavor(json!({"nodeLabels": {"foo": "bar"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}))
            .is_empty()
    );
    let labels: Map<String, Value> = (0..9).map(|at| (format!("k{at}"), json!("v"))).collect();
    assert_eq!(
        flavor(json!({"nodeLabels": labels})),
        ["spec.nodeLabels: Too many: 9: must have at most 8 items"]
    );
    assert_eq!(
        flavor(json!({"nodeTaints": [{"key": "a", "effect": "Never"}]})),
        [
            "spec.nodeTaints: Invalid value: supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
        ]
    );
    let message = flavor(json!({"nodeLabels": {"foo": "@bar"}})).remove(0);
    assert!(message.starts_with("admission webhook \"vresourceflavor.kb.io\" denied the request: spec.nodeLabels: Invalid value: \"@bar\": a valid label must"), "{message}");
}

/// `pkg/webhooks/workload_webhook_test.go`, TestValidateWorkload and TestValidateWorkloadUpdate.
#[test]
fn workloads() {
    let workload = |edit: &dyn Fn(&mut Value)| {
        let mut workload = json!({"metadata": {"name": "w"}, "spec": {"queueName": "lq", "podSets": [
            {"name": "main", "count": 2, "template": template("1")},
        ]}});
        edit(&mut workload);
        workload
    };
    let new = |edit: &dyn Fn(&mut Value)| said("Workload", None, &workload(edit));
    assert!(new(&|_| {}).is_empty());
    let webhook = "admission webhook \"vworkload.kb.io\" denied the request:";
    // "should not request num-pods resource"
    assert_eq!(
        new(&|w| w["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"pods": "1"}})),
        [format!(
            "{webhook} spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use"
        )]
    );
    let reserve = |w: &mut Value| {
        w["status"] = json!({
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}, "count": 2},
            ]},
        });
    };
    assert!(new(&reserve).is_empty());
    // "quota reserved without an admission is refused, not a panic"
    assert_eq!(
        new(&|w| w["status"] = json!({"conditions": [{"type": "QuotaReserved", "status": "True"}]})),
        [format!(
            "{webhook} status.admission: Required value: must be set while the QuotaReserved condition is true"
        )]
    );
    // "assignment usage should be divisible by count"
    let odd = |w: &mut Value| {
        reserve(w);
        w["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!("1001m");
    };
    assert_eq!(
        new(&odd),
        [format!(
            "{webhook} status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: \"1001m\": is not a multiple of 2"
        )]
    );
    let before = workload(&reserve);
    let update = |edit: &dyn Fn(&mut Value)| {
        said(
            "Workload",
            Some(&before),
            &workload(&|w| {
                reserve(w);
                edit(w);
            }),
        )
    };
    assert!(update(&|_| {}).is_empty());
    assert_eq!(
        update(&|w| w["spec"]["queueName"] = json!("other")),
        [": Invalid value: queueName is immutable while workload quota reserved"]
    );
    // "podSets should not be updated when has quota reservation: count"
    let message = update(&|w| w["spec"]["podSets"][0]["count"] = json!(4)).remove(0);
    assert!(message.starts_with(&format!("{webhook} spec.podSets.0: Invalid value: {{")), "{message}");
    assert!(message.ends_with(": field is immutable"), "{message}");
    let message = update(&|w| w["status"]["admission"]["clusterQueue"] = json!("other")).remove(0);
    assert!(
        message.contains("status.admission: Invalid value: ") && message.ends_with("field is immutable"),
        "{message}"
    );
    // "reclaimable pod count cannot change down" and clusterName without nomination
    assert_eq!(
        update(&|w| w["status"]["clusterName"] = json!("w1")),
        [format!(
            "{webhook} status.clusterName: Invalid value: \"w1\": when setting clusterName it must be one of the nominatedClusterNames"
        )]
    );
}

/// `pkg/controller/jobs/job/job_webhook_test.go`, "invalid queue-name label" and "queue name can't change".
#[test]
fn jobs() {
    let job = |queue: &str, suspend: bool| json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {"suspend": suspend}});
    assert_eq!(said("Job", None, &job("queue_name", true)).len(), 1);
    assert!(said("Job", Some(&job("a", true)), &job("b", true)).is_empty());
    assert_eq!(
        said("Job", Some(&job("a", false)), &job("b", false)),
        [
            "admission webhook \"vjob.kb.io\" denied the request: metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"b\": field is immutable"
        ]
    );
}

/// What Kueue writes itself passes its own webhooks.
#[test]
fn what_the_simulation_writes_is_valid() {
    let mut world = World::simple("3");
    world.node("n");
    world.job("a", "lq", "1", 2);
    world.job("b", "lq", "2", 1);
    for _ in 0..6 {
        for effect in reconcile(&world.view, world.now) {
            let before = world.view.clone();
            world.carry_out(effect);
            for (key, after) in &world.view.workloads {
                let old = before.workloads.get(key).map(|old| &**old);
                assert_eq!(said("Workload", old, after), Vec::<String>::new());
            }
            for (kind, table) in
                [("ClusterQueue", &world.view.cluster_queues), ("LocalQueue", &world.view.local_queues)]
            {
                for object in table.values() {
                    assert_eq!(said(kind, Some(object), object), Vec::<String>::new());
                }
            }
        }
        world.run();
        world.wait(3);
    }
}
