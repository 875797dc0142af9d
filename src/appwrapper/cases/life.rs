//! Whole lives of AppWrappers, each turn decided by [`lifecycle`](crate::lifecycle) in a cluster of a few lines.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{annotations, components, packed, read};
use crate::{
    api::{AppWrapper, AppWrapperStatus},
    autopilot::NodeHealth,
    conditions::{self, FALSE, TRUE},
    config::{AppWrapperConfig, FaultTolerance},
    duration::GoDuration,
    lifecycle::{CreateFailure, Outcome, Removal, Task, Turn, Wait},
    names::{
        FINALIZER,
        condition::{DELETING_RESOURCES, PODS_READY, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY},
    },
    observed_pod::ObservedPod,
    running,
    tolerance::Tolerance,
};

#[derive(Deserialize)]
struct Lives {
    lives: Vec<Life>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Life {
    #[serde(default)]
    upstream: String,
    components: Vec<String>,
    settings: FaultTolerance,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    managed_by: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    #[serde(rename = "do", default)]
    act: Act,
    #[serde(default)]
    see: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Act {
    suspend: Option<bool>,
    pods: Option<Vec<Vec<Value>>>,
    wait: Option<String>,
    refuse: Option<usize>,
    forbid: Option<usize>,
    conditions: Option<BTreeMap<String, String>>,
    gone: Option<usize>,
    evict: bool,
    delete: bool,
}

/// A cluster of one AppWrapper.
struct World {
    wrapper: AppWrapper,
    now: Timestamp,
    config: AppWrapperConfig,
    pods: Vec<(usize, String, i32)>,
    job_conditions: BTreeMap<usize, String>,
    /// Components that are there.
    there: Vec<bool>,
    evicting: bool,
    event: String,
    waits: Option<String>,
}

impl World {
    fn new(life: &Life) -> Self {
        let mut wrapper = AppWrapper::default();
        wrapper.metadata.namespace = Some("default".to_owned());
        wrapper.metadata.name = Some("aw".to_owned());
        wrapper.metadata.annotations = Some(annotations(&life.annotations));
        wrapper.spec.components = packed(&components(&life.components));
        wrapper.spec.suspend = true;
        wrapper.spec.managed_by.clone_from(&life.managed_by);
        let config =
            AppWrapperConfig { fault_tolerance: life.settings.clone(), ..AppWrapperConfig::default() };
        Self {
            there: vec![false; life.components.len()],
            wrapper,
            config,
            now: "2026-11-23T00:00:00Z".parse().expect("a time"),
            pods: Vec::new(),
            job_conditions: BTreeMap::new(),
            evicting: false,
            event: String::new(),
            waits: None,
        }
    }

    fn happen(&mut self, act: &Act) {
        self.wrapper.spec.suspend = act.suspend.unwrap_or(self.wrapper.spec.suspend);
        if let Some(wait) = &act.wait {
            self.now += GoDuration::parse(wait).expect("a duration").as_signed();
        }
        for (index, condition) in act.conditions.iter().flatten() {
            self.job_conditions.insert(index.parse().expect("an index"), condition.clone());
        }
        if let Some(index) = act.gone {
            self.there[index] = false;
        }
        if act.delete {
            self.wrapper.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-11-23T00:00:00Z")).expect("a time");
        }
        self.evicting |= act.evict;
    }

    fn turn(&mut self, act: &Act) {
        let wrapper = self.wrapper.clone();
        let tolerance = Tolerance::of(wrapper.metadata.annotations.as_ref(), &self.config.fault_tolerance);
        let turn = Turn { wrapper: &wrapper, tolerance: &tolerance, now: self.now };
        self.event.clear();
        let outcome = match turn.task() {
            Task::Wait(wait) => return self.rest(wait),
            Task::AddFinalizer => return self.wrapper.metadata.finalizers = Some(vec![FINALIZER.to_owned()]),
            Task::DropFinalizer => return self.wrapper.metadata.finalizers = None,
            Task::Write(outcome) => *outcome,
            Task::Create => {
                let (status, result) = self.create(act);
                turn.after_create(status, result)
            }
            Task::Look => {
                let (components, pods) = self.look(&tolerance);
                turn.after_look(&components, &pods)
            }
            Task::Remove(status) => turn.after_removal(self.remove(*status)),
        };
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        self.event = outcome.notes.into_iter().map(|note| note.text).collect();
        self.wrapper.status = Some(outcome.status);
        self.rest(outcome.wait);
    }

    fn rest(&mut self, wait: Wait) {
        self.waits = match wait {
            Wait::ForEvent => None,
            Wait::Until(when) => Some(format!("{}s", when.duration_since(self.now).as_secs())),
        };
    }

    fn create(&mut self, act: &Act) -> (AppWrapperStatus, Result<(), CreateFailure>) {
        let mut status = self.wrapper.status.clone().expect("a status");
        for (index, component) in self.wrapper.spec.components.iter().enumerate() {
            let of = &mut status.component_status[index];
            let template = component.template.read().expect("JSON");
            let text = |key: &str| template[key].as_str().expect("text").to_owned();
            (of.api_version, of.kind, of.name) = (text("apiVersion"), text("kind"), format!("c{index}"));
            if act.refuse == Some(index) || act.forbid == Some(index) {
                let fatal = act.refuse == Some(index);
                return (status, Err(CreateFailure { message: "refused".to_owned(), fatal }));
            }
            conditions::set(&mut of.conditions, RESOURCES_DEPLOYED, (TRUE, "Created", ""), self.now);
            self.there[index] = true;
        }
        (status, Ok(()))
    }

    fn look(&self, tolerance: &Tolerance) -> (Vec<running::Component>, running::Pods) {
        let status = &self.wrapper.status.as_ref().expect("a status").component_status;
        let found = |index: usize| {
            let condition =
                self.job_conditions.get(&index).map(|type_| json!([{"type": type_, "status": "True"}]));
            let object = json!({"metadata": {}, "status": {"conditions": condition}});
            self.there[index].then(|| serde_json::from_value(object).expect("an object"))
        };
        let components: Vec<_> = status
            .iter()
            .enumerate()
            .map(|(index, status)| running::component(status, found(index).as_ref()))
            .collect();
        let pods: Vec<Box<ObservedPod>> = self.pods.iter().map(|pod| Box::new(self.pod(pod))).collect();
        let mut health = NodeHealth::default();
        if self.evicting {
            let label = ("autopilot.ibm.com/gpuhealth".to_owned(), "EVICT".to_owned());
            health.learn("node", &BTreeMap::from([label]), self.config.autopilot.as_ref().expect("on"));
        }
        let sum = running::pods(status, &components, &pods, tolerance, &health);
        (components, sum)
    }

    fn pod(&self, (of, phase, code): &(usize, String, i32)) -> ObservedPod {
        let owner =
            self.wrapper.status.as_ref().map(|status| &status.component_status[*of]).expect("a status");
        let pod = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": "", "controller": true},
            ]},
            "spec": {"nodeName": "node", "containers": [
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ]},
            "status": {"phase": phase, "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code}},
            }]},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    /// The first look tells all to go, the second finds nothing.
    fn remove(&mut self, mut status: AppWrapperStatus) -> Removal {
        let done = !self.there.contains(&true);
        self.there.fill(false);
        self.pods.clear();
        for component in &mut status.component_status {
            let gone = (FALSE, crate::names::component::DELETED, "");
            conditions::clear(&mut component.conditions, RESOURCES_DEPLOYED, gone.1, gone.2, self.now);
        }
        Removal { status, done }
    }

    fn seen(&self, what: &str, expected: &Value) -> Value {
        let status = self.wrapper.status.clone().unwrap_or_default();
        let condition = |type_: &str| {
            let found = conditions::find(&status.conditions, type_);
            let by_reason = expected.as_str().is_some_and(|text| !["True", "False"].contains(&text));
            json!(found.map(|one| if by_reason { &one.reason } else { &one.status }))
        };
        match what {
            "phase" => json!(status.phase.word()),
            "deployed" => condition(RESOURCES_DEPLOYED),
            "quota" => condition(QUOTA_RESERVED),
            "ready" => condition(PODS_READY),
            "unhealthy" => condition(UNHEALTHY),
            "deleting" => condition(DELETING_RESOURCES),
            "resets" => json!(status.resetting_count),
            "finalizer" => {
                json!(self.wrapper.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()))
            }
            "event" => json!(self.event),
            "waits" => json!(self.waits),
            "pods" => json!(self.pods.len()),
            other => panic!("nobody sees {other}"),
        }
    }
}

