//! The logs of a task through everything that happens to it: it waits for quota, moves, ends. A stream goes
//! on where an earlier one stopped.

mod feed;
pub(crate) mod place;

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State as Extract,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{FutureExt, stream};
use serde_json::json;
use tokio::{
    fs::File,
    time::{Instant, timeout_at},
};

pub use self::place::{MAX_PLACES, Places};
use self::{
    feed::{Opened, Told},
    place::NoPlaces,
};
use super::find;
use crate::{
    Failure, State,
    audit::{self, Deed},
    extract::{Path, Query},
    held::Held,
    owner::{LOGS, Owner},
    stream::{Framing, HEARTBEAT, STREAM_TIME},
};
use fedq_domain::task::phase::{Epoch, Phase};
use fedq_k8s::logs::{self, Event, Options, Since, Style};
use fedq_store::TaskRow;
use fedq_wire::{
    problem::{Cause, Code},
    task::{LogItem, LogTask, LogsQuery},
};

/// Bytes of lines that are sent together, where they are there at once.
const CHUNK: usize = 32 << 10;
/// With more containers than that, not every line says where to go on.
pub const PLACES_A_LINE: usize = 32;
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

/// The task's logs: JSON lines, or server-sent events where the request accepts `text/event-stream`.
///
/// Who breaks off goes on behind what was received with `Last-Event-ID` or `after`.
///
/// Takes the right to `get` `tasks/log` of `fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    get, path = "/tasks/{task}/logs", tag = "tasks",
    params(("task" = String, Path), LogsQuery, ("Last-Event-ID" = Option<String>, Header)),
    responses((status = OK, body = LogItem, content_type = "application/x-ndjson"))
)]
pub async fn task_logs(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
    Query(query): Query<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let row = find(&state, &owner, &id, "get", LOGS).await?;
    let framing = Framing::asked_for(&headers);
    let places = places(&query, &headers)?;
    let earlier = earlier(&state, &row, &query).await?;
    let options = Options { follow: query.follow && earlier.is_none(), ..options(&row, &query, &places)? };
    note_reader(&state, &owner, &row).await;
    let (again, asked, whose) = (state.clone(), headers.clone(), row.owner.clone());
    let review = move || {
        let (state, headers, whose) = (again.clone(), asked.clone(), whose.clone());
        async move { may_read(&state, &Owner::known(&state, &headers).await?, &whose).await }.boxed()
    };
    let held = Held::stream(&state, owner.user(), Box::new(review)).await?;
    let lines = Lines {
        opened: feed::open(&state, &row, options, earlier).await,
        framing,
        places,
        until: Instant::now() + STREAM_TIME,
        over: false,
    };
    let body = Body::from_stream(stream::unfold(lines, |mut lines| async {
        let chunk = lines.next().await?;
        Some((Ok::<_, Infallible>(chunk), lines))
    }));
    Ok(framing.response(held.body(body)))
}

/// Behind what the answer begins. What a client of server-sent events sends by itself comes before what stands in the URL,
/// which is the same each time that it connects.
fn places(query: &LogsQuery, headers: &HeaderMap) -> Result<Places, Failure> {
    let resumed = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let (field, text) = match (resumed, query.after.as_deref()) {
        (Some(text), _) => (LAST_EVENT_ID, text),
        (None, Some(text)) => ("after", text),
        (None, None) => return Ok(Places::default()),
    };
    text.parse().map_err(|error: NoPlaces| {
        let mut failure = Failure::bad_request(error.to_string());
        failure.0.causes = vec![Cause::new(field, error.to_string())];
        failure
    })
}

/// Whether that person may still read logs of tasks of `whose`.
pub async fn may_read(state: &State, owner: &Owner, whose: &str) -> Result<(), Failure> {
    if owner.reaches(state, whose, "get", LOGS).await? {
        return Ok(());
    }
    Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, "the right to read this log was withdrawn"))
}

fn options(row: &TaskRow, query: &LogsQuery, places: &Places) -> Result<Options, Failure> {
    if let Some(node) = query.node.filter(|node| row.spec.num_nodes <= *node) {
        let detail = format!("there is no node {node}: the task has {}, counted from 0", row.spec.num_nodes);
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail));
    }
    let ago = query.since_seconds.map(|seconds| Since::Ago(Duration::from_secs(seconds)));
    Ok(Options {
        tail: query.tail,
        since: query.since_time.map(Since::Time).or(ago),
        node: query.node,
        after: places.after(),
        ..Options::default()
    })
}

/// What was kept of the earlier run that is asked for, if one is. Nothing else is left of it: its pods do not restart
/// and go with the run.
async fn earlier(state: &State, row: &TaskRow, query: &LogsQuery) -> Result<Option<File>, Failure> {
    if !query.previous && query.epoch.is_none() {
        return Ok(None);
    }
    let Some(kept) = &state.kept_logs else {
        let detail = format!("logs of runs that ended are not kept, so none is left of task {}", row.id);
        return Err(Failure::not_found(detail)
            .next("have tasks.logs.keep of fedqd set; the run that is there now shows without this option"));
    };
    // What waits for its next run has its last one behind it, also where Kueue took its pods away.
    let waits = matches!(row.state.phase, Phase::Pending | Phase::Queued { .. });
    let here = (!waits).then_some(row.state.epoch);
    let before = |epoch: &Epoch| here.is_none_or(|here| *epoch < here);
    let wanted = query.epoch.or_else(|| kept.epochs(&row.id).into_iter().rev().find(before));
    let file = match wanted {
        Some(epoch) => kept.file(&(row.id.clone(), epoch)).await,
        None => Ok(None),
    };
    let file = file.map_err(|error| Failure::internal("a log that was kept cannot be read", &error))?;
    let nothing = || {
        let which = query.epoch.map_or("a run before this one".to_owned(), |epoch| format!("run {epoch}"));
        Failure::not_found(format!("nothing is kept of {which} of task {}", row.id)).next(
            "fedq task status shows whether there was one; it is kept as far as tasks.logs of \
             fedqd has room (tasks.logs.keep, tasks.logs.maxTotal)",
        )
    };
    file.map(Some).ok_or_else(nothing)
}

