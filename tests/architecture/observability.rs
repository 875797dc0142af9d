//! Alerts and the dashboard ask for what `/metrics` has: names, labels, and words of labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fedq_base::telemetry::{CONNECTION_WORDS, Metrics, QuotaGauge};
use fedq_domain::{cluster::Connection, task::event::Reason};
use fedq_values::ids::{ClusterName, FlavorName, ResourceName};
use regex::Regex;
use serde_json::Value;

use super::imports::read;

const RULES: &str = "deploy/prometheus/rules.yml";
const DASHBOARD: &str = "deploy/prometheus/dashboard.json";
/// Those that Prometheus itself adds to what it scrapes.
const OF_PROMETHEUS: [&str; 3] = ["job", "instance", "le"];

/// Names of series as Prometheus stores them, with the labels of each: those of a fedqd to which everything happened once.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = Metrics::new();
    let cluster = ClusterName::new("worker").expect("a name");
    let took = Duration::from_millis(1);
    metrics.insecure("insecureXUser", true);
    metrics.connection(&cluster, &Connection::Refused { reason: String::new() });
    metrics.seen(&cluster, jiff::Timestamp::UNIX_EPOCH);
    metrics.pending(&cluster, 1);
    metrics.refused(&cluster, "Forbidden");
    metrics.admitted(1);
    metrics.admitted_by(&cluster, took);
    metrics.watch_restarted(&cluster, "nodes", "Expired");
    metrics.node_event(&cluster, true);
    metrics.api_request(&cluster, "get", "200", took);
    metrics.wrote(&cluster, "clusterqueues");
    metrics.published("joined");
    metrics.planned(took);
    metrics.reconciled("quota", took, true);
    metrics.committed(took, false);
    metrics.capacity_written(took);
    metrics.tasks(&BTreeMap::new());
    metrics.task_event(Reason::Chosen);
    metrics.task_dispatched(took);
    metrics.task_started(took);
    let flavor = FlavorName::new("gpus").expect("a name");
    let resource = ResourceName::new("cpu").expect("a name");
    let at = fedq_domain::resources::FlavorResource { flavor, resource };
    let coming = fedq_values::quantity::Amount::new(1);
    metrics.quota(&cluster, &[QuotaGauge { coming, ..QuotaGauge::zero(at) }]);

    let text = metrics.encode().expect("it encodes");
    let (mut series, mut of_no_series): (BTreeMap<String, BTreeSet<String>>, _) =
        (BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            of_no_series.insert(told.split(' ').next().expect("a name").to_owned());
        }
        let Some((sample, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else { continue };
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once('='));
        let labels = labels.map(|(label, _)| label.to_owned());
        series.entry(name.to_owned()).or_default().extend(labels);
    }
    of_no_series.retain(|name| !series.keys().any(|sample| sample.starts_with(name)));
    assert!(of_no_series.is_empty(), "nothing here makes {of_no_series:?} happen");
    series
}

/// What is wrong with an expression: what it names that is not there.
fn wrong(expression: &str, series: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let selector = Regex::new(r"\b(fedq_[a-z_]+)(?:\{([^}]*)\})?").expect("a pattern");
    let matcher = Regex::new(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)""#).expect("a pattern");
    let grouping = Regex::new(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)").expect("a pattern");
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::from(OF_PROMETHEUS.map(str::to_owned)));
    for found in selector.captures_iter(expression) {
        let Some(labels) = series.get(&found[1]) else {
            wrong.push(format!("no series `{}`", &found[1]));
            continue;
        };
        known.extend(labels.iter().cloned());
        for matched in matcher.captures_iter(found.get(2).map_or("", |braces| braces.as_str())) {
            if !labels.contains(&matched[1]) && !OF_PROMETHEUS.contains(&&matched[1]) {
                wrong.push(format!("`{}` has no label `{}`", &found[1], &matched[1]));
            }
            let words = matched[2].split('|').filter(|word| !word.starts_with('$'));
            if &matched[1] == "state" {
                wrong.extend(
                    words
                        .filter(|word| !CONNECTION_WORDS.contains(word))
                        .map(|word| format!("no state `{word}`")),
                );
            }
        }
    }
    for group in grouping.captures_iter(expression) {
        let labels = group[1].split(',').map(str::trim).filter(|label| !label.is_empty());
        wrong.extend(
            labels.filter(|label| !known.contains(*label)).map(|label| format!("no label `{label}`")),
        );
    }
    wrong
}

/// The labels that a legend or a sentence fills in: `{{cluster}}`, `{{ $labels.cluster }}`.
fn filled_in(text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}").expect("a pattern");
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Those that an expression leaves on what it yields; `None`: all of its series.
fn left(expression: &str, series: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let grouping = Regex::new(r"\bby\s*\(([^)]*)\)").expect("a pattern");
    let mut groups = grouping.captures_iter(expression).peekable();
    if groups.peek().is_some() {
        return groups
            .flat_map(|group| group[1].split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>())
            .collect();
    }
    let aggregates = Regex::new(r"\b(?:sum|max|min|count|avg)\s*\(").expect("a pattern");
    if aggregates.is_match(expression) {
        return BTreeSet::new();
    }
    let of = series.iter().filter(|(name, _)| expression.contains(name.as_str()));
    of.flat_map(|(_, labels)| labels.iter().cloned()).collect()
}

