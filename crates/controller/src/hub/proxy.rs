//! Selects the proxy to the hub as kubectl does.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use kube::config::Kubeconfig;

use super::error::HubError;

/// Returns the `proxy-url` of the cluster that a context selects; without a context, the current one.
pub(super) fn kubeconfig_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|entry| entry.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|entry| entry.name == context.cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone().filter(|proxy| !proxy.is_empty())
}

/// Returns the proxy that the environment names for a server: `HTTPS_PROXY`, or `HTTP_PROXY` for an http address, unless
/// the server is on this machine or `NO_PROXY` covers it.
///
/// # Errors
/// The proxy is not an http or https address.
pub fn environment_proxy(server: &Uri) -> Result<Option<Uri>, HubError> {
    choose(server, None, |name| std::env::var(name).ok())
}

/// Returns the proxy to a server: `proxy_url` of the kubeconfig, else the one of the environment. The latter is
/// not for servers on this machine and for those that `NO_PROXY` covers.
///
/// # Errors
/// The proxy is not an address.
pub(super) fn choose(
    server: &Uri,
    proxy_url: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, HubError> {
    if let Some(address) = proxy_url {
        return parse("proxy-url", address).map(Some);
    }
    let value_of = |names: [&'static str; 2]| {
        let mut values = names.into_iter().filter_map(|name| Some((name, variable(name)?)));
        values.find(|(_, value)| !value.trim().is_empty())
    };
    let names = if is_http(server) { ["HTTP_PROXY", "http_proxy"] } else { ["HTTPS_PROXY", "https_proxy"] };
    let Some((name, proxy)) = value_of(names) else { return Ok(None) };
    let exceptions = value_of(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
    if is_direct(server, &exceptions) { Ok(None) } else { parse(name, &proxy).map(Some) }
}

fn is_http(server: &Uri) -> bool {
    server.scheme_str() == Some("http")
}

/// Parses the address of a proxy. Without a scheme it is an http proxy. The error does not contain the address, which
/// may have a password.
fn parse(name: &'static str, proxy: &str) -> Result<Uri, HubError> {
    let proxy = proxy.trim();
    let whole = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    let parsed =
        whole.parse().ok().filter(|proxy: &Uri| matches!(proxy.scheme_str(), Some("http" | "https")));
    parsed.ok_or(HubError::Proxy { name })
}

/// Reports whether a server is on this machine, or an entry of `exceptions` covers it.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = without_brackets(server.host().unwrap_or_default()).to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let port = server.port_u16().unwrap_or(if is_http(server) { 80 } else { 443 });
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost"
        || address.is_some_and(|address| address.is_loopback())
        || exceptions.split(',').any(|entry| covers(entry.trim(), host, address, port))
}

/// Reports whether an entry of `NO_PROXY` covers a host: `*`, an address, a network, or a domain with its subdomains;
/// `.domain` and `*.domain` are the subdomains alone. A port limits it to that port.
fn covers(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if entry.contains('/') {
        let network: Option<IpNet> = entry.parse().ok();
        return address.zip(network).is_some_and(|(address, network)| network.contains(&address));
    }
    if let Ok(single) = without_brackets(entry).parse::<IpAddr>() {
        return address == Some(single);
    }
    let (name, wanted) = entry.rsplit_once(':').map_or((entry, None), |(name, wanted)| (name, Some(wanted)));
    if wanted.is_some_and(|wanted| wanted.parse::<u16>() != Ok(port)) {
        return false;
    }
    if let Ok(single) = without_brackets(name).parse::<IpAddr>() {
        return address == Some(single);
    }
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(&name);
    match host.strip_suffix(name) {
        _ if name.is_empty() => false,
        Some(before) if name.starts_with('.') => !before.is_empty(),
        Some(before) => before.is_empty() || before.ends_with('.'),
        None => false,
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.corp:3128";

    fn chosen(
        server: &str,
        named: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<String>, HubError> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = choose(&server.parse().unwrap(), named, variable)?;
        Ok(proxy.map(|proxy| proxy.to_string().trim_end_matches('/').to_owned()))
    }

    #[test]
    fn environment_proxy_is_used_for_servers_outside_no_proxy() {
        let rows = [
            ("https://hub.example:6443", "", true),
            ("https://hub.example:6443", "example", false),
            ("https://hub.example", "hub.example,", false),
            ("https://HUB.example.", " .example , ", false),
            ("https://example", ".example", true),
            ("https://hub.example", "*.example", false),
            ("https://myhub.example", "hub.example", true),
            ("https://hub.example:6443", "hub.example:6443", false),
            ("https://hub.example:6443", "hub.example:443", true),
            ("https://hub.example", "hub.example:443", false),
            ("https://hub.example", "*", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", false),
            ("https://11.1.2.3:6443", "10.0.0.0/8", true),
            ("https://10.1.2.3:6443", "0.0.0.0/0", false),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", false),
            ("https://10.1.2.3:6443", "10.1.2.30", true),
            ("https://10.1.2.3:6443", "10.9.9.9/8", false),
            ("https://10.1.2.3:6443", "10.0.0.0/33,10.0.0.0/-1,10.0.0.0/", true),
            ("https://10.1.2.3:6443", "::/0", true),
            ("https://[fd00::1]:6443", "fd00::/64", false),
            ("https://[fd00::1]:6443", "[fd00::1]", false),
            ("https://[fd00:1::1]:6443", "fd00::/64,10.0.0.0/8", true),
            ("https://127.0.0.1:6443", "", false),
            ("https://[::1]:6443", "", false),
            ("https://localhost:6443", "", false),
        ];
        for (server, exceptions, is_used) in rows {
            let variables = [("HTTPS_PROXY", PROXY), ("NO_PROXY", exceptions)];
            let expected = is_used.then(|| PROXY.to_owned());
            assert_eq!(chosen(server, None, &variables).unwrap(), expected, "{server} {exceptions:?}");
        }
    }

    #[test]
    fn the_proxy_of_the_kubeconfig_wins_and_has_no_exceptions() {
        let variables = [("HTTPS_PROXY", "http://other.corp"), ("NO_PROXY", "*")];
        let found = chosen("https://hub.example", Some(PROXY), &variables).unwrap();
        assert_eq!(found.as_deref(), Some(PROXY));
    }

    #[test]
    fn variables_are_those_of_the_scheme_in_either_case() {
        let found =
            |server: &str, variable: &str| chosen(server, None, &[(variable, "proxy.corp:3128")]).unwrap();
        for (server, variable) in [
            ("https://hub.example", "HTTPS_PROXY"),
            ("https://hub.example", "https_proxy"),
            ("http://hub.example", "http_proxy"),
        ] {
            assert_eq!(found(server, variable).as_deref(), Some(PROXY), "{variable}");
        }
        assert_eq!(found("https://hub.example", "HTTP_PROXY"), None);
        for invalid in ["http://me:hush@a b", "socks5://me:hush@proxy.corp:1080"] {
            for name in ["HTTPS_PROXY", "https_proxy"] {
                let error = chosen("https://hub.example", None, &[(name, invalid)]).unwrap_err();
                let expected = format!(
                    "the proxy in {name} is not an http or https address: write it as http://HOST:PORT"
                );
                assert_eq!(error.to_string(), expected);
            }
        }
    }

    #[test]
    fn the_proxy_is_that_of_the_selected_cluster() {
        let kubeconfig = Kubeconfig::from_yaml(
            "current-context: a\n\
             contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]\n\
             clusters: [{name: a, cluster: {server: 'https://a', proxy-url: 'http://p'}}, \
             {name: b, cluster: {server: 'https://b', proxy-url: ''}}]\n",
        )
        .unwrap();
        assert_eq!(kubeconfig_proxy(&kubeconfig, None).as_deref(), Some("http://p"));
        assert_eq!(kubeconfig_proxy(&kubeconfig, Some("b")), None);
        assert_eq!(kubeconfig_proxy(&kubeconfig, Some("c")), None);
    }
}
