//! Kubernetes' IP addresses and CIDRs. Zones and IPv4 mapped into IPv6 are refused, as there.

use core::net::IpAddr;
use std::fmt;

use super::Called;
use crate::{Fault, value::Value};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ip(IpAddr);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    ip: Ip,
    length: u8,
}

impl Ip {
    fn parse(text: &str) -> Option<Self> {
        let ip: IpAddr = text.parse().ok()?;
        let mapped = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        (!mapped).then_some(Self(ip))
    }

    pub fn byte_length(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    fn bits(self) -> u128 {
        match self.0 {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
            IpAddr::V6(ip) => ip.to_bits(),
        }
    }

    fn is_link_local(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        }
    }

    fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        }
    }

    /// As Go has it: whatever is none of the special kinds.
    fn is_global(self) -> bool {
        let broadcast = matches!(self.0, IpAddr::V4(ip) if ip.is_broadcast());
        !broadcast
            && !self.0.is_unspecified()
            && !self.0.is_loopback()
            && !self.0.is_multicast()
            && !self.is_link_local()
    }
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (ip, length) = text.split_once('/')?;
        let ip = Ip::parse(ip)?;
        let plain = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let length: u8 = length.parse().ok().filter(|_| plain)?;
        (usize::from(length) <= 8 * ip.byte_length()).then_some(Self { ip, length })
    }

    pub fn byte_length(self) -> usize {
        usize::from(self.length).div_ceil(8)
    }

    fn prefix(self, ip: Ip) -> u128 {
        ip.bits().checked_shr(128 - u32::from(self.length)).unwrap_or(0)
    }

    fn contains(self, ip: Ip) -> bool {
        self.ip.byte_length() == ip.byte_length() && self.prefix(self.ip) == self.prefix(ip)
    }

    fn masked(self) -> Self {
        let bits = self.prefix(self.ip).checked_shl(128 - u32::from(self.length)).unwrap_or(0);
        let ip = match self.ip.0 {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(bits >> 96).expect("96 bits were shifted out").into()),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        };
        Self { ip: Ip(ip), length: self.length }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.length)
    }
}

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    match args {
        [Value::String(text)] => of_text(name, text),
        [Value::Ip(ip)] => of_ip(name, *ip),
        [Value::Cidr(cidr), rest @ ..] => of_cidr(name, *cidr, rest),
        _ => None,
    }
}

fn of_text(name: &str, text: &str) -> Option<Called> {
    let no_ip = || Fault::error(format!("IP Address \"{text}\" parse error during conversion from string"));
    Some(match name {
        "ip" => Ip::parse(text).map(Value::Ip).ok_or_else(no_ip),
        "isIP" => Ok(Value::Bool(Ip::parse(text).is_some())),
        "ip.isCanonical" => Ip::parse(text).map(|ip| Value::Bool(ip.to_string() == text)).ok_or_else(no_ip),
        "cidr" => {
            let none = || Fault::error(format!("network address parse error of \"{text}\""));
            Cidr::parse(text).map(Value::Cidr).ok_or_else(none)
        }
        "isCIDR" => Ok(Value::Bool(Cidr::parse(text).is_some())),
        _ => return None,
    })
}

fn of_ip(name: &str, ip: Ip) -> Option<Called> {
    Some(Ok(match name {
        "family" => Value::Int(if ip.0.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(ip.0.is_unspecified()),
        "isLoopback" => Value::Bool(ip.0.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(ip.is_link_local_multicast()),
        "isLinkLocalUnicast" => Value::Bool(ip.is_link_local()),
        "isGlobalUnicast" => Value::Bool(ip.is_global()),
        _ => return None,
    }))
}

fn of_cidr(name: &str, cidr: Cidr, rest: &[Value]) -> Option<Called> {
    let refused = |text: &str| Fault::error(format!("\"{text}\" is neither an address nor a network"));
    Some(match (name, rest) {
        ("ip", []) => Ok(Value::Ip(cidr.ip)),
        ("prefixLength", []) => Ok(Value::Int(i64::from(cidr.length))),
        ("masked", []) => Ok(Value::Cidr(cidr.masked())),
        ("containsIP", [Value::Ip(ip)]) => Ok(Value::Bool(cidr.contains(*ip))),
        ("containsIP", [Value::String(text)]) => {
            Ip::parse(text).map(|ip| Value::Bool(cidr.contains(ip))).ok_or_else(|| refused(text))
        }
        ("containsCIDR", [Value::Cidr(other)]) => Ok(Value::Bool(covers(cidr, *other))),
        ("containsCIDR", [Value::String(text)]) => {
            Cidr::parse(text).map(|other| Value::Bool(covers(cidr, other))).ok_or_else(|| refused(text))
        }
        _ => return None,
    })
}

fn covers(cidr: Cidr, other: Cidr) -> bool {
    cidr.length <= other.length && cidr.contains(other.ip)
}
