//! Who keeps changing what fedq writes into a queue, and what to put into their configuration so that they leave it alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use fedq_values::ids::{ClusterName, FlavorName, QueueName};

use super::{resource_groups::ResourceGroups, resources::FlavorResource};

/// Names of field managers, as an object's `managedFields` have them. None: somebody whom the object does not name.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Writers(BTreeSet<String>);

impl Writers {
    pub fn insert(&mut self, manager: &str) {
        self.0.insert(manager.to_owned());
    }

    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl<S: Into<String>> FromIterator<S> for Writers {
    fn from_iter<T: IntoIterator<Item = S>>(managers: T) -> Self {
        Self(managers.into_iter().map(Into::into).collect())
    }
}

/// As messages name them.
impl fmt::Display for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("someone");
        }
        for (place, manager) in self.0.iter().enumerate() {
            let before = match place {
                0 => "",
                _ if place + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}`{manager}`")?;
        }
        Ok(())
    }
}

/// How far people put a list of fields into a configuration before one that covers them all is the better one.
const MAX_PATHS: usize = 64;

/// What ends the conflict over a queue of the hub: for each of the writers a document of YAML that is pasted into its
/// configuration, or, where it is no program that fedq knows, what to tell it, as comments. `found` is what the queue has
/// now, as they wrote it; `cells` are those that fedq writes.
pub fn remedy<'a>(
    writers: &Writers,
    queue: &QueueName,
    found: &ResourceGroups,
    cells: impl IntoIterator<Item = &'a FlavorResource>,
) -> String {
    let cells: BTreeSet<&FlavorResource> = cells.into_iter().collect();
    let (there, missing): (BTreeSet<_>, BTreeSet<_>) =
        cells.into_iter().partition(|cell| found.cell(cell).is_some());
    let text = to_add(queue, &missing);
    let fields = fields(found, &there);
    if fields.is_empty() && !text.is_empty() {
        return text;
    }
    if writers.0.is_empty() {
        return text + &other("whoever writes it", queue, &fields);
    }
    let documents = writers.0.iter().map(|manager| match Program::of(manager) {
        Program::ArgoCd => argo_cd(manager, queue, &fields),
        Program::Flux => flux(manager, queue, &fields),
        Program::Other => other(&format!("`{manager}`"), queue, &fields),
    });
    text + &documents.collect::<Vec<_>>().join("---\n")
}

/// The same for the queue that fedq made on a worker: nobody else has a reason to write it.
pub fn remedy_on_worker(writers: &Writers, queue: &QueueName, cluster: &ClusterName) -> String {
    format!(
        "take ClusterQueue `{queue}` out of what {writers} writes on `{cluster}`: fedq makes it there, as the hub has it"
    )
}

/// The same for the Cohort that the quota of a hub's queue stands in.
pub fn remedy_in_cohort(writers: &Writers, cohort: &str) -> String {
    format!("take Cohort `{cohort}` out of what {writers} writes: fedq makes it, with its queue's quota")
}

enum Program {
    ArgoCd,
    Flux,
    Other,
}

impl Program {
    /// By the field manager that each calls itself as long as nobody configures another.
    fn of(manager: &str) -> Self {
        match manager {
            "argocd-controller" | "argocd-application-controller" => Self::ArgoCd,
            "kustomize-controller" => Self::Flux,
            _ => Self::Other,
        }
    }
}

/// A field of a queue that fedq writes.
struct Field {
    group: usize,
    flavor: usize,
    resource: usize,
    name: &'static str,
}

impl Field {
    /// As RFC 6901 has it.
    fn pointer(&self) -> String {
        let Self { group, flavor, resource, name } = self;
        format!("/spec/resourceGroups/{group}/flavors/{flavor}/resources/{resource}/{name}")
    }
}

fn fields(groups: &ResourceGroups, cells: &BTreeSet<&FlavorResource>) -> Vec<Field> {
    let mut fields = Vec::new();
    for (group, quotas) in groups.0.iter().enumerate() {
        for (flavor, quotas) in quotas.flavors.iter().enumerate() {
            for (resource, quota) in quotas.resources.iter().enumerate() {
                let at = FlavorResource { flavor: quotas.name.clone(), resource: quota.name.clone() };
                if !cells.contains(&at) {
                    continue;
                }
                let field = |name| Field { group, flavor, resource, name };
                fields.push(field(NOMINAL));
                // Never above the nominal quota, so it is lowered and raised with it.
                fields.extend(quota.lending.is_some().then(|| field(LENDING)));
            }
        }
    }
    fields
}

