//! Kubernetes' URLs, read as Go's `net/url` reads them: an absolute URL or an absolute path.

use core::net::Ipv6Addr;
use std::{collections::BTreeMap, sync::Arc};

use super::Called;
use crate::{
    Fault,
    value::{Key, Map, Value},
};

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Url {
    scheme: String,
    /// What follows a scheme without a slash, as in `mailto:a@b`.
    opaque: String,
    user: String,
    host: String,
    /// As it is sent.
    path: String,
    query: String,
    fragment: String,
}

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    match args {
        [Value::String(text)] => match name {
            "url" => Some(Url::parse(text).map(|url| Value::Url(Arc::new(url))).map_err(|problem| {
                Fault::error(format!("URL parse error during conversion from string: {problem}"))
            })),
            "isURL" => Some(Ok(Value::Bool(problem(text).is_none()))),
            _ => None,
        },
        [Value::Url(url)] => url.get(name).map(Ok),
        _ => None,
    }
}

/// Why the text is no absolute URL and no absolute path.
pub fn problem(text: &str) -> Option<String> {
    read(text, true).err().map(|problem| format!("parse {text:?}: {problem}"))
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(problem) = problem(text) {
            return Err(problem);
        }
        // A request has no fragment; whoever writes a URL may.
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let told = |problem: &str| format!("parse {text:?}: {problem}");
        let mut url = read(before, false).map_err(told)?;
        unescape(fragment, Mode::Path).map_err(told)?;
        fragment.clone_into(&mut url.fragment);
        Ok(url)
    }

    /// To read it all.
    pub fn bytes(&self) -> usize {
        let parts =
            [&self.scheme, &self.opaque, &self.user, &self.host, &self.path, &self.query, &self.fragment];
        parts.iter().map(|part| part.len()).sum()
    }

    fn get(&self, name: &str) -> Option<Value> {
        Some(match name {
            "getScheme" => Value::text(&self.scheme),
            "getHost" => Value::text(&self.host),
            "getHostname" => Value::text(self.hostname_and_port().0),
            "getPort" => Value::text(self.hostname_and_port().1),
            "getEscapedPath" => Value::text(&self.path),
            "getQuery" => Value::Map(Arc::new(self.parameters())),
            _ => return None,
        })
    }

    fn hostname_and_port(&self) -> (&str, &str) {
        let with_port =
            self.host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let (host, port) = with_port.unwrap_or((&self.host, ""));
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// What cannot be read of a query is left out.
    fn parameters(&self) -> Map {
        let mut parameters: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for part in self.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (Ok(key), Ok(value)) = (unescape(key, Mode::Query), unescape(value, Mode::Query)) else {
                continue;
            };
            parameters.entry(key).or_default().push(Value::text(&value));
        }
        let entry = |(key, values): (String, Vec<Value>)| (Key::String(key.into()), Value::list(values));
        parameters.into_iter().map(entry).collect()
    }
}

/// `of_request`: nothing relative, and no authority without a scheme.
fn read(text: &str, of_request: bool) -> Result<Url, &'static str> {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err("it has a control character");
    }
    if text.is_empty() && of_request {
        return Err("it is empty");
    }
    let mut url = Url::default();
    if text == "*" {
        text.clone_into(&mut url.path);
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if of_request {
            return Err("it is neither an absolute URL nor an absolute path");
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("the first part of a relative path has a colon");
        }
    }
    let has_authority = !scheme.is_empty() || !of_request && !rest.starts_with("///");
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        (url.user, url.host) = read_authority(authority)?;
        rest = path;
    }
    url.path = escaped_path(rest)?;
    Ok(url)
}

/// What stands before the first colon, if it can be a scheme.
fn scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at != 0 => {}
            ':' if at == 0 => return Err("it has no scheme before the colon"),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn read_authority(authority: &str) -> Result<(String, String), &'static str> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = read_host(host)?;
    let Some(user) = user else { return Ok((String::new(), host)) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(allowed) {
        return Err("its user information is not valid");
    }
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    unescape(name, Mode::Path).and_then(|_| unescape(password, Mode::Path))?;
    Ok((user.to_owned(), host))
}

fn read_host(host: &str) -> Result<String, &'static str> {
    let is_port = |text: &str| {
        text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
    };
    if host.starts_with('[') {
        let end = host.rfind(']').ok_or("its host lacks a `]`")?;
        if !is_port(&host[end + 1..]) {
            return Err("its port is not a number");
        }
        let address = host[1..end].split("%25").next().unwrap_or_default();
        if address.parse::<Ipv6Addr>().is_err() {
            return Err("its host has brackets and is no IPv6 address");
        }
        // The name of a network interface, after an escaped `%`.
        if let Some(zone) = host[..end].find("%25") {
            let zone_text = unescape(&host[zone..end], Mode::Zone)?;
            return Ok(unescape(&host[..zone], Mode::Host)? + &zone_text + &host[end..]);
        }
    } else if let Some(colon) = host.find(':')
        && !is_port(&host[colon..])
    {
        return Err("its port is not a number");
    }
    unescape(host, Mode::Host)
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Mode {
    Path,
    Query,
    Host,
    Zone,
}

const BAD_ESCAPE: &str = "a `%` is not followed by two hexadecimal digits that may stand there";

fn unescape(text: &str, mode: Mode) -> Result<String, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let [high, low, after @ ..] = rest else { return Err(BAD_ESCAPE) };
                let hex =
                    |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (Some(high), Some(low)) = (hex(*high), hex(*low)) else { return Err(BAD_ESCAPE) };
                let byte = high << 4 | low;
                rest = after;
                match mode {
                    Mode::Host if byte < 0x80 && byte != b'%' => return Err(BAD_ESCAPE),
                    Mode::Zone if byte != b'%' && byte != b' ' && !may_be_in_host(byte) => {
                        return Err(BAD_ESCAPE);
                    }
                    Mode::Path | Mode::Query | Mode::Host | Mode::Zone => out.push(byte),
                }
            }
            b'+' if mode == Mode::Query => out.push(b' '),
            byte if matches!(mode, Mode::Host | Mode::Zone) && *byte < 0x80 && !may_be_in_host(*byte) => {
                return Err("its host has a character that none may have");
            }
            byte => out.push(*byte),
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn may_be_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

/// The path as it was written where that is how it can be sent, else escaped anew.
fn escaped_path(path: &str) -> Result<String, &'static str> {
    let meant = unescape_bytes(path)?;
    let stands = |c: char| c.is_ascii_alphanumeric() || "-_.~$&+,/:;=@!'()*[]%".contains(c);
    if path.chars().all(stands) {
        return Ok(path.to_owned());
    }
    let mut escaped = String::with_capacity(path.len());
    for byte in meant {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let digit = |bits: u8| char::from_digit(u32::from(bits), 16).map(|c| c.to_ascii_uppercase());
            escaped.push('%');
            escaped.extend([byte >> 4, byte & 0xf].into_iter().filter_map(digit));
        }
    }
    Ok(escaped)
}

fn unescape_bytes(path: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or(BAD_ESCAPE)?;
        bytes.push(byte);
        bytes.extend(part.bytes().skip(2));
    }
    Ok(bytes)
}
