//! Answers to `WWW-Authenticate`, and the tokens from them.

use std::{num::NonZeroUsize, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_auth::{ChallengeParser, ChallengeRef};
use lru::LruCache;
use parking_lot::Mutex;
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::session::Session;
use crate::error::ArtifactError;
use crate::source::credentials::{Auth, Fingerprint};
use crate::source::http;
use crate::source::http::Request;
use crate::storage::digest::printable;

const MAX_CACHED_TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
const MAX_TOKEN_ANSWER_BYTES: u64 = 256 << 10;
/// Validity of a token without expiry, by the specification.
const DEFAULT_EXPIRY: Duration = Duration::from_mins(1);
const MAX_EXPIRY: Duration = Duration::from_hours(1);

/// Maximum length of a challenge's scope, in bytes.
const MAX_SCOPE_BYTES: usize = 4096;

/// A kind of request. A registry may require a different right for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RequestKind {
    /// Manifests and blobs.
    Read,
    /// The list of tags.
    List,
    /// Uploads.
    Write,
}

/// Key of a cached token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    host: String,
    path: String,
    access: RequestKind,
    who: Fingerprint,
}

impl TokenKey {
    pub(super) fn new(session: Session<'_>, access: RequestKind) -> Self {
        let repository = session.repository;
        Self {
            host: repository.host().to_owned(),
            path: repository.path().to_owned(),
            access,
            who: session.credentials.fingerprint(repository.host(), repository.path()),
        }
    }

    /// Returns the scope to request if the challenge names none.
    fn default_scope(&self) -> String {
        let actions = if self.access == RequestKind::Write { "pull,push" } else { "pull" };
        format!("repository:{}:{actions}", self.path)
    }
}

struct CachedAuthorization {
    authorization: HeaderValue,
    until: Instant,
}

/// Authorizations that were accepted, until they expire. Limited; the least recently used are evicted first.
pub(super) struct Tokens {
    cached: Mutex<LruCache<TokenKey, CachedAuthorization>>,
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self { cached: Mutex::new(LruCache::new(MAX_CACHED_TOKENS)) }
    }

    /// Returns the authorization for which the registry asked last.
    pub(super) fn get(&self, key: &TokenKey) -> Option<HeaderValue> {
        let mut cached = self.cached.lock();
        let found = cached.get(key)?;
        if found.until > Instant::now() {
            return Some(found.authorization.clone());
        }
        cached.pop(key);
        None
    }

    /// Drops an authorization that the registry refused.
    pub(super) fn remove(&self, key: &TokenKey) {
        self.cached.lock().pop(key);
    }

    /// Returns the authorization that a 401's challenge requires; `None` without a matching credential.
    pub(super) async fn answer(
        &self,
        session: Session<'_>,
        key: &TokenKey,
        what: &str,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, ArtifactError> {
        self.remove(key);
        let auth = session.credentials.for_path(session.repository.host(), session.repository.path());
        let challenge = Challenge::choose(headers, auth);
        let (authorization, expiry) = match (challenge, auth) {
            (Some(Challenge::Bearer { .. }), Some(Auth::Bearer(token))) => {
                (header("Bearer", token.expose_secret()), MAX_EXPIRY)
            }
            (Some(Challenge::Bearer { realm, service, scope }), auth) => {
                let realm = allowed_realm(session, what, &realm)?;
                // The registry may have another name for the repository, or require another right than `pull`.
                let scope = scope.unwrap_or_else(|| key.default_scope());
                let token = fetch(session, &scope, what, realm, service.as_deref(), auth).await?;
                (header("Bearer", token.secret()), token.validity().min(MAX_EXPIRY))
            }
            (Some(Challenge::Basic), Some(Auth::Basic { user, password })) => {
                (basic(user, password), MAX_EXPIRY)
            }
            _ => return Ok(None),
        };
        let Some(authorization) = authorization else {
            return Err(ArtifactError::invalid(what, "the token service's answer cannot be used"));
        };
        // A tenth is reserved for clock differences and network delays.
        let until = Instant::now() + expiry * 9 / 10;
        let cached = CachedAuthorization { authorization: authorization.clone(), until };
        self.cached.lock().put(key.clone(), cached);
        Ok(Some(authorization))
    }
}

/// Returns the token service's address, if it may be called.
fn allowed_realm(session: Session<'_>, what: &str, realm: &str) -> Result<Url, ArtifactError> {
    let origin = session.http.origin(session.repository.host())?;
    let realm =
        Url::parse(realm).map_err(|_| ArtifactError::invalid(what, "the token realm is not an address"))?;
    match session.http.check_link(&origin, &realm) {
        Ok(()) => Ok(realm),
        Err(refusal) => {
            let host = printable(&http::authority(&realm));
            Err(ArtifactError::RealmNotAllowed { what: what.to_owned(), host, refusal })
        }
    }
}

