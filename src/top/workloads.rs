//! The view of one queue's workloads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    columns::{Column, number, text},
    list::{List, Order},
    shown::age,
    state::{Row, matches},
    table::Key,
    workload::{Phase, Workload},
};

pub const COLUMNS: [Column; 7] = [
    text("NAMESPACE", 9, 5),
    text("WORKLOAD", 12, 20),
    text("LOCALQUEUE", 10, 4),
    text("STATUS", 8, 10),
    number("PRIORITY", 6),
    text("JOB", 8, 3),
    number("AGE", 7),
];

pub const ORDERS: [Order; 5] = [
    Order { name: "STATUS", falling: false },
    Order { name: "WORKLOAD", falling: false },
    Order { name: "NAMESPACE", falling: false },
    Order { name: "PRIORITY", falling: true },
    Order { name: "AGE", falling: true },
];

/// Fills the list with the queue's workloads, and says how wide each column's widest cell is.
pub fn arrange(
    list: &mut List<Key>,
    queue: &str,
    workloads: &BTreeMap<Key, Workload>,
    local_queues: &BTreeMap<Key, String>,
) -> [usize; 7] {
    let of_queue = |(key, workload): &(&Key, &Workload)| {
        if workload.admitted_by.is_empty() {
            let local = (key.0.clone(), workload.local_queue.as_str().into());
            local_queues.get(&local).is_some_and(|cluster_queue| cluster_queue == queue)
        } else {
            workload.admitted_by == queue
        }
    };
    let wanted = |(key, workload): &(&Key, &Workload)| {
        matches(
            &list.filter,
            [&*key.0, &*key.1, &workload.local_queue, &workload.owner, workload.phase.word()],
        )
    };
    let mut found: Vec<(&Key, &Workload)> = workloads.iter().filter(of_queue).filter(wanted).collect();
    match list.order {
        // As Kueue takes them: what is more important first, then what came first.
        0 => {
            found.sort_by_key(|(_, workload)| (workload.phase, Reverse(workload.priority), workload.created));
        }
        1 => found.sort_by_key(|(key, _)| &key.1),
        2 => found.sort_by_key(|(key, _)| &key.0),
        3 => found.sort_by_key(|(_, workload)| Reverse(workload.priority)),
        _ => found.sort_by_key(|(_, workload)| workload.created),
    }
    if list.reverse {
        found.reverse();
    }
    let mut widths = [0; 7];
    for (key, workload) in &found {
        let texts = [&*key.0, &*key.1, &workload.local_queue, workload.phase.word()];
        for (column, text) in texts.iter().enumerate() {
            widths[column] = text.len().max(widths[column]);
        }
        widths[4] = workload.priority.to_string().len().max(widths[4]);
        widths[5] = workload.owner.len().max(widths[5]);
    }
    // No age is longer.
    widths[6] = "59m59s".len();
    list.fill(found.into_iter().map(|(key, _)| (key.clone(), 1)).collect());
    widths
}

pub fn row<'a>(
    workloads: &'a BTreeMap<Key, Workload>,
    key: &Key,
    old: bool,
    now: Timestamp,
) -> Option<Row<'a>> {
    let ((namespace, name), workload) = workloads.get_key_value(key)?;
    let mark = match (old, workload.phase) {
        (true, _) => '~',
        (false, Phase::Stopped) => '!',
        (false, _) => ' ',
    };
    let cells = vec![
        (&**namespace).into(),
        (&**name).into(),
        workload.local_queue.as_str().into(),
        workload.phase.word().into(),
        workload.priority.to_string().into(),
        workload.owner.as_str().into(),
        workload.created.map_or("-".into(), |created| age(created, now).into()),
    ];
    Some(Row { mark, cells, alarming: false })
}
