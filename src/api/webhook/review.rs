//! AdmissionReview in, AdmissionReview out: `domain::claim::review` between the two.

use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionResponse, AdmissionReview},
    response::{StatusCause, StatusDetails, StatusSummary},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use fedq_domain::{
    claim::{
        CAPACITY_MANAGER, ClaimText,
        problem::ClaimProblem,
        review::{ClaimContext, Requester, Verdict, review},
    },
    overview::Overview,
    resources::Aliases,
};
use fedq_k8s::types::claim::ClusterResourceClaim;
use fedq_values::nested;

/// API servers cut warnings off at 256 characters each and 4096 together.
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 16;
/// A claim can hold two thousand quantities; nobody reads a thousand problems.
const MAX_PROBLEMS: usize = 20;

/// What the webhook knows besides the request.
#[derive(Clone, Debug)]
pub struct Judge {
    pub aliases: Aliases,
    /// The user that fedqd is to the hub, such as `system:serviceaccount:fedq-system:fedqd`.
    pub daemon: Option<String>,
}

/// Commas, colons and brackets of a review. The largest claim that the CRD allows has some 50,000 with a handful of
/// managers, and comes twice; without a bound, 3 MiB of `0,0,0` become a hundred times that in memory.
const MAX_TOKENS: usize = 200_000;

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Where, and not what: the reader's message would quote what was sent.
    #[error("not an AdmissionReview of admission.k8s.io/v1 (byte {0})")]
    Decode(usize),
    #[error("an AdmissionReview without a request")]
    NoRequest,
    #[error("an AdmissionReview of more values than claims can have")]
    TooMany,
}

/// What is read of a review; objects only where they are claims.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow, default)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: Kind,
    #[serde(default)]
    sub_resource: Option<String>,
    operation: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    user_info: User,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
    #[serde(default)]
    options: Option<Options>,
}

#[derive(Deserialize)]
struct Kind {
    group: String,
    kind: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    #[serde(default)]
    field_manager: Option<String>,
}

impl Judge {
    /// The answer to one AdmissionReview.
    pub fn answer(
        &self,
        body: &[u8],
        overview: &Overview,
    ) -> Result<AdmissionReview<DynamicObject>, ReviewError> {
        if MAX_TOKENS < tokens(body) {
            return Err(ReviewError::TooMany);
        }
        if nested::is_nested(body) {
            return Err(ReviewError::Decode(0));
        }
        let review: Review<'_> =
            serde_json::from_slice(body).map_err(|error| ReviewError::Decode(error.column()))?;
        if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
            return Err(ReviewError::Decode(0));
        }
        let request = review.request.ok_or(ReviewError::NoRequest)?;
        let mut response = AdmissionResponse::invalid("");
        (response.allowed, response.result) = (true, Status::default());
        response.uid.clone_from(&request.uid);
        match self.judge(&request, overview) {
            Verdict::Allow { warnings } if warnings.is_empty() => {}
            Verdict::Allow { warnings } => response.warnings = Some(shortened(warnings)),
            Verdict::Deny(problems) => {
                response.allowed = false;
                response.result = denial(&request, &problems);
            }
        }
        Ok(response.into_review())
    }

    fn judge(&self, request: &Request<'_>, overview: &Overview) -> Verdict {
        let allow = |warnings| Verdict::Allow { warnings };
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        let is_ours = request.kind.kind == "ClusterResourceClaim" && whole;
        if !is_ours || !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
            return allow(Vec::new());
        }
        let Some(new) = request.object.and_then(read) else {
            // Only a CRD that is not ours lets such an object through. The controller reports it.
            return allow(vec!["fedq cannot read this claim: check the installed CRD".to_owned()]);
        };
        let old = match request.operation.as_str() {
            "CREATE" => None,
            _ => match request.old_object.and_then(read) {
                Some(old) => Some(old),
                // Whatever it is now, it replaces what could not even be read.
                None => return allow(Vec::new()),
            },
        };
        let context =
            ClaimContext::for_anybody(overview, &new.cluster, &self.aliases, self.requester(request));
        review(old.as_ref(), &new, &context)
    }

    /// fedqd edits for people under its own name too, where there is no impersonation: only what it
    /// writes as the owner of capacity passes unseen.
    fn requester(&self, request: &Request<'_>) -> Requester {
        let user = request.user_info.username.as_deref();
        let manager = request.options.as_ref().and_then(|options| options.field_manager.as_deref());
        if self.daemon.is_some() && user == self.daemon.as_deref() && manager == Some(CAPACITY_MANAGER) {
            Requester::Daemon
        } else {
            Requester::Person
        }
    }
}

/// How many values a JSON text has at most, found without keeping any of them. Those in texts count as well.
fn tokens(body: &[u8]) -> usize {
    body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count()
}

fn read(object: &RawValue) -> Option<ClaimText> {
    let claim: ClusterResourceClaim = serde_json::from_str(object.get()).ok()?;
    Some(ClaimText::from(&claim))
}

fn denial(request: &Request<'_>, problems: &[ClaimProblem]) -> Status {
    let malformed = problems.iter().any(|problem| problem.problem.is_malformed());
    let (code, reason) = if malformed { (422, "Invalid") } else { (403, "Forbidden") };
    let causes = problems.iter().take(MAX_PROBLEMS).map(|problem| StatusCause {
        reason: problem.problem.reason().to_owned(),
        message: problem.problem.to_string(),
        field: problem.field.clone(),
    });
    Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message(problems),
        reason: reason.to_owned(),
        details: Some(StatusDetails {
            name: request.name.clone(),
            group: request.kind.group.clone(),
            kind: request.kind.kind.clone(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        }),
        ..Status::default()
    }
}

/// One problem stands behind kubectl's `denied the request: `, several each on a line of its own.
fn message(problems: &[ClaimProblem]) -> String {
    if let [problem] = problems {
        return problem.to_string();
    }
    let lines = problems.iter().take(MAX_PROBLEMS).map(|problem| format!("\n* {problem}"));
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    let rest = (0 < more).then(|| format!("\n* and {more} more"));
    lines.chain(rest).collect()
}

fn shortened(mut warnings: Vec<String>) -> Vec<String> {
    if MAX_WARNINGS < warnings.len() {
        let more = warnings.len() - (MAX_WARNINGS - 1);
        warnings.truncate(MAX_WARNINGS - 1);
        warnings.push(format!("and {more} more"));
    }
    for warning in &mut warnings {
        if let Some((end, _)) = warning.char_indices().nth(MAX_WARNING) {
            warning.truncate(end);
        }
    }
    warnings
}
