//! Which field of a JSON object has which number: `generated.proto` of `k8s.io/api/core/v1` and of
//! `k8s.io/apimachinery`, for the messages that are served. Fields stand by number, as they are written.

use serde_json::{Map, Value};

use super::Message;

pub(super) struct Field {
    pub number: u32,
    pub name: &'static str,
    pub shape: Shape,
    pub presence: Presence,
}

#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    Integer,
    Flag,
    /// RFC 3339 in JSON, seconds since 1970 here.
    Time,
    /// Any JSON, kept as its text.
    Json,
    Message(&'static [Field]),
    /// From text to text; by key.
    Texts,
    /// From text to a quantity; by key.
    Quantities,
    /// From text to bytes, which JSON has in base64; by key.
    Blobs,
}

#[derive(Clone, Copy)]
pub(super) enum Presence {
    /// Written also when it is absent or empty: what is no pointer in Go.
    Always,
    /// A pointer, a map: absent when there is none.
    Set,
    /// Once for each item of an array.
    Each,
}

use Presence::{Always, Each, Set};

const fn field(number: u32, name: &'static str, shape: Shape, presence: Presence) -> Field {
    Field { number, name, shape, presence }
}

const fn text(number: u32, name: &'static str) -> Field {
    field(number, name, Shape::Text, Always)
}

const fn integer(number: u32, name: &'static str, presence: Presence) -> Field {
    field(number, name, Shape::Integer, presence)
}

const fn flag(number: u32, name: &'static str, presence: Presence) -> Field {
    field(number, name, Shape::Flag, presence)
}

const fn time(number: u32, name: &'static str, presence: Presence) -> Field {
    field(number, name, Shape::Time, presence)
}

const fn nested(number: u32, name: &'static str, fields: &'static [Field], presence: Presence) -> Field {
    field(number, name, Shape::Message(fields), presence)
}

pub(super) const LIST_META: &[Field] = &[
    text(1, "selfLink"),
    text(2, "resourceVersion"),
    text(3, "continue"),
    integer(4, "remainingItemCount", Set),
];

const OBJECT_META: &[Field] = &[
    text(1, "name"),
    text(2, "generateName"),
    text(3, "namespace"),
    text(4, "selfLink"),
    text(5, "uid"),
    text(6, "resourceVersion"),
    integer(7, "generation", Always),
    time(8, "creationTimestamp", Always),
    time(9, "deletionTimestamp", Set),
    integer(10, "deletionGracePeriodSeconds", Set),
    field(11, "labels", Shape::Texts, Set),
    field(12, "annotations", Shape::Texts, Set),
    nested(13, "ownerReferences", OWNER, Each),
    field(14, "finalizers", Shape::Text, Each),
    nested(17, "managedFields", MANAGED_FIELDS, Each),
];

const OWNER: &[Field] = &[
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "apiVersion"),
    flag(6, "controller", Set),
    flag(7, "blockOwnerDeletion", Set),
];

const MANAGED_FIELDS: &[Field] = &[
    text(1, "manager"),
    text(2, "operation"),
    text(3, "apiVersion"),
    time(4, "time", Set),
    text(6, "fieldsType"),
    field(7, "fieldsV1", Shape::Json, Set),
    text(8, "subresource"),
];

pub(super) const PARTIAL: &[Field] = &[nested(1, "metadata", OBJECT_META, Always)];

pub(super) const STATUS: &[Field] = &[
    nested(1, "metadata", LIST_META, Always),
    text(2, "status"),
    text(3, "message"),
    text(4, "reason"),
    nested(5, "details", STATUS_DETAILS, Set),
    integer(6, "code", Always),
];

const STATUS_DETAILS: &[Field] = &[
    text(1, "name"),
    text(2, "group"),
    text(3, "kind"),
    nested(4, "causes", &[text(1, "reason"), text(2, "message"), text(3, "field")], Each),
    integer(5, "retryAfterSeconds", Always),
    text(6, "uid"),
];

pub(super) const NAMESPACE: &[Field] = &[
    nested(1, "metadata", OBJECT_META, Always),
    nested(2, "spec", &[field(1, "finalizers", Shape::Text, Each)], Always),
    nested(3, "status", NAMESPACE_STATUS, Always),
];

