//! Parses an accepted kubeconfig: one https server with inline CA and inline credentials, nothing else.
//!
//! kube's own loader is never used for it, since it runs `exec` plugins and reads any file that a kubeconfig names.

use std::fmt;

use serde_json::{Map, Value};
use url::Url;

use crate::access::AccessPolicy;

use error::MAX_KUBECONFIG_BYTES;
use fields::Fields;

pub use error::KubeconfigError;
pub use text::decode as decode_text;

mod error;
mod fields;
#[cfg(test)]
mod tests;
mod text;

/// Fields that hardly anything else has.
const KUBECONFIG_FIELDS: [&str; 3] = ["current-context", "certificate-authority", "client-key-data"];
/// Maximum length of a bearer token, in bytes. API servers refuse longer headers anyway.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// A kubeconfig that passed every check. Holds credentials: `Debug` shows the server only.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// https URL of the apiserver, perhaps with a path prefix; without user, query and fragment.
    pub(crate) server: Url,
    /// PEM bundle of the only authorities trusted for this server.
    pub(crate) authorities: Vec<u8>,
    /// Name expected in the server's certificate, where it differs from the host of `server`.
    pub(crate) server_name: Option<String>,
    /// http proxy for CONNECT, without credentials.
    pub(crate) proxy: Option<Url>,
    /// Bearer token, a valid header value.
    pub(crate) token: Option<String>,
    /// PEM client certificate chain and key.
    pub(crate) identity: Option<ClientIdentity>,
    /// Name of the registered provider that gives tokens.
    pub(crate) provider: Option<String>,
    /// Namespace of the context.
    pub(crate) namespace: Option<String>,
}

/// PEM client certificate chain and its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Kubeconfig {
    /// Reads the entries that `current-context` selects; other entries are never used and not judged.
    ///
    /// Errors: [`KubeconfigError`], at the first problem.
    pub fn parse(bytes: &[u8], policy: &AccessPolicy) -> Result<Self, KubeconfigError> {
        let root = document(bytes)?;
        let root = Fields { path: "the document", map: &root };
        root.only(
            &["apiVersion", "kind", "clusters", "contexts", "users", "current-context"],
            &["preferences", "extensions"],
            &[],
        )?;
        let current = root.text("current-context", "current-context")?;
        let current = current.ok_or(KubeconfigError::Missing { field: "current-context" })?;
        let context = root.entry("contexts", "context", &current, "current-context", "contexts[].context")?;
        context.only(&["cluster", "user", "namespace"], &["extensions"], &[])?;
        let cluster = context.text("cluster", "contexts[].context.cluster")?;
        let cluster = cluster.ok_or(KubeconfigError::Missing { field: "contexts[].context.cluster" })?;
        let user = context.text("user", "contexts[].context.user")?;
        let user = user.ok_or(KubeconfigError::Missing { field: "contexts[].context.user" })?;

        let place = "contexts[].context.cluster";
        let cluster = root.entry("clusters", "cluster", &cluster, place, "clusters[].cluster")?;
        let user = root.entry("users", "user", &user, "contexts[].context.user", "users[].user")?;
        let kubeconfig = Self {
            namespace: context.text("namespace", "contexts[].context.namespace")?,
            ..read_cluster(&cluster, policy)?
        };
        read_user(&user, kubeconfig, policy)
    }

    /// Reports whether a text looks like a kubeconfig, accepted or not.
    pub fn is_likely(bytes: &[u8]) -> bool {
        let Ok(root) = document(bytes) else {
            // Several documents, aliases or a large one: what cannot be read here may be read elsewhere.
            let text = text::decode(bytes).unwrap_or_else(|| String::from_utf8_lossy(bytes));
            return KUBECONFIG_FIELDS.iter().any(|field| text.contains(field));
        };
        let is_config = root.get("kind").is_some_and(|kind| kind == "Config");
        is_config || root.contains_key("clusters") || root.contains_key("current-context")
    }

    /// Returns host and port of the server, for messages.
    pub fn server(&self) -> String {
        let host = self.server.host_str().unwrap_or_default();
        format!("{host}:{}", self.server.port_or_known_default().unwrap_or(443))
    }

    /// Returns the namespace of the context, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("server", &self.server()).finish_non_exhaustive()
    }
}

