//! OAuth 2.0 token exchange (RFC 8693): the operator's own ServiceAccount token for one that a target accepts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::provider::{IssuedToken, TokenError, TokenProvider};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// Maximum size of the operator's own token and of an answer, in bytes.
const MAX_TOKEN_TEXT_BYTES: u64 = 64 * 1024;
/// Validity of a token whose issuer names no expiry.
const DEFAULT_VALIDITY: Duration = Duration::from_mins(5);
/// Placeholder for the target's server in an audience.
const SERVER: &str = "{server}";

/// Error codes of RFC 6749 and RFC 8693.
const OAUTH_ERROR_CODES: [&str; 7] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
];

/// Settings of the token exchange. Set by flags of the operator, never by a Secret.
#[derive(Clone, Debug)]
pub struct ExchangeSettings {
    /// Token endpoint of the issuer, https. The operator's own token is sent only there: redirects are not followed,
    /// and proxies of the environment are not used.
    pub endpoint: Url,
    /// Audience of the requested tokens. `{server}` in it is replaced by `host[:port]` of the target's server, so
    /// that no target can use the token of another one.
    pub audience: String,
    /// File with the operator's own token, read again for each exchange, since the kubelet renews it.
    pub token_file: PathBuf,
    /// `host[:port]` of the servers that tokens may be sent to; a leading `*.` covers every subdomain.
    pub servers: Vec<String>,
    /// PEM certificates that are trusted for the issuer, instead of the system's.
    pub ca_pem: Option<Vec<u8>>,
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeSettingsError {
    /// The endpoint is not an https address without user, query and fragment.
    #[error("the token endpoint is not an https address without user, query and fragment")]
    Endpoint,
    /// The audience is missing.
    #[error("the audience is empty")]
    Audience,
    /// No server, or one that covers everything.
    #[error(
        "the servers that tokens may be sent to are missing, or one is not host[:port] or *.domain[:port]"
    )]
    Servers,
    /// No certificate in the PEM file.
    #[error("the issuer's certificates are not PEM certificates")]
    Certificates,
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client,
}

/// Exchanges the operator's own token.
pub struct TokenExchange {
    settings: ExchangeSettings,
    http: reqwest::Client,
}

impl TokenExchange {
    /// Validates the settings and creates the client; sends no request.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn new(mut settings: ExchangeSettings) -> Result<Self, ExchangeSettingsError> {
        let ExchangeSettings { endpoint, audience, servers, ca_pem, .. } = &mut settings;
        let plain = endpoint.username().is_empty()
            && endpoint.password().is_none()
            && endpoint.query().is_none()
            && endpoint.fragment().is_none();
        if endpoint.scheme() != "https" || !plain {
            return Err(ExchangeSettingsError::Endpoint);
        }
        if audience.is_empty() {
            return Err(ExchangeSettingsError::Audience);
        }
        for server in servers.iter_mut() {
            *server = server.trim().to_ascii_lowercase();
        }
        if servers.is_empty() || !servers.iter().all(|server| is_pattern(server)) {
            return Err(ExchangeSettingsError::Servers);
        }
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .https_only(true)
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(9))
            .user_agent(concat!("kyma-targets/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls(ca_pem.as_deref())?)
            .build()
            .map_err(|_| ExchangeSettingsError::Client)?;
        Ok(Self { settings, http })
    }

    async fn exchange(&self, server: &Url) -> Result<IssuedToken, TokenError> {
        let own = self.own_token().await?;
        let audience = self.settings.audience.replace(SERVER, &authority(server));
        let form: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT)
            .append_pair("audience", &audience)
            .append_pair("requested_token_type", ACCESS_TOKEN)
            .append_pair("subject_token", own.expose_secret())
            .append_pair("subject_token_type", JWT)
            .finish();
        let request = self
            .http
            .post(self.settings.endpoint.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(form);
        let mut response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if (body.len() + chunk.len()) as u64 > MAX_TOKEN_TEXT_BYTES {
                return Err(TokenError::Unreadable("it is too large"));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return issued(&body);
        }
        if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
            return Err(TokenError::Unavailable(status.as_u16()));
        }
        Err(TokenError::Refused { status: status.as_u16(), code: code(&body) })
    }

    async fn own_token(&self) -> Result<SecretString, TokenError> {
        use tokio::io::AsyncReadExt as _;
        let failed = |error: std::io::Error| TokenError::Own(error.kind());
        let file = tokio::fs::File::open(&self.settings.token_file).await.map_err(failed)?;
        let mut text = String::new();
        file.take(MAX_TOKEN_TEXT_BYTES).read_to_string(&mut text).await.map_err(failed)?;
        let token = text.trim();
        if token.is_empty() {
            return Err(TokenError::Own(std::io::ErrorKind::UnexpectedEof));
        }
        Ok(token.into())
    }
}

