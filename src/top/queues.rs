//! The view of queues: a line for each flavor and resource, in one or several clusters.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::{
    columns::{Column, number, text},
    list::{List, Order},
    queue::{Cell, Queue, Standing},
    shown::age,
    state::{Cluster, Row, matches},
    table::Key,
};
use jiff::Timestamp;

/// The cluster's place, and the queue.
pub type QueueKey = (usize, Key);

pub const COLUMNS: [Column; 12] = [
    text("CLUSTER", 8, 9),
    text("QUEUE", 10, 20),
    text("COHORT", 6, 2),
    text("FLAVOR", 8, 11),
    text("RESOURCE", 8, 12),
    number("QUOTA", 14),
    number("RESERVED", 1),
    number("USED", 15),
    number("USE%", 5),
    number("BORROWED", 8),
    number("PENDING", 13),
    text("STATE", 6, 6),
];

/// Columns of the queue itself, which stand in its first line only.
const OF_QUEUE: [usize; 5] = [0, 1, 2, 10, 11];

pub const ORDERS: [Order; 6] = [
    Order { name: "PENDING", falling: true },
    Order { name: "QUEUE", falling: false },
    Order { name: "CLUSTER", falling: false },
    Order { name: "USE%", falling: true },
    Order { name: "BORROWED", falling: true },
    Order { name: "STATE", falling: true },
];

/// Fills the list anew, and says how wide each column's widest cell is.
pub fn arrange(list: &mut List<QueueKey>, clusters: &[Cluster]) -> [usize; 12] {
    let mut found: Vec<(usize, &Key, &Queue)> = Vec::new();
    for (at, cluster) in clusters.iter().enumerate() {
        let queues =
            cluster.queues.rows.iter().filter(|(key, queue)| wanted(&list.filter, cluster, key, queue));
        found.extend(queues.map(|(key, queue)| (at, key, queue)));
    }
    // What is equal keeps the order of clusters and names.
    match list.order {
        0 => found.sort_by_key(|(.., queue)| Reverse(queue.pending)),
        1 => found.sort_by_key(|(_, key, _)| &key.1),
        2 => found.sort_by_key(|(at, ..)| &clusters[*at].name),
        3 => found.sort_by_key(|(.., queue)| Reverse(queue.busiest())),
        4 => found.sort_by_key(|(.., queue)| Reverse(queue.borrows())),
        _ => found.sort_by_key(|(.., queue)| queue.standing == Standing::Active),
    }
    if list.reverse {
        found.reverse();
    }
    let widths = widths(&found, clusters);
    list.fill(
        found.into_iter().map(|(at, key, queue)| ((at, key.clone()), queue.cells.len().max(1))).collect(),
    );
    widths
}

fn wanted(filter: &str, cluster: &Cluster, key: &Key, queue: &Queue) -> bool {
    let of_cells = queue.cells.iter().flat_map(|cell| [cell.flavor.as_str(), cell.resource.as_str()]);
    matches(filter, [&*key.1, &cluster.name, &queue.cohort].into_iter().chain(of_cells))
}

fn widths(found: &[(usize, &Key, &Queue)], clusters: &[Cluster]) -> [usize; 12] {
    let mut widths = [0; 12];
    let mut widen = |column: usize, width: usize| widths[column] = width.max(widths[column]);
    for (at, key, queue) in found {
        widen(0, clusters[*at].name.len());
        widen(1, key.1.len());
        widen(2, queue.cohort.len());
        widen(10, digits(queue.pending));
        widen(11, queue.standing.word().len());
        for cell in &queue.cells {
            let texts =
                [&cell.flavor, &cell.resource, &cell.quota.text, &cell.reserved.text, &cell.used.text];
            for (column, text) in (3..).zip(texts) {
                widen(column, text.len());
            }
            widen(8, cell.percent().map_or(1, |percent| digits(percent) + 1));
            widen(9, cell.borrowed.text.len());
        }
    }
    // How old something is takes as much as this.
    widths[11] = widths[11].max("old 59m59s".len());
    widths
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A line of the screen. `top` is true of its first line, which says whose cells these are.
pub fn row<'a>(
    clusters: &'a [Cluster],
    key: &QueueKey,
    line: usize,
    top: bool,
    now: Timestamp,
) -> Option<Row<'a>> {
    let cluster = &clusters[key.0];
    let ((_, name), queue) = cluster.queues.rows.get_key_value(&key.1)?;
    let cell = queue.cells.get(line);
    let mut cells = texts(cluster, name, queue, cell);
    if 0 < line && !top {
        for column in OF_QUEUE {
            cells[column] = "".into();
        }
        if queue.cells.get(line - 1).map(|cell| &cell.flavor) == cell.map(|cell| &cell.flavor) {
            cells[3] = "".into();
        }
    }
    let old = cluster.queues.link.trouble.as_ref();
    if let Some(trouble) = old.filter(|_| !cells[11].is_empty()) {
        cells[11] = format!("old {}", age(trouble.since, now)).into();
    }
    let mark = match (old, &queue.standing) {
        (Some(_), _) => '~',
        (None, Standing::Active) => ' ',
        (None, _) => '!',
    };
    let full = cell.is_some_and(|cell| cell.percent().is_none_or(|percent| 100 <= percent));
    Some(Row { mark, cells, alarming: full })
}

fn texts<'a>(
    cluster: &'a Cluster,
    name: &'a str,
    queue: &'a Queue,
    cell: Option<&'a Cell>,
) -> Vec<Cow<'a, str>> {
    let of_cell = |text: fn(&Cell) -> &str| Cow::from(cell.map_or("-", text));
    let percent = |cell: &Cell| cell.percent().map_or(Cow::from("-"), |percent| format!("{percent}%").into());
    vec![
        cluster.name.as_str().into(),
        name.into(),
        queue.cohort.as_str().into(),
        of_cell(|cell| &cell.flavor),
        of_cell(|cell| &cell.resource),
        of_cell(|cell| &cell.quota.text),
        of_cell(|cell| &cell.reserved.text),
        of_cell(|cell| &cell.used.text),
        cell.map_or("-".into(), percent),
        of_cell(|cell| &cell.borrowed.text),
        queue.pending.to_string().into(),
        queue.standing.word().into(),
    ]
}