fn document(bytes: &[u8]) -> Result<Map<String, Value>, KubeconfigError> {
    if bytes.len() > MAX_KUBECONFIG_BYTES {
        return Err(KubeconfigError::TooLarge);
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 20_000,
            max_aliases: 0,
            max_anchors: 0,
            max_depth: 32,
            max_documents: 1,
            max_nodes: 10_000,
            max_merge_keys: 0,
        },
    };
    let text = text::decode(bytes).ok_or(KubeconfigError::Syntax { line: None })?;
    let text = text::without_empty_documents(&text);
    // The parser's own message quotes the text around a problem, which may be a token: only the line is kept.
    let value: Value = serde_saphyr::from_slice_with_options(text.as_bytes(), options)
        .map_err(|error| KubeconfigError::Syntax { line: error.location().map(|at| at.line()) })?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(KubeconfigError::Syntax { line: None }),
    }
}

const REFUSED_IN_CLUSTER: &[(&str, &str, &str)] = &[
    (
        "certificate-authority",
        "clusters[].cluster.certificate-authority",
        "it names a file; use certificate-authority-data",
    ),
    (
        "insecure-skip-tls-verify",
        "clusters[].cluster.insecure-skip-tls-verify",
        "it would send credentials to an unverified server; use certificate-authority-data",
    ),
];

const REFUSED_IN_USER: &[(&str, &str, &str)] = &[
    (
        "exec",
        "users[].user.exec",
        "it runs a program, and no token provider is registered under its command; use a token or a client certificate",
    ),
    ("auth-provider", "users[].user.auth-provider", "it runs a program; use a token or a client certificate"),
    ("tokenFile", "users[].user.tokenFile", "it names a file; use token"),
    ("client-certificate", "users[].user.client-certificate", "it names a file; use client-certificate-data"),
    ("client-key", "users[].user.client-key", "it names a file; use client-key-data"),
    ("username", "users[].user.username", "basic authentication is not supported; use a token"),
    ("password", "users[].user.password", "basic authentication is not supported; use a token"),
    ("as", "users[].user.as", "impersonation in kubeconfigs is not supported"),
    ("as-uid", "users[].user.as-uid", "impersonation in kubeconfigs is not supported"),
    ("as-groups", "users[].user.as-groups", "impersonation in kubeconfigs is not supported"),
    ("as-user-extra", "users[].user.as-user-extra", "impersonation in kubeconfigs is not supported"),
];

fn read_cluster(cluster: &Fields<'_>, policy: &AccessPolicy) -> Result<Kubeconfig, KubeconfigError> {
    cluster.only(
        &["server", "certificate-authority-data", "tls-server-name", "proxy-url"],
        &["disable-compression", "extensions"],
        REFUSED_IN_CLUSTER,
    )?;
    let server = cluster.text("server", "clusters[].cluster.server")?;
    let server = server.ok_or(KubeconfigError::Missing { field: "clusters[].cluster.server" })?;
    let authorities =
        cluster.base64("certificate-authority-data", "clusters[].cluster.certificate-authority-data")?;
    let authorities = authorities
        .ok_or(KubeconfigError::Missing { field: "clusters[].cluster.certificate-authority-data" })?;
    let proxy = cluster.text("proxy-url", "clusters[].cluster.proxy-url")?;
    Ok(Kubeconfig {
        server: read_server(&server)?,
        authorities,
        server_name: cluster.text("tls-server-name", "clusters[].cluster.tls-server-name")?,
        proxy: proxy.map(|proxy| read_proxy(&proxy, policy)).transpose()?,
        token: None,
        identity: None,
        provider: None,
        namespace: None,
    })
}

fn read_server(text: &str) -> Result<Url, KubeconfigError> {
    let field = "clusters[].cluster.server";
    let malformed = |why| KubeconfigError::Malformed { field, why };
    let server = Url::parse(text).map_err(|_| malformed("an https URL is expected"))?;
    if server.scheme() != "https" {
        return Err(KubeconfigError::Refused { field, why: "only https is supported" });
    }
    if server.host_str().is_none() {
        return Err(malformed("a host is expected"));
    }
    let plain = server.username().is_empty()
        && server.password().is_none()
        && server.query().is_none()
        && server.fragment().is_none();
    plain.then_some(server).ok_or(malformed("user, query and fragment are not allowed in it"))
}

