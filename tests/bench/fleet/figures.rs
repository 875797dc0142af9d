//! Numbers over sizes: medians, spreads and slopes.

use std::time::SystemTime;

use serde_json::{Value, json};

/// What was measured at one size, once a run.
#[derive(Clone, Debug)]
pub struct Point {
    pub x: f64,
    pub runs: Vec<f64>,
}

/// One measure over several sizes.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: String,
    /// Whose: fedq's, or another client's.
    pub who: String,
    pub x: String,
    pub unit: String,
    pub points: Vec<Point>,
    /// What it has to stay below, or is to be compared with, in words.
    pub goal: String,
    /// When.
    pub measured: String,
    /// What one more of `x` costs, rather than each size by itself.
    pub is_slope: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Figures(pub Vec<Curve>);

impl Curve {
    pub fn new(name: &str, x: &str, unit: &str, goal: &str) -> Self {
        let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default();
        let [name, who, x, unit, goal] = [name, "fedq", x, unit, goal].map(str::to_owned);
        let measured = now.strftime("%F %R UTC").to_string();
        Self { name, who, x, unit, points: Vec::new(), goal, measured, is_slope: false }
    }

    pub fn slope_of(self) -> Self {
        Self { is_slope: true, ..self }
    }

    /// Whether it is one that enough sizes were measured for: of a single one each would cost nothing.
    pub fn has_slope(&self) -> bool {
        self.is_slope && 2 <= self.points.len()
    }

    pub fn by(self, who: &str) -> Self {
        Self { who: who.to_owned(), ..self }
    }

    pub fn add(&mut self, x: usize, value: f64) {
        let x = count(x);
        match self.points.iter_mut().find(|point| point.x.total_cmp(&x).is_eq()) {
            Some(point) => point.runs.push(value),
            None => self.points.push(Point { x, runs: vec![value] }),
        }
    }

    /// Of the line that fits all runs best.
    pub fn slope(&self) -> f64 {
        let all: Vec<(f64, f64)> =
            self.points.iter().flat_map(|point| point.runs.iter().map(|run| (point.x, *run))).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / count(all.len());
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let over: f64 = all.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        over / all.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
    }

    pub fn json(&self) -> Value {
        let point = |point: &Point| {
            json!({
                "x": point.x, "median": point.median(), "min": point.min(), "max": point.max(),
                "runs": point.runs,
            })
        };
        json!({
            "name": self.name, "who": self.who, "x": self.x, "unit": self.unit, "goal": self.goal,
            "measured": self.measured,
            // Read back, so not the nothing that a single point has.
            "slope": if self.is_slope { json!(if self.has_slope() { self.slope() } else { 0.0 }) } else { Value::Null },
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

impl Figures {
    /// These, and of the earlier ones those that were not measured again.
    pub fn after(self, earlier: Vec<Curve>) -> Self {
        let mut all = earlier;
        for curve in self.0 {
            match all.iter_mut().find(|other| other.name == curve.name && other.who == curve.who) {
                Some(other) => *other = curve,
                None => all.push(curve),
            }
        }
        Self(all)
    }
}

impl Curve {
    /// As [`Self::json`] has it.
    pub fn read(json: &Value) -> Option<Self> {
        let text = |field: &str| json[field].as_str().map(str::to_owned);
        let point = |point: &Value| {
            let runs = point["runs"].as_array()?.iter().filter_map(Value::as_f64).collect();
            Some(Point { x: point["x"].as_f64()?, runs })
        };
        Some(Self {
            name: text("name")?,
            who: text("who")?,
            x: text("x")?,
            unit: text("unit")?,
            goal: text("goal")?,
            measured: text("measured").unwrap_or_default(),
            points: json["points"].as_array()?.iter().filter_map(point).collect(),
            is_slope: !json["slope"].is_null(),
        })
    }
}

impl Point {
    pub fn median(&self) -> f64 {
        median(&self.runs)
    }

    pub fn min(&self) -> f64 {
        self.runs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50.0)
}

pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short list")]
    let at = ((count(sorted.len()) * percent / 100.0).ceil() as usize).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn count(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}
