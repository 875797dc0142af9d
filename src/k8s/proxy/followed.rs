//! Lists that are answered from what fedqd follows of a cluster, once the cluster has said that the person may have them: with the
//! fields that tables of queues and flavors show, and no others, since what is followed has lost the rest.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::Method;
use serde::Serialize;
use tokio::time::Instant;

use super::{Forwarded, Places, Proxy, ProxyError, Target, Unwanted, Wanted};
use crate::{
    client::Caller,
    list_watch::{Record, Table},
    types::{
        kueue::{ClusterQueue, Condition, GROUP, LocalQueue, ResourceFlavor, VERSION},
        meta::Meta,
    },
    worker::WorkerTables,
};

/// Reviews at a time of one cluster, and of one person there: they go over the connection that fedqd lives on, since a further one a
/// cluster takes a hundred kilobytes, and must leave it its slots.
const REVIEWS: usize = 4;
const OF_ONE: usize = 2;

/// What somebody has written comes back by a watch in some milliseconds. For so long the cluster itself is asked, so that nobody
/// misses in a list what they have just made.
const SETTLES: Duration = Duration::from_secs(5);

pub(super) fn reviews() -> Places {
    Places::new(REVIEWS, OF_ONE)
}

/// When somebody last wrote to the cluster through fedqd.
#[derive(Default)]
pub(super) struct Written(Mutex<Option<Instant>>);

impl Written {
    pub fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_settled(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|at| SETTLES < at.elapsed())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    ClusterQueues,
    LocalQueues,
    ResourceFlavors,
}

/// A list that can be answered so.
#[derive(Clone, Debug)]
pub struct List {
    kind: Kind,
    namespace: Option<String>,
    wanted: Wanted,
}

impl List {
    /// Reads a path of Kubernetes' API.
    ///
    /// # Errors
    /// Where it is no list of a kind that is followed.
    pub fn read(path: &str) -> Result<Self, Unwanted> {
        let wanted = Wanted::read(&Method::GET, path, None)?;
        let other = || Unwanted::Kind(path.to_owned());
        let Target::Object { group: GROUP, version, resource, namespace, name: None, .. } = &wanted.target
        else {
            return Err(other());
        };
        let kind = match *resource {
            "clusterqueues" => Kind::ClusterQueues,
            "localqueues" => Kind::LocalQueues,
            "resourceflavors" => Kind::ResourceFlavors,
            _ => return Err(other()),
        };
        if version != VERSION {
            return Err(other());
        }
        Ok(Self { kind, namespace: namespace.clone(), wanted: wanted.clone() })
    }
}

impl Proxy {
    /// Whether what is followed is what the cluster has, as far as anybody can tell without asking it.
    pub fn is_fresh(&self, tables: &WorkerTables, list: &List) -> bool {
        // A kind that is not there, or objects that could not be read, are for the cluster to tell of.
        fn is_whole<T: Record>(table: &Table<T>) -> bool {
            table.is_current() && !table.is_absent() && table.skipped().is_empty()
        }
        let whole = match list.kind {
            Kind::ClusterQueues => is_whole(&tables.queues),
            Kind::LocalQueues => is_whole(&tables.local_queues),
            Kind::ResourceFlavors => is_whole(&tables.flavors),
        };
        whole && self.forwarded().written.is_settled()
    }

    /// Whether the cluster lets `caller` have the list.
    pub async fn may_list(&self, caller: &Caller, list: &List) -> Result<(), ProxyError> {
        self.known_or(caller, &list.wanted, async || {
            let place = self.forwarded().reviews.take(&caller.user).await?;
            Ok((self.0.kube(), Some(place)))
        })
        .await
    }

    fn forwarded(&self) -> &Forwarded {
        self.0.forwarded()
    }
}

/// The list as JSON lines have it: `{"cluster": …, "items": […]}`.
pub fn line(cluster: &str, tables: &WorkerTables, list: &List) -> Vec<u8> {
    let here = |meta: &Meta| list.namespace.is_none() || list.namespace == meta.namespace;
    match list.kind {
        Kind::ClusterQueues => {
            rendered(cluster, &tables.queues, |queue: &ClusterQueue| Some(Item::of(queue)))
        }
        Kind::LocalQueues => rendered(cluster, &tables.local_queues, |queue: &LocalQueue| {
            here(&queue.metadata).then(|| Item::of_local(queue))
        }),
        Kind::ResourceFlavors => {
            rendered(cluster, &tables.flavors, |flavor: &ResourceFlavor| Some(Item::of_flavor(flavor)))
        }
    }
}

fn rendered<T: Record>(cluster: &str, table: &Table<T>, item: impl Fn(&T) -> Option<Item<'_>>) -> Vec<u8> {
    let all = table.all();
    let mut items: Vec<Item<'_>> = all.iter().filter_map(|object| item(object)).collect();
    // As a server lists them: it keeps `namespace/name`, where a dash comes before the slash.
    items.sort_by_cached_key(|item| {
        format!("{}/{}", item.metadata.namespace.unwrap_or_default(), item.metadata.name)
    });
    let mut line = serde_json::to_vec(&Line { cluster, items }).expect("texts and numbers have a JSON form");
    line.push(b'\n');
    line
}

#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    items: Vec<Item<'a>>,
}

