//! What the checker knows of an expression before there is a value. `Dyn` fits everything, and most of
//! an expression on a cluster is `Dyn`.

use std::fmt;

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Type {
    Dyn,
    /// A kind without parameters, by the name that [`super::value::Value::kind`] gives it.
    Kind(&'static str),
    List(Box<Type>),
    Map(Box<[Type; 2]>),
    Optional(Box<Type>),
    /// The type of a type.
    Meta(Box<Type>),
    /// Stands for one type throughout a signature.
    Parameter(char),
}

pub const NULL: Type = Type::Kind("null_type");
pub const BOOL: Type = Type::Kind("bool");
pub const INT: Type = Type::Kind("int");
pub const UINT: Type = Type::Kind("uint");
pub const DOUBLE: Type = Type::Kind("double");
pub const STRING: Type = Type::Kind("string");
pub const BYTES: Type = Type::Kind("bytes");
pub const TIMESTAMP: Type = Type::Kind("google.protobuf.Timestamp");
pub const DURATION: Type = Type::Kind("google.protobuf.Duration");

impl Type {
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new([key, value]))
    }

    pub fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of))
    }

    /// Reads what [`super::signatures`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
        Some(match text {
            "dyn" => Self::Dyn,
            "null" => NULL,
            "bool" => BOOL,
            "int" => INT,
            "uint" => UINT,
            "double" => DOUBLE,
            "string" => STRING,
            "bytes" => BYTES,
            "timestamp" => TIMESTAMP,
            "duration" => DURATION,
            "quantity" => Self::Kind("kubernetes.Quantity"),
            "semver" => Self::Kind("kubernetes.Semver"),
            "ip" => Self::Kind("net.IP"),
            "cidr" => Self::Kind("net.CIDR"),
            "url" => Self::Kind("kubernetes.URL"),
            "format" => Self::Kind("kubernetes.NamedFormat"),
            "A" => Self::Parameter('A'),
            "B" => Self::Parameter('B'),
            _ => {
                if let Some(of) = inside("list") {
                    Self::list(Self::parse(of)?)
                } else if let Some(of) = inside("optional") {
                    Self::optional(Self::parse(of)?)
                } else if let Some(of) = inside("type") {
                    Self::Meta(Box::new(Self::parse(of)?))
                } else {
                    let (key, value) = inside("map")?.split_once(", ")?;
                    Self::map(Self::parse(key)?, Self::parse(value)?)
                }
            }
        })
    }

    /// One type for both, `Dyn` where they differ.
    pub fn join(self, other: &Self) -> Self {
        if self == *other { self } else { Self::Dyn }
    }
}

/// What the parameters of a signature stand for in one call.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    bound: Vec<(char, Type)>,
}

impl Bindings {
    /// Whether `found` may stand where `wanted` is asked for.
    pub fn fits(&mut self, wanted: &Type, found: &Type) -> bool {
        match (wanted, found) {
            (Type::Parameter(name), found) => {
                let Some(at) = self.bound.iter().position(|(bound, _)| bound == name) else {
                    self.bound.push((*name, found.clone()));
                    return true;
                };
                let bound = self.bound[at].1.clone();
                if self.fits(&bound, found) {
                    return true;
                }
                // An empty list is a list of anything: what comes later says of what.
                let widens = self.fits(found, &bound);
                if widens {
                    self.bound[at].1 = found.clone();
                }
                widens
            }
            // A parameter that is found is that of an empty list.
            (Type::Dyn, _) | (_, Type::Dyn | Type::Parameter(_)) => true,
            (Type::List(wanted), Type::List(found))
            | (Type::Optional(wanted), Type::Optional(found))
            | (Type::Meta(wanted), Type::Meta(found)) => self.fits(wanted, found),
            (Type::Map(wanted), Type::Map(found)) => {
                self.fits(&wanted[0], &found[0]) && self.fits(&wanted[1], &found[1])
            }
            (Type::Kind(wanted), Type::Kind(found)) => wanted == found || nullable(wanted, found),
            _ => false,
        }
    }

    pub fn resolve(&self, found: &Type) -> Type {
        match found {
            Type::Parameter(name) => {
                let bound = self.bound.iter().find(|(bound, _)| bound == name);
                bound.map_or(Type::Dyn, |(_, bound)| bound.clone())
            }
            Type::Dyn => Type::Dyn,
            Type::Kind(name) => Type::Kind(name),
            Type::List(of) => Type::list(self.resolve(of)),
            Type::Map(of) => Type::map(self.resolve(&of[0]), self.resolve(&of[1])),
            Type::Optional(of) => Type::optional(self.resolve(of)),
            Type::Meta(of) => Type::Meta(Box::new(self.resolve(of))),
        }
    }
}

/// Null may stand for an object; plain values are never null.
fn nullable(wanted: &str, found: &str) -> bool {
    let object = |name: &str| name.contains('.');
    found == "null_type" && object(wanted) || wanted == "null_type" && object(found)
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Kind("null_type") => f.write_str("null"),
            Self::Kind(name) => f.write_str(name),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map({}, {})", of[0], of[1]),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Meta(of) => write!(f, "type({of})"),
            Self::Parameter(name) => write!(f, "{name}"),
        }
    }
}
