//! An expression as parsed: macros are nodes of their own, so that nothing needs expanding.

use std::sync::Arc;

use super::value::Value;

/// Trees of this height are walked by recursion in checking, evaluating and dropping; what is higher is
/// refused while it is parsed, so no expression can exhaust a stack.
pub const MAX_HEIGHT: u16 = 64;

#[derive(Clone, Debug)]
pub struct Expr {
    /// Byte in the source.
    pub at: u32,
    pub height: u16,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Literal(Value),
    Ident(Arc<str>),
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        optional: bool,
    },
    Has {
        operand: Box<Expr>,
        field: Arc<str>,
    },
    Index {
        operand: Box<Expr>,
        key: Box<Expr>,
        optional: bool,
    },
    Call {
        name: Arc<str>,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    List(Vec<Item>),
    Map(Vec<Entry>),
    Fold(Box<Fold>),
    /// `optMap` and `optFlatMap`.
    WithOptional(Box<WithOptional>),
}

#[derive(Clone, Debug)]
pub struct Item {
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub struct Fold {
    pub what: FoldKind,
    pub range: Expr,
    pub variable: Arc<str>,
    /// Of `map` with three arguments.
    pub filter: Option<Expr>,
    pub body: Expr,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone, Debug)]
pub struct WithOptional {
    pub operand: Expr,
    pub variable: Arc<str>,
    pub body: Expr,
    /// Whether the body yields an optional itself.
    pub flat: bool,
}

impl Expr {
    pub fn new(at: u32, kind: Kind) -> Self {
        let height = 1 + kind.children().map(|child| child.height).max().unwrap_or(0);
        Self { at, height, kind }
    }

    /// Whether the expression is a variable with selections on it, which are charged as one step each.
    pub fn is_attribute(&self) -> bool {
        matches!(self.kind, Kind::Ident(_) | Kind::Select { .. } | Kind::Index { .. } | Kind::Has { .. })
    }
}

impl Kind {
    fn children(&self) -> Box<dyn Iterator<Item = &Expr> + '_> {
        match self {
            Self::Literal(_) | Self::Ident(_) => Box::new(std::iter::empty()),
            Self::Select { operand, .. } | Self::Has { operand, .. } => {
                Box::new(std::iter::once(operand.as_ref()))
            }
            Self::Index { operand, key, .. } => Box::new([operand.as_ref(), key.as_ref()].into_iter()),
            Self::Call { target, args, .. } => Box::new(target.as_deref().into_iter().chain(args)),
            Self::And(terms) | Self::Or(terms) => Box::new(terms.iter()),
            Self::Conditional(parts) => Box::new(parts.iter()),
            Self::List(items) => Box::new(items.iter().map(|item| &item.value)),
            Self::Map(entries) => Box::new(entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            Self::Fold(fold) => Box::new([&fold.range, &fold.body].into_iter().chain(fold.filter.as_ref())),
            Self::WithOptional(with) => Box::new([&with.operand, &with.body].into_iter()),
        }
    }
}
