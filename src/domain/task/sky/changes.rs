//! Fields that are given beside a file and win over it. They are put into the tree before it is read, so
//! that they are checked, and told of, like those that are written there.

use serde::{Deserialize, Serialize};

use crate::task::{
    render::PRIORITY_LABEL,
    yaml::{Key, Node, Scalar, Value},
};

/// What is not given stays as the file has it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Changes {
    pub name: Option<String>,
    pub num_nodes: Option<String>,
    pub workdir: Option<String>,
    /// A number, or the name of a WorkloadPriorityClass.
    pub priority: Option<String>,
    pub disk_size: Option<String>,
    pub max_duration: Option<String>,
    // Those below hold for every form the task may take.
    pub infra: Option<String>,
    pub accelerators: Option<String>,
    pub cpus: Option<String>,
    pub memory: Option<String>,
    pub use_spot: Option<String>,
    pub image: Option<String>,
}

/// A field, and others of the file that say the same.
type Given<'a> = (&'static str, &'static [&'static str], &'a str);

impl Changes {
    fn of_the_task(&self) -> Vec<Given<'_>> {
        given([
            ("name", &[], &self.name),
            ("num_nodes", &[], &self.num_nodes),
            ("workdir", &[], &self.workdir),
            ("max_duration", &[], &self.max_duration),
        ])
    }

    /// Of `resources`, whatever form the task takes.
    fn of_the_job(&self) -> Vec<Given<'_>> {
        let number = self.priority.as_ref().is_some_and(|text| text.trim().parse::<i64>().is_ok());
        let (field, other): (_, &[_]) =
            if number { ("priority", &["priority_class"]) } else { ("priority_class", &["priority"]) };
        given([(field, other, &self.priority), ("disk_size", &[], &self.disk_size)])
    }

    fn of_each_form(&self) -> Vec<Given<'_>> {
        given([
            ("infra", &["cloud", "region", "zone"], &self.infra),
            ("accelerators", &["gpus"], &self.accelerators),
            ("cpus", &[], &self.cpus),
            ("memory", &[], &self.memory),
            ("use_spot", &[], &self.use_spot),
            ("image_id", &[], &self.image),
        ])
    }

    pub(super) fn apply(&self, task: &mut Node) {
        let Value::Map(fields) = &mut task.value else { return };
        for field in self.of_the_task() {
            set(fields, field);
        }
        let (of_the_job, of_each_form) = (self.of_the_job(), self.of_each_form());
        if of_the_job.is_empty() && of_each_form.is_empty() {
            return;
        }
        if !fields.iter().any(|(key, node)| &*key.text == "resources" && !node.is_null()) {
            fields.retain(|(key, _)| &*key.text != "resources");
            fields.push((key("resources"), Node { place: None, value: Value::Map(Vec::new()) }));
        }
        let resources = fields.iter_mut().find(|(key, _)| &*key.text == "resources");
        let Some((_, Node { value: Value::Map(resources), .. })) = resources else { return };
        for (key, node) in resources.iter_mut() {
            if let ("any_of" | "ordered", Value::List(forms)) = (&*key.text, &mut node.value) {
                for form in forms {
                    let Value::Map(fields) = &mut form.value else { continue };
                    for field in &of_each_form {
                        leave_out(fields, field);
                    }
                    for field in fields {
                        self.leave_out_label(field);
                    }
                }
            }
        }
        for field in resources.iter_mut() {
            self.leave_out_label(field);
        }
        for field in of_the_job.into_iter().chain(of_each_form) {
            set(resources, field);
        }
    }
}

impl Changes {
    /// A priority may stand among the labels of Kueue.
    fn leave_out_label(&self, (key, node): &mut (Key, Node)) {
        if let ("labels", Value::Map(labels), Some(_)) = (&*key.text, &mut node.value, &self.priority) {
            labels.retain(|(key, _)| &*key.text != PRIORITY_LABEL);
        }
    }
}

fn given<'a, const N: usize>(
    fields: [(&'static str, &'static [&'static str], &'a Option<String>); N],
) -> Vec<Given<'a>> {
    let given =
        fields.into_iter().filter_map(|(field, others, text)| Some((field, others, text.as_deref()?)));
    given.collect()
}

fn leave_out(fields: &mut Vec<(Key, Node)>, &(field, others, _): &Given<'_>) {
    fields.retain(|(key, _)| &*key.text != field && !others.contains(&&*key.text));
}

fn set(fields: &mut Vec<(Key, Node)>, given: Given<'_>) {
    leave_out(fields, &given);
    let (field, _, text) = given;
    // Not plain: a home is `~`, which is nothing where it stands plainly in YAML.
    let value = Value::Scalar(Scalar { text: text.into(), plain: false });
    fields.push((key(field), Node { place: None, value }));
}

