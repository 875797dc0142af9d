//! Parameters of requests are what the document says, and no others: who misspells `dryRun` must not have it carried
//! out, nor who sends it in a body where none is taken. What the document says of the body goes on to whoever reads that.

use std::{collections::HashMap, fmt, sync::Arc};

use axum::{
    body::{Body, to_bytes},
    extract::{MatchedPath, Request, State as Extract},
    http::{HeaderMap, Method},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    Failure, State,
    extract::token,
    shape::{Shape, resolved},
};
use fedq_domain::nearest::nearest;
use fedq_wire::problem::Cause;

/// Whoever sends thousands is told of the first ones: an answer must not be many times what was asked.
const MOST_CAUSES: usize = 20;

/// More than what clients send that always send a body, where there is nothing to say.
const MOST_OF_NOTHING: usize = 64;

/// What each operation takes.
#[derive(Clone)]
pub struct Parameters(Arc<HashMap<(Method, String), Operation>>);

struct Operation {
    /// Whether it takes a token.
    closed: bool,
    query: Vec<Parameter>,
    /// `None`: it takes no body.
    body: Option<Arc<Shape>>,
}

struct Parameter {
    name: String,
    form: Form,
}

/// What a value must be.
enum Form {
    Flag,
    /// A flag with a name that Kubernetes' clients know.
    KubernetesFlag,
    Number {
        least: u64,
        most: u64,
    },
    OneOf(Vec<String>),
    Time,
    Text {
        most: usize,
    },
    /// Text, as often as one likes.
    Texts {
        most: usize,
    },
}

impl Parameters {
    pub fn of(document: &Value) -> Self {
        let mut known = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query = parameters.filter(|parameter| parameter["in"] == "query");
                let query = query.map(|parameter| Parameter::read(parameter, document));
                let closed = operation.get("security").is_none();
                let body = operation.get("requestBody").map(|body| {
                    Arc::new(Shape::of(&body["content"]["application/json"]["schema"], document))
                });
                known.insert((method, path.clone()), Operation { closed, query: query.collect(), body });
            }
        }
        Self(Arc::new(known))
    }
}

impl Operation {
    fn check(&self, query: &str) -> Result<(), Failure> {
        let known = &self.query;
        let mut causes: Vec<Cause> = Vec::new();
        let mut seen = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let message = match known.iter().find(|parameter| parameter.name == name) {
                None => unknown(&name, known),
                Some(parameter) if seen.contains(&name) && !parameter.form.is_repeated() => {
                    "must be given once".to_owned()
                }
                Some(parameter) if parameter.form.takes(&value) => {
                    seen.push(name);
                    continue;
                }
                Some(parameter) => format!("must be {}", parameter.form),
            };
            causes.push(Cause::new(name.chars().take(80).collect::<String>(), message));
            if MOST_CAUSES <= causes.len() {
                break;
            }
        }
        if causes.is_empty() {
            return Ok(());
        }
        let mut failure = Failure::bad_request("a parameter of the request is wrong, so nothing was done");
        failure.0.causes = causes;
        Err(failure)
    }
}

/// Who sends there what belongs into the query must not have it left out.
async fn take_nothing(body: Body) -> Result<(), Failure> {
    let says_nothing = |body: &[u8]| {
        let value = serde_json::from_slice::<Value>(body);
        body.trim_ascii().is_empty() || value.is_ok_and(|value| value.is_null() || value == json!({}))
    };
    if to_bytes(body, MOST_OF_NOTHING).await.is_ok_and(|body| says_nothing(&body)) {
        return Ok(());
    }
    let mut failure = Failure::bad_request("the request takes no body, so nothing was done");
    failure.0.causes = vec![Cause::new("body", "must be empty, {} or null")];
    Err(failure.next("send what it takes as parameters of the query: /api/v1/openapi.json lists them"))
}

