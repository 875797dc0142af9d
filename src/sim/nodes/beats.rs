//! When kubelets report: each node every five minutes, each at its own time.

use std::time::Duration;

use jiff::Timestamp;

use super::{Herd, look::GONE};
use crate::draw::mix;

/// How often a kubelet reports a status that is as before.
const PERIOD: Duration = Duration::from_mins(5);

/// The heartbeats of one herd, as time goes on.
///
/// Time is cut into slots, one a node and period, in an order that looks drawn at random; within its slot
/// a heartbeat comes at a drawn moment, each time another. So nothing is kept for a node, and a herd's
/// heartbeats neither come at once nor evenly.
#[derive(Clone, Debug)]
pub struct Beats {
    /// Of one slot, in nanoseconds.
    slot: i128,
    stride: usize,
    nodes: usize,
    seed: u64,
    /// Until when heartbeats were handed out.
    until: i128,
}

impl Beats {
    /// From `now` on, `rate` times as often as a kubelet: 1.0 is its own rate.
    pub fn new(herd: &Herd, rate: f64, now: Timestamp) -> Self {
        let nodes = herd.len().max(1);
        let period = PERIOD.div_f64(rate.max(1e-6)).as_nanos();
        let slot = i128::try_from(period / nodes as u128).unwrap_or(i128::MAX).max(1);
        let seed = mix(u64::from(herd.cluster));
        Self { slot, stride: stride(nodes), nodes, seed, until: now.as_nanosecond() }
    }

    /// The nodes whose heartbeat came since the last call, each at most once. They are still to be
    /// applied.
    pub fn due(&mut self, herd: &Herd, now: Timestamp) -> Vec<usize> {
        let (from, to) = (self.until, now.as_nanosecond());
        if to <= from {
            return Vec::new();
        }
        self.until = to;
        let last = to.div_euclid(self.slot);
        let first = from.div_euclid(self.slot).max(last - self.nodes as i128 + 1);
        let due = (first..=last).filter(|slot| {
            let at = self.moment(*slot);
            from < at && at <= to
        });
        due.map(|slot| self.node(slot))
            .filter(|i| herd.states.get(*i).is_some_and(|state| !state.look.has(GONE)))
            .collect()
    }

    /// When the heartbeat of a slot comes.
    fn moment(&self, slot: i128) -> i128 {
        let draw = mix(self.seed ^ u64::try_from(slot).unwrap_or_default());
        slot * self.slot + ((self.slot * i128::from(draw >> 32)) >> 32)
    }

    fn node(&self, slot: i128) -> usize {
        let slot = slot + i128::from(self.seed >> 32);
        let turn = usize::try_from(slot.rem_euclid(self.nodes as i128)).unwrap_or_default();
        turn * self.stride % self.nodes
    }
}

/// A step that visits each of `nodes` once and no neighbours in a row: near the golden section.
fn stride(nodes: usize) -> usize {
    let wanted = nodes * 618 / 1000;
    (wanted.max(1)..=nodes).find(|stride| coprime(*stride, nodes)).unwrap_or(1)
}

fn coprime(mut a: usize, mut b: usize) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}
