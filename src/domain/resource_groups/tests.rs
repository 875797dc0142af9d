use super::*;

fn flavor(name: &str) -> FlavorName {
    FlavorName::new(name).expect("a flavor name")
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a resource name")
}

fn cell(flavor_name: &str, resource_name: &str) -> FlavorResource {
    FlavorResource { flavor: flavor(flavor_name), resource: resource(resource_name) }
}

fn group(covered: &[&str], flavors: &[&str]) -> ResourceGroup {
    let mut group = ResourceGroup { covered: covered.iter().map(|r| resource(r)).collect(), flavors: vec![] };
    for name in flavors {
        group.add_flavor(&flavor(name));
    }
    group
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

fn big_group(prefix: &str, resources: usize, flavors: usize) -> ResourceGroup {
    let (resources, flavors) = (numbered(&format!("{prefix}.x/r"), resources), numbered(prefix, flavors));
    group(
        &resources.iter().map(String::as_str).collect::<Vec<_>>(),
        &flavors.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn set(groups: &mut ResourceGroups, at: &FlavorResource, nominal: i64, lending: Option<i64>) {
    let quota = Quota { nominal: Amount::new(nominal), borrowing: None, lending: lending.map(Amount::new) };
    groups.set_cells(&BTreeMap::from([(at.clone(), quota)]));
}

#[test]
fn groups_that_kueue_takes_are_valid() {
    assert_eq!(ResourceGroups::default().validate(false), Ok(()));
    let groups = ResourceGroups(vec![group(&["cpu", "memory"], &["a", "b"]), group(&["x/gpu"], &["c"])]);
    assert_eq!(groups.validate(false), Ok(()));
    assert_eq!(ResourceGroups(vec![big_group("a", 64, 8)]).validate(false), Ok(()));
}

#[test]
fn every_limit_on_size_has_its_rule() {
    let groups = |count, resources, flavors| {
        let groups = (0..count).map(|i| big_group(&format!("g{i}n"), resources, flavors));
        ResourceGroups(groups.collect()).validate(false)
    };
    assert_eq!(groups(16, 1, 4), Ok(()));
    assert_eq!(groups(17, 1, 1), Err(Rule::TooManyGroups));
    assert_eq!(groups(1, 65, 1), Err(Rule::ResourcesOfGroup));
    assert_eq!(groups(1, 0, 1), Err(Rule::ResourcesOfGroup));
    assert_eq!(groups(1, 1, 65), Err(Rule::FlavorsOfGroup));
    assert_eq!(groups(1, 1, 0), Err(Rule::FlavorsOfGroup));
    assert_eq!(groups(5, 1, 52), Err(Rule::TooManyFlavors));
    assert_eq!(groups(5, 52, 1), Err(Rule::TooManyResources));
    assert_eq!(groups(1, 64, 9), Err(Rule::TooManyPairs));
}

#[test]
fn names_are_unique_and_in_the_order_of_the_group() {
    let twice = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["cpu"], &["b"])]);
    assert_eq!(twice.validate(false), Err(Rule::DuplicateResource(resource("cpu"))));
    let twice = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["a"])]);
    assert_eq!(twice.validate(false), Err(Rule::DuplicateFlavor(flavor("a"))));
    let mut swapped = ResourceGroups(vec![group(&["cpu", "memory"], &["a"])]);
    swapped.0[0].covered.swap(0, 1);
    assert_eq!(swapped.validate(false), Err(Rule::ResourcesDiffer { flavor: flavor("a") }));
}

#[test]
fn limits_need_a_cohort_and_lend_no_more_than_there_is() {
    let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"])]);
    set(&mut groups, &cell("a", "cpu"), 5, Some(5));
    assert_eq!(groups.validate(true), Ok(()));
    assert_eq!(groups.validate(false), Err(Rule::LimitWithoutCohort { flavor: flavor("a") }));
    set(&mut groups, &cell("a", "cpu"), 5, Some(6));
    let rule = Rule::LendingAboveNominal { flavor: flavor("a"), resource: resource("cpu") };
    assert_eq!(groups.validate(true), Err(rule));
}

