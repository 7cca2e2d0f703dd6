//! Rules for the hosts of sources, redirects and token services.

use reqwest::Url;

use crate::config::{Config, KNOWN_REGISTRIES, WELL_KNOWN_HOSTS};
use crate::refusal::Refusal;

/// The hosts that flags allow.
pub(crate) struct Hosts {
    insecure: Vec<String>,
    allowed: Vec<String>,
    private: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(config: &Config) -> Self {
        let mut allowed = normalized(&config.allowed_hosts);
        allowed.extend(WELL_KNOWN_HOSTS.iter().map(|host| (*host).to_owned()));
        let insecure = normalized(&config.insecure_hosts);
        let mut private = normalized(&config.private_hosts);
        private.extend(insecure.iter().map(|host| host.strip_suffix(":80").unwrap_or(host).to_owned()));
        Self { insecure, allowed, private }
    }

    pub(super) fn is_insecure(&self, authority: &str) -> bool {
        self.insecure.iter().any(|host| host.eq_ignore_ascii_case(authority))
    }

    /// Returns whether a flag allows plain HTTP for an address. Addresses omit port 80, which a flag may name.
    fn allows_http(&self, url: &Url) -> bool {
        let authority = authority(url);
        self.is_insecure(&authority) || url.port().is_none() && self.is_insecure(&format!("{authority}:80"))
    }

    /// Returns whether a flag allows this host in a private network or on this machine.
    pub(super) fn may_be_private(&self, authority: &str) -> bool {
        self.private.iter().any(|pattern| covers(pattern, authority))
    }

    /// Returns whether a flag names this host without a pattern.
    pub(super) fn is_named(&self, authority: &str) -> bool {
        self.private.iter().any(|host| host == authority)
    }

    /// Checks scheme and credentials of an address.
    pub(crate) fn check_address(&self, url: &Url) -> Result<(), Refusal> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::User);
        }
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.allows_http(url) => Ok(()),
            "http" => Err(Refusal::PlainHttp),
            other => Err(Refusal::Scheme(crate::storage::digest::printable(other))),
        }
    }

    /// Returns whether a source may redirect to `to`. `path` holds the previous addresses, the source's first.
    pub(crate) fn check(&self, path: &[&Url], to: &Url) -> Result<(), Refusal> {
        self.check_address(to)?;
        let target = authority(to);
        let is_listed = || self.allowed.iter().any(|pattern| covers(pattern, &target));
        let is_own = || path.iter().any(|from| authority(from) == target);
        let is_known = || path.first().is_some_and(|source| is_part_of(&authority(source), &target));
        if is_own() || is_listed() || is_known() { Ok(()) } else { Err(Refusal::Host) }
    }
}

/// Returns whether a public registry has its content or its token service at this host.
fn is_part_of(registry: &str, host: &str) -> bool {
    KNOWN_REGISTRIES.iter().any(|(pattern, hosts)| {
        covers(pattern, registry) && hosts.iter().any(|pattern| covers(pattern, host))
    })
}

/// Returns `host[:port]` of an address.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns hosts in the format of [`authority`].
pub(super) fn normalized(hosts: &[String]) -> Vec<String> {
    let written = |host: &String| {
        let host = host.trim().to_ascii_lowercase();
        host.strip_suffix(":443").map(str::to_owned).unwrap_or(host)
    };
    hosts.iter().map(written).filter(|host| !host.is_empty()).collect()
}

