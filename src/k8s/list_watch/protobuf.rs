//! Nodes, walked field by field in their protobuf bytes.

use super::Malformed;

/// What capacity needs of a node, borrowed from its bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeFacts<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
    pub allocatable: Vec<(&'a str, &'a str)>,
    /// key, value, effect
    pub taints: Vec<[&'a str; 3]>,
    pub unschedulable: bool,
    pub ready: bool,
    pub deleting: bool,
}

/// The facts of a `v1.Node` message.
pub fn node(bytes: &[u8]) -> Result<NodeFacts<'_>, Malformed> {
    let _ = bytes;
    todo!()
}
