//! Faults of clusters, of the hub and of fedqd itself, each a scenario against the real fedqd.
//!
//! Each ends with `Stage::ends_with`, which checks, once both clusters are well again:
//!
//! - every write of quota since the beginning, in the servers' own histories: no growth on a worker beyond what
//!   its nodes had, nothing on the hub that no worker had confirmed, and nothing ever fell where neither
//!   capacity nor assignments did (I1, I9);
//! - queues, LocalQueues, flavors and claims are those asked for, each once, and what other people own is byte for
//!   byte what it was (I5);
//! - while nothing changes, nothing is written (I10);
//! - the database is whole, and no token is in it, in the log or in a status (I6 in part, I11);
//! - a daemon with an empty database decides the same, to the last word of each status, and carries out the next
//!   change with one write a queue (I7).
//!
//! The other cluster of each scenario goes on meanwhile (I9), and `confined` compares all that is there of it (I8). I2 is a matter of the plan's properties, I3 and
//! I4 of tasks, I12 of the endless answer here and of the benches.
//!
//! | fault | scenario |
//! |---|---|
//! | killed at any write | `process`: killed between a write and its answer, at any moment, at each sync of the disk |
//! | killed and started again with something in the way: an unreadable kind, invalid and second claims, nodes or Kueue that do not answer | `restarts` |
//! | suspended for long | `process`: a probe that fails after a long sleep |
//! | flavors, their order, cohorts and queues edited while all goes well | `edits` |
//! | stopped, and started again | `process`: reads only what came meanwhile |
//! | disk full or failing | `process`: a full disk stops no quota; `restarts`: what came into force on a full disk |
//! | damaged or newer database | `process`: a damaged or newer database is refused |
//! | two daemons, one database | `process`: a second daemon is refused |
//! | silent watch, half-open connection | `watches`: falls silent; `link`: half-open; and the cluster that hangs |
//! | 410, also in mid-page | `watches`: versions that expired; a list that expires on the way |
//! | events twice, in disorder, of old | `watches`: twice and in disorder |
//! | lost event | `watches`: found by the next list |
//! | restored etcd, another identity | `trust`: another cluster, a restored backup, a restored hub |
//! | 429, 5xx | `link`: a busy server, a storm of errors, slow and failing answers |
//! | endless body | `link`: an endless answer |
//! | trickling body | `link`: answers, a list and an event that come a byte at a time |
//! | done, and the answer lost | `link`: not done twice |
//! | same-named foreign queue | `people`: neither taken nor counted |
//! | another manager writes quota | `people`: a war over quota |
//! | flapping node | `objects`: ten times a second |
//! | absurd quantities | `objects`: quantities beyond reason |
//! | huge and deep objects | `objects`: too large or too deep |
//! | unknown and missing fields | `objects`: nodes that lack things |
//! | clock jumps | `process`: a clock that jumps, that of fedqd and those of the clusters |
//! | credential revoked and renewed | `trust`: a revoked credential; a certificate whose time is over; nothing outlives its place in the Secret |
//! | kubeconfig with exec, files, insecure TLS, proxy, link-local | `trust`: kubeconfigs that reach too far |
//! | GOAWAY, of one connection and of a server that is updated | `link`: sends its clients elsewhere, are updated |
//! | redirect | `link`: a redirect is not followed |
//! | DNS that says otherwise later | `trust`: a name that leads elsewhere later |
//! | another's certificate or UID, joined twice | `link`: another certificate; `trust`: kubeconfigs, another cluster; `confined`: says it is another |
//! | inflated capacity | `trust`: a worker that says it is huge; `confined`: what it says of its nodes |
//! | garbage, and all else from one cluster | `confined` |
//! | secrets told | the end of every scenario |
//! | Kueue missing, or removed and installed again | `trust`: a cluster without Kueue; Kueue that is taken away |
//! | a CRD that lacks a field | `trust`: a definition that lacks a field, on a worker and on the hub |
//! | rights missing | `trust`: rights that are taken away |
//! | all of it at random | `walk` |
//!
//! Not here: what concerns tasks (dispatch across partitions, two copies, lost workers, forged status), which
//! `tests/sim/tasks` has; power loss, since a kill leaves what was written but not synced; two hubs of one identity
//! with a database each, which nothing fences yet; duplicate provider IDs, since nodes count by name; rights of callers
//! and paths, which `tests/serve` has; a thousand clusters at once, which is a bench's; migrations, which the store's
//! own tests have.

mod confined;
mod edits;
mod history;
mod link;
mod objects;
mod people;
pub mod preload;
mod process;
mod restarts;
mod stage;
mod texts;
mod trust;
mod truth;
mod walk;
mod watches;
mod workloads;
