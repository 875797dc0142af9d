//! The clusters of a decision, best first. PlacementDecisions have them by name, whoever wrote them, and no scores:
//! what the Placement would choose now tells the order, never which clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
};

use jiff::Timestamp;
use tokio::task::{JoinError, JoinSet};

use super::gather::Gathered;
use fedq_domain::{
    multikueue::{Decided, placement_key},
    placement::{evaluate, spec::Placement, view::PlacementView},
};
use fedq_values::ids::ClusterName;

/// Best first, by Placement.
type Orders = BTreeMap<String, Arc<[ClusterName]>>;

/// Where fedq decides, the view has the order. Where others do, it is found out here.
#[derive(Default)]
pub(super) struct Order {
    known: Orders,
    /// The revision of the view, and the Placements, that were looked at last.
    asked: (u64, BTreeSet<String>),
    under_way: JoinSet<Orders>,
}

impl Order {
    /// Sorts the decisions that some check asks for. Whether the order of all of them is known: without it the best
    /// could be left out of a config that takes only some.
    pub fn sort(
        &mut self,
        seen: &mut Gathered,
        view: &PlacementView,
        kueue_namespace: &str,
        now: Timestamp,
    ) -> bool {
        let parameters = seen.checks.iter().filter_map(|check| check.parameters.as_ref());
        let names: BTreeSet<String> = parameters.map(|parameters| parameters.name.clone()).collect();
        let mut others = BTreeMap::new();
        let mut unknown = false;
        for name in names.into_iter().filter(|_| view.known) {
            let Some(decided) = seen.placements.get_mut(&name) else { continue };
            let Some(row) = view.placements.get(&placement_key(kueue_namespace, &name)) else { continue };
            let best = match &row.best {
                Some(best) => Some(best),
                None => self.known.get(&name),
            };
            match best {
                Some(best) => sort(decided, best),
                None => unknown = true,
            }
            if row.best.is_none() {
                others.insert(name, Arc::clone(&row.placement));
            }
        }
        self.known.retain(|name, _| others.contains_key(name));
        self.look(others, view, now);
        !unknown
    }

    /// Off the threads that others share: expressions of many Placements take their time.
    fn look(&mut self, others: BTreeMap<String, Arc<Placement>>, view: &PlacementView, now: Timestamp) {
        let asks = (view.revision, others.keys().cloned().collect());
        if others.is_empty() || !self.under_way.is_empty() || self.asked == asks {
            return;
        }
        self.asked = asks;
        let hub = Arc::clone(&view.hub);
        self.under_way.spawn_blocking(move || {
            let order = |(name, placement): (String, Arc<Placement>)| {
                let evaluation = evaluate(&placement, &hub, now);
                (name, evaluation.decisions(&hub).cloned().collect())
            };
            others.into_iter().map(order).collect()
        });
    }

    /// What was found out next.
    pub async fn found(&mut self) -> Result<BTreeMap<String, Arc<[ClusterName]>>, JoinError> {
        match self.under_way.join_next().await {
            Some(ended) => ended,
            None => pending().await,
        }
    }

    pub fn take(&mut self, found: BTreeMap<String, Arc<[ClusterName]>>) {
        self.known = found;
    }
}