/// Cells that the writers leave out. No rule on what to ignore helps there, and a pointer of Flux' to what Git does not have
/// is an error to it.
fn to_add(queue: &QueueName, missing: &BTreeSet<&FlavorResource>) -> String {
    let mut flavors: BTreeMap<&FlavorName, Vec<String>> = BTreeMap::new();
    for FlavorResource { flavor, resource } in missing {
        flavors.entry(flavor).or_default().push(format!("`{resource}`"));
    }
    let line = |(flavor, resources): (&FlavorName, Vec<String>)| {
        format!(
            "# Append flavor `{flavor}` with {} to ClusterQueue `{queue}` there, `nominalQuota: 0`, or take it out of the claims.\n",
            resources.join(", ")
        )
    };
    flavors.into_iter().map(line).collect()
}

const NOMINAL: &str = "nominalQuota";
const LENDING: &str = "lendingLimit";

fn argo_cd(manager: &str, queue: &QueueName, fields: &[Field]) -> String {
    let mut text = format!(
        "# `{manager}` is Argo CD. Into the `spec` of the Application that has ClusterQueue `{queue}`:
syncPolicy:
  syncOptions:
  - RespectIgnoreDifferences=true
ignoreDifferences:
- group: kueue.x-k8s.io
  kind: ClusterQueue
  name: '{queue}'
  jqPathExpressions:
"
    );
    for name in [NOMINAL, LENDING] {
        if fields.iter().any(|field| field.name == name) {
            let _ = writeln!(text, "  - .spec.resourceGroups[].flavors[].resources[].{name}");
        }
    }
    text
}

fn flux(manager: &str, queue: &QueueName, fields: &[Field]) -> String {
    let by_place = fields.len() <= MAX_PATHS;
    let advice = if by_place {
        "The paths count places: append flavors and resources in Git. To insert, reorder or remove some, take these lines out in that
# commit, and put in those that fedq prints then."
    } else {
        "The queue has too many cells for a line each, so what Git says of its `resourceGroups` counts no more. To change something
# of them in Git, take these lines out in that commit, and put them in again then."
    };
    // Flux takes it for a regular expression.
    let name = queue.as_str().replace('.', "\\.");
    let mut text = format!(
        "# `{manager}` is Flux. Into the `spec` of the Kustomization that has ClusterQueue `{queue}`.
# {advice}
ignore:
- target:
    kind: ClusterQueue
    name: '{name}'
  paths:
"
    );
    if by_place {
        for field in fields {
            let _ = writeln!(text, "  - {}", field.pointer());
        }
    } else {
        text.push_str("  - /spec/resourceGroups\n");
    }
    text
}