/// In Kubernetes' form, so that whoever shows objects shows these.
#[derive(Serialize)]
struct Item<'a> {
    metadata: Head<'a>,
    spec: Spec<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a str>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cohort_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_labels: Option<&'a BTreeMap<String, String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    pending_workloads: i64,
    admitted_workloads: i64,
    conditions: Vec<Active<'a>>,
}

#[derive(Serialize)]
struct Active<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    status: &'a str,
}

impl<'a> Item<'a> {
    fn of(queue: &'a ClusterQueue) -> Self {
        let status = &queue.status;
        let counts = (status.pending_workloads, status.admitted_workloads);
        let spec = Spec { cohort_name: queue.spec.cohort_name.as_deref(), ..Spec::default() };
        Self::new(&queue.metadata, spec, Some(Status::of(counts, &status.conditions)))
    }

    fn of_local(queue: &'a LocalQueue) -> Self {
        let status = &queue.status;
        let counts = (status.pending_workloads, status.admitted_workloads);
        let spec = Spec { cluster_queue: Some(&queue.spec.cluster_queue), ..Spec::default() };
        Self::new(&queue.metadata, spec, Some(Status::of(counts, &status.conditions)))
    }

    fn of_flavor(flavor: &'a ResourceFlavor) -> Self {
        let spec = Spec { node_labels: Some(&flavor.spec.node_labels), ..Spec::default() };
        Self::new(&flavor.metadata, spec, None)
    }

    fn new(meta: &'a Meta, spec: Spec<'a>, status: Option<Status<'a>>) -> Self {
        let metadata = Head {
            name: &meta.name,
            namespace: meta.namespace.as_deref(),
            creation_timestamp: meta.creation_timestamp.as_deref(),
        };
        Self { metadata, spec, status }
    }
}

impl<'a> Status<'a> {
    fn of((pending_workloads, admitted_workloads): (i64, i64), conditions: &'a [Condition]) -> Self {
        let active = conditions.iter().filter(|condition| condition.type_ == "Active");
        let conditions =
            active.map(|condition| Active { kind: &condition.type_, status: &condition.status }).collect();
        Self { pending_workloads, admitted_workloads, conditions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_watch::Allowance;

    #[test]
    fn only_lists_of_what_is_followed_are_answered() {
        for (path, kind, namespace) in [
            ("/apis/kueue.x-k8s.io/v1beta2/clusterqueues", Kind::ClusterQueues, None),
            ("/apis/kueue.x-k8s.io/v1beta2/localqueues", Kind::LocalQueues, None),
            ("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues", Kind::LocalQueues, Some("team")),
            ("/apis/kueue.x-k8s.io/v1beta2/resourceflavors", Kind::ResourceFlavors, None),
        ] {
            let list = List::read(path).expect(path);
            assert_eq!((list.kind, list.namespace.as_deref()), (kind, namespace), "{path}");
        }
        for path in [
            // Some of them are followed, and not all.
            "/apis/kueue.x-k8s.io/v1beta2/workloads",
            "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/clusterqueues",
            "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a/pendingworkloads",
            "/api/v1/pods",
            "/api/v1/secrets",
            "/apis",
        ] {
            assert!(List::read(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_line_has_what_tables_show_in_the_servers_order() {
        let tables = WorkerTables::within(&Allowance::default());
        let queue = |namespace: &str, name: &str| -> LocalQueue {
            serde_json::from_value(serde_json::json!({
                "metadata": {
                    "name": name, "namespace": namespace, "resourceVersion": "7",
                    "creationTimestamp": "2026-01-01T12:00:00Z", "annotations": {"secret": "not shown"},
                },
                "spec": {"clusterQueue": "research"},
                "status": {
                    "pendingWorkloads": 2, "admittedWorkloads": 1,
                    "conditions": [{"type": "Active", "status": "True", "message": "long"}, {"type": "Other", "status": "True"}],
                },
            }))
            .expect("a queue")
        };
        for (namespace, name) in [("team", "b"), ("team", "a"), ("team-x", "a")] {
            tables.local_queues.absorb(queue(namespace, name));
        }
        let list = |path: &str| List::read(path).expect("a list");
        let one = list("/apis/kueue.x-k8s.io/v1beta2/namespaces/team-x/localqueues");
        let text = String::from_utf8(line("east", &tables, &one)).expect("text");
        assert_eq!(
            text,
            "{\"cluster\":\"east\",\"items\":[{\"metadata\":{\"name\":\"a\",\"namespace\":\"team-x\",\
             \"creationTimestamp\":\"2026-01-01T12:00:00Z\"},\"spec\":{\"clusterQueue\":\"research\"},\
             \"status\":{\"pendingWorkloads\":2,\"admittedWorkloads\":1,\
             \"conditions\":[{\"type\":\"Active\",\"status\":\"True\"}]}}]}\n"
        );
        let all = line("east", &tables, &list("/apis/kueue.x-k8s.io/v1beta2/localqueues"));
        let all: serde_json::Value = serde_json::from_slice(&all).expect("JSON");
        let items = all["items"].as_array().expect("items").iter();
        let names: Vec<String> = items
            .map(|item| {
                format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"]).replace('"', "")
            })
            .collect();
        assert_eq!(names, ["team-x/a", "team/a", "team/b"], "a dash comes before a slash");
    }
}
