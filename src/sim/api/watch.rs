//! Watching: what happened since a version, then what happens, until the time is over.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
use http::{Response, StatusCode, header, header::HeaderValue};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::super::cluster::State;
use super::super::counts::Sent;
use super::super::faults::Lifetime;
use super::super::nodes::{Encoding, ServedHerd, Told};
use super::super::protobuf;
use super::super::selector::Selector;
use super::super::status::{Cause, Refusal};
use super::super::store::{Change, Object};
use super::encode::{self, Form};
use super::query::Query;
use super::read::shown;
use super::route::Resource;
use super::spoil::Outlet;
use super::{Call, table};

/// Bookmarks come about so often.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// And one this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Watches that ask for no time get half an hour up to an hour.
const SHORTEST: u64 = 1800;

pub(super) fn watch(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    let query = &call.query;
    let selector = Selector::parse(resource.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
    let selector = if resource.name.is_empty() { selector } else { selector.and_name(&resource.name) };
    let form = encode::form(call, resource)?;
    if form == Form::Yaml {
        return Err(Refusal::not_acceptable(&["application/json"]));
    }
    let seconds = query.number("timeoutSeconds")?.unwrap_or_else(|| fastrand::u64(SHORTEST..2 * SHORTEST));
    let version =
        query.version().map_err(|refusal| Refusal::unforeseen(refusal.message))?.unwrap_or_default();
    let initial = query.flag("sendInitialEvents");
    check_match(query)?;
    let mut watch = Watch {
        state: Arc::clone(call.state),
        sent: call.sent.clone(),
        resource: resource.clone(),
        selector,
        form,
        bookmarks: query.flag("allowWatchBookmarks"),
        at: version,
        beginning: None,
        ready: VecDeque::new(),
        end: Instant::now() + Duration::from_secs(seconds),
        bookmark: Instant::now() + BOOKMARK_EVERY,
        over: false,
        outlet: Outlet::default(),
        connection: call.parts.extensions.get::<Lifetime>().cloned(),
    };
    watch.bookmark = watch.bookmark.min(watch.end.checked_sub(LAST_BOOKMARK).unwrap_or(watch.end));
    if initial || version == 0 {
        watch.begin_with_all(initial);
    }
    call.state.counts.watch_began();
    let mut response = Response::new(Body::from_stream(watch.into_stream()));
    *response.status_mut() = StatusCode::OK;
    let kind = match form {
        Form::Protobuf(_) => "application/vnd.kubernetes.protobuf;stream=watch",
        Form::Json | Form::Yaml | Form::Table | Form::Metadata => "application/json",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// Who wants to begin with what is there has to say as of when.
fn check_match(query: &Query) -> Result<(), Refusal> {
    let (asked, initial) = (query.get("resourceVersionMatch"), query.get("sendInitialEvents").is_some());
    let asked = asked.unwrap_or_default();
    let fits = asked == "NotOlderThan";
    let (reason, message) = match (initial, asked) {
        (true, _) if !fits => (
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (false, asked) if !asked.is_empty() => (
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        _ => return Ok(()),
    };
    Err(Refusal::invalid_options("ListOptions", &[Cause::new(reason, "resourceVersionMatch", message)]))
}

async fn moves(herd: Option<&mut Receiver<u64>>) {
    match herd {
        // The herd lives as long as its watches.
        Some(herd) => drop(herd.changed().await),
        None => std::future::pending().await,
    }
}

async fn ends(connection: Option<&Lifetime>) {
    match connection {
        Some(connection) => connection.ends().await,
        None => std::future::pending().await,
    }
}

struct Watch {
    state: Arc<State>,
    sent: Sent,
    resource: Resource,
    selector: Selector,
    /// `kubectl get --watch` asks for tables.
    form: Form,
    bookmarks: bool,
    /// Everything up to here was sent.
    at: u64,
    /// What of a herd is there at the beginning, before all that is ready.
    beginning: Option<Box<dyn Iterator<Item = Vec<u8>> + Send>>,
    ready: VecDeque<Bytes>,
    end: Instant,
    bookmark: Instant,
    over: bool,
    outlet: Outlet,
    /// None where there is no socket, as in tests.
    connection: Option<Lifetime>,
}

impl Watch {
    fn into_stream(self) -> impl futures::Stream<Item = io::Result<Bytes>> + Send {
        stream::unfold(self, |mut watch| async move {
            let bytes = watch.next().await;
            if bytes.is_none() && std::mem::take(&mut watch.outlet.broken) {
                watch.over = true;
                // A reset overtakes what was handed over just before.
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Some((Err(io::ErrorKind::ConnectionReset.into()), watch));
            }
            let bytes = bytes?;
            watch.sent.add(bytes.len());
            Some((Ok(bytes), watch))
        })
    }

    fn begin_with_all(&mut self, marked: bool) {
        let state = Arc::clone(&self.state);
        self.at = match state.herd_of(self.resource.kind) {
            Some(herd) => self.begin_with_herd(herd),
            None => self.begin_with_objects(),
        };
        if marked && self.bookmarks {
            let mut bookmark = self.bookmark_object();
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            self.push_value("BOOKMARK", &bookmark);
        }
    }

    fn begin_with_herd(&mut self, herd: &ServedHerd) -> u64 {
        // As of now nothing has expired.
        let Ok((mut nodes, at)) = herd.nodes(&self.state.store, self.resource.kind, None) else {
            return self.at;
        };
        if let Some(name) = self.selector.name() {
            nodes.only(name);
        }
        if let Some(encoding) = self.untouched() {
            self.beginning = Some(Box::new(nodes.events(encoding)));
            return at;
        }
        for node in nodes.objects().filter(|node| self.selector.matches(node)).collect::<Vec<_>>() {
            self.push("ADDED", &node);
        }
        at
    }

    fn begin_with_objects(&mut self) -> u64 {
        let (objects, at) = self.state.store.list(self.resource.kind, self.resource.scope());
        for (_, object) in objects {
            if self.selector.matches(&object) {
                self.push("ADDED", &object);
            }
        }
        at
    }

    /// How every node is sent as it is, unless only some are or in another form.
    fn untouched(&self) -> Option<Encoding> {
        let encoding = match self.form {
            Form::Protobuf(_) => Encoding::Protobuf,
            Form::Json => Encoding::Json,
            Form::Yaml | Form::Table | Form::Metadata => return None,
        };
        self.selector.is_empty().then_some(encoding)
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut moved = self.state.store.moved();
        let mut herd = self.state.herd_of(self.resource.kind).map(ServedHerd::moved);
        loop {
            if self.outlet.is_silent(&self.state, self.resource.kind.plural) {
                return std::future::pending().await;
            }
            if let Some(bytes) = self.beginning.as_mut().and_then(Iterator::next) {
                return Some(bytes.into());
            }
            self.beginning = None;
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.over || self.outlet.broken {
                return None;
            }
            moved.mark_unchanged();
            herd.iter_mut().for_each(Receiver::mark_unchanged);
            self.take_changes();
            if !self.ready.is_empty() || self.outlet.broken {
                continue;
            }
            tokio::select! {
                changed = moved.changed() => changed.ok()?,
                () = moves(herd.as_mut()) => {}
                () = tokio::time::sleep_until(self.end) => self.over = true,
                () = ends(self.connection.as_ref()) => self.over = true,
                () = tokio::time::sleep_until(self.bookmark), if self.bookmarks => self.mark(),
            }
        }
    }

    fn mark(&mut self) {
        // What is written elsewhere moves the version without waking this watch.
        self.take_changes();
        if self.over {
            return;
        }
        self.ready.extend(self.outlet.before_bookmark());
        let bookmark = self.bookmark_object();
        self.push_value("BOOKMARK", &bookmark);
        let now = Instant::now();
        let last = self.end.checked_sub(LAST_BOOKMARK).unwrap_or(self.end);
        let next = now + BOOKMARK_EVERY;
        self.bookmark = if now < last { next.min(last) } else { self.end + BOOKMARK_EVERY };
    }

    fn bookmark_object(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.at.to_string()});
        if !self.resource.kind.is_custom() {
            metadata["creationTimestamp"] = Value::Null;
        }
        if self.form == Form::Metadata {
            metadata["creationTimestamp"] = Value::Null;
            return table::partial(&json!({"metadata": metadata}));
        }
        json!({"kind": self.resource.kind.kind, "apiVersion": self.resource.api_version(), "metadata": metadata})
    }

    /// A version from the future, as after a restored backup, just waits.
    fn take_changes(&mut self) {
        let (kind, store) = (self.resource.kind, &self.state.store);
        if store.version() < self.at {
            return;
        }
        let taken = match self.state.herd_of(kind) {
            Some(herd) => herd.since(store, kind, self.at, self.untouched()),
            None => store
                .since(kind, self.at)
                .map(|(changes, until)| (changes.into_iter().map(Told::Changed).collect(), until)),
        };
        match taken {
            Ok((told, until)) => {
                for told in told {
                    match told {
                        Told::Rendered { event, .. } => self.deliver(event.into()),
                        Told::Changed(change) => self.push_change(&change),
                    }
                }
                self.at = until;
            }
            Err(expired) => {
                let status = Refusal::too_old(self.at, expired.oldest).status();
                self.push_value("ERROR", &status);
                self.over = true;
            }
        }
    }

    /// A selector turns changes into comings and goings.
    fn push_change(&mut self, change: &Change) {
        match (self.seen(change.before.as_ref()), self.seen(change.after.as_ref())) {
            (None, None) => {}
            (None, Some(after)) => self.push("ADDED", &after),
            (Some(_), Some(after)) => self.push("MODIFIED", &after),
            (Some(before), None) => {
                let mut gone = change.last.as_ref().unwrap_or(&before).as_ref().clone();
                gone["metadata"]["resourceVersion"] = json!(change.version.to_string());
                self.push("DELETED", &gone);
            }
        }
    }

    fn seen(&self, object: Option<&Object>) -> Option<Object> {
        let within = |object: &&Object| {
            self.resource.scope().is_none_or(|scope| object["metadata"]["namespace"] == scope)
        };
        object.filter(within).filter(|object| self.selector.matches(object)).map(Arc::clone)
    }

    fn push(&mut self, event: &str, object: &Value) {
        let mut shown = shown(&self.resource, object);
        if self.form == Form::Table {
            let version = &shown["metadata"]["resourceVersion"];
            shown = table::of(self.resource.kind, &[&shown], version, self.state.now());
        } else if self.form == Form::Metadata {
            shown = table::partial(&shown);
        }
        self.deliver(self.render(event, &shown));
    }

    fn deliver(&mut self, event: Bytes) {
        let (kind, ready) = (self.resource.kind.plural, &mut self.ready);
        self.outlet.deliver(&self.state, kind, event, |bytes| ready.push_back(bytes));
    }

    fn push_value(&mut self, event: &str, object: &Value) {
        let bytes = self.render(event, object);
        self.ready.push_back(bytes);
    }

    fn render(&self, event: &str, object: &Value) -> Bytes {
        let bytes = match self.form {
            Form::Protobuf(_) if event == "ERROR" => {
                protobuf::watch_frame(event, &protobuf::encode_status(object))
            }
            Form::Protobuf(kind) => protobuf::watch_frame(event, &protobuf::encode(kind, object)),
            Form::Json | Form::Yaml | Form::Table | Form::Metadata => {
                let mut line = json!({"type": event, "object": object}).to_string().into_bytes();
                line.push(b'\n');
                line
            }
        };
        Bytes::from(bytes)
    }
}
