//! Addresses to which an operator may connect for an access Secret.
//!
//! The author of an access Secret chooses a host name, and the owner of that name chooses the address. The rules are
//! therefore applied to addresses after name resolution, by the code that opens the connection.

use std::net::SocketAddr;

use kyma_api::{AddressRefusal, AddressRules};

use crate::credentials::tokens::TokenProviders;

/// Rights of kubeconfigs beyond the safe default. Set by flags of the operator, never by a Secret.
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
    /// Providers of tokens for kubeconfigs that name them as the command of an `exec` entry. Default none.
    pub token_providers: TokenProviders,
    /// Addresses and ports of the hub's own API server, to which no target may lead: the hub is managed only as the
    /// local cluster. Default empty.
    pub hub_addresses: Vec<SocketAddr>,
}

impl AccessPolicy {
    /// Checks whether a connection to `address` may be opened. Targets may be in private networks.
    ///
    /// # Errors
    /// The reason for which the address is not allowed.
    pub fn check(&self, address: SocketAddr) -> Result<(), AddressRefusal> {
        let rules = AddressRules {
            allow_loopback: self.allow_loopback,
            allow_link_local: self.allow_link_local,
            allow_metadata: self.allow_metadata,
            allow_private: true,
        };
        rules.check(address, &self.hub_addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 443)
    }

    #[test]
    fn special_addresses_are_refused_by_default() {
        let rows = [
            ("127.0.0.1", AddressRefusal::Loopback),
            ("64:ff9b:1::127.0.0.1", AddressRefusal::Loopback),
            ("fe80::1", AddressRefusal::LinkLocal),
            ("169.254.170.23", AddressRefusal::Metadata),
            ("fd00:ec2::23", AddressRefusal::Metadata),
            ("0.1.2.3", AddressRefusal::Unspecified),
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
    fn hub_is_refused_by_address_and_port_even_if_loopback_allowed() {
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
