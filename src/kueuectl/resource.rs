//! Kinds of objects, and where an API server keeps them.

use http::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;

use crate::{
    api::{Api, Call, JSON, MERGE_PATCH},
    error::Error,
};

/// A kind, as discovery or Kueue's API describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
}

pub const GROUP: &str = "kueue.x-k8s.io";
pub const VERSION: &str = "v1beta2";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DryRun {
    None,
    Client,
    Server,
}

impl Resource {
    pub fn cluster_queue() -> Self {
        Self::kueue("clusterqueues", "ClusterQueue", false)
    }

    pub fn local_queue() -> Self {
        Self::kueue("localqueues", "LocalQueue", true)
    }

    pub fn resource_flavor() -> Self {
        Self::kueue("resourceflavors", "ResourceFlavor", false)
    }

    pub fn workload() -> Self {
        Self::kueue("workloads", "Workload", true)
    }

    pub fn core(plural: &str, kind: &str, namespaced: bool) -> Self {
        let (group, version) = (String::new(), "v1".to_owned());
        Self { group, version, plural: plural.to_owned(), kind: kind.to_owned(), namespaced }
    }

    fn kueue(plural: &str, kind: &str, namespaced: bool) -> Self {
        let (group, version) = (GROUP.to_owned(), VERSION.to_owned());
        Self { group, version, plural: plural.to_owned(), kind: kind.to_owned(), namespaced }
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `jobs.batch`, as messages name it.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// In every namespace where `namespace` is empty.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let mut segments = vec![self.plural.as_str()];
        if self.namespaced && !namespace.is_empty() {
            segments.splice(..0, ["namespaces", namespace]);
        }
        segments.extend((!name.is_empty()).then_some(name));
        path_of(&self.api_version(), &segments)
    }

    fn about(&self, name: &str) -> String {
        if name.is_empty() { self.full_name() } else { format!("{} {name}", self.full_name()) }
    }

    pub async fn get(&self, api: &Api, namespace: &str, name: &str) -> Result<Value, Error> {
        check_name(name)?;
        api.call(&Call::get(self.path(namespace, name), self.about(name))).await
    }

    pub async fn list(&self, api: &Api, namespace: &str, query: &[(&str, &str)]) -> Result<Value, Error> {
        let path = self.path(namespace, "") + &query_text(query);
        api.call(&Call::get(path, self.about(""))).await
    }

    pub async fn create(&self, api: &Api, object: &Value, dry_run: DryRun) -> Result<Value, Error> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = self.path(namespace, "") + &dry_run.query();
        api.call(&Call { method: Method::POST, body: Some(object), ..Call::get(path, self.about("")) }).await
    }

    pub async fn patch(
        &self,
        api: &Api,
        (namespace, name): (&str, &str),
        patch: &Value,
        dry_run: DryRun,
    ) -> Result<Value, Error> {
        check_name(name)?;
        let path = self.path(namespace, name) + &dry_run.query();
        let call = Call::get(path, self.about(name));
        api.call(&Call { method: Method::PATCH, content: MERGE_PATCH, body: Some(patch), ..call }).await
    }

    /// The object as it was read, and not if anybody has changed it since. What it owns goes after it.
    pub async fn delete_as_it_is(&self, api: &Api, object: &Value) -> Result<(), Error> {
        let metadata = &object["metadata"];
        let [namespace, name] = ["namespace", "name"].map(|key| metadata[key].as_str().unwrap_or_default());
        check_name(name)?;
        let only = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "preconditions": only,
        });
        let call = Call::get(self.path(namespace, name), self.about(name));
        let call = Call { method: Method::DELETE, content: JSON, body: Some(&options), ..call };
        api.call(&call).await.map(|_| ())
    }

    /// `uid` is checked by the server: another object of the same name is left alone.
    pub async fn delete(
        &self,
        api: &Api,
        (namespace, name): (&str, &str),
        uid: Option<&str>,
        dry_run: DryRun,
    ) -> Result<(), Error> {
        check_name(name)?;
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(uid) = uid {
            options["preconditions"] = json!({"uid": uid});
        }
        let path = self.path(namespace, name) + &dry_run.query();
        let call = Call::get(path, self.about(name));
        api.call(&Call { method: Method::DELETE, content: JSON, body: Some(&options), ..call })
            .await
            .map(|_| ())
    }
}

impl DryRun {
    fn query(self) -> String {
        query_text(&[("dryRun", if self == Self::Server { "All" } else { "" })])
    }
}

/// As client-go checks a name that is to be part of a path. Without a name the path is that of all objects.
fn check_name(name: &str) -> Result<(), Error> {
    let invalid = match name {
        "" => return Err(Error::said("resource name may not be empty")),
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('/') => "may not contain '/'".to_owned(),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return Ok(()),
    };
    Err(Error::said(format!("invalid resource name {name:?}: [{invalid}]")))
}

/// The path of something in a `group/version`, or a `version` of the core. No segment can end it or add another one.
pub fn path_of(api_version: &str, segments: &[&str]) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let all = api_version.split('/').chain(segments.iter().copied());
    all.fold(root.to_owned(), |path, segment| path + "/" + &encoded(segment))
}

pub fn query_text(query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = query
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={}", encoded(value)))
        .collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}
