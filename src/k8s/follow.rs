//! Keeps tables current: one row and one task a kind, one bump for whoever decides.
//!
//! What is followed of a cluster is a [`TableSet`], which `followed!` makes of rows. A row says where the kind is
//! served, which of its objects concern fedq and who reads them; all that is done with every kind goes over the rows.
//!
//! # How a kind is followed
//!
//! A kind is followed by one row of `followed!` (`k8s/worker.rs` and `k8s/hub.rs`, with OCM's in `hub/ocm.rs`): the type of its
//! objects, where it is served, which of them concern fedq, who is woken, whether a plan waits for it. What is done with
//! all kinds, as to follow, store or compare them, goes over the rows (`k8s/follow.rs`).
//!
//! `k8s/list_watch`: `Follow::run` drives rounds of `round`: compare the stored version with the server's,
//! resume the watch from there, or `list` and let the sink find the difference (`begin`, `set`…, `end`).
//! Each object goes from its bytes to a small record: built-in kinds by a hand-written protobuf reader
//! (`protobuf`), Kueue's and ours as JSON lines (`json`). A `Sink` is called synchronously and in order.
//! Nodes have a sink that is stored (`controllers/capacity/nodes.rs`), all else is a `Table` in memory. What is
//! kept of all clusters' large answers and objects on their way comes off one budget (`client/budget.rs`); what is kept of one
//! cluster for good is counted over all its kinds (`list_watch/allowance.rs`), and one with too much is `Refused`
//! (`cluster/member.rs`, `Member::refuse`), which the store remembers. When the
//! daemon stops, it stores how far each was followed, and the tables (`cluster/member/known.rs`): the next start asks each
//! cluster only for what it missed. A kind whose watch broke waits longer each time, but no longer than until a
//! probe finds that the cluster answers (`Follow::answers`).
//!
//! `Table::absorb` takes the answer to our own write in at once, so the next decision rests on it
//! without waiting for the watch.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    client::ClusterClient,
    list_watch::{Allowance, Codec, Follow, Known, Record, Selector, Table, Timing},
    types::meta::HUB_LABEL,
    write::{Change, Kind},
};

/// Where to follow, how patiently, and whom to wake.
#[derive(Clone)]
pub struct Following {
    pub client: ClusterClient,
    pub timing: Timing,
    /// Who reads the objects.
    pub changed: Vec<Arc<Notify>>,
    /// Whoever waits until all is known and followed.
    pub linked: Vec<Arc<Notify>>,
    /// As [`Follow::allowance`].
    pub allowance: Allowance,
}

/// Who reads what is followed.
#[derive(Clone, Default)]
pub struct Wake {
    pub quota: Arc<Notify>,
    pub capacity: Arc<Notify>,
    pub queue: Arc<Notify>,
    pub check: Arc<Notify>,
    pub task: Arc<Notify>,
    /// Where fedq nominates.
    pub dispatch: Option<Arc<Notify>>,
    /// Of workers only.
    pub inventory: Option<Arc<Notify>>,
}

impl Wake {
    pub fn all(&self) -> Vec<Arc<Notify>> {
        let always = [&self.quota, &self.capacity, &self.queue, &self.check, &self.task];
        owned(always.into_iter().chain(&self.dispatch).chain(&self.inventory))
    }

    /// Only what follows changes all the time: the other kinds wake everybody.
    pub fn of_claims(&self) -> Vec<Arc<Notify>> {
        owned([&self.quota])
    }

    pub fn of_queues(&self) -> Vec<Arc<Notify>> {
        let always = [&self.queue, &self.task, &self.quota];
        owned(always.into_iter().chain(&self.dispatch).chain(&self.inventory))
    }

    pub fn of_local_queues(&self) -> Vec<Arc<Notify>> {
        owned([&self.queue, &self.task].into_iter().chain(&self.dispatch))
    }

    /// Of the hub, where claims may be said to be gone.
    pub fn of_namespaces(&self) -> Vec<Arc<Notify>> {
        owned([&self.quota, &self.queue, &self.task])
    }

