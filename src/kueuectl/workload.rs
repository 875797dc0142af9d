//! What a Workload's conditions say.

use serde_json::Value;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    Pending,
    QuotaReserved,
    Admitted,
    Finished,
}

impl Status {
    pub fn of(workload: &Value) -> Self {
        let is = |kind: &str| condition(workload, kind).is_some();
        if is("Finished") {
            Self::Finished
        } else if is("Admitted") {
            Self::Admitted
        } else if is("QuotaReserved") {
            Self::QuotaReserved
        } else {
            Self::Pending
        }
    }

    pub fn shown(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::QuotaReserved => "QUOTARESERVED",
            Self::Admitted => "ADMITTED",
            Self::Finished => "FINISHED",
        }
    }
}

/// The condition of type `kind`, if it is true.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

pub fn owners(workload: &Value) -> impl Iterator<Item = &Value> {
    workload.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}