/// What the Placement would not choose any more comes last, in the order it had.
fn sort(decided: &mut Decided, best: &[ClusterName]) {
    let places: BTreeMap<&ClusterName, usize> = best.iter().zip(0..).collect();
    decided.clusters.sort_by_cached_key(|cluster| places.get(cluster).copied().unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use fedq_domain::{
        multikueue::{Check, GROUP, KIND, Parameters},
        placement::{
            Writer,
            changes::Report,
            hub::{AddOnScores, Binding, ClusterSet, Hub, SetSelection},
            selector::LabelSelector,
            view::PlacementRow,
        },
    };
    use fedq_k8s::{read, types::ocm};

    fn names(texts: &[&str]) -> Vec<ClusterName> {
        texts.iter().map(|text| ClusterName::new(text).expect("a name")).collect()
    }

    #[test]
    fn the_best_comes_first_and_what_is_not_chosen_any_more_last() {
        let mut decided = Decided { clusters: names(&["a", "b", "c", "d"]), ..Decided::default() };
        sort(&mut decided, &names(&["d", "x", "b"]));
        assert_eq!(decided.clusters, names(&["d", "b", "a", "c"]));
    }

    /// A Placement `gpu` on two clusters, of which `b` has the higher score.
    fn view(best: Option<&[&str]>) -> PlacementView {
        let mut object = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"name": "gpu", "namespace": "kueue-system"},
            "spec": {"prioritizerPolicy": {"mode": "Exact", "configurations": [{
                "scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "usage", "scoreName": "gpu"}},
                "weight": 1,
            }]}},
        });
        ocm::crds::fill_in_defaults(&mut object);
        let object: ocm::Placement = serde_json::from_value(object).expect("a Placement");
        let cluster = |name: &str| {
            let object = json!({"metadata": {"name": name}});
            let object = ocm::ManagedCluster::try_from(object).expect("a ManagedCluster");
            read::ocm::managed_cluster(&object).expect("readable")
        };
        let scores = AddOnScores {
            cluster: "b".to_owned(),
            resource: "usage".to_owned(),
            scores: vec![("gpu".into(), 50)],
            valid_until: None,
        };
        let all = SetSelection::Labels(Some(LabelSelector::default()));
        let sets = vec![ClusterSet { name: "all".to_owned(), selection: all }];
        let bindings = vec![Binding { namespace: "kueue-system".to_owned(), name: "all".to_owned() }];
        let hub =
            Hub::new(vec![cluster("a"), cluster("b")]).with_sets(sets, bindings).with_scores(vec![scores]);
        let row = PlacementRow {
            placement: Arc::new(read::ocm::placement(&object)),
            writer: Writer::Ocm,
            best: best.map(|best| names(best).into()),
            report: Report { selected: 2, groups: Vec::new(), conditions: Vec::new() },
            decided: Vec::new(),
            created: None,
            failures: Vec::new(),
        };
        let key = placement_key("kueue-system", "gpu");
        let placements = BTreeMap::from([(key, Arc::new(row))]);
        PlacementView { revision: 1, known: true, hub: Arc::new(hub), placements }
    }

    fn seen() -> Gathered {
        let parameters =
            Parameters { group: GROUP.to_owned(), kind: KIND.to_owned(), name: "gpu".to_owned() };
        let check =
            Check { name: "gpu".to_owned(), generation: 1, parameters: Some(parameters), deleting: false };
        let decided = Decided { clusters: names(&["a", "b"]), ..Decided::default() };
        Gathered {
            checks: vec![check],
            placements: BTreeMap::from([("gpu".to_owned(), decided)]),
            ..Gathered::default()
        }
    }

    #[tokio::test]
    async fn what_others_decide_is_evaluated_once_a_view_on_a_thread_of_its_own() {
        let (mut order, mut seen, view) = (Order::default(), seen(), view(None));
        assert!(!order.sort(&mut seen, &view, "kueue-system", Timestamp::UNIX_EPOCH), "not known yet");
        assert_eq!(order.under_way.len(), 1);
        let found = order.found().await.expect("no panic");
        order.take(found);
        assert!(order.sort(&mut seen, &view, "kueue-system", Timestamp::UNIX_EPOCH));
        assert_eq!(seen.placements["gpu"].clusters, names(&["b", "a"]));
        assert!(order.under_way.is_empty(), "the view is the same");
        let newer = PlacementView { revision: 2, ..view };
        assert!(order.sort(&mut seen, &newer, "kueue-system", Timestamp::UNIX_EPOCH), "as it was, meanwhile");
        assert_eq!(order.under_way.len(), 1);
    }

    #[tokio::test]
    async fn what_fedq_decides_is_not_evaluated_again() {
        let (mut order, mut seen) = (Order::default(), seen());
        let view = view(Some(&["b", "a"]));
        assert!(order.sort(&mut seen, &view, "kueue-system", Timestamp::UNIX_EPOCH));
        assert_eq!(seen.placements["gpu"].clusters, names(&["b", "a"]));
        assert!(order.under_way.is_empty());
    }
}