fn other(who: &str, queue: &QueueName, fields: &[Field]) -> String {
    let mut text = format!(
        "# Let {who} leave these fields of ClusterQueue `{queue}` alone, or take their cells out of the claims:\n"
    );
    for field in fields.iter().take(MAX_PATHS) {
        let _ = writeln!(text, "# {}", field.pointer());
    }
    if MAX_PATHS < fields.len() {
        let _ = writeln!(text, "# and {} more", fields.len() - MAX_PATHS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_groups::{FlavorQuotas, ResourceGroup, ResourceQuota, Written};
    use fedq_values::{ids::ResourceName, quantity::Amount};
    use serde_json::{Value, json};

    fn at(flavor: &str, resource: &str) -> FlavorResource {
        FlavorResource {
            flavor: FlavorName::new(flavor).unwrap(),
            resource: ResourceName::new(resource).unwrap(),
        }
    }

    /// Two flavors of CPU and GPUs, the second of which lends.
    fn groups() -> ResourceGroups {
        let quota = |resource: &str, lending: Option<i64>| {
            let name = ResourceName::new(resource).unwrap();
            let written = |units| Written::of(Amount::new(units), &name);
            ResourceQuota {
                nominal: written(1),
                borrowing: None,
                lending: lending.map(written),
                name: name.clone(),
            }
        };
        let flavor = |name: &str, lending| FlavorQuotas {
            name: FlavorName::new(name).unwrap(),
            resources: vec![quota("cpu", None), quota("nvidia.com/gpu", lending)],
        };
        let covered = ["cpu", "nvidia.com/gpu"].map(|name| ResourceName::new(name).unwrap()).to_vec();
        ResourceGroups(vec![ResourceGroup {
            covered,
            flavors: vec![flavor("spot", None), flavor("kept", Some(1))],
        }])
    }

    fn writers(managers: &[&str]) -> Writers {
        managers.iter().copied().collect()
    }

    fn told(managers: &[&str], cells: &[FlavorResource]) -> String {
        remedy(&writers(managers), &QueueName::new("team-a").unwrap(), &groups(), cells)
    }

    /// As the program that they are pasted into reads them.
    fn documents(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }

    /// A queue of so many flavors of one resource each, all of them fedq's.
    fn large(flavors: usize) -> (ResourceGroups, Vec<FlavorResource>) {
        let name = ResourceName::new("cpu").unwrap();
        let cells: Vec<_> = (0..flavors).map(|n| at(&format!("f{n}"), "cpu")).collect();
        let flavor = |cell: &FlavorResource| FlavorQuotas {
            name: cell.flavor.clone(),
            resources: vec![ResourceQuota {
                nominal: Written::of(Amount::new(1), &name),
                borrowing: None,
                lending: None,
                name: name.clone(),
            }],
        };
        let group = |cells: &[FlavorResource]| ResourceGroup {
            covered: vec![name.clone()],
            flavors: cells.iter().map(flavor).collect(),
        };
        (ResourceGroups(cells.chunks(64).map(group).collect()), cells)
    }

    #[test]
    fn writers_are_named_as_people_list_them() {
        let named = |managers: &[&str]| managers.iter().copied().collect::<Writers>().to_string();
        assert_eq!(named(&[]), "someone");
        assert_eq!(named(&["helm"]), "`helm`");
        assert_eq!(named(&["helm", "argocd-controller"]), "`argocd-controller` and `helm`");
        assert_eq!(named(&["a", "b", "c"]), "`a`, `b` and `c`");
    }

    #[test]
    fn somebody_whom_the_object_does_not_name_is_told_as_well() {
        let text = told(&[], &[at("spot", "cpu")]);
        let expected = "# Let whoever writes it leave these fields of ClusterQueue `team-a` alone, or take their cells out of \
                        the claims:\n# /spec/resourceGroups/0/flavors/0/resources/0/nominalQuota\n";
        assert_eq!(text, expected);
        let mut both: Writers = ["helm"].into_iter().collect();
        both.add(["argocd-controller"].into_iter().collect());
        assert_eq!(both.to_string(), "`argocd-controller` and `helm`");
    }

    #[test]
    fn argo_cd_is_told_the_fields_that_are_written() {
        let text = told(&["argocd-controller"], &[at("spot", "nvidia.com/gpu")]);
        assert!(text.contains("  - .spec.resourceGroups[].flavors[].resources[].nominalQuota\n"), "{text}");
        assert!(!text.contains("lendingLimit"), "{text}");
        let lends = told(&["argocd-controller"], &[at("kept", "nvidia.com/gpu")]);
        assert!(lends.contains("  - .spec.resourceGroups[].flavors[].resources[].lendingLimit\n"), "{lends}");
    }

    #[test]
    fn flux_is_told_the_cells_that_are_written_and_no_others() {
        let text =
            told(&["kustomize-controller"], &[at("spot", "nvidia.com/gpu"), at("kept", "nvidia.com/gpu")]);
        let paths: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
        let expected = [
            "/spec/resourceGroups/0/flavors/0/resources/1/nominalQuota",
            "/spec/resourceGroups/0/flavors/1/resources/1/nominalQuota",
            "/spec/resourceGroups/0/flavors/1/resources/1/lendingLimit",
        ];
        assert_eq!(paths, expected, "{text}");
    }

    #[test]
    fn each_of_two_writers_has_its_own_lines_and_an_unknown_one_only_comments() {
        let text = told(&["kustomize-controller", "argocd-controller"], &[at("spot", "cpu")]);
        let documents: Vec<_> = text.split("---\n").collect();
        assert!(documents[0].contains("Application") && documents[1].contains("Kustomization"), "{text}");
        let other = told(&["terraform"], &[at("spot", "cpu")]);
        assert!(other.lines().all(|line| line.starts_with("# ")), "{other}");
        assert!(other.contains("/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"), "{other}");
    }
    #[test]
    fn what_is_pasted_names_any_queue_and_that_alone() {
        for (name, pattern) in
            [("007", "007"), ("1e3", "1e3"), ("null", "null"), ("on", "on"), ("gpu.team-a", r"gpu\.team-a")]
        {
            let queue = QueueName::new(name).unwrap();
            let of =
                |manager| documents(&remedy(&writers(&[manager]), &queue, &groups(), &[at("spot", "cpu")]));
            let argo_cd = of("argocd-controller");
            assert_eq!(argo_cd[0]["ignoreDifferences"][0]["name"], name);
            assert_eq!(argo_cd[0]["syncPolicy"]["syncOptions"], json!(["RespectIgnoreDifferences=true"]));
            let flux = of("kustomize-controller");
            assert_eq!(flux[0]["ignore"][0]["target"], json!({"kind": "ClusterQueue", "name": pattern}));
        }
        let both = documents(&told(&["kustomize-controller", "argocd-controller"], &[at("spot", "cpu")]));
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn of_more_cells_than_people_paste_flux_leaves_the_whole_list_alone() {
        let queue = QueueName::new("team-a").unwrap();
        let told = |flavors, manager| {
            let (groups, cells) = large(flavors);
            remedy(&writers(&[manager]), &queue, &groups, &cells)
        };
        let few = told(MAX_PATHS, "kustomize-controller");
        let paths = documents(&few)[0]["ignore"][0]["paths"].as_array().unwrap().clone();
        assert_eq!(paths.len(), MAX_PATHS);
        assert!(few.contains("count places"), "{few}");

        let many = told(MAX_PATHS + 1, "kustomize-controller");
        assert_eq!(documents(&many)[0]["ignore"][0]["paths"], json!(["/spec/resourceGroups"]));
        assert!(!many.contains("count places") && many.contains("counts no more"), "{many}");

        let argo_cd = told(MAX_PATHS + 1, "argocd-controller");
        let expressions = &documents(&argo_cd)[0]["ignoreDifferences"][0]["jqPathExpressions"];
        assert_eq!(*expressions, json!([".spec.resourceGroups[].flavors[].resources[].nominalQuota"]));

        let other = told(MAX_PATHS + 2, "terraform");
        let lines: Vec<_> = other.lines().collect();
        assert_eq!(lines.len(), 1 + MAX_PATHS + 1, "{other}");
        assert_eq!(lines[MAX_PATHS], "# /spec/resourceGroups/0/flavors/63/resources/0/nominalQuota");
        assert_eq!(lines[1 + MAX_PATHS], "# and 2 more");
        let second_group = told(MAX_PATHS + 1, "terraform");
        assert!(second_group.ends_with("# and 1 more\n"), "{second_group}");
    }

    #[test]
    fn a_flavor_that_they_leave_out_is_to_be_added_and_has_no_pointer() {
        let cells = [at("spot", "cpu"), at("new", "nvidia.com/gpu"), at("new", "cpu")];
        for (manager, list) in
            [("kustomize-controller", "ignore"), ("argocd-controller", "ignoreDifferences")]
        {
            let text = told(&[manager], &cells);
            let first = "# Append flavor `new` with `cpu`, `nvidia.com/gpu` to ClusterQueue `team-a` there, `nominalQuota: 0`, or \
                         take it out of the claims.\n";
            assert!(text.starts_with(first), "{text}");
            assert!(documents(&text)[0][list].is_array(), "{text}");
        }
        let flux = documents(&told(&["kustomize-controller"], &cells));
        let paths = json!(["/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"]);
        assert_eq!(flux[0]["ignore"][0]["paths"], paths);
        let alone = told(&["kustomize-controller"], &[at("new", "cpu")]);
        assert!(
            alone.lines().all(|line| line.starts_with("# Append flavor `new`")),
            "nothing to ignore: {alone}"
        );
    }

    #[test]
    fn of_what_fedq_makes_itself_nobody_else_is_told_a_rule() {
        let (queue, cluster) = (QueueName::new("team-a").unwrap(), ClusterName::new("eu-west").unwrap());
        assert_eq!(
            remedy_on_worker(&writers(&["helm"]), &queue, &cluster),
            "take ClusterQueue `team-a` out of what `helm` writes on `eu-west`: fedq makes it there, as the hub has it"
        );
        assert_eq!(
            remedy_in_cohort(&writers(&["argocd-controller", "helm"]), "fedq-team-a"),
            "take Cohort `fedq-team-a` out of what `argocd-controller` and `helm` writes: fedq makes it, with its queue's quota"
        );
        assert!(remedy_in_cohort(&Writers::default(), "fedq-team-a").contains("out of what someone writes"));
        assert!(
            remedy_on_worker(&Writers::default(), &queue, &cluster).contains("out of what someone writes")
        );
    }
}