const NAMESPACE_STATUS: &[Field] = &[text(1, "phase"), nested(2, "conditions", NAMESPACE_CONDITION, Each)];

const NAMESPACE_CONDITION: &[Field] = &[
    text(1, "type"),
    text(2, "status"),
    time(4, "lastTransitionTime", Always),
    text(5, "reason"),
    text(6, "message"),
];

pub(super) const SECRET: &[Field] = &[
    nested(1, "metadata", OBJECT_META, Always),
    field(2, "data", Shape::Blobs, Set),
    text(3, "type"),
    flag(5, "immutable", Set),
];

pub(super) const CONFIG_MAP: &[Field] = &[
    nested(1, "metadata", OBJECT_META, Always),
    field(2, "data", Shape::Texts, Set),
    field(3, "binaryData", Shape::Blobs, Set),
    flag(4, "immutable", Set),
];

pub(super) const NODE: &[Field] = &[
    nested(1, "metadata", OBJECT_META, Always),
    nested(2, "spec", NODE_SPEC, Always),
    nested(3, "status", NODE_STATUS, Always),
];

const NODE_SPEC: &[Field] = &[
    text(1, "podCIDR"),
    text(2, "externalID"),
    text(3, "providerID"),
    flag(4, "unschedulable", Always),
    nested(5, "taints", TAINT, Each),
    nested(6, "configSource", CONFIG_SOURCE, Set),
    field(7, "podCIDRs", Shape::Text, Each),
];

const TAINT: &[Field] = &[text(1, "key"), text(2, "value"), text(3, "effect"), time(4, "timeAdded", Set)];

const CONFIG_SOURCE: &[Field] = &[nested(2, "configMap", CONFIG_MAP_SOURCE, Set)];

const CONFIG_MAP_SOURCE: &[Field] = &[
    text(1, "namespace"),
    text(2, "name"),
    text(3, "uid"),
    text(4, "resourceVersion"),
    text(5, "kubeletConfigKey"),
];

const NODE_STATUS: &[Field] = &[
    field(1, "capacity", Shape::Quantities, Set),
    field(2, "allocatable", Shape::Quantities, Set),
    text(3, "phase"),
    nested(4, "conditions", NODE_CONDITION, Each),
    nested(5, "addresses", &[text(1, "type"), text(2, "address")], Each),
    nested(6, "daemonEndpoints", DAEMON_ENDPOINTS, Always),
    nested(7, "nodeInfo", NODE_INFO, Always),
    nested(8, "images", IMAGE, Each),
    field(9, "volumesInUse", Shape::Text, Each),
    nested(10, "volumesAttached", &[text(1, "name"), text(2, "devicePath")], Each),
    nested(11, "config", NODE_CONFIG, Set),
    nested(12, "runtimeHandlers", RUNTIME_HANDLER, Each),
    nested(13, "features", &[flag(1, "supplementalGroupsPolicy", Set)], Set),
    field(14, "declaredFeatures", Shape::Text, Each),
];

const NODE_CONDITION: &[Field] = &[
    text(1, "type"),
    text(2, "status"),
    time(3, "lastHeartbeatTime", Always),
    time(4, "lastTransitionTime", Always),
    text(5, "reason"),
    text(6, "message"),
];

const DAEMON_ENDPOINTS: &[Field] = &[nested(1, "kubeletEndpoint", &[integer(1, "Port", Always)], Always)];

const NODE_INFO: &[Field] = &[
    text(1, "machineID"),
    text(2, "systemUUID"),
    text(3, "bootID"),
    text(4, "kernelVersion"),
    text(5, "osImage"),
    text(6, "containerRuntimeVersion"),
    text(7, "kubeletVersion"),
    text(8, "kubeProxyVersion"),
    text(9, "operatingSystem"),
    text(10, "architecture"),
    nested(11, "swap", &[integer(1, "capacity", Set)], Set),
];

const IMAGE: &[Field] = &[field(1, "names", Shape::Text, Each), integer(2, "sizeBytes", Always)];

const NODE_CONFIG: &[Field] = &[
    nested(1, "assigned", CONFIG_SOURCE, Set),
    nested(2, "active", CONFIG_SOURCE, Set),
    nested(3, "lastKnownGood", CONFIG_SOURCE, Set),
    text(4, "error"),
];

