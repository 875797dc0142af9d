//! What can be wrong with a claim, told to the person who has to put it right.

use std::fmt;

use fedq_values::{
    ids::{ClaimName, ClusterName, NameError, ResourceName},
    quantity::{Amount, QuantityError},
};

/// A problem and the field it is in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimProblem {
    /// Such as `spec.resourceAssignments[1].resources.gpu`.
    pub field: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error("{0}")]
    Name(NameError),
    #[error("{reason}")]
    Quantity { resource: String, reason: QuantityError },
    #[error("`{key}` and `{other}` are the same resource: keep one of them")]
    SameResource { key: String, other: String },
    #[error("ClusterQueue `{queue}` has flavor `{flavor}` twice: put its resources into one entry")]
    AssignedTwice { queue: String, flavor: String },
    #[error("no resources: name at least one, such as `cpu: \"4\"`, or remove the entry")]
    NoResources,
    #[error("{found} entries: at most {most} are possible")]
    TooMany { most: usize, found: usize },
    #[error("the assignments of {resource} add up to more than 9223372036854775807: lower them")]
    SumTooLarge { resource: ResourceName },
    #[error(
        "cannot be changed from `{was}` to `{now}`: delete the claim and create one for the other cluster"
    )]
    ClusterChanged { was: String, now: String },
    #[error("cluster `{cluster}` is already claimed by {}: edit that claim instead", other(.claim.as_ref()))]
    ClusterAlreadyClaimed {
        cluster: ClusterName,
        /// Left out for those who may not be told of it.
        claim: Option<ClaimName>,
    },
    #[error("{0}")]
    AboveCap(AboveCap),
}

fn other(claim: Option<&ClaimName>) -> String {
    claim.map_or_else(|| "another claim".to_owned(), |claim| format!("`{claim}`"))
}

/// Assignments of one resource that a cap does not allow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AboveCap {
    pub resource: ResourceName,
    /// What the claim calls the resource.
    pub key: String,
    pub assigned: Amount,
    pub cap: Amount,
}

impl fmt::Display for AboveCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, key, assigned, cap } = self;
        let over = assigned.saturating_sub(*cap).text(resource);
        let (assigned, cap) = (assigned.text(resource), cap.text(resource));
        write!(
            f,
            "{key}: the assignments add up to {assigned}, nominalResources allows {cap}: {over} too much; \
             lower them or raise the cap"
        )
    }
}

impl fmt::Display for ClaimProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl Problem {
    /// A word for conditions, metrics and `reason` fields.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "InvalidName",
            Self::Quantity { .. } => "InvalidQuantity",
            Self::SameResource { .. } => "DuplicateResource",
            Self::AssignedTwice { .. } => "DuplicateAssignment",
            Self::NoResources => "NoResources",
            Self::TooMany { .. } => "TooManyEntries",
            Self::SumTooLarge { .. } => "SumTooLarge",
            Self::ClusterChanged { .. } => "ClusterNameImmutable",
            Self::ClusterAlreadyClaimed { .. } => "ClusterAlreadyClaimed",
            Self::AboveCap(_) => "AboveCap",
        }
    }

    /// Whether the claim could not be read at all, as against a claim that asks for what it may not.
    pub fn is_malformed(&self) -> bool {
        !matches!(self, Self::ClusterAlreadyClaimed { .. } | Self::AboveCap(_) | Self::ClusterChanged { .. })
    }
}

/// The value, or the problem with its field kept.
pub(super) fn at<T>(
    problems: &mut Vec<ClaimProblem>,
    field: impl FnOnce() -> String,
    name: Result<T, NameError>,
) -> Option<T> {
    name.map_err(|error| problems.push(ClaimProblem { field: field(), problem: Problem::Name(error) })).ok()
}