    pub fn of_worker_namespaces(&self) -> Vec<Arc<Notify>> {
        owned([&self.queue, &self.task])
    }

    pub fn of_workloads(&self) -> Vec<Arc<Notify>> {
        owned([&self.quota, &self.task])
    }

    pub fn of_tasks(&self) -> Vec<Arc<Notify>> {
        owned([&self.task])
    }
}

fn owned<'a>(whom: impl IntoIterator<Item = &'a Arc<Notify>>) -> Vec<Arc<Notify>> {
    whom.into_iter().map(Arc::clone).collect()
}

impl Following {
    pub fn new(client: ClusterClient, timing: Timing, changed: Vec<Arc<Notify>>) -> Self {
        let (linked, allowance) = (changed.clone(), Allowance::default());
        Self { client, timing, changed, linked, allowance }
    }
}

type Readers = fn(&Wake) -> Vec<Arc<Notify>>;

/// When a kind is followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    Always,
    /// AppWrappers, which a cluster may not know or let fedq see.
    AppWrappers,
    /// Where tasks have pods: not on a hub that dispatches them by MultiKueue.
    Pods,
    /// Where MultiKueue is configured from Placements.
    MultiKueue,
    /// Where fedq nominates clusters besides.
    Nomination,
}

/// One followed kind.
pub struct Row {
    group: &'static str,
    plural: &'static str,
    /// Where fedq writes the kind, so that what a write was answered with is taken over.
    written: Option<Kind>,
    in_namespace: bool,
    ours: bool,
    marked: Option<&'static str>,
    labels: Option<&'static str>,
    fields: Option<(&'static str, &'static str)>,
    /// `None`: whoever the follower wakes.
    readers: Option<Readers>,
    planned: bool,
    part: Part,
}

impl Row {
    /// A kind that fedq also writes.
    pub const fn of(kind: Kind) -> Self {
        Self { written: Some(kind), ..Self::read_only(kind.group_path(), kind.plural()) }
    }

    /// A kind, or objects of it, that others write.
    pub const fn read_only(group: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            plural,
            written: None,
            in_namespace: false,
            ours: false,
            marked: None,
            labels: None,
            fields: None,
            readers: None,
            planned: false,
            part: Part::Always,
        }
    }

    /// A plan of quota rests on it, and waits for it.
    pub const fn planned(self) -> Self {
        Self { planned: true, ..self }
    }

    /// Only these read it.
    pub const fn read_by(self, readers: Readers) -> Self {
        Self { readers: Some(readers), ..self }
    }

    /// Only those in the follower's namespace.
    pub const fn in_namespace(self) -> Self {
        Self { in_namespace: true, ..self }
    }

    /// Only those of this hub.
    pub const fn ours(self) -> Self {
        Self { ours: true, ..self }
    }

    /// Only those that say `true` in a label.
    pub const fn marked(self, label: &'static str) -> Self {
        Self { marked: Some(label), ..self }
    }

    /// Only those that a label selector chooses.
    pub const fn labelled(self, selector: &'static str) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// Only those with this in a field.
    pub const fn with_field(self, field: &'static str, value: &'static str) -> Self {
        Self { fields: Some((field, value)), ..self }
    }

    pub const fn part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    fn path(&self, namespace: &str) -> String {
        let Self { group, plural, .. } = self;
        if self.in_namespace {
            format!("{group}/namespaces/{namespace}/{plural}")
        } else {
            format!("{group}/{plural}")
        }
    }

    fn selector(&self, hub_id: &str) -> Selector {
        let ours = self.ours.then(|| format!("{HUB_LABEL}={hub_id}"));
        let marked = self.marked.map(|label| format!("{label}=true"));
        let labels: Vec<String> =
            ours.into_iter().chain(marked).chain(self.labels.map(str::to_owned)).collect();
        Selector {
            labels: (!labels.is_empty()).then(|| labels.join(",")),
            fields: self.fields.map(|(field, value)| format!("{field}={value}")),
        }
    }
}

