//! Where a stream of logs stopped: behind which line of each container. As text it goes into `after` and
//! `Last-Event-ID`: `0/task/train-0-x2x7k=2026-11-21T07:00:00.5Z+1,1/task/…`

use std::{collections::BTreeMap, fmt, str::FromStr};

use fedq_k8s::logs::{After, Record};

/// A task has at most so many nodes, each with a container or two.
const MOST: usize = 4096;
/// Room for two containers of each of a thousand nodes under the longest names. It is a little less than what a request's
/// headers may have over HTTP/1.1, so what is handed out can be sent back.
pub const MAX_PLACES: usize = 384 << 10;

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Places(BTreeMap<(u32, String), After>);

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not where a stream of logs stopped, such as 0/task/train-0-x2x7k=2026-11-21T07:00:00.5Z+1")]
pub struct NoPlaces;

impl Places {
    pub fn note(&mut self, record: &Record) {
        if let Some(position) = record.position {
            let origin = &record.origin;
            let after = After { pod: origin.pod.clone(), position };
            self.0.insert((origin.node, origin.container.clone()), after);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn after(&self) -> BTreeMap<(u32, String), After> {
        self.0.clone()
    }

    /// `None`: nothing was sent, or the text is longer than what is taken back.
    pub fn text(&self) -> Option<String> {
        Some(self.to_string()).filter(|text| (1..=MAX_PLACES).contains(&text.len()))
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((node, container), After { pod, position })) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{node}/{container}/{pod}={position}")?;
        }
        Ok(())
    }
}

impl FromStr for Places {
    type Err = NoPlaces;

    fn from_str(text: &str) -> Result<Self, NoPlaces> {
        if MAX_PLACES < text.len() {
            return Err(NoPlaces);
        }
        let one = |part: &str| {
            let (key, position) = part.split_once('=').ok_or(NoPlaces)?;
            let (node, key) = key.split_once('/').ok_or(NoPlaces)?;
            let (container, pod) = key.split_once('/').ok_or(NoPlaces)?;
            let node = node.parse().map_err(|_| NoPlaces)?;
            let position = position.parse().map_err(|_| NoPlaces)?;
            Ok(((node, container.to_owned()), After { pod: pod.to_owned(), position }))
        };
        let places: BTreeMap<_, _> =
            text.split(',').filter(|part| !part.is_empty()).map(one).collect::<Result<_, _>>()?;
        if MOST < places.len() { Err(NoPlaces) } else { Ok(Self(places)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;
    use fedq_domain::task::spec::MAX_NODES;

    #[test]
    fn places_are_text() {
        let text = "0/task/a-0-x=2026-11-21T07:00:00.5Z+1,10/task/a-10-y=2026-11-21T07:00:01Z+2";
        let places: Places = text.parse().expect("places");
        assert_eq!((places.len(), places.to_string().as_str()), (2, text));
        assert_eq!("".parse(), Ok(Places::default()));
        assert_eq!(Places::default().text(), None);
        for wrong in [
            "x",
            "0/task/p",
            "0/task/p=now",
            "a/task/p=2026-11-21T07:00:00Z+1",
            "0/task=2026-11-21T07:00:00Z+1",
        ] {
            assert_eq!(wrong.parse::<Places>(), Err(NoPlaces), "{wrong}");
        }
        let many: Vec<String> = (0..=MOST).map(|node| format!("{node}/c/p=2026-11-21T07:00:00Z+1")).collect();
        assert_eq!(many.join(",").parse::<Places>(), Err(NoPlaces));
    }
    #[test]
    fn what_is_handed_out_is_taken_back() {
        let nodes = |count: u32, longest: usize| {
            let place = |node: u32, container: char| {
                let (container, pod) = (container.to_string().repeat(longest), "p".repeat(longest));
                let after = After {
                    pod,
                    position: "2026-11-21T07:00:00.123456789Z+4294967295".parse().expect("a position"),
                };
                ((node, container), after)
            };
            Places((0..count).flat_map(|node| [place(node, 'a'), place(node, 'b')]).collect())
        };
        let largest = nodes(MAX_NODES, 63);
        let text = largest.text().expect("it is handed out");
        assert_eq!(text.parse(), Ok(largest));
        let taken = openapi()["paths"]["/api/v1/tasks/{task}/logs"]["get"]["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|parameter| ["after", "Last-Event-ID"].iter().any(|name| parameter["name"] == *name))
            .filter(|parameter| parameter["schema"]["maxLength"].as_u64() == u64::try_from(MAX_PLACES).ok())
            .count();
        assert_eq!((taken, text.len() <= MAX_PLACES), (2, true));
        let beyond = nodes(MAX_NODES, 253);
        assert_eq!((beyond.text(), beyond.to_string().parse::<Places>()), (None, Err(NoPlaces)));
    }
}
