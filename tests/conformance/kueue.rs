//! Kueue: what its webhooks fill in and refuse, what its controllers say, and whom its scheduler lets run.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any, has, only, with};
use super::stage::{FLAVORS, MERGE, QUEUES, Stage, text};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    defaults(stage).await;
    quota_rules(stage).await;
    shape_rules(stage).await;
    update_rules(stage).await;
    local_queues(stage).await;
    activity(stage).await;
    admission(stage).await;
    Ok(())
}

fn queue(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn group(resources: Value, flavors: Value) -> Value {
    json!({"coveredResources": resources, "flavors": flavors})
}

/// Quotas for cpu of one flavor.
fn cpus(flavor: &str, quota: Value) -> Value {
    let mut quota = quota;
    quota["name"] = json!("cpu");
    json!([group(json!(["cpu"]), json!([{"name": flavor, "resources": [quota]}]))])
}

async fn defaults(stage: &Stage<'_>) {
    let (name, flavor) = (stage.named("defaults"), stage.named("flavor"));
    let made = json!({
        "metadata": {"generation": 1, "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": only(json!({
            "flavorFungibility": only(json!({
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "TryNextFlavor",
            })),
            "preemption": only(json!({
                "borrowWithinCohort": only(json!({"policy": "Never"})),
                "reclaimWithinCohort": "Never",
                "withinClusterQueue": "Never",
            })),
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": cpus(&flavor, json!({"nominalQuota": "1"})),
            "stopPolicy": "None",
        })),
    });
    let spec = json!({"resourceGroups": cpus(&flavor, json!({"nominalQuota": "1"}))});
    stage.post(QUEUES, queue(&name, spec)).gives(201, made).await;
    // Numbers are quantities too, and stay as they were written.
    let spec = json!({
        "cohortName": name,
        "namespaceSelector": {},
        "resourceGroups": cpus(&flavor, json!({"nominalQuota": 2, "lendingLimit": "500m"})),
    });
    let stored = json!({
        "spec": {
            "cohortName": name,
            "namespaceSelector": {},
            "resourceGroups": [{"flavors": [{"resources": [any()]}]}],
        },
    });
    stage.post(QUEUES, queue(&stage.named("numbers"), spec)).gives(201, stored).await;
    let body = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor},
        "spec": {"nodeLabels": {"a": "b"}},
    });
    let made = json!({
        "metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"], "generation": 1},
        "spec": only(json!({"nodeLabels": {"a": "b"}})),
    });
    stage.post(FLAVORS, body).gives(201, made).await;

    // A flavor in use stays until the last queue lets it go.
    stage
        .becomes(
            &format!("{QUEUES}/{name}"),
            200,
            json!({"status": {"conditions": with(json!([{"type": "Active", "status": "True"}]))}}),
        )
        .await;
    stage
        .delete(&format!("{FLAVORS}/{flavor}"))
        .gives(200, json!({"metadata": {"deletionTimestamp": any()}}))
        .await;
    stage.get(&format!("{FLAVORS}/{flavor}")).gives(200, json!({"metadata": {"finalizers": [any()]}})).await;
    for queue in ["defaults", "numbers"] {
        stage
            .delete(&format!("{QUEUES}/{}", stage.named(queue)))
            .gives(200, json!({"metadata": {"deletionTimestamp": any()}}))
            .await;
        stage.becomes(&format!("{QUEUES}/{}", stage.named(queue)), 404, json!({"reason": "NotFound"})).await;
    }
    stage.becomes(&format!("{FLAVORS}/{flavor}"), 404, json!({"reason": "NotFound"})).await;
}

const DENIED: &str = "admission webhook \"vclusterqueue.kb.io\" denied the request: ";
const CELL: &str = "spec.resourceGroups[0].flavors[0].resources[0]";