/// For which hub, and where, the rows of a set are followed.
pub struct Scope<'a> {
    pub hub_id: &'a str,
    pub namespace: &'a str,
    /// Whom the rows' readers are found by; without it all wake whoever the follower wakes.
    pub wake: Option<&'a Wake>,
    pub cancel: &'a CancellationToken,
}

/// A [`Table`] of whatever kind.
pub trait AnyTable {
    fn follow(
        &self,
        following: &Following,
        path: (String, Selector, CancellationToken),
        tasks: &mut JoinSet<()>,
    );
    fn synced(&self) -> bool;
    fn is_refused(&self) -> bool;
    fn is_current(&self) -> bool;
    fn revision(&self) -> u64;
    fn absorb_answer(&self, answer: &Value);
}

/// One whose objects are stored from one start to the next.
pub trait StoredTable {
    /// What it holds, for [`StoredTable::restore`].
    fn known(&self) -> Option<Box<RawValue>>;
    fn restore(&self, known: &RawValue) -> serde_json::Result<()>;
}

impl<T: Record> AnyTable for Table<T> {
    fn follow(
        &self,
        following: &Following,
        path: (String, Selector, CancellationToken),
        tasks: &mut JoinSet<()>,
    ) {
        follow_table(following, self, path, tasks);
    }

    fn synced(&self) -> bool {
        Self::synced(self)
    }

    fn is_refused(&self) -> bool {
        Self::is_refused(self)
    }

    fn is_current(&self) -> bool {
        Self::is_current(self)
    }

    fn revision(&self) -> u64 {
        Self::revision(self)
    }

    fn absorb_answer(&self, answer: &Value) {
        Self::absorb_answer(self, answer);
    }
}

impl<T: Record + Serialize> StoredTable for Table<T> {
    fn known(&self) -> Option<Box<RawValue>> {
        let known = Self::known(self)?;
        Some(to_raw_value(&known).expect("objects that were read from JSON have a JSON form"))
    }

    fn restore(&self, known: &RawValue) -> serde_json::Result<()> {
        Self::restore(self, serde_json::from_str::<Known<T>>(known.get())?);
        Ok(())
    }
}

/// A table with its row.
pub struct Followed<'a> {
    pub row: &'static Row,
    pub table: &'a dyn AnyTable,
}

/// What tables held, by their names in the set, for the next start to begin from.
pub type KnownObjects = BTreeMap<String, Box<RawValue>>;

/// Tables of several kinds.
pub trait TableSet {
    fn followed(&self) -> impl Iterator<Item = Followed<'_>>;

    /// Starts following the kinds of a part; each task ends with the scope's `cancel`.
    fn follow_part(&self, part: Part, following: &Following, scope: &Scope<'_>, tasks: &mut JoinSet<()>) {
        for Followed { row, table, .. } in self.followed().filter(|followed| followed.row.part == part) {
            let mut following = following.clone();
            if let (Some(readers), Some(wake)) = (row.readers, scope.wake) {
                following.changed = readers(wake);
                if !row.planned {
                    following.linked.clone_from(&following.changed);
                }
            }
            let path = (row.path(scope.namespace), row.selector(scope.hub_id), scope.cancel.clone());
            table.follow(&following, path, tasks);
        }
    }

    fn planned(&self) -> impl Iterator<Item = &dyn AnyTable> {
        self.followed().filter(|followed| followed.row.planned).map(|followed| followed.table)
    }

    /// Whether everything a plan rests on is known.
    fn synced(&self) -> bool {
        self.planned().all(AnyTable::synced)
    }

    /// Whether some of it was asked for in vain, so that nobody knows when the rest is known.
    fn is_refused(&self) -> bool {
        self.planned().any(AnyTable::is_refused)
    }

    /// Whether all of it is also being followed at this moment.
    fn is_current(&self) -> bool {
        self.planned().all(AnyTable::is_current)
    }

