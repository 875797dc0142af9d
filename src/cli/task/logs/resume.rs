//! Which lines have been seen, so that a new stream goes on behind them.

use std::collections::BTreeMap;

use fedq_wire::task::LogLine;

#[derive(Debug, Default)]
pub struct Seen(BTreeMap<(u32, String), Last>);

/// The last line of a container.
#[derive(Debug, Default)]
struct Last {
    pod: String,
    ts: String,
    /// How many lines with that time there were.
    lines: u32,
}

impl Seen {
    pub fn note(&mut self, line: &LogLine) {
        // Without a time it is a word of the kubelet's, and not in the log.
        let Some(ts) = &line.ts else { return };
        let last = self.0.entry((line.node, line.container.clone())).or_default();
        if last.ts == *ts && last.pod == line.pod {
            last.lines += 1;
        } else {
            *last = Last { pod: line.pod.clone(), ts: ts.clone(), lines: 1 };
        }
    }

    pub fn after(&self) -> Option<String> {
        let place = |((node, container), Last { pod, ts, lines }): (&(u32, String), &Last)| {
            format!("{node}/{container}/{pod}={ts}+{lines}")
        };
        let places: Vec<String> = self.0.iter().map(place).collect();
        (!places.is_empty()).then(|| places.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_moment_are_counted() {
        let mut seen = Seen::default();
        assert_eq!(seen.after(), None);
        let line = |node, pod: &str, ts: Option<&str>| LogLine {
            ts: ts.map(str::to_owned),
            cluster: "one".to_owned(),
            node,
            pod: pod.to_owned(),
            container: "task".to_owned(),
            seq: 1,
            line: String::new(),
            bytes: None,
            cut: 0,
        };
        for (node, ts) in [(0, Some("A")), (1, Some("A")), (0, None), (0, Some("B")), (0, Some("B"))] {
            seen.note(&line(node, "p", ts));
        }
        assert_eq!(seen.after().as_deref(), Some("0/task/p=B+2,1/task/p=A+1"));
        seen.note(&line(0, "q", Some("B")));
        assert_eq!(seen.after().as_deref(), Some("0/task/q=B+1,1/task/p=A+1"));
    }
}