impl TokenProvider for TokenExchange {
    fn serves(&self, server: &Url) -> bool {
        let authority = authority(server);
        self.settings.servers.iter().any(|pattern| covers(pattern, &authority))
    }

    fn issue<'a>(&'a self, server: &'a Url) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
        self.exchange(server).boxed()
    }
}

#[derive(Deserialize)]
struct Answer {
    access_token: SecretString,
    token_type: String,
    /// Seconds: a number, or its text as some issuers write it.
    expires_in: Option<Value>,
}

impl Answer {
    fn valid_for(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Value::String(text)) => text.trim().parse().ok(),
            other => other.as_ref().and_then(Value::as_f64),
        };
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DEFAULT_VALIDITY)
    }
}

fn issued(body: &[u8]) -> Result<IssuedToken, TokenError> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| TokenError::Unreadable("it is not a response of RFC 8693"))?;
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(TokenError::Unreadable("its token is not a bearer token"));
    }
    let valid_for = answer.valid_for();
    Ok(IssuedToken { token: answer.access_token, valid_for })
}

fn code(body: &[u8]) -> &'static str {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let refusal = serde_json::from_slice::<Refusal>(body).ok();
    let known = refusal.and_then(|refusal| OAUTH_ERROR_CODES.into_iter().find(|code| *code == refusal.error));
    known.unwrap_or("no known code")
}

fn unreachable(error: &reqwest::Error) -> TokenError {
    if error.is_timeout() {
        return TokenError::Unreachable("no answer in time");
    }
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<rustls::Error>() {
            return TokenError::Unreachable("its certificate is not trusted");
        }
        // The error inside of an `io::Error` is not among its sources.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    TokenError::Unreachable(if error.is_connect() { "no connection" } else { "the connection broke off" })
}

fn tls(ca_pem: Option<&[u8]>) -> Result<ClientConfig, ExchangeSettingsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|_| ExchangeSettingsError::Client)?;
    let mut roots = RootCertStore::empty();
    let Some(pem) = ca_pem else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    };
    let given: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let given = given.map_err(|_| ExchangeSettingsError::Certificates)?;
    let verifier = kyma_tls::server_verifier(&given, roots);
    let verifier = verifier.map_err(|_| ExchangeSettingsError::Certificates)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Returns `host[:port]` of a server.
fn authority(server: &Url) -> String {
    let host = server.host_str().unwrap_or_default();
    server.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn covers(pattern: &str, authority: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => authority.len() > suffix.len() && authority.ends_with(suffix),
        None => pattern == authority,
    }
}

