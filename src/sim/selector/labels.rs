//! The language of label selectors.

/// What one label has to be.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    pub key: String,
    pub test: Test,
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl Test {
    pub fn passes(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::Above(than) => number().is_some_and(|number| *than < number),
            Self::Below(than) => number().is_some_and(|number| number < *than),
        }
    }
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens { rest: text };
    let mut found = Vec::new();
    loop {
        match tokens.peek() {
            "" => return Ok(found),
            token if token != "!" && is_symbol(token) => {
                return Err(format!("found '{token}', expected: !, identifier, or 'end of string'"));
            }
            _ => {}
        }
        let requirement = requirement(&mut tokens);
        found.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
        match tokens.next() {
            "" => return Ok(found),
            "," => {
                let next = tokens.peek();
                if next.is_empty() || (next != "!" && is_symbol(next)) {
                    return Err(format!("found '{next}', expected: identifier after ','"));
                }
            }
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

/// Words and symbols, one after the other; nothing at the end.
struct Tokens<'t> {
    rest: &'t str,
}

fn is_symbol(token: &str) -> bool {
    SYMBOLS.contains(&token)
}

impl<'t> Tokens<'t> {
    fn peek(&self) -> &'t str {
        let rest = self.rest.trim_start();
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            return &rest[..symbol.len()];
        }
        let end = rest.find(|c: char| c.is_whitespace() || "=!,()<>".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    }

    fn next(&mut self) -> &'t str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let mut key = tokens.next();
    let absent = key == "!";
    if absent {
        key = tokens.next();
    }
    if key.is_empty() || is_symbol(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    check_key(key)?;
    let key = key.to_owned();
    let test = match tokens.peek() {
        _ if absent => Test::Absent,
        "" | "," => Test::Exists,
        _ => test(tokens)?,
    };
    Ok(Requirement { key, test })
}

fn test(tokens: &mut Tokens<'_>) -> Result<Test, String> {
    match tokens.next() {
        "=" | "==" => Ok(Test::In(vec![value(tokens)?])),
        "!=" => Ok(Test::NotIn(vec![value(tokens)?])),
        "in" => Ok(Test::In(values(tokens)?)),
        "notin" => Ok(Test::NotIn(values(tokens)?)),
        ">" => Ok(Test::Above(number(&value(tokens)?)?)),
        "<" => Ok(Test::Below(number(&value(tokens)?)?)),
        other => Err(format!("found '{other}', expected: {OPERATORS}")),
    }
}

fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    match tokens.peek() {
        "" | "," => Ok(String::new()),
        token if is_symbol(token) => Err(format!("found '{token}', expected: identifier")),
        _ => {
            let value = tokens.next();
            check_value(value)?;
            Ok(value.to_owned())
        }
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer")
    })
}

fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    let open = tokens.next();
    if open != "(" {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = Vec::new();
    loop {
        match tokens.peek() {
            "," | ")" => values.push(String::new()),
            "" => return Err("found '', expected: ',', ')' or identifier".to_owned()),
            token if is_symbol(token) => {
                return Err(format!("found '{token}', expected: ',', or identifier"));
            }
            token => {
                check_value(token)?;
                values.push(tokens.next().to_owned());
            }
        }
        match tokens.next() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

fn is_word(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit('/').next().unwrap_or_default();
    if is_word(name) {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must \
         start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

fn check_value(value: &str) -> Result<(), String> {
    if is_word(value) {
        return Ok(());
    }
    Err(format!(
        "values[0][]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(selector: &str) -> bool {
        let labels = [("a", "1"), ("b/c", "x"), ("n", "7"), ("empty", "")];
        parse(selector).unwrap().iter().all(|requirement| {
            let found = labels.iter().find(|(key, _)| *key == requirement.key);
            requirement.test.passes(found.map(|(_, value)| *value))
        })
    }

    #[test]
    fn labels_are_tested_in_all_the_ways_there_are() {
        for yes in [
            "",
            "a",
            "a=1",
            "a==1",
            "a in (1, 2)",
            "a notin (2),b/c",
            "!z",
            "z!=1",
            "z notin (1)",
            "n>6,n<8",
            "empty=",
            "empty in ()",
            "empty in (,x)",
        ] {
            assert!(passes(yes), "{yes}");
        }
        for no in
            ["z", "a=2", "a!=1", "a in (2,3)", "a notin (1)", "!a", "a,z", "n>7", "a<1", "b/c>1", "a in ()"]
        {
            assert!(!passes(no), "{no}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_kubernetes() {
        for (bad, why) in [
            ("tier in", "unable to parse requirement: found '' expected: '('"),
            ("tier=gold silver", "found 'silver', expected: ',' or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
        ] {
            assert_eq!(parse(bad).unwrap_err(), why, "{bad}");
        }
        assert!(parse("-x=1").unwrap_err().contains("\"-x\": name part must consist of"));
        assert!(parse("a=-x").unwrap_err().contains("a valid label must be"));
        assert!(parse("a>b").unwrap_err().contains("the value must be an integer"));
    }
}