/// Exactly what Kueue's webhook says.
async fn quota_rules(stage: &Stage<'_>) {
    let name = stage.named("rules");
    let one = |cpu: Value| cpus("f", cpu);
    let of = |resource: &str| json!({"name": resource, "nominalQuota": "1"});
    let cpu = |flavor: &str| cpus(flavor, json!({"nominalQuota": "1"}))[0].clone();
    let memory = group(json!(["memory"]), json!([{"name": "f", "resources": [of("memory")]}]));
    let swapped =
        group(json!(["cpu", "memory"]), json!([{"name": "f", "resources": [of("memory"), of("cpu")]}]));
    let rules = [
        (
            one(json!({"nominalQuota": "4", "lendingLimit": "5"})),
            format!(
                "{CELL}.lendingLimit: Invalid value: \"5\": must be less than or equal to the nominalQuota"
            ),
        ),
        (
            one(json!({"nominalQuota": "-1"})),
            format!("{CELL}.nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0"),
        ),
        (
            one(json!({"nominalQuota": "1", "borrowingLimit": "-2"})),
            format!("{CELL}.borrowingLimit: Invalid value: \"-2\": must be greater than or equal to 0"),
        ),
        (
            json!([swapped]),
            format!(
                "[{CELL}.name: Invalid value: \"memory\": must match the name in coveredResources, \
                 spec.resourceGroups[0].flavors[0].resources[1].name: Invalid value: \"cpu\": \
                 must match the name in coveredResources]"
            ),
        ),
        (
            json!([cpu("f"), cpu("g")]),
            "spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\"".to_owned(),
        ),
        (
            json!([cpu("f"), memory]),
            "spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"".to_owned(),
        ),
    ];
    let path = format!("{QUEUES}?dryRun=All");
    for (groups, message) in rules {
        let spec = json!({"cohortName": "c", "resourceGroups": groups});
        let denied = json!({"reason": "Forbidden", "message": format!("{DENIED}{message}"), "code": 403});
        stage.post(&path, queue(&name, spec)).gives(403, denied).await;
    }
    let spec = json!({"resourceGroups": one(json!({"nominalQuota": "1", "lendingLimit": "1"}))});
    let message =
        format!("{DENIED}{CELL}.lendingLimit: Invalid value: \"1\": must be nil when cohort is empty");
    stage.post(&path, queue(&name, spec)).gives(403, json!({"message": message})).await;
}

/// These are refused by the kind itself, before the webhook that checks.
async fn shape_rules(stage: &Stage<'_>) {
    let name = stage.named("shape");
    let short = json!([{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]);
    let borrowing = cpus("f", json!({"nominalQuota": "1", "borrowingLimit": "1"}));
    for (spec, message) in [
        (
            json!({"resourceGroups": [group(json!(["cpu", "memory"]), short)]}),
            "flavors must have the same number of resources as the coveredResources",
        ),
        (json!({"resourceGroups": borrowing}), "borrowingLimit must be nil when cohort is empty"),
        (
            json!({"stopPolicy": "Never"}),
            "spec.stopPolicy: Unsupported value: \"Never\": supported values: \"None\", \"Hold\", \
             \"HoldAndDrain\"",
        ),
    ] {
        stage.post(QUEUES, queue(&name, spec)).refused(422, "Invalid", message).await;
    }
    let spec = json!({"resourceGroups": cpus("f", json!({"nominalQuota": "nonsense"}))});
    let unreadable = "admission webhook \"mclusterqueue.kb.io\" denied the request: quantities must match";
    let unreadable = json!({"message": has(unreadable), "reason": absent(), "code": 400});
    stage.post(QUEUES, queue(&name, spec)).gives(400, unreadable).await;
}

/// An update is checked like a creation.
async fn update_rules(stage: &Stage<'_>) {
    let name = stage.named("update");
    let path = format!("{QUEUES}/{name}");
    let quota = |nominal: &str, lending: &str| {
        json!({
            "resourceGroups": cpus("f", json!({"nominalQuota": nominal, "lendingLimit": lending})),
        })
    };
    let mut spec = quota("4", "4");
    spec["cohortName"] = json!(name);
    stage.make(QUEUES, queue(&name, spec)).await;
    let message = format!("{DENIED}{CELL}.lendingLimit: Invalid value: \"4\": must be less than");
    stage.patch(&path, MERGE, json!({"spec": quota("3", "4")})).refused(403, "Forbidden", &message).await;
    let both = stage.patch(&path, MERGE, json!({"spec": quota("3", "3")}));
    both.gives(200, json!({"metadata": {"generation": 2}})).await;
}

async fn local_queues(stage: &Stage<'_>) {
    let path = stage.within(KUEUE, "localqueues");
    let body = |name: &str, queue: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": name},
            "spec": {"clusterQueue": queue},
        })
    };
    let made = json!({
        "metadata": {"generation": 1, "finalizers": absent()},
        "spec": only(json!({"clusterQueue": "never-was", "stopPolicy": "None"})),
    });
    stage.post(&path, body("lost", "never-was")).gives(201, made).await;
    let moved = json!({"spec": {"clusterQueue": "another"}});
    let immutable = json!({
        "reason": "Invalid",
        "message": "LocalQueue.kueue.x-k8s.io \"lost\" is invalid: spec.clusterQueue: Invalid value: \"another\": \
                    field is immutable",
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec.clusterQueue"}]},
        "code": 422,
    });
    stage.patch(&format!("{path}/lost"), MERGE, moved).gives(422, immutable).await;
    let inactive = json!({"status": {"conditions": with(json!([
        {"type": "Active", "status": "False", "reason": "ClusterQueueDoesNotExist"}
    ]))}});
    stage.becomes(&format!("{path}/lost"), 200, inactive).await;
    stage.delete(&format!("{path}/lost")).gives(200, json!({"status": "Success"})).await;
}

