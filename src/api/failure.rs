//! From what failed to what the caller is told. What only operators may see is logged here, once.

use axum::{
    Json,
    extract::{
        path::ErrorKind,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tracing::error;

use fedq_domain::claim::problem::ClaimProblem;
use fedq_k8s::{
    client::{ApiError, RetryClass},
    kubeconfig::KubeconfigError,
    session::{BaseError, ClusterSecretError, HubError},
};
use fedq_store::StoreError;
use fedq_wire::problem::{Cause, Code, PROBLEM_JSON, Problem};

/// A problem on its way to the caller.
#[derive(Clone, Debug)]
pub struct Failure(pub Problem);

impl Failure {
    pub fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self(Problem {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            code,
            detail: detail.into(),
            next: None,
            causes: Vec::new(),
        })
    }

    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.0.next = Some(step.into());
        self
    }

    /// Adds to what went wrong.
    pub fn detail(mut self, more: &str) -> Self {
        self.0.detail = format!("{}: {more}", self.0.detail);
        self
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::BadRequest, detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::Unauthorized, detail)
            .next("log in: fedq login --server URL --token TOKEN")
    }

    pub fn too_many_requests(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, Code::TooManyRequests, detail)
            .next("wait a moment and try again")
    }

    /// Not the caller's fault, and nothing in it is for them: the chain goes to the log.
    pub fn internal(what: &str, source: &(dyn std::error::Error + 'static)) -> Self {
        let chain: Vec<String> = chain(source).collect();
        error!(error = chain.join(": "), "{what}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, what)
            .next("see the log of fedqd; fedq check may name the cause")
    }

    /// One field of what was sent breaks a rule.
    pub fn field(field: &str, error: &dyn std::error::Error) -> Self {
        let mut failure =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, format!("{field}: {error}"));
        failure.0.causes = vec![Cause::new(field, error.to_string())];
        failure
    }

    /// What is there now does not allow it.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::Conflict, detail)
    }

    /// A claim that is refused before the hub sees it.
    pub fn claim(problems: &[ClaimProblem]) -> Self {
        let mut failure =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, "the claim is not valid");
        failure.0.causes =
            problems.iter().map(|found| Cause::new(found.field.clone(), found.problem.to_string())).collect();
        failure
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> impl Iterator<Item = String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string)
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"fedq\""));
        }
        response
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Api(error) => Self::from(error),
            HubError::Impersonate(error) => Self::internal("cannot act as that user on the hub", &error),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let (status, code, next) = meaning(&error.class);
        let mut failure = Self::new(status, code, error.message);
        failure.0.next = next.map(str::to_owned);
        let details = error.status.and_then(|answer| answer.details);
        let causes = details.into_iter().flat_map(|details| details.causes);
        failure.0.causes = causes.map(|cause| Cause::new(cause.field, cause.message)).collect();
        failure
    }
}

fn meaning(class: &RetryClass) -> (StatusCode, Code, Option<&'static str>) {
    const UNREACHABLE: &str = "try again; if it stays so, look at the hub and at the log of fedqd";
    match class {
        RetryClass::Conflict => (
            StatusCode::CONFLICT,
            Code::Conflict,
            Some("read it again and repeat the change on what is there now"),
        ),
        RetryClass::AlreadyExists => (StatusCode::CONFLICT, Code::AlreadyExists, None),
        RetryClass::NotFound | RetryClass::Gone => (StatusCode::NOT_FOUND, Code::NotFound, None),
        RetryClass::Forbidden => (
            StatusCode::FORBIDDEN,
            Code::Forbidden,
            Some("ask an administrator of the hub for the right that the message names"),
        ),
        RetryClass::DeniedByWebhook(_) | RetryClass::Invalid => {
            (StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, None)
        }
        RetryClass::Throttled { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, Code::TooManyRequests, Some("wait a moment and try again"))
        }
        // It is the daemon's own credential that the hub refuses.
        RetryClass::Unauthorized => (StatusCode::BAD_GATEWAY, Code::HubUnreachable, Some(UNREACHABLE)),
        RetryClass::WebhookDown | RetryClass::Unreachable => {
            (StatusCode::SERVICE_UNAVAILABLE, Code::HubUnreachable, Some(UNREACHABLE))
        }
        RetryClass::Timeout => (StatusCode::GATEWAY_TIMEOUT, Code::HubTimeout, Some(UNREACHABLE)),
    }
}