/// Component, phase and, where it matters, exit code.
fn pod_of(pod: &[Value]) -> (usize, String, i32) {
    let number = |index: usize| pod.get(index).and_then(Value::as_i64).unwrap_or_default();
    let phase = pod[1].as_str().expect("a phase").to_owned();
    (usize::try_from(number(0)).expect("an index"), phase, i32::try_from(number(2)).expect("a code"))
}

#[test]
fn appwrappers_live_as_upstreams_do() {
    for (number, life) in read::<Lives>(include_str!("lifecycle.yaml")).lives.iter().enumerate() {
        let mut world = World::new(life);
        for (index, step) in life.steps.iter().enumerate() {
            world.happen(&step.act);
            if let Some(pods) = &step.act.pods {
                world.pods = pods.iter().map(|pod| pod_of(pod)).collect();
            }
            world.turn(&step.act);
            for (what, expected) in &step.see {
                let seen = world.seen(what, expected);
                let place = format!(
                    "life {number} ({}), step {index}: {what}\n{:#?}",
                    life.upstream, world.wrapper.status
                );
                if what == "event" {
                    let part = expected.as_str().expect("text");
                    assert!(seen.as_str().expect("text").contains(part), "{place}\nevent: {seen}");
                } else {
                    assert_eq!(&seen, expected, "{place}");
                }
            }
        }
    }
}
