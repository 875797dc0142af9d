//! What a ClusterQueue says: quota and use by flavor and resource, and what waits.

use fedq_values::{amount::amount, quantity::Quantity};
use serde_json::Value;

use crate::shown::{count, text};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Queue {
    pub cohort: String,
    pub standing: Standing,
    /// In the order of the queue's flavors.
    pub cells: Vec<Cell>,
    pub pending: u64,
    pub admitted: u64,
}

/// Whether the queue admits workloads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    Active,
    /// Admits nothing; what runs goes on.
    Held,
    /// Admits nothing, and what runs is evicted.
    Drained,
    /// Kueue's reason.
    Inactive(String),
}

/// One resource of one flavor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cell {
    pub flavor: String,
    pub resource: String,
    pub quota: Sum,
    /// What workloads hold that have quota, also while they wait for admission checks.
    pub reserved: Sum,
    /// What admitted workloads hold.
    pub used: Sum,
    pub borrowed: Sum,
}

/// An amount, and how it is written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sum {
    nanos: i128,
    pub text: String,
}

impl Queue {
    pub fn read(queue: &Value) -> Self {
        Self {
            cohort: text(queue, "/spec/cohortName"),
            standing: Standing::read(queue),
            cells: cells(queue),
            pending: count(queue, "/status/pendingWorkloads"),
            admitted: count(queue, "/status/admittedWorkloads"),
        }
    }

    /// The greatest share of a quota that is in use, in percent. What is only borrowed is beyond every share.
    pub fn busiest(&self) -> u64 {
        self.cells.iter().map(|cell| cell.percent().unwrap_or(u64::MAX)).max().unwrap_or(0)
    }

    /// The greatest amount borrowed, as a share of the quota, in percent.
    pub fn borrows(&self) -> u64 {
        let shares = self.cells.iter().map(|cell| percent(&cell.borrowed, &cell.quota));
        shares.map(|share| share.unwrap_or(u64::MAX)).max().unwrap_or(0)
    }
}

impl Standing {
    fn read(queue: &Value) -> Self {
        match queue.pointer("/spec/stopPolicy").and_then(Value::as_str) {
            Some("Hold") => return Self::Held,
            Some("HoldAndDrain") => return Self::Drained,
            _ => {}
        }
        let conditions = queue.pointer("/status/conditions").and_then(Value::as_array);
        match conditions.into_iter().flatten().find(|condition| condition["type"] == "Active") {
            Some(active) if active["status"] == "True" => Self::Active,
            Some(inactive) => Self::Inactive(text(inactive, "/reason")),
            None => Self::Inactive("Unknown".to_owned()),
        }
    }

    pub fn word(&self) -> &str {
        match self {
            Self::Active => "Active",
            Self::Held => "Held",
            Self::Drained => "Drained",
            Self::Inactive(reason) => reason,
        }
    }
}

impl Cell {
    /// How much of the quota is used; `None` where all of it is borrowed.
    pub fn percent(&self) -> Option<u64> {
        percent(&self.used, &self.quota)
    }
}

fn percent(part: &Sum, whole: &Sum) -> Option<u64> {
    match (part.nanos, whole.nanos) {
        (0, _) => Some(0),
        (_, 0) => None,
        (part, whole) => u64::try_from(part.saturating_mul(100) / whole).ok(),
    }
}

impl Sum {
    fn read(resource: &str, value: &Value) -> Self {
        // Kueue writes quantities as text, and a person may write a number.
        let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match Quantity::parse(&plain) {
            Ok(quantity) => Self { nanos: quantity.nanos(), text: amount(resource, &plain) },
            Err(_) => Self { nanos: 0, text: "?".to_owned() },
        }
    }
}

/// The cells that have quota, then those that are used without.
fn cells(queue: &Value) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for flavor in each(queue, "/spec/resourceGroups").flat_map(|group| each(group, "/flavors")) {
        for resource in each(flavor, "/resources") {
            let name = text(resource, "/name");
            let quota = Sum::read(&name, &resource["nominalQuota"]);
            cells.push(cell(text(flavor, "/name"), name, quota));
        }
    }
    for (field, reserved) in [("/status/flavorsReservation", true), ("/status/flavorsUsage", false)] {
        for flavor in each(queue, field) {
            for resource in each(flavor, "/resources") {
                let (flavor, name) = (text(flavor, "/name"), text(resource, "/name"));
                let at = cells.iter().position(|cell| cell.flavor == flavor && cell.resource == name);
                let at = at.unwrap_or_else(|| {
                    cells.push(cell(flavor, name, Sum { nanos: 0, text: "-".to_owned() }));
                    cells.len() - 1
                });
                let cell = &mut cells[at];
                let total = Sum::read(&cell.resource, &resource["total"]);
                if reserved {
                    cell.reserved = total;
                } else {
                    cell.used = total;
                    cell.borrowed = resource
                        .get("borrowed")
                        .map_or_else(zero, |borrowed| Sum::read(&cell.resource, borrowed));
                }
            }
        }
    }
    cells
}

fn cell(flavor: String, resource: String, quota: Sum) -> Cell {
    Cell { flavor, resource, quota, reserved: zero(), used: zero(), borrowed: zero() }
}

fn zero() -> Sum {
    Sum { nanos: 0, text: "0".to_owned() }
}

fn each<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
