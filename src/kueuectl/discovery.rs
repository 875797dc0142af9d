//! Which resources a server has.

use http::Method;
use serde_json::Value;

use crate::{
    api::{Api, Call, JSON},
    error::Error,
    resource::{Resource, path_of},
    session::text,
};

/// Every group in one answer; servers before 1.27 give a list without resources.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// The resources of one `group/version`, or none where the server has no such version.
pub async fn resources_of(api: &Api, api_version: &str) -> Result<Option<Vec<Value>>, Error> {
    match api.call(&Call::get(path_of(api_version, &[]), String::new())).await {
        Ok(list) => Ok(Some(list["resources"].as_array().cloned().unwrap_or_default())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The resource of a kind that an owner reference names.
pub async fn of_kind(api: &Api, api_version: &str, kind: &str) -> Result<Resource, Error> {
    let resources = resources_of(api, api_version).await?.unwrap_or_default();
    let found =
        resources.iter().find(|entry| text(entry, "/kind") == kind && !text(entry, "/name").contains('/'));
    let Some(entry) = found else {
        return Err(Error::said(format!("no matches for kind {kind:?} in version {api_version:?}")));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Ok(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: text(entry, "/name").to_owned(),
        kind: kind.to_owned(),
        namespaced: entry["namespaced"] == true,
    })
}

/// The resource that `TYPE[.VERSION][.GROUP]` names: a plural, a singular or a short name.
pub async fn named(api: &Api, word: &str) -> Result<Resource, Error> {
    let word = word.to_lowercase();
    let all = everything(api).await?;
    let mut parts = word.splitn(3, '.');
    if let (Some(name), Some(version), Some(group)) = (parts.next(), parts.next(), parts.next()) {
        let full = all.iter().find(|found| found.answers(name, group) && found.resource.version == version);
        if let Some(found) = full {
            return Ok(found.resource.clone());
        }
    }
    let (name, group) = word.split_once('.').unwrap_or((&word, ""));
    let found = all.into_iter().find(|found| found.answers(name, group));
    let found = found.map(|found| found.resource);
    found.ok_or_else(|| Error::said(format!("no matches for {group}/, Resource={name}")))
}

struct Found {
    resource: Resource,
    names: Vec<String>,
}

impl Found {
    fn answers(&self, name: &str, group: &str) -> bool {
        self.resource.group.starts_with(group) && self.names.iter().any(|known| known == name)
    }
}

/// Core first, then groups by the server's order, each with its preferred version first.
async fn everything(api: &Api) -> Result<Vec<Found>, Error> {
    let mut all = Vec::new();
    for root in ["/api", "/apis"] {
        let call = Call {
            method: Method::GET,
            accept: AGGREGATED,
            content: JSON,
            ..Call::get(root.to_owned(), String::new())
        };
        let groups = api.call(&call).await?;
        for group in groups["items"].as_array().into_iter().flatten() {
            for version in group["versions"].as_array().into_iter().flatten() {
                let resources = version["resources"].as_array().into_iter().flatten();
                all.extend(
                    resources
                        .map(|entry| found(text(group, "/metadata/name"), text(version, "/version"), entry)),
                );
            }
        }
    }
    Ok(all)
}

fn found(group: &str, version: &str, entry: &Value) -> Found {
    let short = entry["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let own = [text(entry, "/resource"), text(entry, "/singularResource")];
    Found {
        names: own.into_iter().chain(short).map(str::to_owned).collect(),
        resource: Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: own[0].to_owned(),
            kind: text(entry, "/responseKind/kind").to_owned(),
            namespaced: entry["scope"] == "Namespaced",
        },
    }
}
