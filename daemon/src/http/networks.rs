//! Networks that a call may reach.
//!
//! **Owns** the classes of addresses. An address that contains an IPv4 address belongs to the class of that one.
//! **Order.** A name is checked after its resolution, and the connection uses only the addresses that passed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

use super::Url;
use crate::config::Networks;

/// Metadata services whose addresses are not link-local: of Azure, Alibaba, Oracle, AWS, Google and Scaleway.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// An address that the setting `http.networks` refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is {} address, which the setting `http.networks: {allowed}` refuses; set it to `{needed}` and restart ryed",
    kind(*needed)
)]
pub struct RefusedAddress {
    /// The address, with the name that has it.
    host: String,
    allowed: Networks,
    /// The narrowest value that allows the address.
    needed: Networks,
}

fn kind(needed: Networks) -> &'static str {
    match needed {
        Networks::Public => "a public",
        Networks::Private => "a loopback, private or reserved",
        Networks::Any => "a link-local or metadata",
    }
}

/// Checks the host of `url` if it is an address. Names are checked by [`Checked`].
pub(super) fn check_literal(url: &Url, allowed: Networks) -> Result<(), RefusedAddress> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse() {
        Ok(address) => check(allowed, address, || host.to_owned()),
        Err(_name) => Ok(()),
    }
}

fn check(
    allowed: Networks,
    address: IpAddr,
    host: impl FnOnce() -> String,
) -> Result<(), RefusedAddress> {
    let needed = needed(address);
    if needed <= allowed {
        return Ok(());
    }
    Err(RefusedAddress {
        host: host(),
        allowed,
        needed,
    })
}

/// Resolves names to addresses of these networks.
pub(super) struct Checked(pub(super) Networks);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0;
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?.collect();
            let passed = passing(allowed, name.as_str(), found)?;
            let passed: Addrs = Box::new(passed.into_iter());
            Ok(passed)
        })
    }
}

/// The addresses of `name` that are allowed. Fails if there are only others.
fn passing(
    allowed: Networks,
    name: &str,
    found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, RefusedAddress> {
    let (mut passed, mut refused) = (Vec::new(), None);
    for found in found {
        let address = found.ip();
        match check(allowed, address, || format!("{address} (`{name}`)")) {
            Ok(()) => passed.push(found),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if passed.is_empty() => Err(error),
        _ => Ok(passed),
    }
}

/// The narrowest networks that include `address`.
fn needed(address: IpAddr) -> Networks {
    let address = match address {
        IpAddr::V6(v6) => contained(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let (is_link_local, is_public) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), is_public_v4(v4)),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), is_public_v6(v6)),
    };
    if is_link_local || METADATA.contains(&address) {
        Networks::Any
    } else if is_public {
        Networks::Public
    } else {
        Networks::Private
    }
}

/// The IPv4 address that `address` stands for: mapped, compatible, of NAT64 or of 6to4.
fn contained(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (s, octets) = (address.segments(), address.octets());
    let v4 = |at: usize| {
        Some(Ipv4Addr::new(
            octets[at],
            octets[at + 1],
            octets[at + 2],
            octets[at + 3],
        ))
    };
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => v4(12),
        [0x2002, ..] => v4(2),
        _ => address.to_ipv4(),
    }
}

/// False for the special-purpose blocks of RFC 6890 and multicast.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = match address.octets() {
        [0 | 240.., ..] | [192, 0, 0, _] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [198, second, ..] => second & 0xfe == 18,
        _ => false,
    };
    let is_local = address.is_loopback() || address.is_private() || address.is_link_local();
    !(is_special || is_local || address.is_documentation() || address.is_multicast())
}

/// True for global unicast addresses, except protocol assignments and documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_special = first == 0x2001 && (second < 0x200 || second == 0xdb8);
    first & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_networks() {
        use Networks::{Any, Private, Public};
        for (addresses, expected) in [
            (
                "1.1.1.1 172.32.0.1 100.128.0.1 2606:4700::1111 ::ffff:1.1.1.1",
                Public,
            ),
            (
                "127.0.0.1 127.9.9.9 0.0.0.0 10.0.0.1 172.31.0.1 192.168.1.1 100.64.0.1",
                Private,
            ),
            (
                "198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 203.0.113.1",
                Private,
            ),
            (
                ":: ::1 fc00::1 fd12::1 ff02::1 2001:db8::1 2001::1",
                Private,
            ),
            (
                "::ffff:127.0.0.1 ::7f00:1 64:ff9b::10.0.0.1 2002:7f00:1::",
                Private,
            ),
            ("169.254.169.254 169.254.170.2 fe80::1 fe80::a9fe:a9fe", Any),
            (
                "::ffff:169.254.169.254 ::a9fe:a9fe 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1",
                Any,
            ),
            (
                "fd00:ec2::254 fd20:ce::254 100.100.100.200 168.63.129.16 192.0.0.192",
                Any,
            ),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(needed(address.parse().unwrap()), expected, "{address}");
            }
        }
    }

    #[test]
    fn only_allowed_addresses_of_a_name_are_used() {
        let of = |addresses: &[&str]| {
            let addresses = addresses
                .iter()
                .map(|address| SocketAddr::new(address.parse().unwrap(), 0));
            addresses.collect::<Vec<_>>()
        };
        let found = of(&["169.254.169.254", "10.0.0.1", "1.1.1.1"]);
        for (allowed, expected) in [
            (Networks::Public, &found[2..]),
            (Networks::Private, &found[1..]),
            (Networks::Any, &found),
        ] {
            assert_eq!(passing(allowed, "host", found.clone()).unwrap(), expected);
        }
        let refused = passing(
            Networks::Private,
            "host",
            of(&["169.254.169.254", "fe80::1"]),
        );
        assert_eq!(
            refused.unwrap_err().to_string(),
            "169.254.169.254 (`host`) is a link-local or metadata address, which the setting `http.networks: private` \
             refuses; set it to `any` and restart ryed"
        );
        assert_eq!(
            passing(Networks::Public, "host", Vec::new()),
            Ok(Vec::new())
        );
    }
}
