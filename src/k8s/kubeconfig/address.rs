//! Which addresses an API server may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const LOOPBACK: &str = "it is this machine";
const METADATA: &str = "it is a cloud's metadata service";

/// Services of clouds that hand out credentials, outside the link-local ranges.
const METADATA_ADDRESSES: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), // Alibaba
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),   // Azure
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),     // Oracle
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), // AWS
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), // Google
];
const METADATA_NAMES: [&str; 4] =
    ["metadata", "metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"];

/// Whether a cluster's API server may be dialled at `address`; the reason if not.
pub fn check_address(address: IpAddr, allow_loopback: bool) -> Result<(), &'static str> {
    let address = embedded_v4(address).map_or(address, IpAddr::V4);
    if address.is_loopback() {
        return if allow_loopback { Ok(()) } else { Err(LOOPBACK) };
    }
    if METADATA_ADDRESSES.contains(&address) {
        return Err(METADATA);
    }
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        return Err("it is a link-local address, where clouds serve metadata");
    }
    let unusable = match address {
        // 0.0.0.0/8 reaches this machine on Linux; 255.255.255.255 is nobody.
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    if unusable || address.is_multicast() {
        return Err("it is not the address of one host");
    }
    Ok(())
}

/// The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`), compatible (`::/96`)
/// or translated (`64:ff9b::/96`, `2002::/16`).
fn embedded_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Checks the host of a URL as far as that goes without asking DNS; every address that DNS gives is
/// checked again when it is dialled, since it may give another one then.
pub(super) fn check_host(host: &str, allow_loopback: bool) -> Result<(), &'static str> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // A zone (`fe80::1%eth0`) only makes sense on link-local addresses.
    if let Ok(address) = bare.split('%').next().unwrap_or(bare).parse::<IpAddr>() {
        return check_address(address, allow_loopback);
    }
    let name = bare.trim_end_matches('.').to_ascii_lowercase();
    if METADATA_NAMES.contains(&name.as_str()) {
        return Err(METADATA);
    }
    if (name == "localhost" || name.ends_with(".localhost")) && !allow_loopback {
        return Err(LOOPBACK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_the_machine_or_its_cloud_are_refused() {
        for refused in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let address = refused.parse().expect("an address");
            assert!(check_address(address, false).is_err(), "{refused}");
        }
        for fine in
            ["10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "8.8.8.8", "fd12::1", "2001:db8::1"]
        {
            let address = fine.parse().expect("an address");
            assert_eq!(check_address(address, false), Ok(()), "{fine}");
        }
    }

    #[test]
    fn loopback_is_the_only_thing_that_can_be_allowed() {
        for allowed in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(check_address(allowed.parse().expect("an address"), true), Ok(()), "{allowed}");
        }
        assert!(check_address("169.254.169.254".parse().expect("an address"), true).is_err());
    }

    #[test]
    fn hosts_are_checked_by_name_too() {
        for refused in [
            "localhost",
            "LocalHost.",
            "api.localhost",
            "metadata.google.internal",
            "METADATA.google.internal.",
            "[::1]",
            "[fe80::1%25eth0]",
        ] {
            assert!(check_host(refused, false).is_err(), "{refused}");
        }
        assert_eq!(check_host("api.example.com", false), Ok(()));
        assert_eq!(check_host("localhost", true), Ok(()));
    }
}