/// What programs print is mostly for their owner alone, so who else reads it is written down.
async fn note_reader(state: &State, owner: &Owner, row: &TaskRow) {
    if row.owner == owner.user() {
        return;
    }
    let detail = Some(json!({"owner": row.owner}));
    let deed = Deed { verb: "get", object: format!("tasks/{}/log", row.id), detail, dry_run: false };
    audit::record(state, owner, deed, Ok(())).await;
}

/// What a stream sends.
struct Lines {
    opened: Opened,
    framing: Framing,
    /// Behind the last line that was sent.
    places: Places,
    until: Instant,
    over: bool,
}

enum Next {
    Event(Option<Event>),
    Told(Told),
    Silence,
}

impl Lines {
    /// `None` ends the stream; whoever is not through goes on with a new one.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut text = String::new();
        let mut waiting = true;
        while text.len() < CHUNK {
            let next = if waiting { self.wait().await } else { self.ready() };
            waiting = false;
            match next {
                Some(Next::Event(Some(event))) => self.event(&mut text, &event),
                Some(Next::Told(told)) => self.told(&mut text, told.item()),
                Some(Next::Event(None)) => {
                    self.end(&mut text).await;
                    break;
                }
                Some(Next::Silence) => return Some(self.framing.heartbeat()),
                None => break,
            }
        }
        (!text.is_empty()).then(|| text.into())
    }

    /// `None`: the stream has lasted long enough.
    async fn wait(&mut self) -> Option<Next> {
        let now = Instant::now();
        if self.until <= now {
            return None;
        }
        let next = async {
            tokio::select! {
                biased;
                Some(told) = self.opened.told.recv() => Next::Told(told),
                event = self.opened.session.next() => Next::Event(event),
            }
        };
        match timeout_at((now + HEARTBEAT).min(self.until), next).await {
            Ok(next) => Some(next),
            Err(_) if self.until <= Instant::now() => None,
            Err(_) => Some(Next::Silence),
        }
    }

    /// What is there already.
    fn ready(&mut self) -> Option<Next> {
        if let Ok(told) = self.opened.told.try_recv() {
            return Some(Next::Told(told));
        }
        self.opened.session.next().now_or_never().map(Next::Event)
    }

    fn event(&mut self, text: &mut String, event: &Event) {
        if let Event::Line(record) = event {
            self.places.note(record);
        }
        self.send(text, &logs::json(event));
    }

    fn told(&self, text: &mut String, mut item: LogTask) {
        item.resume = self.places.text();
        self.send(text, &json!(LogItem::Task(item)).to_string());
    }

    /// The last word is on the task: whoever follows must know how it ended.
    async fn end(&mut self, text: &mut String) {
        self.over = true;
        while let Ok(told) = self.opened.told.try_recv() {
            self.told(text, told.item());
        }
        if let Ok(told) = (&mut self.opened.last_word).await {
            self.told(text, told.item());
        }
    }

    fn send(&self, text: &mut String, item: &str) {
        match self.framing {
            Framing::Lines => text.extend([item, "\n"]),
            Framing::Events => {
                if let Some(places) = self.places.text().filter(|_| self.places.len() <= PLACES_A_LINE) {
                    text.extend(["id: ", &places, "\n"]);
                }
                text.extend(["data: ", item, "\n\n"]);
            }
        }
    }
}

/// As text, the way k8s-cli has it, until all nodes have ended.
///
/// Its client cannot go on in a new stream, so this one has no end but the log's or that of the right to read it.
pub async fn text(state: &State, owner: &Owner, row: &TaskRow, headers: &HeaderMap, held: Held) -> Response {
    note_reader(state, owner, row).await;
    let options = Options { follow: true, ..Options::default() };
    // Its client shows no blank lines, so they can tell it that the server is there.
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = Plain {
        opened: feed::open(state, row, options, None).await,
        style: Style { prefix: 1 < row.spec.num_nodes, timestamps: false },
        beats: agent.starts_with("python-httpx"),
    };
    let body = Body::from_stream(stream::unfold(plain, |mut plain| async {
        let chunk = plain.next().await?;
        Some((Ok::<_, Infallible>(chunk), plain))
    }));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, held.body(body)).into_response()
}

struct Plain {
    opened: Opened,
    style: Style,
    beats: bool,
}

impl Plain {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let beat = Instant::now() + HEARTBEAT;
            let next = async {
                tokio::select! {
                    Some(_) = self.opened.told.recv() => Next::Silence,
                    event = self.opened.session.next() => Next::Event(event),
                }
            };
            match timeout_at(beat, next).await {
                Ok(Next::Event(None)) => return None,
                Ok(Next::Event(Some(Event::Line(record)))) => {
                    return Some(logs::text(&record, self.style).into());
                }
                Ok(Next::Event(Some(Event::Status(origin, status)))) => {
                    if let Some(text) = logs::missing(&origin, &status, self.style) {
                        return Some(text.into());
                    }
                    continue;
                }
                Ok(_) => continue,
                Err(_) => {}
            }
            if self.beats {
                return Some(Bytes::from_static(b"\n"));
            }
        }
    }
}