impl From<ClusterSecretError> for Failure {
    fn from(error: ClusterSecretError) -> Self {
        let detail = error.to_string();
        match error {
            ClusterSecretError::Hub(error) => error.into(),
            ClusterSecretError::NotJoined(_) => Self::not_found(detail)
                .next("fedq cluster list shows what is joined, and from where; only clusters with a kubeconfig can be changed here; one that a ClusterProfile joins by that object: fedq.dev/cordon and fedq.dev/confirm-identity are its annotations, too"),
            ClusterSecretError::AlreadyJoined(name) => {
                Self::new(StatusCode::CONFLICT, Code::AlreadyExists, detail)
                    .next(format!("to join it anew: fedq cluster leave {name}, then join"))
            }
        }
    }
}

impl From<BaseError> for Failure {
    fn from(error: BaseError) -> Self {
        let detail = error.to_string();
        match error {
            BaseError::Hub(error) => error.into(),
            BaseError::Cohort(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
                .next("put the annotation right with kubectl edit clusterqueue"),
            BaseError::Cells { source, .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, format!("{detail}: {source}"))
                    .next("put the annotation right with kubectl edit clusterqueue")
            }
            BaseError::NotOurs { queue, .. } => Self::not_found(detail).next(format!(
                "fedq quota explain {queue} lists the cells fedq writes; set others with kubectl"
            )),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cursor(_) => {
                Self::bad_request(error.to_string()).next("start the list again without `continue`")
            }
            _ => Self::internal("the store cannot be used", &error),
        }
    }
}

impl From<KubeconfigError> for Failure {
    fn from(error: KubeconfigError) -> Self {
        let next = if error.is_loopback() {
            "give an address that fedqd reaches the cluster at, or, where both run on one machine, set \
             clusters.allowLoopback: true in its configuration"
        } else {
            "fedq cluster join --create-serviceaccount makes a credential that is accepted"
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::KubeconfigRefused, error.to_string()).next(next)
    }
}

/// What does not fit is told before by what the document has of it. The reader's own words would tell its value again.
impl From<QueryRejection> for Failure {
    fn from(_: QueryRejection) -> Self {
        let mut failure = Self::bad_request("a parameter of the request is wrong, so nothing was done");
        failure.0.causes = vec![Cause::new("", UNFIT)];
        failure.next("/api/v1/openapi.json says what the parameters must be")
    }
}

const UNFIT: &str = "is not what the document says";

impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        let mut failure = Self::bad_request("the path names nothing that can be");
        if let PathRejection::FailedToDeserializePathParams(refused) = rejection {
            failure.0.causes = match refused.into_kind() {
                ErrorKind::DeserializeError { key, message, .. } => vec![Cause::new(key, message)],
                ErrorKind::InvalidUtf8InPathParam { key } => vec![Cause::new(key, "must be UTF-8")],
                ErrorKind::ParseErrorAtKey { key, .. } => vec![Cause::new(key, UNFIT)],
                // What a name's own type says of it.
                ErrorKind::Message(message) => vec![Cause::new("", message)],
                _ => vec![Cause::new("", UNFIT)],
            };
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;

    use super::*;
    use fedq_k8s::kubeconfig::{Rules, check};
    use fedq_wire::task::TasksQuery;

    #[test]
    fn a_parameter_that_does_not_fit_is_not_told_again() {
        for query in ["kind=hush", "over=hush", "limit=hush"] {
            let uri = format!("/?{query}").parse().expect("a URI");
            let refused = Query::<TasksQuery>::try_from_uri(&uri).expect_err("refused");
            let Failure(problem) = refused.into();
            assert_eq!((problem.status, problem.causes.len()), (400, 1), "{problem}");
            let told = serde_json::to_string(&problem).expect("JSON");
            assert!(!told.contains("hush") && !told.contains("deserialize"), "{told}");
        }
    }

    /// With a ServiceAccount, the address stays the same.
    #[test]
    fn an_address_on_this_machine_is_refused_with_the_setting_that_allows_it() {
        let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
                          clusters: [{name: c, cluster: {server: \"https://127.0.0.1:6443\"}}], \
                          users: [{name: u, user: {token: t}}]}";
        let refused = check(kubeconfig.as_bytes(), None, &Rules::default()).expect_err("refused");
        let next = Failure::from(refused).0.next.expect("a next step");
        assert!(next.contains("clusters.allowLoopback"), "{next}");
    }
}
