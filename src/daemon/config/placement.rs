//! The section `placement`.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Config, resolve::Unusable, text};
use fedq_domain::placement::usage::{Measure, Range};
use fedq_values::quantity::{Amount, Quantity};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Whether fedq decides Placements that nobody else decides.
    pub evaluate: bool,
    /// Whether fedq keeps ManagedClusters of joined clusters.
    pub inventory: bool,
    pub scores: Scores,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scores {
    pub enabled: bool,
    /// Zero: for ever.
    #[serde(with = "text::duration")]
    pub valid_for: Duration,
    /// By the name they have in scores.
    pub ranges: BTreeMap<String, ScoreRange>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScoreRange {
    pub resource: String,
    #[serde(default = "nothing")]
    pub min: String,
    pub max: String,
}

fn nothing() -> String {
    "0".to_owned()
}

impl Default for Placement {
    fn default() -> Self {
        Self { evaluate: true, inventory: true, scores: Scores::default() }
    }
}

impl Default for Scores {
    fn default() -> Self {
        let range = |(name, resource, max): (&str, &str, &str)| {
            let range = ScoreRange { resource: resource.to_owned(), min: nothing(), max: max.to_owned() };
            (name.to_owned(), range)
        };
        let ranges = [
            ("cpu", "cpu", "100"),
            ("mem", "memory", "1Ti"),
            ("gpu", "nvidia.com/gpu", "20"),
            ("tpu", "google.com/tpu", "20"),
        ];
        Self {
            enabled: true,
            valid_for: Duration::from_hours(1),
            ranges: ranges.into_iter().map(range).collect(),
        }
    }
}

impl Config {
    /// What fedq scores clusters by.
    pub fn measures(&self) -> Result<Vec<Measure>, Unusable> {
        let ranges = self.placement.scores.ranges.iter();
        let measure = |(name, range): (&String, &ScoreRange)| {
            let key = format!("placement.scores.ranges.{name}");
            let resource = self.resource(&key, &range.resource)?;
            let amount = |text: &str| {
                let quantity = Quantity::parse(text);
                let quantity =
                    quantity.map_err(|error| Unusable { key: key.clone(), reason: error.to_string() })?;
                Ok(Amount::offered(quantity, &resource))
            };
            let range = Range { min: amount(&range.min)?, max: amount(&range.max)? };
            if range.max <= range.min {
                return Err(Unusable { key, reason: "max has to be more than min".to_owned() });
            }
            Ok(Measure { name: name.clone(), resource, range })
        };
        ranges.map(measure).collect()
    }
}
