//! Fields that are given beside a file and win over it. They are put into the tree before it is read, so
//! that they are checked, and told of, like those that are written there.

use serde::{Deserialize, Serialize};

use crate::task::yaml::{Key, Node, Scalar, Value};

/// What is not given stays as the file has it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Changes {
    pub name: Option<String>,
    pub num_nodes: Option<String>,
    /// In every form the task may take.
    pub accelerators: Option<String>,
    pub image: Option<String>,
}

impl Changes {
    pub(super) fn apply(&self, task: &mut Node) {
        let Value::Map(fields) = &mut task.value else { return };
        for (field, text) in [("name", &self.name), ("num_nodes", &self.num_nodes)] {
            if let Some(text) = text {
                set(fields, field, &[], text);
            }
        }
        if self.accelerators.is_none() && self.image.is_none() {
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
                    self.leave_to_the_outer(form);
                }
            }
        }
        if let Some(text) = &self.accelerators {
            set(resources, "accelerators", &["gpus"], text);
        }
        if let Some(text) = &self.image {
            set(resources, "image_id", &[], text);
        }
    }

    fn leave_to_the_outer(&self, form: &mut Node) {
        let Value::Map(fields) = &mut form.value else { return };
        fields.retain(|(key, _)| match &*key.text {
            "accelerators" | "gpus" => self.accelerators.is_none(),
            "image_id" => self.image.is_none(),
            _ => true,
        });
    }
}

fn set(fields: &mut Vec<(Key, Node)>, field: &str, aliases: &[&str], text: &str) {
    fields.retain(|(key, _)| &*key.text != field && !aliases.contains(&&*key.text));
    let value = Value::Scalar(Scalar { text: text.into(), plain: !text.is_empty() });
    fields.push((key(field), Node { place: None, value }));
}

fn key(text: &str) -> Key {
    Key { text: text.into(), place: None }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Options, TaskFileError, read_file},
        *,
    };
    use crate::task::spec::{Candidate, TaskSpec};

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
    fn it_is_checked_as_if_it_were_written_there() {
        for (changes, path) in [
            (Changes { num_nodes: Some("0".to_owned()), ..Changes::default() }, "num_nodes"),
            (Changes { num_nodes: Some("10000".to_owned()), ..Changes::default() }, "num_nodes"),
            (Changes { name: Some("a\u{7}".to_owned()), ..Changes::default() }, "name"),
            (
                Changes { accelerators: Some("H100:x".to_owned()), ..Changes::default() },
                "resources.accelerators",
            ),
        ] {
            let error = read("run: x\n", changes).expect_err("refused");
            assert_eq!(error.notes()[0].path, path, "{error}");
        }
    }
}