const RUNTIME_HANDLER: &[Field] = &[text(1, "name"), nested(2, "features", RUNTIME_FEATURES, Set)];

const RUNTIME_FEATURES: &[Field] = &[flag(1, "recursiveReadOnlyMounts", Set), flag(2, "userNamespaces", Set)];

const SELF_SUBJECT_REVIEW: &[Field] = &[nested(1, "metadata", OBJECT_META, Always)];

const SELF_SUBJECT_ACCESS_REVIEW: &[Field] =
    &[nested(1, "metadata", OBJECT_META, Always), nested(2, "spec", ACCESS, Always)];

const SELF_SUBJECT_RULES_REVIEW: &[Field] =
    &[nested(1, "metadata", OBJECT_META, Always), nested(2, "spec", &[text(1, "namespace")], Always)];

const ACCESS: &[Field] = &[
    nested(1, "resourceAttributes", RESOURCE_ATTRIBUTES, Set),
    nested(2, "nonResourceAttributes", &[text(1, "path"), text(2, "verb")], Set),
];

const RESOURCE_ATTRIBUTES: &[Field] = &[
    text(1, "namespace"),
    text(2, "verb"),
    text(3, "group"),
    text(4, "version"),
    text(5, "resource"),
    text(6, "subresource"),
    text(7, "name"),
];

/// Of what clients send.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    match (api_version, kind) {
        ("authentication.k8s.io/v1", "SelfSubjectReview") => Some(SELF_SUBJECT_REVIEW),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => Some(SELF_SUBJECT_ACCESS_REVIEW),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => Some(SELF_SUBJECT_RULES_REVIEW),
        _ => super::ProtoKind::of(api_version, kind).map(super::ProtoKind::fields),
    }
}

/// `object` as the message that `fields` describe.
pub(super) fn message(fields: &[Field], object: &Value) -> Vec<u8> {
    let write = |message: Message, field: &Field| field.write(message, &object[field.name]);
    fields.iter().fold(Message::default(), write).0
}

impl Field {
    fn write(&self, message: Message, value: &Value) -> Message {
        match self.presence {
            Set if value.is_null() => message,
            Always | Set => self.write_one(message, value),
            Each => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                items.iter().fold(message, |message, item| self.write_one(message, item))
            }
        }
    }

    fn write_one(&self, message: Message, value: &Value) -> Message {
        let number = self.number;
        match self.shape {
            Shape::Text => message.text(number, value.as_str().unwrap_or_default()),
            // Negative numbers take ten bytes, in two's complement.
            Shape::Integer => message.number(number, value.as_i64().unwrap_or_default().cast_unsigned()),
            Shape::Flag => message.number(number, value.as_bool().unwrap_or_default().into()),
            Shape::Time => message.bytes(number, &timestamp(value)),
            Shape::Json => message.bytes(number, &Message::default().text(1, &value.to_string()).0),
            Shape::Message(fields) => message.bytes(number, &self::message(fields, value)),
            Shape::Texts => entries(value).fold(message, |message, (key, value)| {
                message.pair(number, key, value.as_str().unwrap_or_default())
            }),
            Shape::Blobs => entries(value).fold(message, |message, (key, value)| {
                let bytes = super::super::from_base64(value.as_str().unwrap_or_default()).unwrap_or_default();
                message.bytes(number, &Message::default().text(1, key).bytes(2, &bytes).0)
            }),
            Shape::Quantities => entries(value).fold(message, |message, (key, value)| {
                let quantity = Message::default().text(1, &quantity(value)).0;
                message.bytes(number, &Message::default().text(1, key).bytes(2, &quantity).0)
            }),
        }
    }
}

/// Seconds and no fraction, which Kubernetes leaves out; nothing when there is no time.
fn timestamp(value: &Value) -> Vec<u8> {
    let time = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let seconds =
        |time: jiff::Timestamp| Message::default().number(1, time.as_second().cast_unsigned()).number(2, 0).0;
    time.map(seconds).unwrap_or_default()
}

/// Quantities may be plain numbers in JSON.
fn quantity(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "0".to_owned(),
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let mut entries: Vec<_> = value.as_object().into_iter().flat_map(Map::iter).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries.into_iter()
}
