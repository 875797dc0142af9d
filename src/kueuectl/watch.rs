//! `-w`: one watch a cluster, what they tell printed in the order in which it arrives, as kubectl prints it. A watch that breaks begins
//! again where it was, or lists again where the server does not know that place any more; what was printed is not printed again.

use std::{collections::BTreeMap, time::Duration};

use futures::{
    StreamExt,
    channel::mpsc::{self, Receiver, Sender},
    sink::SinkExt,
    stream::FuturesUnordered,
};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    api::Call,
    error::Error,
    fleet::Cluster,
    list::{self, Found, Listing, Query, Rows, found, items, keep, with_cluster},
    output::Printer,
    resource::DryRun,
    session::{Session, text},
};

/// A server ends a watch after this time, so that one whose connection died unnoticed is not waited for.
const LONGEST: &str = "240";
const SILENT: Duration = Duration::from_secs(270);
/// Before a broken watch begins again: at first, and at most.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(15);
/// A server that has just come back refuses what it has not yet read that it allows.
const READS_RIGHTS: Duration = Duration::from_secs(30);

/// How long those that have answered wait for the others before their table is shown.
const GATHER: Duration = Duration::from_secs(3);

/// The signal's number.
const INTERRUPT: u8 = 2;

/// What a cluster tells.
enum News<A> {
    /// What is there, or what became of it.
    Objects(Vec<Value>, A),
    Broken(Error),
    /// It will tell no more.
    Over(Error),
}

type Told<A> = (usize, News<A>);

pub async fn run<L: Listing>(
    session: &mut Session<'_, '_>,
    listing: &L,
    clusters: &[Cluster],
) -> Result<(), Error> {
    let interrupted = (session.world.interrupted)();
    // Whoever does not read fast enough is waited for.
    let (sender, receiver) = mpsc::channel(1);
    let followed: FuturesUnordered<_> = clusters
        .iter()
        .enumerate()
        .map(|(at, cluster)| {
            Follow { listing, cluster, at, news: sender.clone(), known: BTreeMap::new() }.run()
        })
        .collect();
    drop(sender);
    let printed = print(session, listing, clusters, receiver);
    let all = async { futures::join!(followed.count(), printed).1 };
    tokio::select! {
        ended = all => ended,
        () = interrupted => Err(Error::Ended(INTERRUPT)),
    }
}

/// Prints what arrives, until no cluster tells any more.
async fn print<L: Listing>(
    session: &mut Session<'_, '_>,
    listing: &L,
    clusters: &[Cluster],
    mut news: Receiver<Told<L::About>>,
) -> Result<(), Error> {
    let mut paper = Paper::new(session, listing, clusters)?;
    // What is there at the beginning is laid out as one table, in the clusters' order.
    let mut first: Vec<_> = clusters.iter().map(|_| None).collect();
    let until = Instant::now() + GATHER;
    while first.iter().any(Option::is_none) {
        let Ok(Some((at, told))) = timeout_at(until, news.next()).await else { break };
        let objects = paper.objects(session, &clusters[at], told)?;
        first[at].get_or_insert_with(Vec::new).extend(objects);
    }
    let all = first.iter().all(Option::is_some);
    let mut empty = true;
    for (cluster, objects) in clusters.iter().zip(first) {
        for (objects, about) in objects.unwrap_or_default() {
            empty &= objects.is_empty();
            paper.add(session, listing, (cluster, objects), &about)?;
        }
    }
    if all && empty && !session.has_failed() {
        list::nothing_found(session, L::DOT)?;
    }
    paper.flush(session)?;
    while let Some((at, told)) = news.next().await {
        if let Some((objects, about)) = paper.objects(session, &clusters[at], told)? {
            paper.add(session, listing, (&clusters[at], objects), &about)?;
            paper.flush(session)?;
        }
    }
    Ok(())
}

struct Paper<'w> {
    rows: Rows,
    printer: Option<Printer<'w>>,
    several: bool,
}

impl<'w> Paper<'w> {
    fn new<L: Listing>(session: &Session<'_, 'w>, listing: &L, clusters: &[Cluster]) -> Result<Self, Error> {
        let several = 1 < clusters.len();
        let printer = listing.as_documents(session).then(|| Printer::new(session, "", DryRun::None));
        Ok(Self { rows: Rows::new(session, several), printer: printer.transpose()?, several })
    }

    /// The objects of news; what went wrong is said at once.
    fn objects<A>(
        &self,
        session: &mut Session<'_, '_>,
        cluster: &Cluster,
        news: News<A>,
    ) -> Result<Option<(Vec<Value>, A)>, Error> {
        match news {
            News::Objects(objects, about) => return Ok(Some((objects, about))),
            News::Broken(error) => {
                session.complain(&format!("{}; it is asked again\n", cluster.error(&error)))?;
            }
            News::Over(error) if self.several => session.fail(cluster, &error)?,
            News::Over(error) if cluster.place.is_none() => return Err(error),
            News::Over(error) => return Err(Error::said(cluster.error(&error))),
        }
        Ok(None)
    }

    fn add<L: Listing>(
        &mut self,
        session: &mut Session<'_, '_>,
        listing: &L,
        (cluster, objects): (&Cluster, Vec<Value>),
        about: &L::About,
    ) -> Result<(), Error> {
        let now = (session.world.now)();
        for object in objects {
            let Some(printer) = &mut self.printer else {
                self.rows.add(listing, (cluster.name(), &object), about, now);
                continue;
            };
            let object = if self.several { with_cluster(object, cluster.name()) } else { object };
            let text = printer.print(L::KIND, &object)?;
            session.print(&text)?;
        }
        Ok(())
    }

