//! `job_recovery`: what follows a failure.

use super::reader::{At, Notes};
use crate::task::{
    spec::{Recovery, Strategy},
    yaml::shown,
};

pub fn recovery(at: &At<'_>, notes: &mut Notes) -> Recovery {
    let mut recovery = Recovery::default();
    if !at.is_map() {
        recovery.strategy = strategy(at, notes);
        return recovery;
    }
    let mut fields = at.fields(notes);
    if let Some(at) = fields.take("strategy") {
        recovery.strategy = strategy(&at, notes);
    }
    if let Some(at) = fields.take("max_restarts_on_errors") {
        match at.whole(notes).map(u32::try_from) {
            Some(Ok(restarts)) if restarts <= 1000 => recovery.max_restarts = restarts,
            Some(_) => notes.problem(&at, "a task is restarted 0 to 1000 times"),
            None => {}
        }
    }
    if let Some(at) = fields.take("recover_on_exit_codes") {
        let codes = if at.is_list() { at.list(notes) } else { vec![at] };
        for at in codes {
            match at.whole(notes).map(u8::try_from) {
                // 0 is success.
                Some(Ok(code)) if code != 0 => recovery.always_on.push(code),
                Some(_) => notes.problem(&at, "an exit code of a failure is 1 to 255"),
                None => {}
            }
        }
        recovery.always_on.sort_unstable();
        recovery.always_on.dedup();
    }
    fields.finish(notes);
    recovery
}

fn strategy(at: &At<'_>, notes: &mut Notes) -> Strategy {
    match at.text(notes).map(str::to_ascii_uppercase).as_deref() {
        None | Some("FAILOVER") => Strategy::Failover,
        Some("EAGER_NEXT_REGION" | "EAGER_FAILOVER") => Strategy::NextCluster,
        Some(other) => {
            notes.problem(at, format!("`{}` is neither FAILOVER nor EAGER_NEXT_REGION", shown(other)));
            Strategy::Failover
        }
    }
}
