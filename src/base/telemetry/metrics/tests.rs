use super::*;
use crate::telemetry::Format;

fn cluster() -> ClusterName {
    ClusterName::new("worker-1").expect("a name")
}

fn gauge(resource: &str, units: i64) -> QuotaGauge {
    QuotaGauge {
        at: FlavorResource {
            flavor: FlavorName::new("on-demand").expect("a name"),
            resource: ResourceName::new(resource).expect("a name"),
        },
        assigned: Amount::new(units),
        effective: Amount::new(units),
        capacity: Amount::new(units),
        coming: Amount::ZERO,
    }
}

#[track_caller]
fn assert_line(metrics: &Metrics, line: &str) {
    let text = metrics.encode().expect("encodes");
    assert!(text.lines().any(|found| found == line), "no line `{line}` in:\n{text}");
}

#[test]
fn every_family_is_exposed_under_its_documented_name() {
    let metrics = Metrics::new();
    metrics.insecure("insecureXUser", true);
    metrics.insecure("insecureAdmin", false);
    metrics.connection(&cluster(), &Connection::Ready);
    metrics.watch_restarted(&cluster(), "nodes", "Expired");
    metrics.node_event(&cluster(), false);
    metrics.api_request(&cluster(), "patch", "409", Duration::from_millis(500));
    metrics.seen(&cluster(), "2026-11-21T00:00:00.25Z".parse().expect("a time"));
    metrics.pending(&cluster(), 7);
    metrics.refused(&cluster(), "Forbidden");
    metrics.admitted(2);
    metrics.admitted_by(&cluster(), Duration::from_secs(4));
    metrics.wrote(&cluster(), "ClusterQueue");
    metrics.planned(Duration::from_millis(1));
    metrics.reconciled("quota", Duration::from_millis(1), true);
    metrics.reconciled("capacity", Duration::from_millis(1), false);
    metrics.published("capacity");
    metrics.committed(Duration::from_millis(2), true);
    metrics.committed(Duration::from_millis(2), false);
    metrics.capacity_written(Duration::from_secs(1));
    metrics.tasks(&[("queued", 3)].into());
    metrics.task_event(Reason::Chosen);
    metrics.task_dispatched(Duration::from_millis(30));
    metrics.task_started(Duration::from_mins(3));
    metrics.quota(&cluster(), &[gauge("cpu", 1500), gauge("nvidia.com/gpu", 8)]);
    for line in [
        concat!("fedq_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "fedq_insecure{setting=\"insecureXUser\"} 1",
        "fedq_insecure{setting=\"insecureAdmin\"} 0",
        "fedq_cluster_connection{cluster=\"worker-1\",state=\"Ready\"} 1",
        "fedq_cluster_connection{cluster=\"worker-1\",state=\"Lost\"} 0",
        "fedq_watch_restarts_total{cluster=\"worker-1\",kind=\"nodes\",reason=\"Expired\"} 1",
        "fedq_node_events_total{cluster=\"worker-1\",changed=\"false\"} 1",
        "fedq_api_requests_total{cluster=\"worker-1\",verb=\"patch\",code=\"409\"} 1",
        "fedq_api_request_seconds_total{cluster=\"worker-1\"} 0.5",
        "fedq_cluster_last_seen_timestamp_seconds{cluster=\"worker-1\"} 1795219200.25",
        "fedq_cluster_pending_workloads{cluster=\"worker-1\"} 7",
        "fedq_cluster_refusals_total{cluster=\"worker-1\",reason=\"Forbidden\"} 1",
        "fedq_admission_clusters_tried_bucket{le=\"2.0\"} 1",
        "fedq_admission_seconds_sum{cluster=\"worker-1\"} 4.0",
        "fedq_admission_seconds_bucket{le=\"2.0\",cluster=\"worker-1\"} 0",
        "fedq_admission_seconds_bucket{le=\"5.0\",cluster=\"worker-1\"} 1",
        "fedq_writes_total{cluster=\"worker-1\",kind=\"ClusterQueue\"} 1",
        "fedq_publications_total{of=\"capacity\"} 1",
        "fedq_plan_seconds_count 1",
        "fedq_tasks{phase=\"queued\"} 3",
        "fedq_tasks{phase=\"running\"} 0",
        "fedq_task_events_total{reason=\"Chosen\"} 1",
        "fedq_task_dispatch_seconds_count 1",
        "fedq_task_start_seconds_count 1",
        "fedq_reconcile_seconds_count{controller=\"quota\"} 1",
        "fedq_reconcile_errors_total{controller=\"quota\"} 1",
        "fedq_reconcile_errors_total{controller=\"capacity\"} 0",
        "fedq_store_commit_seconds_count 2",
        "fedq_store_errors_total 1",
        "fedq_capacity_to_write_seconds_sum 1.0",
        "fedq_quota_assigned{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.5",
        "fedq_quota_effective{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"nvidia.com/gpu\"} 8.0",
    ] {
        assert_line(&metrics, line);
    }
}

#[test]
fn what_could_come_is_told_where_something_could() {
    let metrics = Metrics::new();
    let coming = |metrics: &Metrics| {
        let text = metrics.encode().expect("encodes");
        text.lines()
            .filter(|line| line.starts_with("fedq_quota_coming{"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    metrics.quota(&cluster(), &[QuotaGauge { coming: Amount::new(1500), ..gauge("cpu", 1000) }]);
    assert_eq!(
        coming(&metrics),
        ["fedq_quota_coming{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.5"]
    );
    metrics.quota(&cluster(), &[gauge("cpu", 1000)]);
    assert_eq!(coming(&metrics), [""; 0]);
    metrics.quota(&cluster(), &[QuotaGauge { coming: Amount::new(1500), ..gauge("cpu", 1000) }]);
    metrics.quota(&cluster(), &[]);
    assert_eq!(coming(&metrics), [""; 0]);
}

#[test]
fn an_alert_s_threshold_is_a_bound_of_its_histogram() {
    let metrics = Metrics::new();
    metrics.admitted_by(&cluster(), Duration::from_secs(61));
    assert_line(&metrics, "fedq_admission_seconds_bucket{le=\"300.0\",cluster=\"worker-1\"} 1");
}

#[test]
fn label_values_are_escaped_in_both_formats() {
    let metrics = Metrics::new();
    let nasty = format!("a\"}} 1\nfedq_x 2 \\{}", "é".repeat(1 << 19));
    metrics.watch_restarted(&cluster(), &nasty, "Expired");
    let escaped = nasty.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let line =
        format!("fedq_watch_restarts_total{{cluster=\"worker-1\",kind=\"{escaped}\",reason=\"Expired\"}} 1");
    let open_metrics = metrics.encode().expect("encodes");
    for text in [open_metrics.clone(), Format::Text.of(open_metrics)] {
        assert!(text.lines().any(|found| found == line), "the value is not escaped");
        assert!(!text.lines().any(|found| found.starts_with("fedq_x")), "it makes a line of its own");
    }
}

#[test]
fn gauges_of_what_is_gone_go() {
    let metrics = Metrics::new();
    metrics.quota(&cluster(), &[gauge("cpu", 1500), gauge("memory", 8)]);
    metrics.quota(&cluster(), &[gauge("cpu", 1000)]);
    assert!(!metrics.encode().expect("encodes").contains("resource=\"memory\""));
    assert_line(
        &metrics,
        "fedq_quota_capacity{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.0",
    );
    metrics.connection(&cluster(), &Connection::Ready);
    metrics.seen(&cluster(), Timestamp::UNIX_EPOCH);
    metrics.pending(&cluster(), 1);
    let count = || {
        metrics.refused(&cluster(), "Forbidden");
        metrics.admitted_by(&cluster(), Duration::from_secs(4));
        metrics.watch_restarted(&cluster(), "nodes", "Expired");
        metrics.node_event(&cluster(), true);
        metrics.api_request(&cluster(), "get", "200", Duration::from_secs(1));
        metrics.wrote(&cluster(), "ClusterQueue");
    };
    count();
    metrics.forget_link(&cluster());
    metrics.forget_pending(&cluster());
    metrics.quota(&cluster(), &[]);
    assert!(!metrics.encode().expect("encodes").contains("worker-1"));
    // What was under way is counted after it left, and goes when the next one does.
    count();
    metrics.forget_link(&ClusterName::new("worker-2").expect("a name"));
    assert!(!metrics.encode().expect("encodes").contains("worker-1"));
}

/// As docs/observability.md counts them for a thousand clusters of four cells.
#[test]
fn the_series_of_a_thousand_clusters_are_bounded_by_what_they_have() {
    const CLUSTERS: usize = 1000;
    let metrics = Metrics::new();
    let cells: Vec<_> = ["cpu", "memory", "pods", "nvidia.com/gpu"].map(|name| gauge(name, 1000)).to_vec();
    for number in 0..CLUSTERS {
        let cluster = ClusterName::new(&format!("worker-{number}")).expect("a name");
        metrics.quota(&cluster, &cells);
        // Again and again, as over days: nothing is added.
        for connection in [Connection::Connecting, Connection::Ready, Connection::Unreached] {
            metrics.connection(&cluster, &connection);
            metrics.seen(&cluster, Timestamp::UNIX_EPOCH);
            metrics.pending(&cluster, 1);
            metrics.node_event(&cluster, true);
            metrics.node_event(&cluster, false);
            for (verb, code) in
                [("get", "200"), ("list", "200"), ("watch", "200"), ("create", "201"), ("patch", "200")]
            {
                metrics.api_request(&cluster, verb, code, Duration::from_millis(1));
            }
            for kind in ["clusterqueues", "localqueues", "namespaces", "resourceflavors", "serviceaccounts"] {
                metrics.wrote(&cluster, kind);
            }
        }
    }
    let text = metrics.encode().expect("encodes");
    let series = text.lines().filter(|line| line.contains("cluster=\"worker-")).count();
    let (any, cells, requests, events, kinds) = (10, 3 * 4, 5, 2, 5);
    assert_eq!(series, CLUSTERS * (any + cells + requests + events + kinds));
}

#[test]
fn one_state_of_a_link_is_shown_at_a_time() {
    let metrics = Metrics::new();
    metrics.connection(&cluster(), &Connection::Connecting);
    for connection in [Connection::Refused { reason: "exec".to_owned() }, Connection::Unreached] {
        metrics.connection(&cluster(), &connection);
        let text = metrics.encode().expect("encodes");
        assert_eq!(
            text.lines().filter(|line| line.contains("_connection{") && line.ends_with(" 1")).count(),
            1
        );
        assert!(CONNECTION_WORDS.contains(&connection.word()));
    }
}
