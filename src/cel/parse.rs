//! Tokens to a tree, by precedence.

use std::sync::Arc;

use super::{
    CompileError,
    ast::{Entry, Expr, Fold, FoldKind, Item, Kind, MAX_HEIGHT, WithOptional},
    token::{RESERVED, Token, tokens},
    value::Value,
};

pub fn parse(text: &str) -> Result<Expr, CompileError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let expr = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        other => Err(parser.unexpected(&other.clone(), "<EOF>")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(u32, Token)>,
    next: usize,
    depth: u16,
}

type Parsed<T = Expr> = Result<T, CompileError>;

const RELATIONS: [(&str, &str); 7] = [
    ("<", "_<_"),
    ("<=", "_<=_"),
    (">=", "_>=_"),
    (">", "_>_"),
    ("==", "_==_"),
    ("!=", "_!=_"),
    ("in", "@in"),
];
const SUMS: [(&str, &str); 2] = [("+", "_+_"), ("-", "_-_")];
const PRODUCTS: [(&str, &str); 3] = [("*", "_*_"), ("/", "_/_"), ("%", "_%_")];

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn at(&self) -> u32 {
        self.tokens[self.next].0
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].1.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(found) if *found == sign);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.take(sign) {
            return Ok(());
        }
        let found = self.peek().clone();
        Err(self.unexpected(&found, &format!("'{sign}'")))
    }

    fn unexpected(&self, found: &Token, wanted: &str) -> CompileError {
        let found = match found {
            Token::End => "<EOF>".to_owned(),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::Ident(name) => name.to_string(),
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => "a number".to_owned(),
            Token::String(_) | Token::Bytes(_) => "a text".to_owned(),
        };
        self.error(self.at(), format!("Syntax error: mismatched input '{found}' expecting {wanted}"))
    }

    fn error(&self, at: u32, problem: impl AsRef<str>) -> CompileError {
        CompileError::at(self.text, at, problem.as_ref())
    }

    fn node(&self, at: u32, kind: Kind) -> Parsed {
        let expr = Expr::new(at, kind);
        if MAX_HEIGHT < expr.height {
            return Err(self.too_deep(at));
        }
        Ok(expr)
    }

    fn too_deep(&self, at: u32) -> CompileError {
        self.error(at, format!("expression recursion limit exceeded: {MAX_HEIGHT}"))
    }

    fn expr(&mut self) -> Parsed {
        if MAX_HEIGHT <= self.depth {
            return Err(self.too_deep(self.at()));
        }
        self.depth += 1;
        let condition = self.or()?;
        let at = self.at();
        let expr = if self.take("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expr()?;
            self.node(at, Kind::Conditional(Box::new([condition, yes, no])))?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Parsed {
        let at = self.at();
        let mut terms = vec![self.and()?];
        while self.take("||") {
            terms.push(self.and()?);
        }
        if terms.len() == 1 { Ok(terms.remove(0)) } else { self.node(at, Kind::Or(terms)) }
    }

    fn and(&mut self) -> Parsed {
        let at = self.at();
        let mut terms = vec![self.relation()?];
        while self.take("&&") {
            terms.push(self.relation()?);
        }
        if terms.len() == 1 { Ok(terms.remove(0)) } else { self.node(at, Kind::And(terms)) }
    }

    fn relation(&mut self) -> Parsed {
        let left = self.sum()?;
        self.chain(left, &RELATIONS, Self::sum)
    }

    fn sum(&mut self) -> Parsed {
        let left = self.product()?;
        self.chain(left, &SUMS, Self::product)
    }

    fn product(&mut self) -> Parsed {
        let left = self.unary()?;
        self.chain(left, &PRODUCTS, Self::unary)
    }

    fn chain(&mut self, mut left: Expr, signs: &[(&str, &str)], side: fn(&mut Self) -> Parsed) -> Parsed {
        loop {
            let at = self.at();
            let Some((_, name)) = signs.iter().find(|(sign, _)| self.take(sign)) else {
                return Ok(left);
            };
            let right = side(self)?;
            left =
                self.node(at, Kind::Call { name: (*name).into(), target: None, args: vec![left, right] })?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        let (sign, name) = match self.peek() {
            Token::Sign("!") => ("!", "!_"),
            Token::Sign("-") => ("-", "-_"),
            _ => return self.member(),
        };
        let mut count = 0_usize;
        while self.take(sign) {
            count += 1;
        }
        if sign == "-" && count == 1 && matches!(self.peek(), Token::Int(_) | Token::Double(_)) {
            let number = self.advance();
            let literal = self.number(at, &number, true)?;
            return self.members(literal);
        }
        let expr = self.member()?;
        // Signs in pairs cancel out, as cel-go has it.
        if count.is_multiple_of(2) {
            return Ok(expr);
        }
        self.node(at, Kind::Call { name: name.into(), target: None, args: vec![expr] })
    }

    fn number(&self, at: u32, token: &Token, negative: bool) -> Parsed {
        let value = match *token {
            Token::Double(value) => Value::Double(if negative { -value } else { value }),
            Token::Uint(value) => Value::Uint(value),
            Token::Int(value) => {
                let value = if negative { -i128::from(value) } else { i128::from(value) };
                let fits = i64::try_from(value);
                Value::Int(fits.map_err(|_| self.error(at, "invalid int literal"))?)
            }
            Token::Ident(_) | Token::String(_) | Token::Bytes(_) | Token::Sign(_) | Token::End => {
                return Err(self.unexpected(token, "a number"));
            }
        };
        self.node(at, Kind::Literal(value))
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut expr: Expr) -> Parsed {
        loop {
            let at = self.at();
            if self.take("[") {
                let optional = self.take("?");
                let key = self.expr()?;
                self.expect("]")?;
                let kind = Kind::Index { operand: Box::new(expr), key: Box::new(key), optional };
                expr = self.node(at, kind)?;
            } else if self.take(".") {
                let optional = self.take("?");
                let field = self.name()?;
                let call_at = self.at();
                if !optional && self.take("(") {
                    let args = self.list(")", Self::expr)?;
                    expr = self.method(call_at, expr, field, args)?;
                } else {
                    expr = self.node(at, Kind::Select { operand: Box::new(expr), field, optional })?;
                }
            } else {
                return Ok(expr);
            }
        }
    }

    fn name(&mut self) -> Parsed<Arc<str>> {
        match self.peek().clone() {
            Token::Ident(name) => {
                self.advance();
                Ok(name)
            }
            other => Err(self.unexpected(&other, "IDENTIFIER")),
        }
    }

    /// Comma-separated, a comma at the end allowed.
    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(item(self)?);
            if !self.take(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(items)
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        let token = self.advance();
        match token {
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => self.number(at, &token, false),
            Token::String(text) => self.node(at, Kind::Literal(Value::String(text))),
            Token::Bytes(bytes) => self.node(at, Kind::Literal(Value::Bytes(bytes))),
            Token::Sign("true") => self.node(at, Kind::Literal(Value::Bool(true))),
            Token::Sign("false") => self.node(at, Kind::Literal(Value::Bool(false))),
            Token::Sign("null") => self.node(at, Kind::Literal(Value::Null)),
            Token::Sign("(") => {
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Sign("[") => {
                let items = self.list("]", |parser| {
                    let optional = parser.take("?");
                    Ok(Item { value: parser.expr()?, optional })
                })?;
                self.node(at, Kind::List(items))
            }
            Token::Sign("{") => {
                let entries = self.list("}", |parser| {
                    let optional = parser.take("?");
                    let key = parser.expr()?;
                    parser.expect(":")?;
                    Ok(Entry { key, value: parser.expr()?, optional })
                })?;
                self.node(at, Kind::Map(entries))
            }
            Token::Sign(".") => {
                let name = self.name()?;
                self.ident(at, name)
            }
            Token::Ident(name) => self.ident(at, name),
            Token::Sign(_) | Token::End => {
                self.next = self.next.saturating_sub(usize::from(token != Token::End));
                Err(self.unexpected(&token, "an expression"))
            }
        }
    }

    fn ident(&mut self, at: u32, name: Arc<str>) -> Parsed {
        if RESERVED.contains(&name.as_ref()) {
            return Err(self.error(at, format!("reserved identifier: {name}")));
        }
        let call_at = self.at();
        if self.take("(") {
            let args = self.list(")", Self::expr)?;
            return self.function(call_at, name, args);
        }
        self.node(at, Kind::Ident(name))
    }

    fn function(&mut self, at: u32, name: Arc<str>, mut args: Vec<Expr>) -> Parsed {
        if name.as_ref() != "has" || args.len() != 1 {
            return self.node(at, Kind::Call { name, target: None, args });
        }
        let arg = args.remove(0);
        match arg.kind {
            Kind::Select { operand, field, optional: false } => self.node(at, Kind::Has { operand, field }),
            _ => Err(self.error(arg.at, "invalid argument to has() macro")),
        }
    }

    fn method(&mut self, at: u32, operand: Expr, name: Arc<str>, mut args: Vec<Expr>) -> Parsed {
        let what = match (name.as_ref(), args.len()) {
            ("all", 2) => FoldKind::All,
            ("exists", 2) => FoldKind::Exists,
            ("exists_one" | "existsOne", 2) => FoldKind::ExistsOne,
            ("map", 2 | 3) => FoldKind::Map,
            ("filter", 2) => FoldKind::Filter,
            ("optMap" | "optFlatMap", 2) => {
                let flat = name.as_ref() == "optFlatMap";
                let variable = self.variable(&args[0])?;
                let body = args.remove(1);
                let with = WithOptional { operand, variable, body, flat };
                return self.node(at, Kind::WithOptional(Box::new(with)));
            }
            _ => return self.node(at, Kind::Call { name, target: Some(Box::new(operand)), args }),
        };
        let variable = self.variable(&args[0])?;
        let body = args.pop().expect("a fold has two arguments or three");
        let filter = (args.len() == 2).then(|| args.remove(1));
        self.node(at, Kind::Fold(Box::new(Fold { what, range: operand, variable, filter, body })))
    }

    fn variable(&self, expr: &Expr) -> Parsed<Arc<str>> {
        match &expr.kind {
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(self.error(expr.at, "argument is not an identifier")),
        }
    }
}
