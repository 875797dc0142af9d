//! Which flavors have the nodes a task names: accelerators, instance types, spot.
//!
//! Clusters say it by labels of their nodes, each provider by its own; Kueue's flavors repeat them.

use std::collections::{BTreeMap, BTreeSet};

use super::view::{FlavorView, GroupView};
use fedq_values::ids::ResourceName;

pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const SPOT: [(&str, &str); 5] = [
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-provisioning", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
];
/// Labels whose value names the accelerator.
const ACCELERATOR: [&str; 7] = [
    "skypilot.co/accelerator",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
];

/// What pods ask for by label: any of the values.
pub type Terms = BTreeMap<String, BTreeSet<String>>;

const RESOURCES: [&str; 4] = ["google.com/tpu", "amd.com/gpu", "habana.ai/gaudi", "nvidia.com/gpu"];

/// Whether it is one that [`resource`] gives.
pub fn is_accelerator(resource: &ResourceName) -> bool {
    RESOURCES.contains(&resource.as_str())
}

/// Whether it counts accelerators of whatever make, slices of them (MIG, partitions) or shares in them (time slices).
pub fn is_of_accelerators(resource: &ResourceName) -> bool {
    let Some((vendor, device)) = resource.as_str().split_once('/') else { return false };
    is_accelerator(resource)
        || match vendor {
            "nvidia.com" => device.starts_with("mig-") || device.ends_with(".shared"),
            // `cpx_nps4`, where its device plugin names partitions by their kind.
            "amd.com" => device.contains("_nps"),
            // Others of its names count memory and thousandths.
            "gpu.intel.com" => matches!(device, "i915" | "xe"),
            _ => false,
        }
}

/// The resource by which a kind of accelerator is asked for.
pub fn resource(kind: Option<&str>) -> ResourceName {
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let name = match kind.as_str() {
        kind if kind.starts_with("tpu") => RESOURCES[0],
        kind if kind.starts_with("mi") && kind[2..].starts_with(|c: char| c.is_ascii_digit()) => RESOURCES[1],
        kind if kind.starts_with("gaudi") => RESOURCES[2],
        _ => RESOURCES[3],
    };
    ResourceName::new(name).expect("a constant resource name is valid")
}

/// The labels by which the flavor's nodes are known to have the accelerator; `None`: they have not.
pub fn accelerator(kind: &str, flavor: &FlavorView) -> Option<Terms> {
    let by_label = flavor
        .node_labels
        .iter()
        .filter(|(key, value)| {
            ACCELERATOR.contains(&key.as_str()) && names(value, kind) && !is_another(value, kind)
        })
        .map(term)
        .collect::<Terms>();
    if !by_label.is_empty() {
        return Some(by_label);
    }
    // A flavor whose labels say nothing of accelerators may be named after one.
    let told = flavor.node_labels.keys().any(|key| ACCELERATOR.contains(&key.as_str()));
    (!told && names(flavor.name.as_str(), kind)).then(|| flavor.node_labels.iter().map(term).collect())
}

/// What tells the nodes of the flavors apart, each `label: value` once.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Told {
    /// Of labels that name accelerators.
    pub accelerators: Vec<String>,
    /// Of all others.
    pub others: Vec<String>,
    /// Devices that nodes of the flavors are known to have, as `nvidia.com/gpu`.
    pub devices: Vec<String>,
}

pub fn told(group: &GroupView) -> Told {
    let labels: BTreeSet<_> = group.flavors.iter().flat_map(|flavor| &flavor.node_labels).collect();
    let (accelerators, others): (Vec<_>, Vec<_>) =
        labels.into_iter().partition(|(key, _)| ACCELERATOR.contains(&key.as_str()));
    let texts = |labels: Vec<(&String, &String)>| {
        labels.into_iter().map(|(key, value)| format!("{key}: {value}")).collect()
    };
    let resources = group.flavors.iter().flat_map(|flavor| flavor.largest_node.keys());
    // Kubernetes' own resources have no domain before their name.
    let devices: BTreeSet<&str> =
        resources.map(ResourceName::as_str).filter(|name| name.contains('/')).collect();
    Told {
        accelerators: texts(accelerators),
        others: texts(others),
        devices: devices.into_iter().map(str::to_owned).collect(),
    }
}

fn term((key, value): (&String, &String)) -> (String, BTreeSet<String>) {
    (key.clone(), BTreeSet::from([value.clone()]))
}

/// Parts of a product's name that make it another product, where they are not asked for: no RTX 6000 is an RTX 6000 Ada,
/// and a slice of an A100 is none, nor is one that others use at the same time (`-SHARED`, as GPU feature discovery says of
/// time slices) or a virtual one (`GRID-A100-10C`).
const ANOTHER: [&str; 10] = ["ada", "d", "grid", "laptop", "mega", "mig", "pro", "shared", "super", "ti"];
/// What SkyPilot writes together and NVIDIA's drivers, after which GPU feature discovery labels nodes, do not:
/// `RTX4090`, `RTXPRO6000`.
const SERIES: [&str; 3] = ["rtx", "gtx", "pro"];

