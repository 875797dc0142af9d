//! Runs every `tasks/*.yaml`: a task file in; what is warned of, where it would run and the objects made of it
//! out, as the `.txt` beside it says.
//!
//! `UPDATE_EXPECT=1 cargo test --test tasks` rewrites what the files expect.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use fedq_domain::{
    resources::Resources,
    task::{
        choose::{
            Outcome, Placement, Verdict, Weights, Wish, choose,
            verdict::Offer,
            view::{Access, CellView, ClusterView, FlavorView, GroupView, QueueView, View, VolumeView},
        },
        names::TaskId,
        render::{Gang, Order, Tenant, render},
        sky::{self, Allowed, Options},
        spec::{NewTask, Priority},
        tenant::PodRules,
    },
};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use jiff::Timestamp;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tasks");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    assert!(!files.is_empty(), "there are task files");
    let trial = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Trial::test(name, move || run(&path))
    };
    libtest_mimic::run(&arguments, files.into_iter().map(trial).collect()).exit();
}

fn run(path: &Path) -> Result<(), Failed> {
    let found = told(&fs::read(path)?);
    let expected_path = path.with_extension("txt");
    let expected = fs::read_to_string(&expected_path).unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(expected_path, found)?;
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expected, &found);
    Err(diff.unified_diff().header("expected", "found").to_string().into())
}

fn told(text: &[u8]) -> String {
    let mut told = String::new();
    let device = |name: &str| ResourceName::new(name).unwrap();
    let pods = PodRules {
        resources: [device("rdma/hca")].into(),
        capabilities: ["IPC_LOCK".to_owned()].into(),
        host_network: true,
    };
    let options = Options { pods: Allowed::By(pods), ..Options::default() };
    let file = match sky::read_file(text, &options) {
        Ok(file) => file,
        Err(error) => {
            told.push_str("refused:\n");
            for note in error.notes() {
                writeln!(told, "- {note}").unwrap();
            }
            return told;
        }
    };
    if let Some(name) = &file.name {
        writeln!(told, "pipeline: {name}").unwrap();
    }
    if !file.warnings.is_empty() {
        told.push_str("warnings:\n");
    }
    for warning in &file.warnings {
        writeln!(told, "- {warning}").unwrap();
    }
    for (index, task) in file.tasks.iter().enumerate() {
        print_task(&mut told, index, task);
    }
    told
}

fn print_task(told: &mut String, index: usize, new: &NewTask) {
    let task = &new.spec;
    writeln!(told, "task {index}:").unwrap();
    let queue = task.queue.clone().unwrap_or_else(|| "default".to_owned());
    let wish = Wish { queue: Some(queue), ..Wish::default() };
    let choice = choose(task, &wish, &view(), Weights::default());
    for (cluster, verdict) in &choice.verdicts {
        print_verdict(told, cluster, verdict);
    }
    match &choice.outcome {
        Outcome::Run(placement) => {
            writeln!(told, "chosen: {} ({})", placement.cluster, if placement.now { "now" } else { "later" })
                .unwrap();
            print_objects(told, new, placement);
        }
        Outcome::Wait => told.push_str("waits for a cluster that is away\n"),
        Outcome::Limited(excess) => writeln!(told, "{excess}").unwrap(),
        Outcome::Never => told.push_str("never fits\n"),
    }
}

fn print_verdict(told: &mut String, cluster: &ClusterName, verdict: &Verdict) {
    let mut offer = |word: &str, offer: &Offer| {
        writeln!(told, "- {cluster}: {word}").unwrap();
        for number in &offer.numbers {
            let text = |amount: Amount| amount.text(&number.resource);
            writeln!(
                told,
                "    {} of {}: needs {}, available {} of at most {}",
                number.resource,
                number.flavor,
                text(number.needed),
                text(number.available),
                text(number.ceiling)
            )
            .unwrap();
        }
        for field in &offer.unmet {
            writeln!(told, "    no flavor tells by {field}").unwrap();
        }
    };
    match verdict {
        Verdict::Fits(found) => offer("fits", found),
        Verdict::Waits(found) => offer("would wait", found),
        Verdict::Away(_, found) => offer("away", found),
        Verdict::Never(obstacles) => {
            for obstacle in obstacles {
                writeln!(told, "- {cluster}: never: {obstacle}").unwrap();
            }
        }
    }
}