    fn flush(&mut self, session: &mut Session<'_, '_>) -> Result<(), Error> {
        session.print(&self.rows.take())?;
        Ok(session.world.output.flush()?)
    }
}

/// Follows one cluster.
struct Follow<'a, L: Listing> {
    listing: &'a L,
    cluster: &'a Cluster,
    at: usize,
    news: Sender<Told<L::About>>,
    /// The version of each object that was told, by UID or else by name.
    known: BTreeMap<String, String>,
}

/// Why a watch does not go on where it was.
enum Ended {
    /// The server does not know its place any more.
    Forgotten,
    Failed(Error),
    /// Nobody listens.
    Unheard,
}

impl<L: Listing> Follow<'_, L> {
    async fn run(mut self) {
        let mut wait = SOON;
        let mut refuses_since = None;
        loop {
            let ended = self.once(&mut wait).await;
            let error = match ended {
                Ended::Unheard => return,
                Ended::Forgotten => continue,
                Ended::Failed(error) => error,
            };
            if is_passing(&error) {
                refuses_since = None;
            } else if wait == SOON
                || !matches!(error, Error::Forbidden(_))
                || READS_RIGHTS < refuses_since.get_or_insert_with(Instant::now).elapsed()
            {
                self.tell(News::Over(error)).await;
                return;
            }
            // Told once; then it is only tried.
            if wait == SOON && !self.tell(News::Broken(error)).await {
                return;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LATER);
        }
    }

    /// Lists, and then follows until that ends.
    async fn once(&mut self, wait: &mut Duration) -> Ended {
        let (query, Found { list, about }) = match found(self.listing, &self.cluster.api).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                return Ended::Failed(Error::NotFound("there is no such object to follow".to_owned()));
            }
            Err(error) => return Ended::Failed(error),
        };
        *wait = SOON;
        let version = text(&list, "/metadata/resourceVersion").to_owned();
        let there: Vec<Value> = items(&list).to_vec();
        self.known.retain(|uid, _| there.iter().any(|object| key(object) == *uid));
        let fresh = there.into_iter().filter(|object| is_news(&mut self.known, object)).collect();
        if !self.tell(News::Objects(fresh, about)).await {
            return Ended::Unheard;
        }
        let mut version = version;
        loop {
            if let Err(ended) = self.follow(&query, &mut version).await {
                return ended;
            }
        }
    }

    /// One watch, until the server ends it.
    async fn follow(&mut self, query: &Query, version: &mut String) -> Result<(), Ended> {
        let path = query.path_with(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", LONGEST),
        ]);
        let call = Call { accept: L::ACCEPT, ..Call::get(path, query.resource.full_name()) };
        let watch = self.cluster.api.watch(&call).await;
        let mut watch =
            watch.map_err(|error| if error.is_gone() { Ended::Forgotten } else { Ended::Failed(error) })?;
        loop {
            let silent = || Error::Unreachable("it was silent for too long".to_owned());
            let next = tokio::time::timeout(SILENT, watch.next()).await.unwrap_or_else(|_| Err(silent()));
            let Some(mut event) = next.map_err(Ended::Failed)? else { return Ok(()) };
            let object = event["object"].take();
            let kind = text(&event, "/type");
            if kind == "ERROR" {
                let said = text(&object, "/message").to_owned();
                return Err(if object["code"] == 410 {
                    Ended::Forgotten
                } else {
                    Ended::Failed(Error::Unreachable(said))
                });
            }
            let objects = self.listing.objects(object);
            if let Some(next) = objects.first().map(|object| text(object, "/metadata/resourceVersion")) {
                version.clear();
                version.push_str(next);
            }
            if kind != "BOOKMARK" {
                self.changed(query, objects, kind == "DELETED").await?;
            }
        }
    }

    async fn changed(&mut self, query: &Query, objects: Vec<Value>, gone: bool) -> Result<(), Ended> {
        let fresh = objects.into_iter().filter(|object| {
            let news = is_news(&mut self.known, object);
            if gone {
                self.known.remove(&key(object));
            }
            (news || gone) && query.is_owned(object)
        });
        let mut list = serde_json::json!({"items": fresh.collect::<Vec<_>>()});
        let mut about = L::About::default();
        self.listing.about(&self.cluster.api, &list, &mut about).await.map_err(Ended::Failed)?;
        keep(&mut list, |object| self.listing.keeps(object, &about));
        let objects = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let heard = objects.is_empty() || self.tell(News::Objects(objects, about)).await;
        if heard { Ok(()) } else { Err(Ended::Unheard) }
    }

    /// False where nobody listens.
    async fn tell(&mut self, news: News<L::About>) -> bool {
        self.news.send((self.at, news)).await.is_ok()
    }
}

fn key(object: &Value) -> String {
    match text(object, "/metadata/uid") {
        "" => format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name")),
        uid => uid.to_owned(),
    }
}

fn is_news(known: &mut BTreeMap<String, String>, object: &Value) -> bool {
    let version = text(object, "/metadata/resourceVersion").to_owned();
    known.insert(key(object), version.clone()) != Some(version)
}

/// Whether the same request may be answered later.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unreachable(_) | Error::Busy(_) => true,
        Error::Said(_)
        | Error::NotFound(_)
        | Error::Forbidden(_)
        | Error::Conflict(_)
        | Error::Gone(_)
        | Error::Kubeconfig { .. }
        | Error::Ended(_)
        | Error::Output(_) => false,
    }
}