/// Whether `text` (`NVIDIA-A100-SXM4-80GB`) has every part of `kind` (`A100-80GB`).
fn names(text: &str, kind: &str) -> bool {
    let (text, kind) = (parts(text), parts(kind));
    let has = |part: &String| match part.as_str() {
        "sxm" => is_sxm(&text),
        part => text.iter().any(|found| found == part),
    };
    !kind.is_empty() && kind.iter().all(has)
}

fn is_another(text: &str, kind: &str) -> bool {
    let kind = parts(kind);
    parts(text).iter().any(|part| ANOTHER.contains(&part.as_str()) && !kind.contains(part))
}

/// From Hopper on, NVIDIA names the form of a card only where it is another.
fn is_sxm(text: &[String]) -> bool {
    let has = |parts: &[&str]| text.iter().any(|part| parts.contains(&part.as_str()));
    text.iter().any(|part| part.starts_with("sxm")) || has(&["h100", "h200"]) && !has(&["pcie", "nvl"])
}

fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in text.split(['-', '_', '.', ' ']) {
        let part = part.to_ascii_lowercase();
        let mut rest = part.as_str();
        for series in SERIES {
            if let Some(model) = rest.strip_prefix(series).filter(|model| !model.is_empty()) {
                parts.push(series.to_owned());
                rest = model;
            }
        }
        // `3080Ti`
        let model = rest.strip_suffix("super").or_else(|| rest.strip_suffix("ti"));
        match model.filter(|model| model.ends_with(|c: char| c.is_ascii_digit())) {
            Some(model) => parts.extend([model.to_owned(), rest[model.len()..].to_owned()]),
            None if rest.is_empty() => {}
            None => parts.push(rest.to_owned()),
        }
    }
    parts
}

/// Whether any flavor of the group says which instance type it has.
pub fn knows_instance_types(group: &GroupView) -> bool {
    group.flavors.iter().any(|flavor| flavor.node_labels.contains_key(INSTANCE_TYPE))
}

pub fn instance_type(kind: &str, flavor: &FlavorView) -> Option<Terms> {
    let value = flavor.node_labels.get(INSTANCE_TYPE).filter(|value| *value == kind)?;
    Some(Terms::from([(INSTANCE_TYPE.to_owned(), BTreeSet::from([value.clone()]))]))
}

pub fn knows_spot(group: &GroupView) -> bool {
    group.flavors.iter().any(|flavor| spot(flavor).is_some())
}

pub fn spot(flavor: &FlavorView) -> Option<Terms> {
    let labels = SPOT.iter().filter(|(key, value)| {
        flavor.node_labels.get(*key).is_some_and(|found| found.eq_ignore_ascii_case(value))
    });
    let terms: Terms = labels
        .filter_map(|(key, _)| {
            Some(((*key).to_owned(), BTreeSet::from([flavor.node_labels.get(*key)?.clone()])))
        })
        .collect();
    (!terms.is_empty()).then_some(terms)
}

