//! Evaluation of a checked expression, charged as cel-go charges it.

use std::sync::Arc;

use super::{
    Fault, Scores,
    ast::{Entry, Expr, Fold, FoldKind, Item, Kind, WithOptional},
    library,
    library::regexes::Regexes,
    meter::Meter,
    value::{Key, Map, Value},
};

/// What an expression may look at.
pub struct Evaluator<'a> {
    pub scope: Vec<(Arc<str>, Value)>,
    pub scores: &'a dyn Scores,
    pub regexes: &'a Regexes,
    pub meter: &'a mut Meter,
}

type Evaluated = Result<Value, Fault>;

const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;

impl Evaluator<'_> {
    pub fn eval(&mut self, expr: &Expr) -> Evaluated {
        self.meter.spend(1)?;
        match &expr.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Ident(name) => {
                self.meter.charge(1)?;
                self.variable(name)
            }
            Kind::Select { operand, field, optional } => {
                let value = self.operand(operand)?;
                self.index(&value, &Value::String(field.clone()), *optional)
            }
            Kind::Has { operand, field } => {
                let value = self.operand(operand)?;
                self.meter.charge(1)?;
                has(&value, field)
            }
            Kind::Index { operand, key, optional } => {
                let value = self.operand(operand)?;
                let key = self.attribute(key)?;
                self.index(&value, &key, *optional)
            }
            Kind::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Kind::And(terms) => self.logical(terms, false),
            Kind::Or(terms) => self.logical(terms, true),
            Kind::Conditional(parts) => {
                let [condition, yes, no] = parts.as_ref();
                match self.eval(condition)? {
                    Value::Bool(true) => self.attribute(yes),
                    Value::Bool(false) => self.attribute(no),
                    _ => Err(Fault::no_overload()),
                }
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::WithOptional(with) => self.with_optional(with),
        }
    }

    fn variable(&self, name: &str) -> Evaluated {
        let found = self.scope.iter().rev().find(|(known, _)| known.as_ref() == name);
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| Fault::error(format!("no such attribute: {name}")))
    }

    /// What is not an attribute already becomes one by being selected from, at the price of a step.
    fn operand(&mut self, operand: &Expr) -> Evaluated {
        let value = self.eval(operand);
        if !operand.is_attribute() {
            self.meter.charge(1)?;
        }
        value
    }

    /// A variable as key or as branch of `?:` costs nothing, only what is selected from it does.
    fn attribute(&mut self, expr: &Expr) -> Evaluated {
        let value = self.eval(expr);
        if expr.is_attribute() && value.is_ok() {
            self.meter.refund(1);
        }
        value
    }

    fn index(&mut self, value: &Value, key: &Value, optional: bool) -> Evaluated {
        let found = index(value, key, optional);
        if !matches!(found, Ok(Value::Optional(None))) {
            self.meter.charge(1)?;
        }
        found
    }

    fn call(&mut self, name: &str, target: Option<&Expr>, args: &[Expr]) -> Evaluated {
        if let ("or" | "orValue", Some(target), [other]) = (name, target, args) {
            return self.first_of(target, other, name == "orValue");
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        let mut fault = None;
        let count = args.len() + usize::from(target.is_some());
        for arg in target.into_iter().chain(args) {
            match self.eval(arg) {
                Ok(value) => values.push(value),
                Err(Fault::OverBudget) => return Err(Fault::OverBudget),
                Err(error) if 2 < count => return Err(error),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        // Functions of one argument or two are called, and charged for, with errors too.
        if let Some(fault) = fault {
            self.meter.charge(1)?;
            return Err(fault);
        }
        let context = library::Context { scores: self.scores, regexes: self.regexes };
        library::call(name, &values, &context, self.meter)
    }

    /// `a.or(b)` and `a.orValue(b)`: free, and the second only where the first is none.
    fn first_of(&mut self, target: &Expr, other: &Expr, value: bool) -> Evaluated {
        match self.eval(target)? {
            Value::Optional(Some(inner)) if value => Ok(inner.as_ref().clone()),
            found @ Value::Optional(Some(_)) => Ok(found),
            Value::Optional(None) => self.eval(other),
            _ => Err(Fault::no_overload()),
        }
    }

    /// One term that decides outweighs errors in the others.
    fn logical(&mut self, terms: &[Expr], deciding: bool) -> Evaluated {
        let mut fault = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => fault = fault.or(Some(Fault::no_overload())),
                Err(Fault::OverBudget) => return Err(Fault::OverBudget),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn list(&mut self, items: &[Item]) -> Evaluated {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.eval(&item.value)?;
            values.extend(present(value, item.optional)?);
        }
        self.meter.charge(LIST_COST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[Entry]) -> Evaluated {
        let mut map = Map::new();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let key = key.key().ok_or_else(|| Fault::error("unsupported key type".to_owned()))?;
            let value = self.eval(&entry.value)?;
            if let Some(value) = present(value, entry.optional)? {
                map.insert(key, value);
            }
        }
        self.meter.charge(MAP_COST)?;
        Ok(Value::Map(Arc::new(map)))
    }

    fn with_optional(&mut self, with: &WithOptional) -> Evaluated {
        let before = self.meter.cost();
        let operand = self.eval(&with.operand)?;
        // cel-go evaluates the operand twice: `o.hasValue() ? optional.of(… o.value() …) : none`.
        let again = self.meter.cost() - before;
        self.meter.charge(2)?;
        let Value::Optional(operand) = operand else { return Err(Fault::no_overload()) };
        let Some(value) = operand else { return Ok(Value::Optional(None)) };
        self.meter.charge(again + LIST_COST)?;
        self.scope.push((with.variable.clone(), value.as_ref().clone()));
        let body = self.eval(&with.body);
        self.scope.pop();
        let body = body?;
        if with.flat {
            return Ok(body);
        }
        self.meter.charge(1)?;
        Ok(Value::some(body))
    }

    fn fold(&mut self, fold: &Fold) -> Evaluated {
        let items = match self.eval(&fold.range)? {
            Value::List(items) => items,
            Value::Map(entries) => {
                self.meter.spend(entries.len() as u64)?;
                Arc::new(entries.keys().map(Key::value).collect())
            }
            _ => return Err(Fault::no_overload()),
        };
        // The variable's slot is made once and filled anew for each item.
        self.scope.push((fold.variable.clone(), Value::Null));
        let result = match fold.what {
            FoldKind::All => self.decide(fold, &items, false),
            FoldKind::Exists => self.decide(fold, &items, true),
            FoldKind::ExistsOne => self.exists_one(fold, &items),
            FoldKind::Map | FoldKind::Filter => self.collect(fold, &items),
        };
        self.scope.pop();
        self.meter.charge(1)?;
        result
    }

    fn each(&mut self, item: &Value) -> Result<(), Fault> {
        self.meter.spend(1)?;
        let slot = self.scope.last_mut().expect("a fold has a variable");
        slot.1 = item.clone();
        Ok(())
    }

    /// `all` and `exists`: ends at the first item that decides, goes on past errors.
    fn decide(&mut self, fold: &Fold, items: &[Value], deciding: bool) -> Evaluated {
        let condition_cost = if deciding { 3 } else { 2 };
        let mut fault = None;
        let mut decided = false;
        for item in items {
            self.meter.charge(condition_cost)?;
            if decided {
                break;
            }
            self.each(item)?;
            self.meter.charge(1)?;
            match self.eval(&fold.body) {
                Ok(Value::Bool(value)) => decided = value == deciding,
                Ok(_) => fault = fault.or(Some(Fault::no_overload())),
                Err(Fault::OverBudget) => return Err(Fault::OverBudget),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        match fault {
            Some(fault) if !decided => Err(fault),
            _ => Ok(Value::Bool(decided == deciding)),
        }
    }

    fn exists_one(&mut self, fold: &Fold, items: &[Value]) -> Evaluated {
        let mut count = 0_usize;
        for item in items {
            self.each(item)?;
            let found = self.holds(&fold.body)?;
            self.meter.charge(if found { 2 } else { 0 })?;
            count += usize::from(found);
        }
        self.meter.charge(1)?;
        Ok(Value::Bool(count == 1))
    }

    fn collect(&mut self, fold: &Fold, items: &[Value]) -> Evaluated {
        self.meter.charge(LIST_COST)?;
        let mut collected = Vec::new();
        for item in items {
            self.each(item)?;
            let kept = match (fold.what, &fold.filter) {
                (FoldKind::Filter, _) => self.holds(&fold.body)?,
                (_, Some(filter)) => self.holds(filter)?,
                (_, None) => true,
            };
            if !kept {
                continue;
            }
            self.meter.charge(1)?;
            let value = if fold.what == FoldKind::Filter {
                self.meter.charge(1)?;
                item.clone()
            } else {
                self.eval(&fold.body)?
            };
            self.meter.charge(LIST_COST + 1)?;
            collected.push(value);
        }
        Ok(Value::list(collected))
    }

    fn holds(&mut self, expr: &Expr) -> Result<bool, Fault> {
        match self.eval(expr)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Fault::no_overload()),
        }
    }
}

/// What goes into a list or map: an optional item only if it has a value.
fn present(value: Value, optional: bool) -> Result<Option<Value>, Fault> {
    match value {
        Value::Optional(inner) if optional => Ok(inner.map(|value| value.as_ref().clone())),
        _ if optional => Err(Fault::no_overload()),
        value => Ok(Some(value)),
    }
}

fn has(value: &Value, field: &Arc<str>) -> Evaluated {
    match value {
        Value::Map(map) => Ok(Value::Bool(map.contains_key(&Key::String(field.clone())))),
        Value::Optional(Some(inner)) => has(inner, field),
        Value::Optional(None) => Ok(Value::Bool(false)),
        _ => Err(Fault::no_overload()),
    }
}

fn index(value: &Value, key: &Value, optional: bool) -> Evaluated {
    match value {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional_index(inner, key),
        _ if optional => optional_index(value, key),
        _ => find(value, key)?.ok_or_else(|| missing(value, key)),
    }
}

fn optional_index(value: &Value, key: &Value) -> Evaluated {
    Ok(match find(value, key)? {
        // An optional inside an optional is one optional.
        Some(found @ Value::Optional(_)) => found,
        Some(found) => Value::some(found),
        None => Value::Optional(None),
    })
}

fn find(value: &Value, key: &Value) -> Result<Option<Value>, Fault> {
    match value {
        Value::Map(map) => {
            let key = key.key().ok_or_else(Fault::no_overload)?;
            Ok(map.get(&key).cloned())
        }
        Value::List(items) => {
            let Some(Key::Int(at)) = key.key() else { return Err(Fault::no_overload()) };
            Ok(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned())
        }
        _ => Err(Fault::no_overload()),
    }
}

fn missing(value: &Value, key: &Value) -> Fault {
    match (value, key) {
        (Value::List(items), _) => {
            Fault::error(format!("index out of bounds in a list of size {}", items.len()))
        }
        (_, Value::String(name)) => Fault::error(format!("no such key: {name}")),
        _ => Fault::error("no such key".to_owned()),
    }
}