/// The challenge to answer.
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// Selects Bearer if it is offered, otherwise Basic.
    fn choose(headers: &HeaderMap, auth: Option<&Auth>) -> Option<Self> {
        let values: Vec<String> = headers.get_all(WWW_AUTHENTICATE).iter().map(ascii).collect();
        let offered = || values.iter().flat_map(|value| ChallengeParser::new(value).map_while(Result::ok));
        let named = |scheme: &'static str| offered().find(move |one| one.scheme.eq_ignore_ascii_case(scheme));
        if let Some(bearer) = named("bearer")
            && let Some(realm) = param(&bearer, "realm")
        {
            let scope = param(&bearer, "scope").filter(|scope| is_scope(scope));
            return Some(Self::Bearer { realm, service: param(&bearer, "service"), scope });
        }
        named("basic").filter(|_| auth.is_some()).map(|_| Self::Basic)
    }
}

/// Returns a header with `?` for each byte that is not ASCII. The parser refuses such bytes, which occur in the realm
/// of Basic, a text for users.
fn ascii(value: &HeaderValue) -> String {
    let bytes = value.as_bytes().iter();
    bytes.map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// Returns realm and service of the bearer challenge to answer.
#[cfg(fuzzing)]
pub(crate) fn bearer_challenge(headers: &HeaderMap) -> Option<(String, Option<String>)> {
    match Challenge::choose(headers, None)? {
        Challenge::Bearer { realm, service, .. } => Some((realm, service)),
        Challenge::Basic => None,
    }
}

/// Returns whether a challenge's scope is valid. It may hold several scopes, separated by spaces.
fn is_scope(scope: &str) -> bool {
    !scope.trim().is_empty() && scope.len() <= MAX_SCOPE_BYTES && !scope.contains(char::is_control)
}

fn param(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_unescaped())
}

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "token")]
    plain: Option<SecretString>,
    #[serde(rename = "access_token")]
    oauth: Option<SecretString>,
    /// Seconds: a number, or its text as some services write it.
    expires_in: Option<Value>,
}

impl Token {
    /// Returns the token; empty if the service gave none.
    fn secret(&self) -> &str {
        let mut given = [&self.plain, &self.oauth].into_iter().flatten().map(ExposeSecret::expose_secret);
        given.find(|token| !token.is_empty()).unwrap_or_default()
    }

    /// Returns the validity of the token; the default without a positive number.
    fn validity(&self) -> Duration {
        let seconds = match self.expires_in.as_ref() {
            Some(Value::String(text)) => text.trim().parse().ok(),
            other => other.and_then(Value::as_f64),
        };
        let validity = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        validity.filter(|validity| !validity.is_zero()).unwrap_or(DEFAULT_EXPIRY)
    }
}

/// Fetches a token: by GET as in the distribution specification, by POST with a refresh token.
async fn fetch(
    session: Session<'_>,
    scope: &str,
    what: &str,
    mut realm: Url,
    service: Option<&str>,
    auth: Option<&Auth>,
) -> Result<Token, ArtifactError> {
    let mut fields: Vec<(&str, &str)> = service.map(|service| ("service", service)).into_iter().collect();
    let request = if let Some(Auth::Refresh(token)) = auth {
        fields.extend([
            ("scope", scope),
            ("grant_type", "refresh_token"),
            ("client_id", "kyma"),
            ("refresh_token", token.expose_secret()),
        ]);
        let form: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        Request::new(what, Method::POST, realm).body("application/x-www-form-urlencoded", Bytes::from(form))
    } else {
        fields.extend(scope.split_ascii_whitespace().map(|scope| ("scope", scope)));
        realm.query_pairs_mut().extend_pairs(fields);
        let authorization = match auth {
            Some(Auth::Basic { user, password }) => basic(user, password),
            _ => None,
        };
        Request::new(what, Method::GET, realm).authorization(authorization)
    };
    let response = session.http.send(request.accept("application/json")).await?;
    let is_refresh = matches!(auth, Some(Auth::Refresh(_)));
    match response.status().as_u16() {
        200..300 => {}
        // An expired or revoked refresh token (RFC 6749, 5.2).
        status @ 400 if is_refresh => return Err(ArtifactError::unauthorized(what, status)),
        // Concerns the token service, not the artifact.
        status @ (404 | 410) => {
            return Err(ArtifactError::invalid(what, format!("the token service answers HTTP {status}")));
        }
        _ => return Err(http::refusal(what, &response).of_request(auth.is_some())),
    }
    let answer = http::body(what, response, MAX_TOKEN_ANSWER_BYTES).await?;
    let token: Token = serde_json::from_slice(&answer)
        .map_err(|_| ArtifactError::invalid(what, "the token service's answer cannot be read"))?;
    if token.secret().is_empty() {
        return Err(ArtifactError::invalid(what, "the token service gave no token"));
    }
    Ok(token)
}

/// Returns a `Basic` authorization.
pub(crate) fn basic(user: &str, password: &SecretString) -> Option<HeaderValue> {
    header("Basic", &STANDARD.encode(format!("{user}:{}", password.expose_secret())))
}

/// Returns a `Bearer` authorization.
pub(crate) fn bearer(token: &SecretString) -> Option<HeaderValue> {
    header("Bearer", token.expose_secret())
}

/// Returns an authorization header that logs do not print.
fn header(scheme: &str, secret: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{scheme} {secret}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