fn print_objects(told: &mut String, new: &NewTask, placement: &Placement) {
    let task = &new.spec;
    let id = TaskId::parse("1a2b3c4d").unwrap();
    let tenant = Tenant { namespace: "team".to_owned(), service_account: Some("runner".to_owned()) };
    let gangs: &[Gang] = match task.num_nodes {
        _ if task.is_app_wrapper() => &[Gang::AppWrapper],
        1 => &[Gang::PerNode],
        _ => &[Gang::PerNode, Gang::Indexed, Gang::JobSet],
    };
    for gang in gangs {
        let objects = render(&Order {
            id: &id,
            epoch: 1,
            hub_id: "hub-uid",
            owner: "user@example.com",
            submitted: "2025-10-05T12:34:56.789012Z".parse::<Timestamp>().unwrap(),
            spec: task,
            secrets: &new.secrets,
            uploads: &[],
            placement,
            gang: *gang,
            tenant: &tenant,
            priority_class: task.priority.as_ref().map(|priority| match priority {
                Priority::Class(class) => class.as_str(),
                Priority::Value(_) => "by-value",
            }),
            by_multikueue: false,
            default_image: "python:3.13-slim",
        });
        writeln!(told, "objects ({gang:?}):").unwrap();
        for object in objects {
            // YAML shows a script as the lines that it has.
            writeln!(told, "---\n{}", serde_saphyr::to_string(&object).unwrap().trim_end()).unwrap();
        }
    }
}

/// `busy` has A100s, most of them taken; `free` has H100s, some of them spot, the volume, and cards for RDMA beside the H100s.
fn view() -> View {
    let gpus = |nominal, reserved| ("nvidia.com/gpu", nominal, reserved);
    let product = "nvidia.com/gpu.product";
    View {
        clusters: vec![
            cluster("busy", &[flavor("a100", &[(product, "NVIDIA-A100-SXM4-80GB")], gpus(16, 14))]),
            ClusterView {
                volumes: BTreeMap::from([(
                    "data-vol".to_owned(),
                    VolumeView { claim: "data-vol-0a1b2c3d".to_owned(), shared: true, read_only: false },
                )]),
                ..cluster(
                    "free",
                    &[
                        flavor(
                            "h100-spot",
                            &[(product, "NVIDIA-H100-80GB-HBM3"), ("karpenter.sh/capacity-type", "spot")],
                            gpus(8, 0),
                        ),
                        with_rdma(flavor("h100", &[(product, "NVIDIA-H100-80GB-HBM3")], gpus(32, 8)), 16),
                    ],
                )
            },
        ],
    }
}

fn cluster(name: &str, flavors: &[FlavorView]) -> ClusterView {
    let queue = |local: &str| QueueView {
        local: local.to_owned(),
        queue: QueueName::new("research").unwrap(),
        active: true,
        pending: 0,
        groups: vec![GroupView { flavors: flavors.to_vec() }],
    };
    ClusterView {
        name: ClusterName::new(name).unwrap(),
        access: Access::Ready,
        queues: vec![queue("default"), queue("research")],
        promised: [].into(),
        volumes: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
    }
}

fn with_rdma(mut flavor: FlavorView, count: i64) -> FlavorView {
    let cell = CellView::new(Amount::new(count), None, None, Amount::ZERO, None);
    flavor.cells.insert(ResourceName::new("rdma/hca").unwrap(), cell);
    flavor
}

fn flavor(name: &str, labels: &[(&str, &str)], gpus: (&str, i64, i64)) -> FlavorView {
    let cells = [("cpu", 512_000, 0), ("memory", 2 << 40, 0), gpus];
    let cell = |(name, nominal, reserved): (&str, i64, i64)| {
        let amount = Amount::new;
        let cell = CellView::new(amount(nominal), None, None, amount(reserved), None);
        (ResourceName::new(name).unwrap(), cell)
    };
    FlavorView {
        name: FlavorName::new(name).unwrap(),
        node_labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: Vec::new(),
        cells: cells.into_iter().map(cell).collect(),
        largest_node: Resources::from([(ResourceName::new("nvidia.com/gpu").unwrap(), Amount::new(8))]),
    }
}