#[test]
fn a_queue_is_extended_where_the_rules_allow() {
    let mut groups = ResourceGroups(vec![group(&["cpu", "memory"], &["a"])]);
    groups.extend(&cell("b", "cpu")).expect("a new flavor joins the group of the resource");
    groups.extend(&cell("a", "x/gpu")).expect("a new resource is covered by every flavor of the group");
    groups.extend(&cell("c", "x/nic")).expect("both new: a group of their own");
    let expected = [group(&["cpu", "memory", "x/gpu"], &["a", "b"]), group(&["x/nic"], &["c"])];
    assert_eq!(groups, ResourceGroups(expected.to_vec()));
    assert_eq!(groups.validate(false), Ok(()));
}

#[test]
fn cells_that_belong_together_make_one_group() {
    let mut groups = ResourceGroups::default();
    let cells = [cell("a", "cpu"), cell("b", "memory"), cell("b", "cpu")];
    assert_eq!(groups.extend_all(cells.into_iter()), BTreeMap::new());
    assert_eq!(groups, ResourceGroups(vec![group(&["cpu", "memory"], &["a", "b"])]));
    let two = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["b"])]);
    let mut groups = two.clone();
    let forbidden = groups.extend_all([cell("a", "memory")].into_iter());
    assert_eq!(forbidden.into_keys().collect::<Vec<_>>(), [cell("a", "memory")]);
    assert_eq!(groups, two);
}

#[test]
fn a_queue_that_cannot_be_extended_is_unchanged_and_says_why() {
    let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["b"])]);
    let before = groups.clone();
    let rule = Rule::AcrossGroups { flavor: flavor("a"), resource: resource("memory") };
    assert_eq!(groups.extend(&cell("a", "memory")), Err(rule));
    assert_eq!(groups, before);
    let mut full = ResourceGroups(vec![big_group("f", 1, 64)]);
    let before = full.clone();
    assert_eq!(full.extend(&cell("one-more", "f.x/r0")), Err(Rule::FlavorsOfGroup));
    assert_eq!(full, before);
    let mut many = ResourceGroups(vec![big_group("a", 1, 32), big_group("b", 1, 32)]);
    assert_eq!(many.extend(&cell("one-more", "a.x/r0")), Err(Rule::TooManyReported));
    many.extend(&cell("a0", "x/new")).expect("a resource adds no flavor");
}

#[test]
fn a_text_stays_while_its_value_does() {
    let cpu = resource("cpu");
    let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"])]);
    groups.0[0].flavors[0].resources[0].nominal = Written::parse("1000m", &cpu).expect("a quantity");
    let text = |groups: &ResourceGroups| groups.0[0].flavors[0].resources[0].nominal.text().to_owned();
    set(&mut groups, &cell("a", "cpu"), 1000, None);
    assert_eq!(text(&groups), "1000m");
    set(&mut groups, &cell("a", "cpu"), 2000, None);
    assert_eq!(text(&groups), "2");
}

#[test]
fn a_quantity_is_read_as_kueue_reads_it() {
    let (cpu, gpu) = (resource("cpu"), resource("nvidia.com/gpu"));
    let read = |text, resource| Written::parse(text, resource).map(|written| written.amount());
    assert_eq!(read("0.1m", &cpu), Ok(Amount::new(1)));
    assert_eq!(read("1e30", &gpu), Ok(Amount::MAX));
    assert_eq!(read("1e300", &gpu), Ok(Amount::MAX));
    assert!(matches!(read("-1", &gpu), Err(QuantityError::Negative(_))));
    assert!(matches!(read("many", &gpu), Err(QuantityError::Syntax(_))));
}

#[test]
fn a_worker_has_the_hub_order_and_only_what_its_claim_names() {
    let hub =
        ResourceGroups(vec![group(&["x/gpu", "cpu", "memory"], &["b", "a", "c"]), group(&["y"], &["d"])]);
    let quota = |nominal| Quota { nominal: Amount::new(nominal), ..Quota::default() };
    let cells = BTreeMap::from([
        (cell("a", "cpu"), quota(4000)),
        (cell("a", "x/gpu"), quota(2)),
        (cell("b", "x/gpu"), quota(1)),
    ]);
    let worker = hub.for_worker(&cells);
    let mut expected = ResourceGroups(vec![group(&["x/gpu", "cpu"], &["b", "a"])]);
    expected.set_cells(&cells);
    assert_eq!(worker, expected);
    assert_eq!(worker.cell(&cell("b", "cpu")).map(|quota| quota.nominal.amount()), Some(Amount::ZERO));
    assert_eq!(worker.validate(false), Ok(()));
}