    /// Of all of it, and of how each kind is followed. Each count only grows, so the same sum means that none changed.
    fn changes(&self) -> u64 {
        self.planned().map(AnyTable::revision).sum()
    }

    /// Takes over what a write was answered with, so that the next decision need not wait for its watch event.
    fn absorb_answer(&self, change: &Change, answer: &Value) {
        if !change.is_deletion() {
            let written = |followed: &Followed<'_>| followed.row.written == Some(change.target.kind);
            self.followed().filter(written).for_each(|followed| followed.table.absorb_answer(answer));
        }
    }
}

/// A set whose objects are stored from one start to the next.
pub trait StoredSet {
    /// With their names in the set.
    fn stored(&self) -> impl Iterator<Item = (&'static str, &dyn StoredTable)>;

    fn known(&self) -> KnownObjects {
        self.stored().filter_map(|(name, table)| Some((name.to_owned(), table.known()?))).collect()
    }

    /// Before anything is followed: each kind goes on from there if the server still has its version, and is
    /// listed otherwise.
    ///
    /// # Errors
    /// Of a kind that cannot be read, which is listed.
    fn restore(&self, known: &KnownObjects) -> serde_json::Result<()> {
        let of_kind = |(name, table): (&str, &dyn StoredTable)| match known.get(name) {
            Some(known) => table.restore(known),
            None => Ok(()),
        };
        self.stored().map(of_kind).fold(Ok(()), serde_json::Result::and)
    }
}

/// A [`TableSet`]: the table of each kind, its objects' type, and its [`Row`]. One that is `stored` is a [`StoredSet`],
/// and its tables count towards what is kept of a cluster.
macro_rules! followed {
    ($(#[$meta:meta])* pub struct $Name:ident {
        $($(#[$doc:meta])* $field:ident: $Type:ty = $row:expr;)*
    }) => {
        followed! { @tables $(#[$meta])* pub struct $Name { $($(#[$doc])* $field: $Type = $row;)* } }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: Table::new(),)* }
            }
        }
    };
    (stored $(#[$meta:meta])* pub struct $Name:ident {
        $($(#[$doc:meta])* $field:ident: $Type:ty = $row:expr;)*
    }) => {
        followed! { @tables $(#[$meta])* pub struct $Name { $($(#[$doc])* $field: $Type = $row;)* } }

        impl $Name {
            pub(crate) fn within(allowance: &Allowance) -> Self {
                Self { $($field: Table::within(allowance),)* }
            }
        }

        impl StoredSet for $Name {
            fn stored(&self) -> impl Iterator<Item = (&'static str, &dyn StoredTable)> {
                [$((stringify!($field), &self.$field as &dyn StoredTable),)*].into_iter()
            }
        }
    };
    (@tables $(#[$meta:meta])* pub struct $Name:ident {
        $($(#[$doc:meta])* $field:ident: $Type:ty = $row:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $Name { $($(#[$doc])* pub $field: Table<$Type>,)* }

        impl TableSet for $Name {
            fn followed(&self) -> impl Iterator<Item = Followed<'_>> {
                [$(Followed { row: const { &$row }, table: &self.$field },)*].into_iter()
            }
        }
    };
}
pub(crate) use followed;

/// Follows `path` into `table` until cancelled.
pub fn follow_table<T: Record>(
    following: &Following,
    table: &Table<T>,
    (path, selector, cancel): (String, Selector, CancellationToken),
    tasks: &mut JoinSet<()>,
) {
    let mut follow = Follow::new(following.client.kube(), path, Codec::Json);
    follow.selector = selector;
    follow.timing = following.timing.clone();
    follow.allowance = following.allowance.clone();
    follow.budget = following.client.reading().clone();
    follow.answers = Arc::clone(following.client.answers());
    follow.observer = following.client.observer().clone();
    table.wakes(following.changed.clone(), following.linked.clone());
    let table = table.clone();
    tasks.spawn(async move { follow.run_into(&table, cancel).await });
}

#[cfg(test)]
mod tests;
