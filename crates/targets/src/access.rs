//! Which addresses an operator may connect to on behalf of an access Secret.
//!
//! Whoever writes an access Secret chooses a host name, and whoever owns that name chooses the address. The
//! rules here are therefore applied to addresses after name resolution, by the code that opens the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::tokens::TokenProviders;

/// What kubeconfigs may ask for beyond the safe default. Set by flags of the operator, never by a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, each its own command-line switch")]
pub struct AccessPolicy {
    /// Connect to 127.0.0.0/8 and `::1`. Default false; test beds need it.
    pub allow_loopback: bool,
    /// Connect to 169.254.0.0/16 and `fe80::/10`, metadata addresses excepted. Default false.
    pub allow_link_local: bool,
    /// Connect to the metadata services of cloud providers. Default false.
    pub allow_metadata: bool,
    /// Accept `proxy-url` in kubeconfigs. Default false. The address rules then hold for the proxy and for a
    /// server given as an address; a server given by name is resolved by the proxy.
    pub allow_proxy: bool,
    /// What gives tokens to kubeconfigs that name it as the command of an `exec` entry. Default none.
    pub token_providers: TokenProviders,
    /// Address and port under which the hub's own apiserver is known. A target may not live there: the hub is
    /// managed only as the local cluster. Default empty.
    pub hub_addresses: Vec<SocketAddr>,
}

/// Why an address may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// 127.0.0.0/8 or `::1`.
    #[error("a loopback address")]
    Loopback,
    /// 169.254.0.0/16 or `fe80::/10`.
    #[error("a link-local address")]
    LinkLocal,
    /// An address at which a cloud provider serves instance metadata or credentials.
    #[error("a metadata service")]
    Metadata,
    /// 0.0.0.0/8 or `::`, which reach the local host.
    #[error("an unspecified address")]
    Unspecified,
    /// A multicast or broadcast address.
    #[error("a multicast or broadcast address")]
    Multicast,
    /// The hub's own apiserver.
    #[error("the hub itself")]
    Hub,
}