#[test]
fn what_is_wrong_with_an_expression_is_seen() {
    let series = series();
    for (expression, said) in [
        ("fedq_plan_second", "no series `fedq_plan_second`"),
        ("rate(fedq_store_errors[5m])", "no series `fedq_store_errors`"),
        ("fedq_quota_assigned{queue=\"a\"}", "`fedq_quota_assigned` has no label `queue`"),
        ("fedq_cluster_connection{state=~\"Stale|Gone\"}", "no state `Gone`"),
        ("sum by (namespace) (fedq_quota_assigned)", "no label `namespace`"),
    ] {
        assert_eq!(wrong(expression, &series), [said], "{expression}");
    }
    let right = "sum by (cluster, le) (rate(fedq_admission_seconds_bucket{cluster=~\"$cluster\"}[5m]))";
    assert!(wrong(right, &series).is_empty());
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_say_what_to_do() {
    let series = series();
    let rules: Value = serde_saphyr::from_str(&read(RULES)).expect("valid YAML");
    let page = read("docs/observability.md");
    let section = page.split("\n## Alerts\n").nth(1).expect("docs/observability.md has a section Alerts");
    let section = section.split("\n## ").next().expect("it ends");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let rows: BTreeMap<&str, &str> = rows.collect();
    let mut alerts = BTreeSet::new();
    for rule in rules["groups"].as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array())
    {
        for rule in rule {
            let name = rule["alert"].as_str().expect("an alert");
            let expression = rule["expr"].as_str().expect("an expression");
            assert_eq!(wrong(expression, &series), [""; 0], "{name}");
            for (key, text) in rule["annotations"].as_object().expect("annotations") {
                let unknown: Vec<_> = filled_in(text.as_str().expect("text"))
                    .difference(&left(expression, &series))
                    .cloned()
                    .collect();
                assert!(unknown.is_empty(), "{name}: {key} names {unknown:?}");
            }
            assert_eq!(rule["annotations"]["runbook"], "docs/observability.md#alerts", "{name}");
            let severity = rule["labels"]["severity"].as_str().expect("a severity");
            assert!(["info", "warning", "critical"].contains(&severity), "{name}");
            alerts.insert(name);
        }
    }
    let listed: BTreeSet<&str> = rows.keys().copied().collect();
    assert_eq!(listed, alerts, "docs/observability.md lists each alert");
    for (name, row) in rows {
        assert!(40 < row.len(), "{name}: what it means and what to do: {row}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let series = series();
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("valid JSON");
    let variables: BTreeSet<String> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .filter_map(|variable| variable["name"].as_str().map(str::to_owned))
        .collect();
    let mut asked = BTreeSet::new();
    let label = Regex::new(r"^label_values\((fedq_[a-z_]+)(?:\{[^}]*\})?, ([a-z_]+)\)$").expect("a pattern");
    for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let found = label.captures(query).unwrap_or_else(|| panic!("{query}"));
        assert!(series.get(&found[1]).is_some_and(|labels| labels.contains(&found[2])), "{query}");
        assert_eq!(wrong(query, &series), [""; 0], "{query}");
    }
    let used = Regex::new(r"\$\{?([A-Za-z_]+)").expect("a pattern");
    let (mut ids, mut panels) = (BTreeSet::new(), 0);
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_i64().expect("an id")), "{title}: its id is another's");
        if panel["type"] == "row" {
            continue;
        }
        panels += 1;
        let text = |pointer: &str| panel.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        assert!(20 < text("/description").len(), "{title}: what it shows, and what to make of it");
        assert!(!text("/fieldConfig/defaults/unit").is_empty(), "{title}: a unit");
        assert_eq!(text("/datasource/uid"), "${datasource}", "{title}");
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            assert_eq!(wrong(expression, &series), [""; 0], "{title}: {expression}");
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            let unknown: Vec<_> = filled_in(legend).difference(&left(expression, &series)).cloned().collect();
            assert!(unknown.is_empty(), "{title}: the legend names {unknown:?}");
            for found in used.captures_iter(expression) {
                // Grafana's own begin so.
                let is_known = found[1].starts_with("__") || variables.contains(&found[1]);
                assert!(is_known, "{title}: no variable ${}", &found[1]);
            }
            asked.extend(series.keys().filter(|name| expression.contains(name.as_str())).cloned());
        }
    }
    assert!(20 <= panels, "{panels} panels");
    // Nobody looks at these by themselves: the version, and what an alert is for.
    let elsewhere = ["fedq_insecure"];
    let shown = |name: &str| {
        let family = ["_bucket", "_count", "_sum", "_total"].iter().find_map(|end| name.strip_suffix(end));
        let family = family.unwrap_or(name);
        asked.iter().any(|asked| asked.starts_with(family))
    };
    let missing: Vec<_> =
        series.keys().filter(|name| !shown(name) && !elsewhere.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "the dashboard does not show {missing:?}");
}