fn read_proxy(text: &str, policy: &AccessPolicy) -> Result<Url, KubeconfigError> {
    let field = "clusters[].cluster.proxy-url";
    if !policy.allow_proxy {
        return Err(KubeconfigError::Refused {
            field,
            why: "proxies need the operator's flag --allow-target-proxy",
        });
    }
    let malformed = |why| KubeconfigError::Malformed { field, why };
    let proxy = Url::parse(text).map_err(|_| malformed("a URL is expected"))?;
    if proxy.scheme() != "http" {
        return Err(malformed("only http proxies that tunnel with CONNECT are supported"));
    }
    if !proxy.username().is_empty() || proxy.password().is_some() {
        return Err(malformed("credentials are not allowed in it"));
    }
    Ok(proxy)
}

/// Returns the registered provider that an `exec` entry names. The rest of the entry is neither used nor checked. A
/// server for which the provider has no tokens is refused, and so is any field that could redirect the connection.
fn read_provider(
    user: &Fields<'_>,
    kubeconfig: &Kubeconfig,
    policy: &AccessPolicy,
) -> Result<Option<String>, KubeconfigError> {
    let field = "users[].user.exec";
    let refused = |field, why| Err(KubeconfigError::Refused { field, why });
    let command = user.map.get("exec").and_then(|exec| exec.get("command")).and_then(Value::as_str);
    let provider = command.and_then(|command| Some((command, policy.token_providers.get(command)?)));
    let Some((command, provider)) = provider else { return Ok(None) };
    user.only(
        &["exec", "token", "client-certificate-data", "client-key-data"],
        &["extensions"],
        &REFUSED_IN_USER[1..],
    )?;
    if user.map.keys().any(|name| name != "exec" && name != "extensions" && user.has(name)) {
        return refused(
            field,
            "a token provider gives the only credentials; remove token and client certificate",
        );
    }
    if kubeconfig.proxy.is_some() {
        return refused("clusters[].cluster.proxy-url", "tokens of a provider are not sent through a proxy");
    }
    if kubeconfig.server_name.is_some() {
        let why = "tokens of a provider are sent only to a server under its own name";
        return refused("clusters[].cluster.tls-server-name", why);
    }
    if !provider.serves(&kubeconfig.server) {
        return refused(
            field,
            "the operator's token provider is not for this server (--token-exchange-servers)",
        );
    }
    Ok(Some(command.to_owned()))
}

fn read_user(
    user: &Fields<'_>,
    mut kubeconfig: Kubeconfig,
    policy: &AccessPolicy,
) -> Result<Kubeconfig, KubeconfigError> {
    kubeconfig.provider = read_provider(user, &kubeconfig, policy)?;
    if kubeconfig.provider.is_some() {
        return Ok(kubeconfig);
    }
    let known = ["token", "client-certificate-data", "client-key-data"];
    user.only(&known, &["extensions"], REFUSED_IN_USER)?;
    kubeconfig.token = user.text("token", "users[].user.token")?;
    if let Some(token) = &kubeconfig.token {
        let sendable = token.len() <= MAX_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !sendable {
            let why = "printable ASCII without spaces is expected";
            return Err(KubeconfigError::Malformed { field: "users[].user.token", why });
        }
    }
    let certificate = user.base64("client-certificate-data", "users[].user.client-certificate-data")?;
    let key = user.base64("client-key-data", "users[].user.client-key-data")?;
    kubeconfig.identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(KubeconfigError::Missing { field: "users[].user.client-key-data" });
        }
        (None, Some(_)) => {
            return Err(KubeconfigError::Missing { field: "users[].user.client-certificate-data" });
        }
    };
    if kubeconfig.token.is_none() && kubeconfig.identity.is_none() {
        return Err(KubeconfigError::Missing { field: "users[].user.token" });
    }
    Ok(kubeconfig)
}
