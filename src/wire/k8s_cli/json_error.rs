//! Where Python's decoder of JSON stops in a text that is none, and what it says then: FastAPI repeats both.
//!
//! Words and places are those of CPython 3.11 and 3.12. Later ones have words of their own for a comma at the end.

/// Characters before the place where it stops, and why; `None`: the text is JSON.
pub fn of(text: &str) -> Option<(usize, &'static str)> {
    let (at, why) = Decoder { text: text.as_bytes(), at: 0 }.document().err()?;
    Some((text[..at].chars().count(), why))
}

const VALUE: &str = "Expecting value";
const NAME: &str = "Expecting property name enclosed in double quotes";
const COLON: &str = "Expecting ':' delimiter";
const COMMA: &str = "Expecting ',' delimiter";
const MORE: &str = "Extra data";
const OPEN: &str = "Unterminated string starting at";
const CONTROL: &str = "Invalid control character at";
const ESCAPE: &str = "Invalid \\escape";
const UNICODE: &str = "Invalid \\uXXXX escape";

type Stop = (usize, &'static str);

struct Decoder<'a> {
    text: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn document(&mut self) -> Result<(), Stop> {
        // What ends each object and list that is open: a text may nest as deep as it is long.
        let mut ends = Vec::new();
        self.blanks();
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.step();
                    if !self.takes(b'}') {
                        self.name()?;
                        ends.push(b'}');
                        continue;
                    }
                }
                Some(b'[') => {
                    self.step();
                    if !self.takes(b']') {
                        ends.push(b']');
                        continue;
                    }
                }
                Some(b'"') => self.string()?,
                _ => self.word()?,
            }
            self.blanks();
            while ends.last().is_some_and(|end| self.takes(*end)) {
                ends.pop();
                self.blanks();
            }
            match ends.last() {
                None if self.at == self.text.len() => return Ok(()),
                None => return Err((self.at, MORE)),
                Some(_) if !self.takes(b',') => return Err((self.at, COMMA)),
                Some(end) => {
                    self.blanks();
                    if *end == b'}' {
                        self.name()?;
                    }
                }
            }
        }
    }

    /// Up to the value that it names.
    fn name(&mut self) -> Result<(), Stop> {
        if self.peek() != Some(b'"') {
            return Err((self.at, NAME));
        }
        self.string()?;
        self.blanks();
        if !self.takes(b':') {
            return Err((self.at, COLON));
        }
        self.blanks();
        Ok(())
    }

    fn string(&mut self) -> Result<(), Stop> {
        let begin = self.at;
        loop {
            self.at += 1;
            match self.peek().ok_or((begin, OPEN))? {
                b'"' => break,
                b'\\' => self.escape(begin)?,
                0..=0x1f => return Err((self.at, CONTROL)),
                _ => {}
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Up to its last character.
    fn escape(&mut self, begin: usize) -> Result<(), Stop> {
        self.at += 1;
        match self.peek().ok_or((begin, OPEN))? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.text.get(self.at + 1..self.at + 5);
                // It wants to see what is behind them, too.
                let ends = self.text.len() <= self.at + 5;
                if ends || !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err((self.at, UNICODE));
                }
                self.at += 4;
                Ok(())
            }
            _ => Err((self.at - 1, ESCAPE)),
        }
    }

    /// A number, or a word that JSON knows.
    fn word(&mut self) -> Result<(), Stop> {
        let rest = &self.text[self.at..];
        for word in ["null", "true", "false"] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(());
            }
        }
        let digits =
            |from: usize| rest[from.min(rest.len())..].iter().take_while(|c| c.is_ascii_digit()).count();
        let sign = usize::from(rest.first() == Some(&b'-'));
        let mut end = match rest.get(sign) {
            Some(b'0') => sign + 1,
            Some(b'1'..=b'9') => sign + digits(sign),
            _ => return Err((self.at, VALUE)),
        };
        // Half a fraction or exponent is none: the number ends before it.
        if rest.get(end) == Some(&b'.') && 0 < digits(end + 1) {
            end += 1 + digits(end + 1);
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            end += if exponent == 0 { 0 } else { 1 + sign + exponent };
        }
        self.at += end;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// What opens an object or a list, with the blanks behind it.
    fn step(&mut self) {
        self.at += 1;
        self.blanks();
    }

    fn takes(&mut self, sign: u8) -> bool {
        let is_there = self.peek() == Some(sign);
        self.at += usize::from(is_there);
        is_there
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Python 3.11.7 says.
    #[test]
    fn it_stops_where_python_does() {
        for (text, at, why) in [
            ("", 0, VALUE),
            ("  ", 2, VALUE),
            ("{", 1, NAME),
            ("[", 1, VALUE),
            ("no", 0, VALUE),
            ("tru", 0, VALUE),
            ("-", 0, VALUE),
            ("-a", 0, VALUE),
            ("1.", 1, MORE),
            ("1.e5", 1, MORE),
            ("01", 1, MORE),
            ("1e", 1, MORE),
            ("1e+", 1, MORE),
            ("{} x", 3, MORE),
            ("[1,]", 3, VALUE),
            ("[1 2]", 3, COMMA),
            ("[1,\n2,\n x]", 8, VALUE),
            ("{\"a\"", 4, COLON),
            ("{\"a", 1, OPEN),
            ("{\"a\" 1}", 5, COLON),
            ("{\"a\":", 5, VALUE),
            ("{\"a\": }", 6, VALUE),
            ("{\"a\": 1", 7, COMMA),
            ("{\"a\": 1,", 8, NAME),
            ("{\"a\": 1,}", 8, NAME),
            ("{\"a\": 1 \"b\": 2}", 8, COMMA),
            ("{a: 1}", 1, NAME),
            ("{'a': 1}", 1, NAME),
            ("{\"a\": [1, {\"b\": 2}", 18, COMMA),
            ("[\"a\nb\"]", 3, CONTROL),
            ("[\"\\q\"]", 2, ESCAPE),
            ("[\"\\", 1, OPEN),
            ("[\"\\u12\"]", 3, UNICODE),
            ("[\"\\u12g4\"]", 3, UNICODE),
            ("\"\\u1234", 2, UNICODE),
            ("\"é\" x", 4, MORE),
            ("[\"é\", é]", 6, VALUE),
            ("{\"😀\": nul}", 6, VALUE),
            ("[[]]]", 4, MORE),
            ("{\"a\": {}}}", 9, MORE),
            ("[] []", 3, MORE),
            ("\"a\" \"b\"", 4, MORE),
            ("{\"a\":1}\u{a0}", 7, MORE),
            ("run: x", 0, VALUE),
        ] {
            assert_eq!(of(text), Some((at, why)), "{text}");
        }
    }

    #[test]
    fn what_nests_deeply_needs_no_stack() {
        assert_eq!(of(&"[".repeat(1 << 20)), Some((1 << 20, VALUE)));
    }

    #[test]
    fn what_is_json_has_no_place_to_stop() {
        let text = r#" {"a": [1, -2.5e+3, {}, [], "é\n\u00e9x", null, true, false], "b": {"c": 0}} "#;
        assert_eq!(of(text), None);
    }
}