/// Returns whether a pattern matches a host. `*` alone matches every host. A leading `*` matches one or more labels
/// of a name, any other exactly one; neither matches a part of an IP address.
pub(super) fn covers(pattern: &str, authority: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if !pattern.contains('*') {
        return pattern == authority;
    }
    if is_ip_address(authority) {
        return false;
    }
    let (mut wanted, mut found) = (pattern.rsplit('.'), authority.rsplit('.'));
    loop {
        match (wanted.next(), found.next()) {
            (Some("*"), Some(label)) if !label.is_empty() => {
                if wanted.clone().next().is_none() {
                    return found.all(|label| !label.is_empty());
                }
            }
            (Some(label), Some(other)) if label == other => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

fn is_ip_address(authority: &str) -> bool {
    let host = Url::parse(&format!("https://{authority}/"));
    host.is_ok_and(|url| matches!(url.host(), Some(url::Host::Ipv4(_) | url::Host::Ipv6(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_no_part_of_an_ip_address() {
        for (pattern, address) in
            [("*.1", "192.0.2.1"), ("*.1:6443", "192.0.2.1:6443"), ("192.0.2.*", "192.0.2.1")]
        {
            assert!(!covers(pattern, address), "{pattern} {address}");
        }
        assert!(covers("192.0.2.1:6443", "192.0.2.1:6443"));
        for any in ["192.0.2.1", "[2001:db8::1]:6443", "a.example:5000"] {
            assert!(covers("*", any), "{any}");
        }
    }

    fn hosts() -> Hosts {
        let mut config = Config::new("unused");
        config.insecure_hosts = vec!["127.0.0.1:5000".to_owned()];
        config.allowed_hosts = vec!["Tokens.example".to_owned(), "*.cdn.example".to_owned()];
        config.private_hosts = vec!["registry.corp:443".to_owned(), "*.lan:5000".to_owned()];
        Hosts::new(&config)
    }

    fn check(from: &str, to: &str) -> Result<(), Refusal> {
        hosts().check(&[&from.parse().unwrap()], &to.parse().unwrap())
    }

    #[test]
    fn only_the_same_and_allowed_hosts_are_followed() {
        let registry = "https://reg.example/v2/a";
        for allowed in [
            "https://reg.example/x",
            "https://tokens.example/t",
            "https://a.cdn.example",
            "https://auth.docker.io/",
        ] {
            assert_eq!(check(registry, allowed), Ok(()), "{allowed}");
        }
        let rows = [
            ("https://evil.example/", Refusal::Host),
            ("https://reg.example:8443/", Refusal::Host),
            ("http://reg.example/", Refusal::PlainHttp),
            ("http://tokens.example/", Refusal::PlainHttp),
            ("https://cdn.example/", Refusal::Host),
            ("https://evilcdn.example/", Refusal::Host),
            ("https://reg.example@evil.example/", Refusal::User),
            ("https://user@reg.example/", Refusal::User),
            ("http://169.254.169.254/latest", Refusal::PlainHttp),
            ("file:///etc/passwd", Refusal::Scheme("file".to_owned())),
            ("oci://reg.example/a", Refusal::Scheme("oci".to_owned())),
        ];
        for (foreign, refusal) in rows {
            assert_eq!(check(registry, foreign), Err(refusal), "{foreign}");
        }
    }

    #[test]
    fn plain_http_is_for_named_hosts_only() {
        assert_eq!(check("http://127.0.0.1:5000/", "http://127.0.0.1:5000/x"), Ok(()));
        assert_eq!(check("http://127.0.0.1:5000/", "http://127.0.0.1:5001/x"), Err(Refusal::PlainHttp));
    }

    #[test]
    fn port_80_of_a_flag_is_the_port_of_an_address_without_one() {
        let mut config = Config::new("unused");
        config.insecure_hosts = vec!["reg.lan:80".to_owned()];
        let hosts = Hosts::new(&config);
        let check =
            |to: &str| hosts.check(&[&"http://reg.lan:80/v2/".parse().unwrap()], &to.parse().unwrap());
        assert_eq!(check("http://reg.lan/token"), Ok(()));
        assert_eq!(check("http://reg.lan:8080/token"), Err(Refusal::PlainHttp));
        assert!(hosts.may_be_private("reg.lan") && hosts.is_named("reg.lan"));
        assert!(hosts.is_insecure("reg.lan:80") && !hosts.is_insecure("reg.lan"));
    }

    #[test]
    fn only_known_registries_may_redirect_blobs_to_their_stores() {
        let hub_store = "https://docker-images-prod.6aa30f8b.r2.cloudflarestorage.com/x";
        let rows = [
            ("https://registry-1.docker.io/v2/", hub_store, true),
            ("https://reg.example/v2/", hub_store, false),
            ("https://public.ecr.aws/v2/", "https://d5l0dvt14r5h8.cloudfront.net/x", true),
            ("https://reg.example/v2/", "https://d5l0dvt14r5h8.cloudfront.net/x", false),
            ("https://registry.k8s.io/v2/", "https://us-central1-docker.pkg.dev/x", true),
            ("https://registry.gitlab.com/v2/", "https://gitlab.com/jwt/auth", true),
            ("https://charts.bitnami.com/bitnami/index.yaml", "https://repo.broadcom.com/x", true),
            ("https://charts.example/index.yaml", "https://repo.broadcom.com/x", false),
            ("https://mcr.microsoft.com/v2/", "https://eastus.data.mcr.microsoft.com/x", true),
            ("https://a.azurecr.io/v2/", "https://store.blob.core.windows.net/x", true),
            (
                "https://1.dkr.ecr.eu-central-1.amazonaws.com/v2/",
                "https://prod-starport-layer-bucket.s3.eu-central-1.amazonaws.com/x",
                true,
            ),
            (
                "https://1.dkr.ecr.cn-north-1.amazonaws.com.cn/v2/",
                "https://prod-cn-north-1-starport-layer-bucket.s3.cn-north-1.amazonaws.com.cn/x",
                true,
            ),
            (
                "https://1.dkr.ecr.eu-central-1.amazonaws.com/v2/",
                "https://ec2-10-0-0-1.eu-central-1.compute.amazonaws.com/x",
                false,
            ),
        ];
        for (registry, store, expected) in rows {
            assert_eq!(check(registry, store).is_ok(), expected, "{registry} {store}");
        }
    }

    #[test]
    fn a_later_redirect_counts_from_the_source_too() {
        let (source, store): (Url, Url) = (
            "https://registry-1.docker.io/v2/a".parse().unwrap(),
            "https://production.cloudflare.docker.com/a".parse().unwrap(),
        );
        let back: Url = "https://registry-1.docker.io/b".parse().unwrap();
        let other: Url = "https://a.r2.cloudflarestorage.com/b".parse().unwrap();
        assert_eq!(hosts().check(&[&source, &store], &back), Ok(()));
        assert_eq!(hosts().check(&[&source, &store], &other), Ok(()));
        assert_eq!(hosts().check(&[&store], &other), Err(Refusal::Host));
    }

    #[test]
    fn hosts_in_private_networks_are_named_with_their_port() {
        let hosts = hosts();
        for named in ["registry.corp", "a.lan:5000", "127.0.0.1:5000"] {
            assert!(hosts.may_be_private(named), "{named}");
        }
        for other in ["registry.corp:8443", "a.lan", "lan:5000", "127.0.0.1:10250"] {
            assert!(!hosts.may_be_private(other), "{other}");
        }
        assert!(hosts.is_named("registry.corp") && !hosts.is_named("a.lan:5000"));
    }
}
