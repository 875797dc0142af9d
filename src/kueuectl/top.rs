//! `top`: the queues of one cluster or several in a terminal, kept up to date by watches.

use std::{collections::BTreeMap, time::Duration};

use fedq_top::{
    Kind, News, Source, State, plain,
    terminal::{self, Ended, Inputs, Look},
};
use futures::{StreamExt, pin_mut};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject},
    runtime::watcher::{self, Event, watcher},
};
use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    cause::told,
    error::Error,
    fleet::{Cluster, ask},
    kubeconfig,
    list::{Query, items},
    resource::{GROUP, Resource, VERSION},
    session::Session,
};

/// News that wait to be drawn.
const WAITING: usize = 1024;
/// What is no terminal has no width.
const WIDTH: u16 = 160;
/// Between two tries to follow what cannot be followed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// A server that has nothing to tell and one that hangs look the same: it is asked this often, and has so long to answer.
const LOOK: Duration = Duration::from_secs(8);
const ANSWER: Duration = Duration::from_secs(4);

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let clusters = session.clusters().await?;
    let names = clusters.iter().map(|cluster| name(session, cluster)).collect::<Result<Vec<_>, _>>()?;
    let mut state = State::new(names, (session.world.now)());
    // Before the terminal is taken: what is wrong is said as by any other command.
    let query = Query::new(session, Resource::cluster_queue())?;
    let lists = ask(clusters.iter(), async |cluster| query.all(&cluster.api).await).await;
    for (at, (cluster, list)) in lists.into_iter().enumerate() {
        let source = Source { cluster: at, kind: Kind::ClusterQueues };
        state.take(&source, News::Begin);
        match list {
            Ok(list) => {
                for object in items(&list) {
                    state.take(&source, News::Object(object.clone()));
                }
                state.take(&source, News::Complete);
            }
            Err(error) if 1 < clusters.len() => {
                session.fail(cluster, &error)?;
                state.take(&source, News::Broken { reason: error.to_string(), again: FIRST_PAUSE });
            }
            Err(error) => return Err(error),
        }
    }
    let dumb = (session.world.variables)("TERM").is_some_and(|term| term == "dumb");
    if session.given.is("once") || !session.world.terminal || dumb {
        return session.print(&plain::text(&mut state, WIDTH));
    }
    let (tell, news) = mpsc::channel(WAITING);
    let clients = clusters.iter().map(|cluster| cluster.api.client()).collect();
    let mut watches = Watches { clients, tell, running: BTreeMap::new() };
    let set = |name: &str| (session.world.variables)(name).is_some_and(|value| !value.is_empty());
    let inputs = Inputs {
        news,
        follow: &mut |wanted| watches.follow(wanted),
        now: session.world.now,
        look: Look { color: !set("NO_COLOR"), interactive: true },
    };
    match terminal::show(state, inputs).await? {
        Ended::Quit => Ok(()),
        Ended::By(signal) => Err(Error::Ended(signal)),
    }
}

/// How a cluster is called there.
fn name(session: &Session<'_, '_>, cluster: &Cluster) -> Result<String, Error> {
    let name = match (&cluster.place, &session.world.client) {
        (Some(place), _) => place.shown().to_owned(),
        (None, Some(_)) => String::new(),
        (None, None) => kubeconfig::choose(&session.given, session.world.variables)?.context,
    };
    Ok(if name.is_empty() { "cluster".to_owned() } else { name })
}

/// One watch for each source that is looked at.
struct Watches {
    /// By the clusters' order.
    clients: Vec<Client>,
    tell: mpsc::Sender<(Source, News)>,
    running: BTreeMap<Source, AbortHandle>,
}

impl Watches {
    fn follow(&mut self, wanted: Vec<Source>) {
        self.running.retain(|source, watch| {
            let stays = wanted.contains(source);
            if !stays {
                watch.abort();
            }
            stays
        });
        for source in wanted {
            let (client, tell, told) = (&self.clients[source.cluster], &self.tell, source.clone());
            self.running
                .entry(source)
                .or_insert_with(|| tokio::spawn(watch(client.clone(), told, tell.clone())).abort_handle());
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

/// Why the server does not answer any more, once it does not.
async fn silence(client: &Client) -> String {
    loop {
        tokio::time::sleep(LOOK).await;
        match tokio::time::timeout(ANSWER, client.apiserver_version()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return told(&error, ""),
            Err(_) => return format!("it has not answered for {} s", ANSWER.as_secs()),
        }
    }
}

/// Lists and watches, again and again, until nobody listens.
async fn watch(client: Client, source: Source, tell: mpsc::Sender<(Source, News)>) {
    let (api, config) = asked(client.clone(), &source.kind);
    let mut pause = FIRST_PAUSE;
    loop {
        let (events, silence) = (watcher(api.clone(), config.clone()), silence(&client));
        pin_mut!(events, silence);
        loop {
            let event = tokio::select! {
                event = events.next() => event.map(|event| event.map_err(|error| told(&error, ""))),
                reason = &mut silence => Some(Err(reason)),
            };
            let (news, broke) = match event {
                Some(Ok(Event::Init)) => (News::Begin, false),
                Some(Ok(Event::InitApply(object) | Event::Apply(object))) => {
                    (News::Object(json(&object)), false)
                }
                Some(Ok(Event::Delete(object))) => (News::Gone(json(&object)), false),
                Some(Ok(Event::InitDone)) => {
                    pause = FIRST_PAUSE;
                    (News::Complete, false)
                }
                Some(Err(reason)) => (News::Broken { reason, again: pause }, true),
                None => break,
            };
            if tell.send((source.clone(), news)).await.is_err() {
                return;
            }
            if broke {
                break;
            }
        }
        // Listed anew then: only so it is known at once that what is shown is what there is.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn asked(client: Client, kind: &Kind) -> (Api<DynamicObject>, watcher::Config) {
    let kueue = |kind: &str, plural: &str| resource(GROUP, VERSION, kind, plural);
    let all = watcher::Config::default();
    match kind {
        Kind::ClusterQueues => (Api::all_with(client, &kueue("ClusterQueue", "clusterqueues")), all),
        Kind::LocalQueues => (Api::all_with(client, &kueue("LocalQueue", "localqueues")), all),
        Kind::Workloads => (Api::all_with(client, &kueue("Workload", "workloads")), all),
        Kind::Workload { namespace, name } => {
            let workloads = kueue("Workload", "workloads");
            let one = all.fields(&format!("metadata.name={name}"));
            (Api::namespaced_with(client, namespace, &workloads), one)
        }
        Kind::Events { namespace, name } => {
            let about = format!("involvedObject.kind=Workload,involvedObject.name={name}");
            let events = resource("", "v1", "Event", "events");
            (Api::namespaced_with(client, namespace, &events), all.fields(&about))
        }
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// An object came as JSON, so that it has a form as such.
fn json(object: &DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}
