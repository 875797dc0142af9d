use jiff::Timestamp;

use super::*;
use fedq_domain::{claim_status::Truth, resources::Aliases};
use fedq_k8s::claims::read_claim;

const WINDOW: Duration = Duration::from_secs(1);

fn synced(word: &str) -> Vec<Condition> {
    vec![Condition {
        kind: ConditionKind::QuotaSynced,
        status: if word == "Synced" { Truth::True } else { Truth::False },
        reason: word.to_owned(),
        message: String::new(),
        observed_generation: 1,
        last_transition: Timestamp::UNIX_EPOCH,
    }]
}

/// Statuses at these milliseconds, as rounds would come to them; those that are written.
fn written(rounds: &[(u64, &'static str)]) -> Vec<&'static str> {
    let (claim, start) = (ClaimName::new("eu-west").expect("a name"), Instant::now());
    let mut underway = Underway::new(WINDOW);
    let (mut before, mut written) = (synced("Synced"), Vec::new());
    for (millis, word) in rounds {
        let (now, at) = (synced(word), start + Duration::from_millis(*millis));
        if underway.waits(&claim, &before, &now, at).is_none() && before != now {
            before = now;
            written.push(*word);
        }
    }
    written
}

#[test]
fn a_write_that_is_acknowledged_in_a_moment_costs_one_status() {
    let rounds = [(0, "Writing"), (20, "Writing"), (40, "Unconfirmed"), (60, "Writing"), (90, "Synced")];
    assert_eq!(written(&rounds), [""; 0], "the same status as before: none");
    assert_eq!(
        written(&[(0, "Writing"), (50, "WriteFailed"), (60, "Writing"), (70, "Synced")]),
        ["WriteFailed", "Synced"]
    );
}

#[test]
fn a_write_that_takes_long_is_told() {
    let rounds = [(0, "Writing"), (900, "Writing"), (1250, "Writing"), (1300, "Writing"), (2000, "Synced")];
    assert_eq!(written(&rounds), ["Writing", "Synced"]);
    // Told since the first of them, however often it went from one to the other.
    assert_eq!(written(&[(0, "Writing"), (1000, "Unconfirmed"), (1250, "Unconfirmed")]), ["Unconfirmed"]);
    // Two changes, each quick.
    let rounds = [(0, "Writing"), (100, "Synced"), (1200, "Writing"), (1300, "Writing"), (1400, "Synced")];
    assert_eq!(written(&rounds), [""; 0]);
}

#[test]
fn a_hub_that_is_a_moment_behind_is_no_news() {
    let (name, start) = (ClaimName::new("eu-west").expect("a name"), Instant::now());
    let object = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "eu-west"}, "spec": {"clusterName": "eu-west"},
    }));
    let claim = read_claim(&Arc::new(object.expect("a claim")), &Aliases::default());
    let basis = Basis {
        claim: Arc::new(claim),
        cluster: None,
        connection: None,
        capacity: None,
        reports: Vec::new(),
        behind: BTreeMap::new(),
    };
    let conditions = Arc::new(synced("Synced"));
    let mut known = Found { basis, conditions, status: Status::Same, stands: true };
    let mut underway = Underway::new(WINDOW);
    let due = start + WINDOW + MOMENT;
    for millis in [0, 900] {
        let now = start + Duration::from_millis(millis);
        assert_eq!(underway.can_wait(&name, &known, now), Some(due));
    }
    assert_eq!(underway.can_wait(&name, &known, due), None, "it takes long, and is told");
    underway.settles(&name, &known);
    assert!(due < underway.can_wait(&name, &known, due).expect("another time"));
    known.conditions = Arc::new(synced("Writing"));
    assert_eq!(underway.can_wait(&name, &known, start), None, "it says so");
}

#[test]
fn the_first_status_of_a_claim_waits_for_nothing() {
    let mut underway = Underway::new(WINDOW);
    let (claim, now) = (ClaimName::new("eu-west").expect("a name"), Instant::now());
    assert_eq!(underway.waits(&claim, &[], &synced("Writing"), now), None);
    assert_eq!(
        underway.waits(&claim, &synced("Synced"), &synced("Writing"), now),
        Some(now + WINDOW + MOMENT)
    );
}
