//! Which lines have been seen, so that a new stream goes on behind them.

use std::collections::BTreeMap;

use crate::wire::task::LogLine;

/// Of each container: the time of its last line, and how many lines with that time there were.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<(u32, String), (String, u32)>);

impl Seen {
    pub fn note(&mut self, line: &LogLine) {
        // Without a time it is a word of the kubelet's, and not in the log.
        let Some(ts) = &line.ts else { return };
        let last = self.0.entry((line.node, line.container.clone())).or_default();
        if last.0 == *ts {
            last.1 += 1;
        } else {
            *last = (ts.clone(), 1);
        }
    }

    pub fn after(&self) -> Option<String> {
        let place = |((node, container), (ts, lines)): (&(u32, String), &(String, u32))| {
            format!("{node}/{container}={ts}+{lines}")
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
        let line = |node, ts: Option<&str>| LogLine {
            ts: ts.map(str::to_owned),
            cluster: "one".to_owned(),
            node,
            container: "task".to_owned(),
            seq: 1,
            line: String::new(),
            bytes: None,
            cut: 0,
        };
        for (node, ts) in [(0, Some("A")), (1, Some("A")), (0, None), (0, Some("B")), (0, Some("B"))] {
            seen.note(&line(node, ts));
        }
        assert_eq!(seen.after().as_deref(), Some("0/task=B+2,1/task=A+1"));
    }
}
