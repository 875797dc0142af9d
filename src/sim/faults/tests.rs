use super::*;

fn plan(text: &str) -> Plan {
    text.parse().unwrap()
}

#[test]
fn every_fault_can_be_said() {
    let text = "latency 50ms; hang; half-open; drop-watch-after 3; silent-watch; duplicate-events 10%; \
                reorder-events 0.5%; lose-events; gone-mid-page; too-many-requests 2s 50%; server-errors 30%; \
                endless-body; trickle; garbage; redirect https://127.0.0.2:6443/; lose-answers 5%; restored-etcd; new-identity; \
                wrong-certificate; refuse-connections; go-away 2%; forbidden;";
    let faults: Vec<_> = plan(text).rules.into_iter().map(|rule| rule.fault).collect();
    let share = |percent| Share::percent(percent).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(
        faults,
        [
            Fault::Latency(Duration::from_millis(50)),
            Fault::Hang,
            Fault::HalfOpen,
            Fault::DropWatchAfter(3),
            Fault::SilentWatch,
            Fault::DuplicateEvents(share(10.0)),
            Fault::ReorderEvents(share(0.5)),
            Fault::LoseEvents(Share::ALL),
            Fault::GoneMidPage,
            Fault::TooManyRequests { retry_after: seconds(2), share: share(50.0) },
            Fault::ServerErrors(share(30.0)),
            Fault::EndlessBody,
            Fault::Trickle,
            Fault::Garbage,
            Fault::Redirect("https://127.0.0.2:6443/".to_owned()),
            Fault::LoseAnswers(share(5.0)),
            Fault::RestoredEtcd,
            Fault::NewIdentity,
            Fault::WrongCertificate,
            Fault::RefuseConnections,
            Fault::GoAway(share(2.0)),
            Fault::Forbidden,
        ]
    );
    assert!(plan(" ; ").is_empty());
}

#[test]
fn nonsense_is_refused_and_says_why() {
    for (text, says) in [
        ("sulk", "`sulk` is not a fault: there are latency, hang"),
        ("latency", "`latency` needs a time, such as `latency 50ms`"),
        ("latency 5", "needs a time"),
        ("latency 99999999999999999999s", "needs a time"),
        ("latency -1s", "needs a time"),
        ("drop-watch-after soon", "needs a number of events"),
        ("server-errors 101%", "needs a share in percent"),
        ("server-errors NaN%", "needs a share in percent"),
        ("too-many-requests 50%", "needs a time to retry after"),
        ("redirect", "needs an address"),
        ("hang 5s", "`5s` is too much"),
        ("a b c: hang", "`a b c` does not say which requests"),
        ("steal nodes: hang", "does not say which requests"),
    ] {
        let error = text.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_rule_meets_only_the_requests_it_names() {
    let plan = plan("watch nodes: hang; clusterqueues: server-errors; patch: redirect https://elsewhere/");
    let answer = |verb, kind| plan.on_request(verb, kind, 1).answer;
    assert_eq!(answer("watch", "nodes"), Answer::Never);
    assert_eq!(answer("list", "nodes"), Answer::Honest);
    assert!(
        matches!(answer("patch", "clusterqueues"), Answer::ServerError(500..=504)),
        "the first rule wins"
    );
    assert_eq!(answer("patch", "nodes"), Answer::Redirect("https://elsewhere/".to_owned()));
}

#[test]
fn shares_are_kept_and_drawn_alike_for_one_seed() {
    let plan = plan("server-errors 30%; too-many-requests 2s 50%").seeded(7);
    let answers = |plan: &Plan| -> Vec<Answer> {
        (0..10_000).map(|number| plan.on_request("get", "nodes", number).answer).collect()
    };
    let drawn = answers(&plan);
    let count = |is: fn(&Answer) -> bool| drawn.iter().filter(|answer| is(answer)).count();
    assert!(count(|answer| matches!(answer, Answer::ServerError(_))).abs_diff(3_000) < 200);
    assert!(count(|answer| matches!(answer, Answer::TooManyRequests(_))).abs_diff(3_500) < 200);
    for code in [500, 502, 503, 504] {
        assert!(drawn.contains(&Answer::ServerError(code)), "{code}");
    }
    assert_eq!(drawn, answers(&plan));
    assert_ne!(drawn, answers(&plan.seeded(8)));
}

#[test]
fn latency_is_up_to_twice_its_mean_and_hits_failing_answers_too() {
    let plan = plan("latency 50ms; server-errors");
    let waits: Vec<_> = (0..1000).map(|number| plan.on_request("get", "nodes", number).wait).collect();
    assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(100)));
    let mean = waits.iter().sum::<Duration>() / 1000;
    assert!(mean.abs_diff(Duration::from_millis(50)) < Duration::from_millis(5), "{mean:?}");
}

#[test]
fn events_are_lost_late_or_twice_as_often_as_asked() {
    let plan = plan("lose-events 10%; reorder-events 10%; duplicate-events 50%; drop-watch-after 9");
    let stream = plan.on_request("watch", "nodes", 3).stream;
    let deliveries: Vec<_> = (0..10_000).map(|number| stream.on_event(number)).collect();
    let count = |wanted| deliveries.iter().filter(|delivery| **delivery == wanted).count();
    assert!(count(Delivery::Never).abs_diff(1_000) < 150);
    assert!(count(Delivery::Late).abs_diff(900) < 150);
    assert!(count(Delivery::Twice).abs_diff(4_050) < 300);
    assert_eq!(stream.drop_after, Some(9));
    let other = plan.on_request("watch", "nodes", 4).stream;
    assert!(
        (0..100).any(|number| other.on_event(number) != stream.on_event(number)),
        "each watch has its own"
    );
    assert_eq!(plan.on_request("list", "nodes", 3).stream.drop_after, None);
    assert!((0..100).all(|number| Stream::default().on_event(number) == Delivery::Once));
}

#[test]
fn what_concerns_the_whole_cluster_is_asked_for_apart() {
    let honest = Plan::default();
    assert!(!honest.freezes_open_connections() && !honest.restores_a_backup());
    assert_eq!(honest.on_connection(), Connection::Serve);
    assert_eq!(honest.on_request("get", "nodes", 1).answer, Answer::Honest);
    assert!(plan("half-open").freezes_open_connections());
    assert!(plan("restored-etcd").restores_a_backup());
    assert_eq!(plan("wrong-certificate").on_connection(), Connection::WrongCertificate);
    assert_eq!(plan("wrong-certificate; refuse-connections").on_connection(), Connection::Refuse);
    assert!(plan("refuse-connections").breaks_open_connections() && !honest.breaks_open_connections());
    assert!(plan("new-identity").changes_identity() && !honest.changes_identity());
    assert_eq!(plan("lose-answers").on_request("create", "nodes", 1).answer, Answer::Lost);
    assert_eq!(plan("gone-mid-page").on_request("list", "nodes", 1).answer, Answer::GoneMidPage);
    assert_eq!(plan("gone-mid-page").on_request("get", "nodes", 1).answer, Answer::Honest);
    assert!(plan("silent-watch").on_request("watch", "nodes", 1).stream.silent);
    assert_eq!(plan("endless-body").on_request("list", "nodes", 1).answer, Answer::Endless);
}
