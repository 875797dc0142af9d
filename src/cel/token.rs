//! Text to tokens.

use std::sync::Arc;

use super::CompileError;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Ident(Arc<str>),
    Int(u64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// Operators, brackets and the words `in`, `true`, `false`, `null`.
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];
/// Words that CEL keeps for itself: no variable may be called so.
pub const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Tokens with the byte each begins at; the last one is [`Token::End`].
pub fn tokens(text: &str) -> Result<Vec<(u32, Token)>, CompileError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_blank();
        let start = u32::try_from(lexer.at).unwrap_or(u32::MAX);
        if lexer.rest().is_empty() {
            found.push((start, Token::End));
            return Ok(found);
        }
        let token = lexer.next().map_err(|problem| CompileError::at(text, start, &problem))?;
        found.push((start, token));
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

type Problem = String;

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']).len();
            self.at += blank;
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn next(&mut self) -> Result<Token, Problem> {
        let rest = self.rest();
        if let Some(token) = self.text_literal()? {
            return Ok(token);
        }
        let bytes = rest.as_bytes();
        let number =
            bytes[0].is_ascii_digit() || bytes[0] == b'.' && bytes.get(1).is_some_and(u8::is_ascii_digit);
        if number {
            return self.number();
        }
        if bytes[0].is_ascii_alphabetic() || bytes[0] == b'_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            self.at += end;
            let word = &rest[..end];
            return Ok(match WORDS.iter().find(|known| **known == word) {
                Some(word) => Token::Sign(word),
                None => Token::Ident(word.into()),
            });
        }
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            return Ok(Token::Sign(sign));
        }
        let found = rest.chars().next().unwrap_or(' ');
        Err(format!("Syntax error: token recognition error at: '{found}'"))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let rest = self.rest();
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        if rest.starts_with("0x") || rest.starts_with("0X") {
            let length = rest[2..].bytes().take_while(u8::is_ascii_hexdigit).count();
            self.at += 2 + length;
            let value = u64::from_str_radix(&rest[2..2 + length], 16);
            return Ok(self.whole(value.map_err(|_| "invalid int literal".to_owned())?));
        }
        let mut length = digits(rest);
        let mut is_double = false;
        if rest[length..].starts_with('.') && rest.as_bytes().get(length + 1).is_some_and(u8::is_ascii_digit)
        {
            is_double = true;
            length += 1 + digits(&rest[length + 1..]);
        }
        let exponent = &rest[length..];
        if exponent.starts_with(['e', 'E']) {
            let sign = usize::from(exponent[1..].starts_with(['+', '-']));
            let power = digits(&exponent[1 + sign..]);
            if 0 < power {
                is_double = true;
                length += 1 + sign + power;
            }
        }
        self.at += length;
        let text = &rest[..length];
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| "invalid double literal".to_owned());
        }
        Ok(self.whole(text.parse().map_err(|_| "invalid int literal".to_owned())?))
    }

    fn whole(&mut self, value: u64) -> Token {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Token::Uint(value);
        }
        Token::Int(value)
    }

    fn text_literal(&mut self) -> Result<Option<Token>, Problem> {
        let rest = self.rest();
        let prefix = rest.bytes().take(2).take_while(|b| matches!(b, b'r' | b'R' | b'b' | b'B')).count();
        let (raw, is_bytes) = {
            let prefix = rest[..prefix].to_ascii_lowercase();
            if matches!(prefix.as_str(), "rr" | "bb") {
                return Ok(None);
            }
            (prefix.contains('r'), prefix.contains('b'))
        };
        let body = &rest[prefix..];
        let Some(quote) = [r#"""""#, "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote))
        else {
            return Ok(None);
        };
        let inner = &body[quote.len()..];
        let end = end_of(inner, quote, raw).ok_or("Syntax error: a text literal does not end")?;
        self.at += prefix + quote.len() + end + quote.len();
        let inner = &inner[..end];
        if is_bytes {
            let bytes = if raw { inner.as_bytes().to_vec() } else { unescape(inner, true)? };
            return Ok(Some(Token::Bytes(bytes.into())));
        }
        let text = if raw { inner.to_owned() } else { text_of(unescape(inner, false)?)? };
        Ok(Some(Token::String(text.into())))
    }
}

fn text_of(bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|_| "Syntax error: a text literal is not UTF-8".to_owned())
}

fn end_of(inner: &str, quote: &str, raw: bool) -> Option<usize> {
    let bytes = inner.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if inner[at..].starts_with(quote) {
            return Some(at);
        }
        if quote.len() == 1 && matches!(bytes[at], b'\n' | b'\r') {
            return None;
        }
        // An escaped character may be longer than a byte: its other bytes are no quote.
        at += if !raw && bytes[at] == b'\\' { 2 } else { 1 };
        while at < bytes.len() && !inner.is_char_boundary(at) {
            at += 1;
        }
    }
    None
}

fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(&rest[at + 1..], is_bytes, &mut out).ok_or("Syntax error: unknown escape in a text")?;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Adds what the escape stands for and gives what follows it.
fn escape<'a>(text: &'a str, is_bytes: bool, out: &mut Vec<u8>) -> Option<&'a str> {
    let first = text.chars().next()?;
    let simple = match first {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '?' | '"' | '\'' | '`' => u8::try_from(first).ok()?,
        'x' | 'X' => return Digits { from: 1, length: 2, radix: 16 }.read(text, is_bytes, out),
        'u' if !is_bytes => return Digits { from: 1, length: 4, radix: 16 }.read(text, false, out),
        'U' if !is_bytes => return Digits { from: 1, length: 8, radix: 16 }.read(text, false, out),
        '0'..='3' => return Digits { from: 0, length: 3, radix: 8 }.read(text, is_bytes, out),
        _ => return None,
    };
    out.push(simple);
    Some(&text[1..])
}

/// Where the number of an escape stands.
struct Digits {
    from: usize,
    length: usize,
    radix: u32,
}

impl Digits {
    fn read<'a>(&self, text: &'a str, is_byte: bool, out: &mut Vec<u8>) -> Option<&'a str> {
        let end = self.from + self.length;
        let digits = text.get(self.from..end)?;
        let code = u32::from_str_radix(digits, self.radix).ok().filter(|_| !digits.starts_with('+'))?;
        if is_byte {
            out.push(u8::try_from(code).ok()?);
        } else {
            let mut buffer = [0; 4];
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
        }
        Some(&text[end..])
    }
}
