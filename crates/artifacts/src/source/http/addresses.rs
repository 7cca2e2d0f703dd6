//! Checks network addresses after name resolution, when the connection is opened.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
};

use kyma_api::{AddressRefusal, AddressRules};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use url::Host;

/// Maximum number of addresses of one name.
const MAX_ADDRESSES: usize = 16;

/// A refused address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedAddress {
    /// The range.
    pub(super) range: String,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not allowed", self.range)
    }
}

impl Error for RefusedAddress {}

/// The networks in which a host may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkScope {
    /// Public networks only.
    Public,
    /// Also private networks and this machine, for hosts that a flag names.
    Private,
}

impl NetworkScope {
    /// Checks an address of a host.
    fn check(self, address: IpAddr) -> Result<(), RefusedAddress> {
        let is_private = self == Self::Private;
        let rules =
            AddressRules { allow_loopback: is_private, allow_private: is_private, ..AddressRules::default() };
        let refused = |refusal: AddressRefusal| RefusedAddress { range: refusal.to_string() };
        rules.check(SocketAddr::new(address, 0), &[]).map_err(refused)
    }

    /// Checks a host that is an IP address. Names are checked when they are resolved; `localhost` is checked here
    /// because a proxy would resolve it.
    pub(super) fn check_literal(self, url: &Url) -> Result<(), RefusedAddress> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(name)) if is_localhost(name) => self.check(IpAddr::from([127, 0, 0, 1])),
            _ => Ok(()),
        }
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Resolves names to addresses of a scope. One refused address refuses the name.
pub(super) struct Resolver {
    pub(super) scope: NetworkScope,
    /// Host of the configured proxy. Its addresses are not restricted.
    pub(super) proxy: Option<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_proxy = self.proxy.as_deref().is_some_and(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        let scope = self.scope;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
            if !is_proxy {
                for address in &addresses {
                    scope.check(address.ip())?;
                }
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Returns the refused address among the causes of an error.
pub(super) fn refusal_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a RefusedAddress> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(scope: NetworkScope, host: &str) -> Result<(), RefusedAddress> {
        scope.check_literal(&format!("https://{host}/").parse().unwrap())
    }

    #[test]
    fn addresses_that_are_not_public_need_a_flag() {
        for public in ["203.0.113.7", "8.8.8.8", "[2001:db8::1]", "registry.example"] {
            assert_eq!(literal(NetworkScope::Public, public), Ok(()), "{public}");
            assert_eq!(literal(NetworkScope::Private, public), Ok(()), "{public}");
        }
        let private = [
            "127.0.0.1",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "[fd12::1]",
            "2130706433",
        ];
        for private in private {
            assert!(literal(NetworkScope::Public, private).is_err(), "{private}");
            assert_eq!(literal(NetworkScope::Private, private), Ok(()), "{private}");
        }
        for never in
            ["169.254.169.254", "169.254.1.1", "0.0.0.0", "[fe80::1]", "224.0.0.1", "[fd00:ec2::254]"]
        {
            assert!(literal(NetworkScope::Public, never).is_err(), "{never}");
            assert!(literal(NetworkScope::Private, never).is_err(), "{never}");
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_the_addresses_that_it_resolves_to() {
        let resolve = |scope, proxy: Option<&str>| {
            let resolver = Resolver { scope, proxy: proxy.map(str::to_owned) };
            resolver.resolve("localhost".parse().unwrap())
        };
        assert!(resolve(NetworkScope::Private, None).await.is_ok());
        assert!(resolve(NetworkScope::Public, Some("localhost")).await.is_ok());
        let Err(refused) = resolve(NetworkScope::Public, None).await else {
            panic!("localhost is not public")
        };
        assert!(refusal_in(refused.as_ref()).is_some());
    }
}