fn key(text: &str) -> Key {
    Key { text: text.into(), place: None }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Options, TaskFileError, read_file, sources},
        *,
    };
    use crate::task::spec::{Candidate, Priority, TaskSpec};

    fn read(text: &str, changes: Changes) -> Result<TaskSpec, TaskFileError> {
        let options = Options { changes, ..Options::default() };
        Ok(read_file(text.as_bytes(), &options)?.tasks.remove(0).spec)
    }

    #[test]
    fn what_is_given_beside_the_file_wins() {
        let text = "name: a\nnum_nodes: 2\nrun: x\nresources:\n  gpus: A100:1\n  image_id: old\n  any_of:\n  - accelerators: V100:4\n    infra: k8s/one\n  - infra: k8s/two\n";
        let changes = Changes {
            name: Some("b".to_owned()),
            num_nodes: Some("4".to_owned()),
            accelerators: Some("H100:8".to_owned()),
            image: Some("docker:new".to_owned()),
            ..Changes::default()
        };
        let spec = read(text, changes.clone()).expect("a task");
        assert_eq!((spec.name.as_deref(), spec.num_nodes, spec.candidates.len()), (Some("b"), 4, 2));
        for form in &spec.candidates {
            let accelerator = form.accelerator.as_ref().expect("one");
            assert_eq!((accelerator.kind.as_deref(), accelerator.count), (Some("H100"), 8));
            assert_eq!(form.image.as_deref(), Some("new"));
            assert!(form.cluster.is_some());
        }
        let anywhere = Candidate { cluster: None, ..spec.candidates[0].clone() };
        assert_eq!(read("run: x\nresources:\n", changes).expect("a task").candidates, [anywhere]);
    }

    #[test]
    fn each_field_of_skypilots_command_line_wins_in_every_form() {
        let text = "run: x\nworkdir: /old\nresources:\n  cloud: aws\n  region: us-east-1\n  cpus: 2\n  priority_class: low\n  labels: {kueue.x-k8s.io/priority-class: low}\n  any_of:\n  - {cpus: 4, memory: 8, infra: gcp}\n  - {use_spot: true, zone: a, labels: {kueue.x-k8s.io/priority-class: low}}\n";
        let some = |text: &str| Some(text.to_owned());
        let changes = Changes {
            priority: some("7"),
            infra: some("k8s/one"),
            cpus: some("16+"),
            memory: some("64"),
            use_spot: some("false"),
            ..Changes::default()
        };
        let spec = read(text, changes).expect("a task");
        assert_eq!(spec.priority, Some(Priority::Value(7)));
        let [form] = spec.candidates.as_slice() else {
            panic!("both are the same now: {:?}", spec.candidates)
        };
        let plain = read(
            "run: x\nresources: {infra: k8s/one, cpus: 16+, memory: 64, use_spot: false}\n",
            Changes::default(),
        );
        assert_eq!(*form, plain.expect("a task").candidates[0]);
        for here in ["~", "null", "/home/ann/project"] {
            let options = Options {
                changes: Changes { workdir: some(here), ..Changes::default() },
                ..Options::default()
            };
            assert_eq!(sources(b"run: x\nworkdir: old\n", &options), [here], "it is sent");
        }
        let high = Changes { priority: some("high"), ..Changes::default() };
        let spec = read("run: x\nresources: {priority: 3}\n", high).expect("a task");
        assert_eq!(spec.priority, Some(Priority::Class("high".to_owned())));
    }

    #[test]
    fn it_is_checked_as_if_it_were_written_there() {
        for (changes, path) in [
            (Changes { num_nodes: Some("0".to_owned()), ..Changes::default() }, "num_nodes"),
            (Changes { num_nodes: Some("10000".to_owned()), ..Changes::default() }, "num_nodes"),
            (Changes { name: Some("a\u{7}".to_owned()), ..Changes::default() }, "name"),
            (Changes { max_duration: Some("0".to_owned()), ..Changes::default() }, "max_duration"),
            (Changes { max_duration: Some("soon".to_owned()), ..Changes::default() }, "max_duration"),
            (
                Changes { accelerators: Some("H100:x".to_owned()), ..Changes::default() },
                "resources.accelerators",
            ),
            (Changes { cpus: Some("many".to_owned()), ..Changes::default() }, "resources.cpus"),
            (
                Changes { priority: Some("so high".to_owned()), ..Changes::default() },
                "resources.priority_class",
            ),
            (Changes { priority: Some("3000000000".to_owned()), ..Changes::default() }, "resources.priority"),
            (Changes { infra: Some("k8s/A B".to_owned()), ..Changes::default() }, "resources.infra"),
        ] {
            let error = read("run: x\n", changes).expect_err("refused");
            assert_eq!(error.notes()[0].path, path, "{error}");
        }
    }
}
