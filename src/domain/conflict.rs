//! Who keeps changing what fedq writes into a queue, and what to put into their configuration so that they leave it alone.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use fedq_values::ids::{ClusterName, QueueName};

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
/// configuration, or, where it is no program that fedq knows, what to tell it, as comments. `cells` are those that fedq
/// writes.
pub fn remedy<'a>(
    writers: &Writers,
    queue: &QueueName,
    groups: &ResourceGroups,
    cells: impl IntoIterator<Item = &'a FlavorResource>,
) -> String {
    let cells: BTreeSet<&FlavorResource> = cells.into_iter().collect();
    let fields = fields(groups, &cells);
    if writers.0.is_empty() {
        return other("whoever writes it", queue, &fields);
    }
    let documents = writers.0.iter().map(|manager| match Program::of(manager) {
        Program::ArgoCd => argo_cd(manager, queue, &fields),
        Program::Flux => flux(manager, queue, &fields),
        Program::Other => other(&format!("`{manager}`"), queue, &fields),
    });
    documents.collect::<Vec<_>>().join("---\n")
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
  name: {queue}
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
    let mut text = format!(
        "# `{manager}` is Flux. Into the `spec` of the Kustomization that has ClusterQueue `{queue}`.
# The paths count places: append flavors and resources in Git. To insert, reorder or remove some, take these lines out in that
# commit, and put in those that fedq prints then.
ignore:
- target:
    kind: ClusterQueue
    name: {queue}
  paths:
"
    );
    if MAX_PATHS < fields.len() {
        text.push_str("  - /spec/resourceGroups\n");
    } else {
        for field in fields {
            let _ = writeln!(text, "  - {}", field.pointer());
        }
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
    use fedq_values::{
        ids::{FlavorName, ResourceName},
        quantity::Amount,
    };

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

    fn told(managers: &[&str], cells: &[FlavorResource]) -> String {
        let writers: Writers = managers.iter().copied().collect();
        remedy(&writers, &QueueName::new("team-a").unwrap(), &groups(), cells)
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
}
