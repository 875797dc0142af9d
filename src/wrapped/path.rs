//! Paths into a component: `template`, then `.field` and `[index]`, such as `template.spec.replicatedJobs[0].template`.

use serde_json::Value;

/// The component itself.
pub const ROOT: &str = "template";

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathError {
    #[error("first element of the path must be 'template'")]
    Root,
    #[error("at path position '{0}' invalid path element '{1}'")]
    Element(String, String),
    #[error("at path position '{0}' missing field '{1}'")]
    Missing(String, String),
    #[error("at path position '{0}' non-map value")]
    NoMap(String),
    #[error("at path position '{0}' found non-array value")]
    NoArray(String),
    #[error("at path position '{0}' out of bounds index '{1}'")]
    OutOfBounds(String, usize),
    #[error("at path position '{0}' non-int value {1}")]
    NoInteger(String, Value),
}

enum Step<'p> {
    Field(&'p str),
    Index(usize),
}

/// Each step with the text of the path up to it, which errors name.
fn steps(path: &str) -> Result<Vec<(&str, Step<'_>)>, PathError> {
    let mut rest = path.strip_prefix(ROOT).ok_or(PathError::Root)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let before = &path[..path.len() - rest.len()];
        let invalid = || PathError::Element(before.to_owned(), rest.to_owned());
        let step = if let Some(inside) = rest.strip_prefix('[') {
            let (index, after) = inside.split_once(']').ok_or_else(invalid)?;
            rest = after;
            Step::Index(index.parse().map_err(|_| PathError::Element(before.to_owned(), index.to_owned()))?)
        } else {
            let inside = rest.strip_prefix('.').ok_or_else(invalid)?;
            let end = inside.find(['.', '[']).unwrap_or(inside.len());
            let (field, after) = inside.split_at(end);
            rest = after;
            Step::Field(field)
        };
        steps.push((before, step));
    }
    Ok(steps)
}

pub fn get<'v>(object: &'v Value, path: &str) -> Result<&'v Value, PathError> {
    let mut value = object;
    for (before, step) in steps(path)? {
        value = match step {
            Step::Field(name) => {
                let map = value.as_object().ok_or_else(|| PathError::NoMap(before.to_owned()))?;
                map.get(name).ok_or_else(|| PathError::Missing(before.to_owned(), name.to_owned()))?
            }
            Step::Index(index) => {
                let array = value.as_array().ok_or_else(|| PathError::NoArray(before.to_owned()))?;
                array.get(index).ok_or_else(|| PathError::OutOfBounds(before.to_owned(), index))?
            }
        };
    }
    Ok(value)
}

pub fn get_mut<'v>(object: &'v mut Value, path: &str) -> Result<&'v mut Value, PathError> {
    get(object, path)?;
    let steps = steps(path)?;
    let pointer: String = steps.iter().fold(String::new(), |pointer, (_, step)| match step {
        Step::Field(name) => format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")),
        Step::Index(index) => format!("{pointer}/{index}"),
    });
    object.pointer_mut(&pointer).ok_or(PathError::Root)
}

/// A whole number.
pub fn integer(object: &Value, path: &str) -> Result<i32, PathError> {
    let value = get(object, path)?;
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| PathError::NoInteger(path.to_owned(), value.clone()))
}

/// The number there, or 1 where there is none.
pub fn replicas(object: &Value, path: &str) -> Result<i32, PathError> {
    match get(object, path) {
        Ok(Value::Null) | Err(PathError::Missing(..)) => Ok(1),
        Ok(_) => integer(object, path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_its_value_or_says_where_it_ends() {
        let object = json!({"spec": {"jobs": [{"n": 1}, {"n": "x"}], "a/b": 2}});
        for (path, found) in [
            ("template", Ok(object.clone())),
            ("template.spec.jobs[0].n", Ok(json!(1))),
            ("template.spec.a/b", Ok(json!(2))),
            ("spec", Err("first element of the path must be 'template'")),
            ("template.spec.missing", Err("at path position 'template.spec' missing field 'missing'")),
            ("template.spec.jobs.n", Err("at path position 'template.spec.jobs' non-map value")),
            ("template.spec[0]", Err("at path position 'template.spec' found non-array value")),
            ("template.spec.jobs[7]", Err("at path position 'template.spec.jobs' out of bounds index '7'")),
            (
                "template.spec.jobs[-1]",
                Err("at path position 'template.spec.jobs' invalid path element '-1'"),
            ),
            (
                "template.spec.jobs[a1]",
                Err("at path position 'template.spec.jobs' invalid path element 'a1'"),
            ),
            ("template.spec.jobs[1", Err("at path position 'template.spec.jobs' invalid path element '[1'")),
            (
                "template.spec.jobs[1]]",
                Err("at path position 'template.spec.jobs[1]' invalid path element ']'"),
            ),
            ("templates", Err("at path position 'template' invalid path element 's'")),
        ] {
            let seen = get(&object, path).cloned().map_err(|error| error.to_string());
            assert_eq!(seen, found.map_err(str::to_owned), "{path}");
            let mut copy = object.clone();
            assert_eq!(get_mut(&mut copy, path).ok().cloned(), get(&object, path).ok().cloned());
        }
        assert_eq!(replicas(&object, "template.spec.replicas"), Ok(1));
        assert_eq!(replicas(&object, "template.spec.jobs[0].n"), Ok(1));
        assert!(replicas(&object, "template.spec.jobs[1].n").is_err());
    }
}