impl AccessPolicy {
    /// Whether a connection to `address` may be opened.
    ///
    /// IPv4 addresses written as IPv6 (mapped, NAT64, 6to4) are judged by the IPv4 address that they reach.
    pub fn check(&self, address: SocketAddr) -> Result<(), AddressRefusal> {
        let ip = effective(address.ip());
        let is_hub = |hub: &SocketAddr| effective(hub.ip()) == ip && hub.port() == address.port();
        if self.hub_addresses.iter().any(is_hub) {
            return Err(AddressRefusal::Hub);
        }
        match kind(ip) {
            Some(AddressRefusal::Loopback) if self.allow_loopback => Ok(()),
            Some(AddressRefusal::LinkLocal) if self.allow_link_local => Ok(()),
            Some(AddressRefusal::Metadata) if self.allow_metadata => Ok(()),
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

/// Metadata and credential endpoints that lie outside of the link-local range, and the well-known one inside.
const METADATA: [IpAddr; 7] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // AWS container credentials.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    // Azure wire server.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Alibaba Cloud.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Oracle Cloud.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    // Google Cloud over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

fn kind(ip: IpAddr) -> Option<AddressRefusal> {
    if METADATA.contains(&ip) {
        return Some(AddressRefusal::Metadata);
    }
    let (loopback, link_local, unspecified, multicast) = match ip {
        IpAddr::V4(v4) => (
            v4.is_loopback(),
            v4.is_link_local(),
            v4.octets()[0] == 0,
            v4.is_multicast() || v4.is_broadcast(),
        ),
        IpAddr::V6(v6) => {
            (v6.is_loopback(), v6.is_unicast_link_local(), v6.is_unspecified(), v6.is_multicast())
        }
    };
    match () {
        () if loopback => Some(AddressRefusal::Loopback),
        () if link_local => Some(AddressRefusal::LinkLocal),
        () if unspecified => Some(AddressRefusal::Unspecified),
        () if multicast => Some(AddressRefusal::Multicast),
        () => None,
    }
}

/// The address that packets to `ip` end up at, as far as its form tells.
fn effective(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    if v6.is_loopback() || v6.is_unspecified() {
        return ip;
    }
    // ::a.b.c.d (compatible), ::ffff:a.b.c.d (mapped), 64:ff9b::a.b.c.d (NAT64), 2002:a.b.c.d:: (6to4).
    let ([0, 0, 0, 0, 0, 0 | 0xffff, high, low]
    | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
    | [0x2002, high, low, ..]) = v6.segments()
    else {
        return ip;
    };
    IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 443)
    }

    #[test]
    fn every_dangerous_address_is_refused_by_default() {
        let rows = [
            ("127.0.0.1", AddressRefusal::Loopback),
            ("127.8.9.10", AddressRefusal::Loopback),
            ("::1", AddressRefusal::Loopback),
            ("::ffff:127.0.0.1", AddressRefusal::Loopback),
            ("::127.0.0.1", AddressRefusal::Loopback),
            ("64:ff9b::127.0.0.1", AddressRefusal::Loopback),
            ("2002:7f00:1::", AddressRefusal::Loopback),
            ("169.254.1.1", AddressRefusal::LinkLocal),
            ("fe80::1", AddressRefusal::LinkLocal),
            ("169.254.169.254", AddressRefusal::Metadata),
            ("::ffff:169.254.169.254", AddressRefusal::Metadata),
            ("64:ff9b::a9fe:a9fe", AddressRefusal::Metadata),
            ("fd00:ec2::254", AddressRefusal::Metadata),
            ("fd20:ce::254", AddressRefusal::Metadata),
            ("100.100.100.200", AddressRefusal::Metadata),
            ("168.63.129.16", AddressRefusal::Metadata),
            ("0.0.0.0", AddressRefusal::Unspecified),
            ("0.1.2.3", AddressRefusal::Unspecified),
            ("::", AddressRefusal::Unspecified),
            ("224.0.0.1", AddressRefusal::Multicast),
            ("255.255.255.255", AddressRefusal::Multicast),
            ("ff02::1", AddressRefusal::Multicast),
        ];
        for (ip, refusal) in rows {
            assert_eq!(AccessPolicy::default().check(at(ip)), Err(refusal), "{ip}");
        }
    }

    #[test]
    fn public_and_private_addresses_are_accepted() {
        for ip in ["203.0.113.7", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd12::1"] {
            assert_eq!(AccessPolicy::default().check(at(ip)), Ok(()), "{ip}");
        }
    }

    #[test]
    fn a_flag_opens_its_own_range_only() {
        let loopback = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
        assert_eq!(loopback.check(at("127.0.0.1")), Ok(()));
        assert_eq!(loopback.check(at("0.0.0.0")), Err(AddressRefusal::Unspecified));
        let link_local = AccessPolicy { allow_link_local: true, ..AccessPolicy::default() };
        assert_eq!(link_local.check(at("169.254.1.1")), Ok(()));
        assert_eq!(link_local.check(at("169.254.169.254")), Err(AddressRefusal::Metadata));
        assert_eq!(link_local.check(at("127.0.0.1")), Err(AddressRefusal::Loopback));
    }

    #[test]
    fn the_hub_is_refused_by_address_and_port_even_where_loopback_is_allowed() {
        let policy = AccessPolicy {
            allow_loopback: true,
            hub_addresses: vec!["127.0.0.1:443".parse().unwrap()],
            ..AccessPolicy::default()
        };
        assert_eq!(policy.check(at("127.0.0.1")), Err(AddressRefusal::Hub));
        assert_eq!(policy.check(at("::ffff:127.0.0.1")), Err(AddressRefusal::Hub));
        assert_eq!(policy.check("127.0.0.1:444".parse().unwrap()), Ok(()));
    }
}