/// Labels of spot nodes, as every provider writes them and as these flavors do: pods that refuse them get no spot node, also
/// of a flavor that says nothing of it.
pub fn spot_labels<'a>(flavors: impl IntoIterator<Item = &'a FlavorView>) -> Terms {
    let known = SPOT.map(|(key, value)| (key.to_owned(), BTreeSet::from([value.to_owned()])));
    let mut labels = Terms::from(known);
    for (key, values) in flavors.into_iter().filter_map(spot).flatten() {
        labels.entry(key).or_default().extend(values);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Resources;
    use fedq_values::ids::FlavorName;

    fn flavor(name: &str, labels: &[(&str, &str)]) -> FlavorView {
        FlavorView {
            name: FlavorName::new(name).expect("a name"),
            node_labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            taints: Vec::new(),
            cells: BTreeMap::new(),
            largest_node: Resources::new(),
        }
    }

    #[test]
    fn accelerators_are_known_by_every_provider_s_label() {
        for (kind, key, value, matches) in [
            ("H100", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", true),
            ("h100", "skypilot.co/accelerator", "h100", true),
            ("A100-80GB", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", true),
            ("A100-80GB", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", false),
            ("L4", "cloud.google.com/gke-accelerator", "nvidia-l4", true),
            ("L4", "cloud.google.com/gke-accelerator", "nvidia-l40s", false),
            ("H100", "unrelated", "h100", false),
        ] {
            let terms = accelerator(kind, &flavor("f", &[(key, value)]));
            assert_eq!(terms.is_some(), matches, "{kind} {value}");
            assert_eq!(terms.is_some_and(|terms| terms[key].contains(value)), matches);
        }
    }

    /// SkyPilot's names are those of its `sky/utils/gpu_names.py` and of its catalogs; the labels are names that NVIDIA's
    /// drivers give, with `-` for blanks, as GPU feature discovery sets `nvidia.com/gpu.product`, and Google's.
    const PRODUCTS: [(&str, &[&str]); 30] = [
        ("GB200", &["NVIDIA-GB200"]),
        ("B200", &["NVIDIA-B200"]),
        ("GH200", &["NVIDIA-GH200-480GB"]),
        ("H200", &["NVIDIA-H200", "NVIDIA-H200-NVL", "nvidia-h200-141gb"]),
        ("H200-SXM", &["NVIDIA-H200", "nvidia-h200-141gb"]),
        ("H100", &["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL", "nvidia-h100-80gb"]),
        ("H100-80GB", &["NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb"]),
        ("H100-SXM", &["NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb"]),
        ("H100-NVL", &["NVIDIA-H100-NVL"]),
        ("H100-MEGA", &["nvidia-h100-mega-80gb"]),
        (
            "A100",
            &[
                "NVIDIA-A100-SXM4-40GB",
                "NVIDIA-A100-PCIE-40GB",
                "NVIDIA-A100-SXM4-80GB",
                "NVIDIA-A100-80GB-PCIe",
            ],
        ),
        ("A100-80GB", &["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]),
        ("A100-80GB-SXM", &["NVIDIA-A100-SXM4-80GB"]),
        ("A10G", &["NVIDIA-A10G"]),
        ("A10", &["NVIDIA-A10"]),
        ("A40", &["NVIDIA-A40"]),
        ("L40S", &["NVIDIA-L40S"]),
        ("L40", &["NVIDIA-L40"]),
        ("L4", &["NVIDIA-L4", "nvidia-l4"]),
        ("A6000", &["NVIDIA-RTX-A6000"]),
        ("RTXA6000", &["NVIDIA-RTX-A6000"]),
        ("RTX6000", &["Quadro-RTX-6000"]),
        ("RTX6000-Ada", &["NVIDIA-RTX-6000-Ada-Generation"]),
        ("RTXPRO6000", &["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"]),
        ("RTX4090", &["NVIDIA-GeForce-RTX-4090"]),
        ("RTX3080", &["NVIDIA-GeForce-RTX-3080"]),
        ("RTX3080Ti", &["NVIDIA-GeForce-RTX-3080-Ti"]),
        ("V100-32GB", &["Tesla-V100-SXM2-32GB"]),
        ("T4", &["Tesla-T4", "nvidia-tesla-t4"]),
        ("K80", &["Tesla-K80", "nvidia-tesla-k80"]),
    ];
    /// Of none of the above.
    const OTHERS: [&str; 8] = [
        "GRID-A100-10C",
        "NVIDIA-A100-SXM4-80GB-SHARED",
        "NVIDIA-GeForce-RTX-4090-D",
        "NVIDIA-GeForce-RTX-4090-Laptop-GPU",
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "NVIDIA-GeForce-RTX-4080-SUPER",
        "NVIDIA-T4G",
    ];

    #[test]
    fn each_of_skypilots_names_means_its_products_and_no_other() {
        let all: BTreeSet<&str> =
            PRODUCTS.iter().flat_map(|(_, labels)| *labels).copied().chain(OTHERS).collect();
        for (kind, labels) in PRODUCTS {
            for label in &all {
                let found = accelerator(kind, &flavor("f", &[("nvidia.com/gpu.product", label)])).is_some();
                assert_eq!(found, labels.contains(label), "{kind} and {label}");
            }
        }
    }

    #[test]
    fn a_flavor_may_be_named_after_its_accelerator() {
        let named = flavor("gpu-h100", &[("pool", "a")]);
        assert_eq!(accelerator("H100", &named).map(|terms| terms.contains_key("pool")), Some(true));
        // Its labels know better.
        assert_eq!(accelerator("H100", &flavor("h100", &[("gpu.nvidia.com/class", "A100")])), None);
    }

    #[test]
    fn kinds_have_their_resource() {
        for (kind, name) in [
            (None, "nvidia.com/gpu"),
            (Some("H100"), "nvidia.com/gpu"),
            (Some("MI300X"), "amd.com/gpu"),
            (Some("Mixed"), "nvidia.com/gpu"),
            (Some("tpu-v5e"), "google.com/tpu"),
            (Some("Gaudi2"), "habana.ai/gaudi"),
            (Some("m"), "nvidia.com/gpu"),
            (Some("mi"), "nvidia.com/gpu"),
        ] {
            assert_eq!(resource(kind).as_str(), name, "{kind:?}");
        }
    }

    #[test]
    fn spot_is_told_by_the_provider() {
        assert!(spot(&flavor("f", &[("eks.amazonaws.com/capacityType", "SPOT")])).is_some());
        let on_demand = flavor("f", &[("eks.amazonaws.com/capacityType", "ON_DEMAND")]);
        assert!(spot(&on_demand).is_none());
        let odd = flavor("g", &[("karpenter.sh/capacity-type", "Spot")]);
        let labels = spot_labels([&on_demand, &odd]);
        assert_eq!(labels.len(), SPOT.len());
        assert_eq!(labels["eks.amazonaws.com/capacityType"], BTreeSet::from(["SPOT".to_owned()]));
        assert_eq!(
            labels["karpenter.sh/capacity-type"],
            BTreeSet::from(["Spot".to_owned(), "spot".to_owned()]),
            "Kueue and the scheduler compare letter by letter"
        );
    }
}