fn unknown(name: &str, known: &[Parameter]) -> String {
    let names = || known.iter().map(|parameter| parameter.name.as_str());
    match nearest(name, names()) {
        Some(meant) => format!("there is no such parameter: `{meant}` is the one meant"),
        None if known.is_empty() => "there is no such parameter: this request takes none".to_owned(),
        None => format!(
            "there is no such parameter: this request takes {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    }
}

impl Parameter {
    fn read(parameter: &Value, document: &Value) -> Self {
        let schema = resolved(&parameter["schema"], document);
        let number = |key: &str, otherwise: u64| schema[key].as_u64().unwrap_or(otherwise);
        let form = match (schema["type"].as_str(), schema["enum"].as_array()) {
            (_, Some(words)) => {
                Form::OneOf(words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect())
            }
            (Some("boolean"), _)
                if ["watch", "follow", "previous"].iter().any(|name| parameter["name"] == *name) =>
            {
                Form::KubernetesFlag
            }
            (Some("boolean"), _) => Form::Flag,
            (Some("integer"), _) => {
                Form::Number { least: number("minimum", 0), most: number("maximum", u64::MAX) }
            }
            (Some("array"), _) => {
                let most = schema["items"]["maxLength"].as_u64().unwrap_or(u64::MAX);
                Form::Texts { most: most.try_into().unwrap_or(usize::MAX) }
            }
            _ if schema["format"] == "date-time" => Form::Time,
            _ => Form::Text { most: number("maxLength", u64::MAX).try_into().unwrap_or(usize::MAX) },
        };
        Self { name: parameter["name"].as_str().unwrap_or_default().to_owned(), form }
    }
}

impl Form {
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Texts { .. })
    }

    fn takes(&self, value: &str) -> bool {
        match self {
            Self::Flag => matches!(value, "true" | "false"),
            // As Kubernetes reads them.
            Self::KubernetesFlag => matches!(value, "" | "0" | "1" | "true" | "True" | "false" | "False"),
            Self::Number { least, most } => {
                value.parse::<u64>().is_ok_and(|number| (*least..=*most).contains(&number))
            }
            Self::OneOf(words) => words.iter().any(|word| word == value),
            Self::Time => value.parse::<jiff::Timestamp>().is_ok(),
            Self::Text { most } | Self::Texts { most } => {
                value.chars().count() <= *most && !value.contains('\0')
            }
        }
    }
}

/// After "must be".
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag | Self::KubernetesFlag => f.write_str("true or false"),
            Self::Number { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::OneOf(words) => f.write_str(&words.join(" or ")),
            Self::Time => f.write_str("a time such as 2026-08-01T09:30:00Z"),
            Self::Text { most } | Self::Texts { most } => {
                write!(f, "text of at most {most} characters without NUL")
            }
        }
    }
}

/// Refuses parameters that the document does not have, and a body where it has none, once it is known who asks: who is not
/// logged in is told that.
pub async fn check(
    Extract((state, known)): Extract<(State, Parameters)>,
    path: MatchedPath,
    mut request: Request,
    next: Next,
) -> Response {
    // Who asks for the head alone asks for the same.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let operation = (method.clone(), path.as_str().to_owned());
    let Some(operation) = known.0.get(&operation) else { return next.run(request).await };
    let mut checked = operation.check(request.uri().query().unwrap_or_default());
    if let Some(body) = &operation.body {
        request.extensions_mut().insert(Arc::clone(body));
    } else if checked.is_ok() {
        checked = take_nothing(std::mem::take(request.body_mut())).await;
    }
    match checked {
        Ok(()) => next.run(request).await,
        Err(failure) if !operation.closed => failure.into_response(),
        Err(failure) => unknown_caller(&state, request.headers()).await.unwrap_or(failure).into_response(),
    }
}

async fn unknown_caller(state: &State, headers: &HeaderMap) -> Option<Failure> {
    let token = match token(headers) {
        Ok(token) => token,
        Err(failure) => return Some(failure),
    };
    state.authenticator.caller(&state.hub, token).await.err()
}
