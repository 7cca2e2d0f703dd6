//! Decides which addresses an operator may connect to for a kubeconfig or a content source. Pure.
//!
//! The author of an access Secret, a module or a registry's redirect chooses a host name, and the owner of that name
//! chooses the address. The rules here are therefore for addresses after name resolution: the code that opens the
//! connection applies them to the address that it connects to.

// `core` has the address types without the IO of `std`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The reason why a connection to an address is refused.
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
    /// An address of a private network: RFC 1918, shared address space, unique local and the like.
    #[error("an address in a private network")]
    Private,
    /// The hub's own apiserver.
    #[error("the hub itself")]
    Hub,
}

/// Non-public address ranges to which connections are allowed. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent ranges, each its own command-line switch")]
pub struct AddressRules {
    /// Allows 127.0.0.0/8 and `::1`.
    pub allow_loopback: bool,
    /// Allows 169.254.0.0/16 and `fe80::/10`, metadata addresses excepted.
    pub allow_link_local: bool,
    /// Allows the metadata services of cloud providers.
    pub allow_metadata: bool,
    /// Allows private networks.
    pub allow_private: bool,
}

impl AddressRules {
    /// Checks whether a connection to `address` may be opened. `hub` are the addresses and ports of the hub's own API
    /// server, which are never allowed.
    ///
    /// An IPv6 address that carries an IPv4 address (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is
    /// also checked as that IPv4 address.
    ///
    /// # Errors
    /// The reason for which the address is not allowed.
    pub fn check(self, address: SocketAddr, hub: &[SocketAddr]) -> Result<(), AddressRefusal> {
        let reached = reached_addresses(address.ip());
        let is_hub = |hub: &SocketAddr| {
            hub.port() == address.port() && reached_addresses(hub.ip()).iter().any(|ip| reached.contains(ip))
        };
        if hub.iter().any(is_hub) {
            return Err(AddressRefusal::Hub);
        }
        match reached.into_iter().filter_map(range_of).find(|range| !self.allows(*range)) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn allows(self, range: AddressRefusal) -> bool {
        match range {
            AddressRefusal::Loopback => self.allow_loopback,
            AddressRefusal::LinkLocal => self.allow_link_local,
            AddressRefusal::Metadata => self.allow_metadata,
            AddressRefusal::Private => self.allow_private,
            AddressRefusal::Unspecified | AddressRefusal::Multicast | AddressRefusal::Hub => false,
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// Addresses of metadata and credential services.
const METADATA_SERVICES: [IpAddr; 16] = [
    // Most providers.
    v4(169, 254, 169, 254),
    // AWS: credentials of ECS tasks and of EKS Pods, DNS, time.
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    v4(169, 254, 169, 253),
    v4(169, 254, 169, 123),
    // Google Cloud: handshaker and DNS helpers beside the metadata server.
    v4(169, 254, 169, 252),
    // Linode.
    v4(169, 254, 169, 255),
    // Scaleway.
    v4(169, 254, 42, 42),
    // Tencent Cloud.
    v4(169, 254, 0, 23),
    // Azure wire server.
    v4(168, 63, 129, 16),
    // Alibaba Cloud.
    v4(100, 100, 100, 200),
    // Oracle Cloud.
    v4(192, 0, 0, 192),
    // Google Cloud over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    // Scaleway over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    // Linode over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
    // OpenStack over IPv6.
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

/// Returns the special range of an address; `None` for public addresses.
fn range_of(ip: IpAddr) -> Option<AddressRefusal> {
    if METADATA_SERVICES.contains(&ip) {
        return Some(AddressRefusal::Metadata);
    }
    match ip {
        IpAddr::V4(ip) => range_of_v4(ip),
        IpAddr::V6(ip) => range_of_v6(ip),
    }
}

fn range_of_v4(ip: Ipv4Addr) -> Option<AddressRefusal> {
    let is_private = match ip.octets() {
        // Shared address space, protocol assignments, benchmarks, reserved.
        [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] | [240..=255, ..] => true,
        _ => ip.is_private(),
    };
    match () {
        () if ip.is_loopback() => Some(AddressRefusal::Loopback),
        () if ip.is_link_local() => Some(AddressRefusal::LinkLocal),
        () if ip.octets()[0] == 0 => Some(AddressRefusal::Unspecified),
        () if ip.is_multicast() || ip.is_broadcast() => Some(AddressRefusal::Multicast),
        () if is_private => Some(AddressRefusal::Private),
        () => None,
    }
}

fn range_of_v6(ip: Ipv6Addr) -> Option<AddressRefusal> {
    let segments = ip.segments();
    match () {
        () if ip.is_loopback() => Some(AddressRefusal::Loopback),
        () if ip.is_unicast_link_local() => Some(AddressRefusal::LinkLocal),
        () if ip.is_unspecified() => Some(AddressRefusal::Unspecified),
        () if ip.is_multicast() => Some(AddressRefusal::Multicast),
        // AWS serves metadata, credentials of Pods, DNS and time here.
        () if segments[..2] == [0xfd00, 0xec2] => Some(AddressRefusal::Metadata),
        // Site-local addresses are deprecated and still routed within sites.
        () if ip.is_unique_local() || segments[0] & 0xffc0 == 0xfec0 => Some(AddressRefusal::Private),
        () => None,
    }
}

/// Returns the addresses that can receive packets to `ip`: itself, or the IPv4 addresses that it embeds.
fn reached_addresses(ip: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = ip else { return vec![ip] };
    if v6.is_loopback() || v6.is_unspecified() {
        return vec![ip];
    }
    let segments = v6.segments();
    match segments {
        // ::a.b.c.d (compatible), ::ffff:a.b.c.d (mapped), ::ffff:0:a.b.c.d (translated), 64:ff9b::a.b.c.d (NAT64),
        // 2002:a.b.c.d:: (6to4). Nothing but the IPv4 address is reached.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => vec![embedded(high, low)],
        // NAT64 with a local prefix (RFC 8215): its length decides where the IPv4 address is (RFC 6052).
        [0x64, 0xff9b, 1, ..] => one_of_positions(ip, &v6.octets()),
        // Teredo: server, and client with all bits inverted.
        [0x2001, 0, server_high, server_low, .., high, low] => {
            with_routable(ip, [embedded(server_high, server_low), embedded(!high, !low)])
        }
        // ISATAP: an interface identifier under any prefix.
        [.., id, 0x5efe, high, low] if id & 0xfcff == 0 => vec![ip, embedded(high, low)],
        _ => vec![ip],
    }
}

fn embedded(high: u16, low: u16) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

/// Returns the embedded IPv4 addresses for prefixes of 48, 56, 64 and 96 bits. Octet 8 is never part of one.
fn one_of_positions(ip: IpAddr, octets: &[u8; 16]) -> Vec<IpAddr> {
    let positions = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    with_routable(ip, positions.map(|at| IpAddr::V4(at.map(|index: usize| octets[index]).into())))
}

/// Returns `ip` and the routable candidates. 0.0.0.0/8 is not routable, so such a candidate is not the embedded
/// address.
fn with_routable<const N: usize>(ip: IpAddr, candidates: [IpAddr; N]) -> Vec<IpAddr> {
    let routable = |ip: &IpAddr| matches!(ip, IpAddr::V4(v4) if v4.octets()[0] != 0);
    std::iter::once(ip).chain(candidates.into_iter().filter(routable)).collect()
}

#[cfg(test)]
mod tests;