/// `host[:port]`, or that behind `*.` with a dot in it: `*.com` would be half of the world, but `*` all of it.
fn is_pattern(pattern: &str) -> bool {
    let wild = pattern.strip_prefix("*.");
    let name = wild.unwrap_or(pattern);
    let parsed = Url::parse(&format!("https://{name}/"));
    parsed.is_ok_and(|url| authority(&url) == name && url.path() == "/" && url.username().is_empty())
        && !name.contains('*')
        && (wild.is_none() || name.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(servers: &[&str]) -> ExchangeSettings {
        ExchangeSettings {
            endpoint: "https://issuer.example.org/token".parse().unwrap(),
            audience: "targets".to_owned(),
            token_file: "/nowhere".into(),
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            ca_pem: None,
        }
    }

    #[test]
    fn tokens_go_to_the_servers_named_alone() {
        let exchange =
            TokenExchange::new(settings(&["api.example.org", "*.Shoots.example.org:6443"])).unwrap();
        let serves = |server: &str| exchange.serves(&server.parse().unwrap());
        for allowed in [
            "https://api.example.org",
            "https://API.example.org:443/path",
            "https://a.b.shoots.example.org:6443",
        ] {
            assert!(serves(allowed), "{allowed}");
        }
        for foreign in [
            "https://api.example.org:6443",
            "https://api.example.org.evil.net",
            "https://evil.net/api.example.org",
            "https://evilapi.example.org",
            "https://shoots.example.org:6443",
            "https://evilshoots.example.org:6443",
            "https://a.shoots.example.org",
            "https://127.0.0.1",
        ] {
            assert!(!serves(foreign), "{foreign}");
        }
    }

    #[test]
    fn settings_that_would_send_tokens_anywhere_are_refused() {
        let refused = |change: &dyn Fn(&mut ExchangeSettings)| {
            let mut settings = settings(&["api.example.org"]);
            change(&mut settings);
            TokenExchange::new(settings).err()
        };
        for endpoint in [
            "http://issuer.example.org/token",
            "https://me@issuer.example.org/",
            "https://issuer.example.org/?a=b",
        ] {
            let found = refused(&|settings| settings.endpoint = endpoint.parse().unwrap());
            assert_eq!(found, Some(ExchangeSettingsError::Endpoint), "{endpoint}");
        }
        for servers in
            [vec![], vec!["*"], vec!["*.org"], vec!["a.b", ""], vec!["*.*.org"], vec!["https://a.b"]]
        {
            let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
            let found = refused(&|settings| settings.servers.clone_from(&servers));
            assert_eq!(found, Some(ExchangeSettingsError::Servers), "{servers:?}");
        }
        let found = refused(&|settings| settings.ca_pem = Some(b"none".to_vec()));
        assert_eq!(found, Some(ExchangeSettingsError::Certificates));
        assert_eq!(refused(&|settings| settings.audience.clear()), Some(ExchangeSettingsError::Audience));
    }

    #[test]
    fn unreadable_certificate_leaves_others_of_the_issuer_in_use() {
        let params = rcgen::CertificateParams::new(vec!["issuer.example.org".to_owned()]).unwrap();
        let readable = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let unreadable = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        assert!(tls(Some(format!("{unreadable}{readable}").as_bytes())).is_ok());
        assert_eq!(tls(Some(unreadable.as_bytes())).err(), Some(ExchangeSettingsError::Certificates));
    }

    #[test]
    fn token_answer_gives_token_or_known_code_and_no_issuer_text() {
        let good =
            issued(br#"{"access_token":"t","token_type":"Bearer","expires_in":60,"issued_token_type":"x"}"#);
        assert_eq!(good.unwrap().valid_for, Duration::from_mins(1));
        let unsaid = issued(br#"{"access_token":"t","token_type":"bearer"}"#).unwrap();
        assert_eq!((unsaid.token.expose_secret(), unsaid.valid_for), ("t", DEFAULT_VALIDITY));
        for (written, seconds) in [(r#""3599""#, 3599.0), ("59.5", 59.5), ("null", 300.0), ("-1", 300.0)] {
            let answer = format!(r#"{{"access_token":"t","token_type":"Bearer","expires_in":{written}}}"#);
            let valid_for = issued(answer.as_bytes()).unwrap().valid_for;
            assert_eq!(valid_for, Duration::from_secs_f64(seconds), "{written}");
        }
        for bad in [&br#"{"access_token":"t","token_type":"N_A"}"#[..], br#"{"token":"t"}"#, b"hunter2"] {
            let error = issued(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert_eq!(code(br#"{"error":"invalid_target","error_description":"x"}"#), "invalid_target");
        assert_eq!(code(br#"{"error":"<script>"}"#), "no known code");
        assert_eq!(code(b"<html>"), "no known code");
    }
}
