//! The GPU quota of every queue on every cluster, as their API servers have it now, side by side.

use std::collections::{BTreeMap, BTreeSet};

use anstyle::AnsiColor;
use serde_json::Value;

use super::{
    objects::GPU,
    screen::{colored, paint},
};
use fedq_sim::cluster::Cluster;

/// A cell that a cluster does not have.
const NONE: &str = "-";
const GAP: usize = 3;

/// By queue and flavor, the nominal quota by cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quotas {
    clusters: Vec<String>,
    cells: BTreeMap<(String, String), Vec<String>>,
}

impl Quotas {
    pub fn read(clusters: &[Cluster]) -> Self {
        let found: Vec<BTreeMap<(String, String), String>> = clusters.iter().map(of).collect();
        let keys: BTreeSet<&(String, String)> = found.iter().flat_map(BTreeMap::keys).collect();
        let amount = |cells: &BTreeMap<(String, String), String>, key: &(String, String)| {
            cells.get(key).map_or(NONE, String::as_str).to_owned()
        };
        let row = |key: &(String, String)| found.iter().map(|cells| amount(cells, key)).collect();
        let cells = keys.iter().map(|&key| (key.clone(), row(key))).collect();
        Self { clusters: clusters.iter().map(|cluster| cluster.state.name.clone()).collect(), cells }
    }

    /// Whether these are all, given as lines of queue, flavor and the quota on each cluster.
    pub fn are(&self, expected: &str) -> bool {
        let lines = expected.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let own = self.cells.iter().map(|((queue, flavor), amounts)| {
            [queue, flavor].into_iter().chain(amounts).map(String::as_str).collect::<Vec<_>>()
        });
        lines.filter(|line| !line.is_empty()).eq(own)
    }

    /// With what has changed since `before`, and a note beside the name of clusters that have one.
    pub fn table(
        &self,
        before: Option<&Self>,
        note: &dyn Fn(&str) -> Option<&'static str>,
        color: bool,
    ) -> String {
        let named = |name: &String| match note(name) {
            Some(note) => format!("{} ({note})", name.to_uppercase()),
            None => name.to_uppercase(),
        };
        let heads = ["QUEUE", "FLAVOR"].map(str::to_owned).into_iter().chain(self.clusters.iter().map(named));
        let mut rows = vec![heads.map(|head| (head, false)).collect::<Vec<_>>()];
        for (key, amounts) in &self.cells {
            let old = before.and_then(|before| before.cells.get(key));
            let cells = amounts.iter().enumerate().map(|(index, amount)| {
                match old.and_then(|old| old.get(index)).filter(|old| *old != amount) {
                    Some(old) => (format!("{old} → {amount}"), true),
                    None => (amount.clone(), false),
                }
            });
            rows.push([&key.0, &key.1].map(|name| (name.clone(), false)).into_iter().chain(cells).collect());
        }
        render(&rows, color)
    }
}

fn render(rows: &[Vec<(String, bool)>], color: bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().map(|row| row[column].0.chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, changed)) in row.iter().enumerate() {
            let shown = paint(cell, colored(AnsiColor::Yellow), color && *changed);
            text.push_str(&shown);
            if column + 1 < row.len() {
                let blanks = widths[column] - cell.chars().count() + GAP;
                text.extend(std::iter::repeat_n(' ', blanks));
            }
        }
        text.push('\n');
    }
    text
}

fn of(cluster: &Cluster) -> BTreeMap<(String, String), String> {
    let mut cells = BTreeMap::new();
    for queue in cluster.list("ClusterQueue") {
        let name = queue["metadata"]["name"].as_str().unwrap_or_default();
        let groups = items(&queue["spec"]["resourceGroups"]);
        for flavor in groups.flat_map(|group| items(&group["flavors"])) {
            let of_gpus = items(&flavor["resources"]).find(|resource| resource["name"] == GPU);
            let amount = of_gpus.and_then(|resource| resource["nominalQuota"].as_str());
            if let (Some(amount), Some(flavor)) = (amount, flavor["name"].as_str()) {
                cells.insert((name.to_owned(), flavor.to_owned()), amount.to_owned());
            }
        }
    }
    cells
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(amounts: [[&str; 2]; 2]) -> Quotas {
        let key = |queue: &str| (queue.to_owned(), "h100".to_owned());
        let [one, other] = amounts.map(|row| row.map(str::to_owned).to_vec());
        Quotas {
            clusters: vec!["hub".to_owned(), "tokyo".to_owned()],
            cells: BTreeMap::from([(key("a"), one), (key("team"), other)]),
        }
    }

    #[test]
    fn they_are_compared_as_a_whole() {
        let quotas = quotas([["8", "-"], ["16", "4"]]);
        assert!(quotas.are("\n a h100 8 -\n team h100 16 4\n"));
        for wrong in
            ["a h100 8 -", "a h100 8 -\nteam h100 16 5", "a h100 8 -\nteam h100 16 4\nx h100 0 0", ""]
        {
            assert!(!quotas.are(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_table_shows_what_has_changed() {
        let (before, now) = (quotas([["8", "-"], ["16", "4"]]), quotas([["8", "-"], ["12", "0"]]));
        let note = |name: &str| (name == "tokyo").then_some("off");
        assert_eq!(
            now.table(Some(&before), &note, false),
            "QUEUE   FLAVOR   HUB       TOKYO (off)\n\
             a       h100     8         -\n\
             team    h100     16 → 12   4 → 0\n"
        );
        assert!(!now.table(None, &|_| None, true).contains('\u{1b}'));
        assert!(now.table(Some(&before), &note, true).contains("\u{1b}[33m4 → 0\u{1b}[0m\n"));
    }
}