/// Why a queue admits or does not.
async fn activity(stage: &Stage<'_>) {
    let (name, flavor) = (stage.named("active"), stage.named("soon"));
    let path = format!("{QUEUES}/{name}");
    let says = |status: &str, reason: &str, message: &str| {
        json!({
            "status": {
                "conditions": with(json!([
                    {"type": "Active", "status": status, "reason": reason, "message": message},
                ])),
            },
        })
    };
    let spec =
        json!({"namespaceSelector": {}, "resourceGroups": cpus(&flavor, json!({"nominalQuota": "2"}))});
    stage.make(QUEUES, queue(&name, spec)).await;
    let missing = format!("Can't admit new workloads: references missing ResourceFlavor(s): {flavor}.");
    stage.becomes(&path, 200, says("False", "FlavorNotFound", &missing)).await;
    let body = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor},
    });
    stage.make(FLAVORS, body).await;
    stage.becomes(&path, 200, says("True", "Ready", "Can admit new workloads")).await;
    let hold = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    stage.patch(&path, MERGE, hold("Hold")).gives(200, json!({"metadata": {"generation": 2}})).await;
    stage.becomes(&path, 200, says("False", "Stopped", "Can't admit new workloads: is stopped.")).await;
    stage.patch(&path, MERGE, hold("None")).gives(200, json!({"metadata": {"generation": 3}})).await;
    let ready = json!({"status": {
        "conditions": with(json!([{"type": "Active", "status": "True", "observedGeneration": 3}])),
        "flavorsReservation": [
            {"name": flavor, "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]},
        ],
        "flavorsUsage": [{"name": flavor, "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}],
    }});
    stage.becomes(&path, 200, ready).await;
}

/// A Job waits suspended until its queue has room.
async fn admission(stage: &Stage<'_>) {
    let (jobs, queues) = (stage.within("/apis/batch/v1", "jobs"), stage.within(KUEUE, "localqueues"));
    let local = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "main"},
        "spec": {"clusterQueue": stage.named("active")},
    });
    stage.make(&queues, local).await;
    let job = |name: &str, cpus: &str| {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "main", "image": "example.invalid/x", "resources": {"requests": {"cpu": cpus}}},
                ],
            }}},
        })
    };
    // Kueue's webhook suspends it at birth.
    let suspended =
        json!({"spec": {"suspend": true, "parallelism": 1, "completions": 1}, "metadata": {"generation": 1}});
    stage.post(&jobs, job("fits", "1500m")).gives(201, suspended).await;
    stage.becomes(&format!("{jobs}/fits"), 200, json!({"spec": {"suspend": false}})).await;
    let usage = |total: &str| {
        json!([
            {"name": stage.named("soon"), "resources": [{"name": "cpu", "total": total, "borrowed": "0"}]},
        ])
    };
    let used = json!({
        "status": {
            "flavorsReservation": usage("1500m"),
            "flavorsUsage": usage("1500m"),
            "reservingWorkloads": 1,
            "admittedWorkloads": 1,
        },
    });
    stage.becomes(&format!("{QUEUES}/{}", stage.named("active")), 200, used).await;

    stage.post(&jobs, job("waits", "1")).gives(201, json!({"spec": {"suspend": true}})).await;
    let pending = json!({"status": {"pendingWorkloads": 1, "admittedWorkloads": 1}});
    stage.becomes(&format!("{QUEUES}/{}", stage.named("active")), 200, pending.clone()).await;
    stage.becomes(&format!("{queues}/main"), 200, pending).await;
    stage.get(&format!("{jobs}/waits")).gives(200, json!({"spec": {"suspend": true}})).await;
    workloads(stage).await;

    // Room for both.
    let patch = json!({"spec": {"resourceGroups": cpus(&stage.named("soon"), json!({"nominalQuota": "3"}))}});
    stage
        .patch(&format!("{QUEUES}/{}", stage.named("active")), MERGE, patch)
        .gives(200, json!({"kind": "ClusterQueue"}))
        .await;
    stage.becomes(&format!("{jobs}/waits"), 200, json!({"spec": {"suspend": false}})).await;
    let used = json!({
        "status": {"flavorsReservation": usage("2500m"), "admittedWorkloads": 2, "pendingWorkloads": 0},
    });
    stage.becomes(&format!("{QUEUES}/{}", stage.named("active")), 200, used).await;

    // Less than what runs is accepted, and nobody is evicted.
    let patch = json!({"spec": {"resourceGroups": cpus(&stage.named("soon"), json!({"nominalQuota": "1"}))}});
    stage
        .patch(&format!("{QUEUES}/{}", stage.named("active")), MERGE, patch)
        .gives(200, json!({"kind": "ClusterQueue"}))
        .await;
    let freed = json!({"status": {"flavorsReservation": usage("1"), "admittedWorkloads": 1}});
    stage
        .delete(&format!("{jobs}/fits?propagationPolicy=Background"))
        .gives(200, json!({"status": "Success"}))
        .await;
    stage.becomes(&format!("{QUEUES}/{}", stage.named("active")), 200, freed).await;
    stage
        .delete(&format!("{jobs}/waits?propagationPolicy=Background"))
        .gives(200, json!({"status": "Success"}))
        .await;
    let empty = json!({"status": {"flavorsReservation": usage("0"), "admittedWorkloads": 0}});
    stage.becomes(&format!("{QUEUES}/{}", stage.named("active")), 200, empty).await;
}

