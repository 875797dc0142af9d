//! AdmissionReview in, AdmissionReview out: `domain::claim::review` between the two.

use kube::{
    ResourceExt,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation},
        response::{StatusCause, StatusDetails, StatusSummary},
    },
};
use serde_json::Value;

use crate::{
    domain::{
        claim::{
            CAPACITY_MANAGER, ClaimText,
            problem::ClaimProblem,
            review::{ClaimContext, Requester, Verdict, review},
        },
        overview::Overview,
        resources::Aliases,
    },
    k8s::types::claim::ClusterResourceClaim,
};

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

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("not an AdmissionReview of admission.k8s.io/v1")]
    Decode(#[from] serde_json::Error),
    #[error("an AdmissionReview without a request")]
    NoRequest,
}

impl Judge {
    /// The answer to one AdmissionReview.
    pub fn answer(
        &self,
        body: &[u8],
        overview: &Overview,
    ) -> Result<AdmissionReview<DynamicObject>, ReviewError> {
        let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
        let request: AdmissionRequest<DynamicObject> =
            review.try_into().map_err(|_| ReviewError::NoRequest)?;
        let mut response = AdmissionResponse::from(&request);
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

    fn judge(&self, request: &AdmissionRequest<DynamicObject>, overview: &Overview) -> Verdict {
        let allow = |warnings| Verdict::Allow { warnings };
        let is_ours = request.kind.kind == "ClusterResourceClaim" && request.sub_resource.is_none();
        if !is_ours || !matches!(request.operation, Operation::Create | Operation::Update) {
            return allow(Vec::new());
        }
        let Some(new) = request.object.as_ref().and_then(read) else {
            // Only a CRD that is not ours lets such an object through. The controller reports it.
            return allow(vec!["fedq cannot read this claim: check the installed CRD".to_owned()]);
        };
        let old = match (&request.operation, &request.old_object) {
            (Operation::Create, _) => None,
            (_, old) => match old.as_ref().and_then(read) {
                Some(old) => Some(old),
                // Whatever it is now, it replaces what could not even be read.
                None => return allow(Vec::new()),
            },
        };
        let context = ClaimContext::new(overview, &new.cluster, &self.aliases, self.requester(request));
        review(old.as_ref(), &new, &context)
    }

    /// fedqd edits for people under its own name too, where there is no impersonation: only what it
    /// writes as the owner of capacity passes unseen.
    fn requester(&self, request: &AdmissionRequest<DynamicObject>) -> Requester {
        let user = request.user_info.username.as_deref();
        let options = request.options.as_ref().and_then(|options| options.0.get("fieldManager"));
        let manager = options.and_then(Value::as_str);
        if self.daemon.is_some() && user == self.daemon.as_deref() && manager == Some(CAPACITY_MANAGER) {
            Requester::Daemon
        } else {
            Requester::Person
        }
    }
}

fn read(object: &DynamicObject) -> Option<ClaimText> {
    let claim: ClusterResourceClaim = object.clone().try_parse().ok()?;
    Some(ClaimText::from(&claim))
}

fn denial(request: &AdmissionRequest<DynamicObject>, problems: &[ClaimProblem]) -> Status {
    let malformed = problems.iter().any(|problem| problem.problem.is_malformed());
    let (code, reason) = if malformed { (422, "Invalid") } else { (403, "Forbidden") };
    let causes = problems.iter().take(MAX_PROBLEMS).map(|problem| StatusCause {
        reason: problem.problem.reason().to_owned(),
        message: problem.problem.to_string(),
        field: problem.field.clone(),
    });
    let object = request.object.as_ref();
    Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message(problems),
        reason: reason.to_owned(),
        details: Some(StatusDetails {
            name: object.map(ResourceExt::name_any).unwrap_or_default(),
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
