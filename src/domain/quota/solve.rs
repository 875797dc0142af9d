//! The arithmetic of one cluster: what each cell gets, what is written now, what the hub counts.

use super::{
    ClusterInput, Mode,
    fill::{Ask, Limit, fill},
    hold::Growth,
    model::{CellModel, Model, Room},
};

/// What each cell gets: all it asks for where that fits, else a fair part.
pub(super) fn effective(input: &ClusterInput, model: &mut Model) {
    let known = input.capacity.is_some();
    for room in &model.rooms {
        let cells = &mut model.cells[room.range.clone()];
        if !known {
            for cell in cells {
                cell.outcome.effective = if cell.is_resolved() { cell.last_term } else { 0 };
                cell.outcome.stopped_by = None;
            }
        } else if !fits_whole(room, cells) {
            fill_room(room, cells);
        }
    }
}

/// Gives every cell what it asks for, if that fits.
fn fits_whole(room: &Room, cells: &mut [CellModel]) -> bool {
    let mut wanted = vec![0_i128; room.flavors.len()];
    for cell in cells.iter_mut() {
        let units = if cell.is_resolved() { cell.requested } else { 0 };
        cell.outcome.effective = units;
        cell.outcome.stopped_by = None;
        wanted[usize::from(cell.flavor)] += i128::from(units);
    }
    let cap = room.cap.is_none_or(|cap| wanted.iter().sum::<i128>() <= i128::from(cap));
    cap && room.constraints.iter().all(|constraint| {
        let of = |flavor: &u16| wanted[usize::from(*flavor)];
        let sum: i128 = constraint.flavors.iter().map(of).sum();
        sum == 0 || sum <= room.left(constraint)
    })
}

fn fill_room(room: &Room, cells: &mut [CellModel]) {
    let ask = |cell: &CellModel| Ask {
        flavor: cell.flavor,
        units: if cell.is_resolved() { cell.requested } else { 0 },
    };
    let asks: Vec<_> = cells.iter().map(ask).collect();
    let mut limits: Vec<_> = room
        .constraints
        .iter()
        .map(|constraint| Limit {
            flavors: &constraint.flavors,
            room: i64::try_from(room.left(constraint).max(0)).unwrap_or(i64::MAX),
        })
        .collect();
    limits.extend(room.cap.map(|cap| Limit { flavors: &room.all, room: cap }));
    let filled = fill(&asks, &limits, room.flavors.len(), room.resource.units_of_a_whole());
    for (cell, units) in cells.iter_mut().zip(filled.units) {
        cell.outcome.effective = units;
        let stopped_by = filled.stopped_by[usize::from(cell.flavor)].filter(|_| units < cell.requested);
        cell.outcome.stopped_by = stopped_by.and_then(|limit| u16::try_from(limit).ok());
    }
}

impl Room {
    /// What foreign quota leaves of a constraint.
    pub fn left(&self, constraint: &super::constraints::Constraint) -> i128 {
        let foreign = |flavor: &u16| self.foreign[usize::from(*flavor)];
        i128::from(constraint.usable) - constraint.flavors.iter().map(foreign).sum::<i128>()
    }
}

/// What is written to the worker now, and what the hub counts.
pub(super) fn grants_and_terms(input: &ClusterInput, model: &mut Model) {
    let mode = input.treated_as();
    for room in &model.rooms {
        let cells = &mut model.cells[room.range.clone()];
        if mode != Mode::Live {
            for cell in cells.iter_mut() {
                (cell.outcome.granted, cell.outcome.lending, cell.outcome.borrowing) = (None, None, None);
            }
        } else if !grant_as_seen(cells) {
            Growth::new(room, cells).grant_all();
        }
    }
    for cell in &mut model.cells {
        cell.outcome.term = term(input, mode, cell);
    }
}

/// The common case: every cell is already what it should be, and nothing lends.
fn grant_as_seen(cells: &mut [CellModel]) -> bool {
    let as_seen = |cell: &CellModel| {
        cell.exists
            && cell.nominal == cell.outcome.effective
            && cell.lending.is_none()
            && cell.lending_share.is_none()
            && !cell.conflict
    };
    if !cells.iter().all(as_seen) {
        return false;
    }
    for cell in cells {
        cell.outcome.granted = Some(cell.nominal);
        cell.outcome.lending = None;
        cell.outcome.borrowing = cell.borrowing_share;
    }
    true
}

/// What this cluster adds to the hub's cell.
fn term(input: &ClusterInput, mode: Mode, cell: &CellModel) -> i64 {
    if !cell.dispatched {
        return 0;
    }
    // The hub does not hand out what workloads hold that it did not send.
    let less_direct = |units: i64| if cell.runs_locally { units } else { (units - cell.direct).max(0) };
    let confirmed = if cell.exists { cell.outcome.effective.min(cell.nominal) } else { 0 };
    // A queue that is on Hold, or that Kueue stopped, admits nothing, and what it admitted goes on running.
    let confirmed = if cell.active { confirmed } else { confirmed.min(cell.reserved) };
    match mode {
        Mode::Frozen if input.last_terms.is_some() => cell.last_term,
        Mode::Frozen if cell.is_resolved() => less_direct(confirmed),
        Mode::Live | Mode::Unreached if !cell.is_resolved() => 0,
        Mode::Live if input.cordoned => less_direct(cell.reserved.min(cell.nominal)),
        Mode::Live => less_direct(confirmed),
        Mode::Unreached if !input.cordoned => cell.outcome.effective,
        Mode::Frozen | Mode::Lost | Mode::Unreached => 0,
    }
}
