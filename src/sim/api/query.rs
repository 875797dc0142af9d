//! The query of a request.

use super::super::status::Refusal;

#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(decoded.collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "" | "1" | "true"))
    }

    /// The version that is asked for, if one is.
    pub fn version(&self) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.get("resourceVersion").filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong =
            |_| Refusal::bad_request(format!("resourceVersion: Invalid value: {text:?}: must be a number"));
        text.parse().map(Some).map_err(wrong)
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number =
            text.parse().map_err(|_| Refusal::bad_request(format!("{name}: Invalid value: \"{text}\"")));
        number.map(Some)
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let hex = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (byte, after.first().and_then(hex), after.get(1).and_then(hex)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            (b'+', ..) => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2C%21c&watch=1&x=a+b&limit=5");
        assert_eq!(query.get("labelSelector"), Some("a=b,!c"));
        assert_eq!(query.get("x"), Some("a b"));
        assert!(query.flag("watch") && !query.flag("limit"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert!(Query::parse("limit=-1").number("limit").is_err());
    }
}