async fn workloads(stage: &Stage<'_>) {
    let list =
        stage.get(&stage.within(KUEUE, "workloads")).gives(200, json!({"items": [any(), any()]})).await;
    let of = |job: &str| {
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items
            .iter()
            .find(|one| text(one, "/metadata/ownerReferences/0/name") == job)
            .cloned()
            .unwrap_or_default()
    };
    let (fits, waits) = (of("fits"), of("waits"));
    let admitted = json!({
        "metadata": {
            "name": has("job-fits-"),
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "fits", "controller": true},
            ],
        },
        "spec": {"queueName": "main", "active": true, "podSets": [{"name": "main", "count": 1}]},
        "status": {
            "admission": {"clusterQueue": stage.named("active"), "podSetAssignments": [{
                "name": "main", "count": 1, "flavors": {
                    "cpu": stage.named("soon"),
                }, "resourceUsage": {"cpu": "1500m"},
            }]},
            "conditions": with(json!([
                {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
                {"type": "Admitted", "status": "True", "reason": "Admitted"},
            ])),
        },
    });
    let pending = json!({
        "spec": {"queueName": "main"},
        "status": {
            "admission": absent(),
            "conditions": with(json!([
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "reason": "Pending",
                    "message": has("insufficient unused quota for cpu in flavor"),
                },
            ])),
        },
    });
    for (name, expected, found) in [("fits", admitted, fits), ("waits", pending, waits)] {
        let wrong = super::expect::differences(&expected, Some(&found));
        stage.check(wrong.is_empty(), || format!("the Workload of {name}\n    {}", wrong.join("\n    ")));
    }
}
