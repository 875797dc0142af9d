//! JSON that holds JSON as a text, to be read at once.

/// What serde_json means by raw JSON: where any crate has its feature `raw_value`, `serde_json::Value` reads the text behind
/// this key as JSON, with a new limit of depth (`value/de.rs`). A text that holds itself so, again and again, ends the
/// process: it takes more stack than any thread has. No program that writes JSON means it.
const KEY: &[u8] = b"$serde_json::private::RawValue";

/// Whether a text has it as a string, however that is written. It goes by pieces, and looks at strings only: of what is no
/// JSON nothing is read behind the place where that shows.
#[derive(Debug, Default)]
pub struct Scan(State);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Outside,
    /// Within a string, with so much of the key read; `None`: it is another one.
    Within(Option<usize>),
    Escaped(Option<usize>),
    /// `\u` and its digits.
    Unicode {
        read: Option<usize>,
        digits: u8,
        value: u32,
    },
}

impl Scan {
    pub fn finds(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            self.0 = match (self.0, byte) {
                (State::Outside, b'"') => State::Within(Some(0)),
                (State::Outside, _) => {
                    rest = from(rest, |byte| byte == b'"');
                    State::Outside
                }
                (State::Within(read), b'"') => {
                    if read == Some(KEY.len()) {
                        return true;
                    }
                    State::Outside
                }
                (State::Within(read), b'\\') => State::Escaped(read),
                (State::Within(Some(read)), byte) => State::Within(next(read, byte)),
                (State::Within(None), _) => {
                    rest = from(rest, |byte| matches!(byte, b'"' | b'\\'));
                    State::Within(None)
                }
                (State::Escaped(read), b'u') => State::Unicode { read, digits: 0, value: 0 },
                // None of the characters that are written so is in the key.
                (State::Escaped(_), _) => State::Within(None),
                (State::Unicode { read, digits, value }, byte) => {
                    let value = value << 4 | char::from(byte).to_digit(16).unwrap_or(0);
                    if digits < 3 {
                        State::Unicode { read, digits: digits + 1, value }
                    } else {
                        State::Within(read.and_then(|read| next(read, u8::try_from(value).ok()?)))
                    }
                }
            };
        }
        false
    }
}

fn next(read: usize, byte: u8) -> Option<usize> {
    (KEY.get(read) == Some(&byte)).then_some(read + 1)
}

fn from(text: &[u8], found: impl Fn(u8) -> bool) -> &[u8] {
    text.iter().position(|&byte| found(byte)).map_or(&[], |at| &text[at..])
}

/// The same of a whole text.
pub fn is_nested(text: &[u8]) -> bool {
    Scan::default().finds(text)
}

/// A text that holds itself so many times, each time in 120 lists: for tests.
pub fn nest(times: usize) -> String {
    let (open, close) = ("[".repeat(120), "]".repeat(120));
    let mut text = "0".to_owned();
    for _ in 0..times {
        // A backslash in front of each would double them at every level.
        let inner = text.replace('\\', "\\u005c").replace('"', "\\u0022");
        text = format!("{open}{{\"$serde_json::private::RawValue\":\"{inner}\"}}{close}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_however_it_is_written_and_in_pieces() {
        for text in [
            r#"{"$serde_json::private::RawValue":"1"}"#.to_owned(),
            r#"{"a":["x\"y\\",{"\u0024serde_json::private::Raw\u0056alue" : "1"}]}"#.to_owned(),
            nest(3),
        ] {
            assert!(is_nested(text.as_bytes()), "{text}");
            let mut scan = Scan::default();
            assert!(text.bytes().any(|byte| scan.finds(&[byte])), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_left_alone() {
        for text in [
            r#"{"a":"$serde_json::private::RawValue or not","b":"\"$serde_json::private::RawValue"}"#,
            r#"{"$serde_json::private::RawValu":1,"$serde_json::private::RawValues":1,"":1}"#,
            r#"{"\u0124serde_json::private::RawValue":1}"#,
            r#"{"$serde_json::private::RawValue"#,
            r#""\"#,
            r#""\u00"#,
        ] {
            assert!(!is_nested(text.as_bytes()), "{text}");
        }
    }

    /// If this fails the key is not read so any more, and the module can go.
    #[test]
    fn serde_json_reads_it() {
        let value: serde_json::Value = serde_json::from_str(&nest(1)).expect("JSON");
        let depth = std::iter::successors(Some(&value), |value| value.get(0)).count();
        assert_eq!(depth, 121, "the key is not there any more");
    }
}
