//! Names and types, before anything is evaluated: what cel-go's checker refuses is refused here, so that
//! a mistake is told when the Placement is written and not silently matched by nothing.

use std::sync::Arc;

use super::{
    CompileError,
    ast::{Entry, Expr, Fold, FoldKind, Item, Kind},
    library::{
        regexes::{Regexes, is_regex_function},
        template,
    },
    signatures::{Signature, signatures},
    types::{BOOL, Bindings, INT, STRING, Type},
    value::Value,
};

/// The one variable that an expression begins with.
pub const ROOT: &str = "managedCluster";

/// Resolves names in place and gives the type of the whole. Patterns that are literals are compiled
/// into `regexes`.
pub fn check(text: &str, expr: &mut Expr, regexes: &mut Regexes) -> Result<Type, CompileError> {
    let root = (Arc::from(ROOT), Type::map(STRING, Type::Dyn));
    Checker { text, scope: vec![root], regexes }.expr(expr)
}

struct Checker<'a> {
    text: &'a str,
    scope: Vec<(Arc<str>, Type)>,
    regexes: &'a mut Regexes,
}

type Checked = Result<Type, CompileError>;

impl Checker<'_> {
    fn error(&self, at: u32, problem: impl AsRef<str>) -> CompileError {
        CompileError::at(self.text, at, problem.as_ref())
    }

    fn variable(&self, name: &str) -> Option<Type> {
        self.scope.iter().rev().find(|(known, _)| known.as_ref() == name).map(|(_, found)| found.clone())
    }

    fn expr(&mut self, expr: &mut Expr) -> Checked {
        let at = expr.at;
        match &mut expr.kind {
            Kind::Literal(value) => Ok(type_of(value)),
            Kind::Ident(name) => {
                if let Some(found) = self.variable(name) {
                    return Ok(found);
                }
                let Some(found) = named_type(name) else {
                    return Err(self.error(at, undeclared(name)));
                };
                expr.kind = Kind::Literal(Value::Type(name.clone()));
                Ok(Type::Meta(Box::new(found)))
            }
            Kind::Select { operand, field, optional } => {
                if let Some(name) = message_type(operand, field) {
                    expr.kind = Kind::Literal(Value::Type(name.into()));
                    return Ok(Type::Meta(Box::new(Type::Kind(name))));
                }
                let optional = *optional;
                let operand = self.expr(operand)?;
                let found = self.selected(at, &operand)?;
                Ok(wrapped(found, optional || matches!(operand, Type::Optional(_))))
            }
            Kind::Has { operand, .. } => {
                let operand = self.expr(operand)?;
                self.selected(at, &operand)?;
                Ok(BOOL)
            }
            Kind::Index { operand, key, optional } => {
                let optional = *optional;
                let operand = self.expr(operand)?;
                let key = self.expr(key)?;
                let found = self.indexed(at, &operand, &key)?;
                Ok(wrapped(found, optional || matches!(operand, Type::Optional(_))))
            }
            Kind::Call { .. } => self.call(expr),
            Kind::And(terms) | Kind::Or(terms) => {
                for term in terms {
                    self.boolean(term)?;
                }
                Ok(BOOL)
            }
            Kind::Conditional(parts) => {
                let [condition, yes, no] = parts.as_mut();
                let (condition, yes, no) = (self.expr(condition)?, self.expr(yes)?, self.expr(no)?);
                let mut bindings = Bindings::default();
                let fits = bindings.fits(&BOOL, &condition)
                    && (bindings.fits(&yes, &no) || bindings.fits(&no, &yes));
                if !fits {
                    return Err(self.no_overload(at, "_?_:_", &[condition, yes, no], false));
                }
                Ok(yes.join(&no))
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::WithOptional(with) => {
                let operand = self.expr(&mut with.operand)?;
                let inner = match operand {
                    Type::Optional(of) => *of,
                    Type::Dyn => Type::Dyn,
                    other => return Err(self.no_overload(at, "optMap", &[other], true)),
                };
                let flat = with.flat;
                let body = self.within(with.variable.clone(), inner, &mut with.body)?;
                Ok(if flat { body } else { Type::optional(body) })
            }
        }
    }

    fn boolean(&mut self, expr: &mut Expr) -> Result<(), CompileError> {
        let at = expr.at;
        match self.expr(expr)? {
            BOOL | Type::Dyn | Type::Parameter(_) => Ok(()),
            other => Err(self.error(at, format!("expected type 'bool' but found '{other}'"))),
        }
    }

    fn selected(&self, at: u32, operand: &Type) -> Checked {
        match operand {
            Type::Dyn | Type::Parameter(_) => Ok(Type::Dyn),
            Type::Map(of) => Ok(of[1].clone()),
            Type::Optional(of) => self.selected(at, of),
            Type::Kind(_) | Type::List(_) | Type::Meta(_) => {
                Err(self.error(at, format!("type '{operand}' does not support field selection")))
            }
        }
    }

    fn indexed(&self, at: u32, operand: &Type, key: &Type) -> Checked {
        let mut bindings = Bindings::default();
        match operand {
            Type::Dyn | Type::Parameter(_) => Ok(Type::Dyn),
            Type::Optional(of) => self.indexed(at, of, key),
            Type::List(of) if bindings.fits(&INT, key) => Ok(of.as_ref().clone()),
            Type::Map(of) if bindings.fits(&of[0], key) => Ok(of[1].clone()),
            Type::List(_) | Type::Map(_) | Type::Kind(_) | Type::Meta(_) => {
                Err(self.no_overload(at, "_[_]", &[operand.clone(), key.clone()], false))
            }
        }
    }

    fn list(&mut self, items: &mut [Item]) -> Checked {
        let mut of: Option<Type> = None;
        for item in items {
            let found = unwrapped(self.expr(&mut item.value)?, item.optional);
            of = Some(of.map_or(found.clone(), |of| of.join(&found)));
        }
        Ok(Type::list(of.unwrap_or(Type::Parameter('E'))))
    }

    fn map(&mut self, entries: &mut [Entry]) -> Checked {
        let mut of: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.expr(&mut entry.key)?;
            let value = unwrapped(self.expr(&mut entry.value)?, entry.optional);
            of = Some(of.map_or((key.clone(), value.clone()), |(k, v)| (k.join(&key), v.join(&value))));
        }
        let (key, value) = of.unwrap_or((Type::Dyn, Type::Dyn));
        Ok(Type::map(key, value))
    }

    fn fold(&mut self, fold: &mut Fold) -> Checked {
        let at = fold.range.at;
        let item = match self.expr(&mut fold.range)? {
            Type::Dyn | Type::Parameter(_) => Type::Dyn,
            Type::List(of) => *of,
            Type::Map(of) => of[0].clone(),
            other => {
                let problem = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(self.error(at, problem));
            }
        };
        self.scope.push((fold.variable.clone(), item.clone()));
        if let Some(filter) = &mut fold.filter {
            self.boolean(filter)?;
        }
        let found = match fold.what {
            FoldKind::Map => Type::list(self.expr(&mut fold.body)?),
            FoldKind::Filter => {
                self.boolean(&mut fold.body)?;
                Type::list(item)
            }
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                self.boolean(&mut fold.body)?;
                BOOL
            }
        };
        self.scope.pop();
        Ok(found)
    }

    fn within(&mut self, variable: Arc<str>, of: Type, body: &mut Expr) -> Checked {
        self.scope.push((variable, of));
        let found = self.expr(body);
        self.scope.pop();
        found
    }

    fn call(&mut self, expr: &mut Expr) -> Checked {
        let at = expr.at;
        let Kind::Call { name, target, args } = &mut expr.kind else {
            unreachable!("only called with calls");
        };
        // `optional.of(x)` is a function of that name unless there is a variable `optional`.
        if let Some(Kind::Ident(first)) = target.as_deref().map(|target| &target.kind) {
            let qualified = format!("{first}.{name}");
            if self.variable(first).is_none() && signatures(&qualified).is_some() {
                *name = qualified.into();
                *target = None;
            }
        }
        let is_method = target.is_some();
        let mut found = Vec::new();
        for arg in target.as_deref_mut().into_iter().chain(args.iter_mut()) {
            found.push(self.expr(arg)?);
        }
        let Some(forms) = signatures(name) else {
            return Err(self.error(at, undeclared(name)));
        };
        if let ("format", Some(target), [values]) = (name.as_ref(), target.as_deref(), args.as_slice()) {
            check_template(target, values).map_err(|problem| self.error(values.at, problem))?;
        }
        if is_regex_function(name)
            && let Some(pattern) = target.as_deref().into_iter().chain(args.iter()).nth(1)
            && let Kind::Literal(Value::String(pattern)) = &pattern.kind
        {
            self.regexes.keep(pattern);
        }
        let results: Vec<_> = forms.iter().filter_map(|form| result(form, is_method, &found)).collect();
        match results.into_iter().reduce(|all, one| all.join(&one)) {
            Some(joined) => Ok(joined),
            None => Err(self.no_overload(at, name, &found, is_method)),
        }
    }

    fn no_overload(&self, at: u32, name: &str, found: &[Type], is_method: bool) -> CompileError {
        let texts: Vec<_> = found.iter().map(Type::to_string).collect();
        let applied = match texts.split_first() {
            Some((target, args)) if is_method => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", texts.join(", ")),
        };
        self.error(at, format!("found no matching overload for '{name}' applied to '{applied}'"))
    }
}

