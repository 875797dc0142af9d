//! Where a stream of logs stopped: behind which line of each container. As text it goes into `after` and
//! `Last-Event-ID`: `0/task/train-0-x2x7k=2026-11-21T07:00:00.5Z+1,1/task/…`

use std::{collections::BTreeMap, fmt, str::FromStr};

use fedq_k8s::logs::{After, Record};

/// A task has at most so many nodes, each with a container or two.
const MOST: usize = 4096;

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

    /// `None`: nothing was sent.
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.to_string())
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
}