fn result(form: &Signature, is_method: bool, found: &[Type]) -> Option<Type> {
    if form.is_method != is_method || form.args.len() != found.len() {
        return None;
    }
    let mut bindings = Bindings::default();
    let fits = form.args.iter().zip(found).all(|(wanted, found)| bindings.fits(wanted, found));
    fits.then(|| bindings.resolve(&form.result))
}

/// A template that is a literal is tried on what is known of its values.
fn check_template(template: &Expr, values: &Expr) -> Result<(), String> {
    let (Kind::Literal(Value::String(template)), Kind::List(items)) = (&template.kind, &values.kind) else {
        return Ok(());
    };
    let known = |item: &Item| match &item.value.kind {
        Kind::Literal(value) if !item.optional => Some(value.clone()),
        _ => None,
    };
    let values: Vec<_> = items.iter().map(known).collect();
    template::check(template, &values).map_err(|fault| fault.to_string())
}

/// The types whose names have dots.
fn message_type(operand: &Expr, field: &str) -> Option<&'static str> {
    let Kind::Select { operand, field: package, optional: false } = &operand.kind else { return None };
    let google = matches!(&operand.kind, Kind::Ident(name) if name.as_ref() == "google");
    match (google, package.as_ref(), field) {
        (true, "protobuf", "Timestamp") => Some("google.protobuf.Timestamp"),
        (true, "protobuf", "Duration") => Some("google.protobuf.Duration"),
        _ => None,
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// Optionals of optionals collapse: `a.?b.c` is one optional.
fn wrapped(found: Type, optional: bool) -> Type {
    if !optional || matches!(found, Type::Optional(_)) { found } else { Type::optional(found) }
}

fn unwrapped(found: Type, optional: bool) -> Type {
    match found {
        Type::Optional(of) if optional => *of,
        other => other,
    }
}

fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" | "int" | "uint" | "double" | "string" | "bytes" => Type::parse(name)?,
        "null_type" => super::types::NULL,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Meta(Box::new(Type::Dyn)),
        "optional_type" => Type::optional(Type::Dyn),
        _ => return None,
    })
}

fn type_of(value: &Value) -> Type {
    match value {
        Value::Type(_) => Type::Meta(Box::new(Type::Dyn)),
        Value::List(_) => Type::list(Type::Dyn),
        Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
        Value::Optional(_) => Type::optional(Type::Dyn),
        other => Type::Kind(other.kind()),
    }
}
