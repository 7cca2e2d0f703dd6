//! Token of one target: cached until shortly before its expiry, and renewed by one caller for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::provider::{IssuedToken, TokenError, TokenProvider};

/// Timeout of a request to an issuer.
const ISSUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before another request to an issuer that returned no token.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Maximum time between the renewal and the expiry of a token; a fifth of the validity if that is shorter.
const MAX_RENEWAL_LEAD: Duration = Duration::from_mins(1);
/// Maximum time for which a token is cached, whatever validity its issuer names.
const MAX_CACHE_TIME: Duration = Duration::from_hours(24);
/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// A provider and its token for one server.
pub(crate) struct TokenCache {
    provider: Arc<dyn TokenProvider>,
    server: Url,
    state: Mutex<State>,
    /// Whether the token replaced one that the target had refused, and was not accepted yet.
    in_doubt: AtomicBool,
}

#[derive(Default)]
struct State {
    token: Option<CachedToken>,
    /// Time until which no further request is sent to the issuer, and its last error.
    failed: Option<(Instant, TokenError)>,
}

struct CachedToken {
    header: HeaderValue,
    renewed_at: Instant,
    ends_at: Instant,
}

impl TokenCache {
    pub(crate) fn new(provider: Arc<dyn TokenProvider>, server: Url) -> Self {
        Self { provider, server, state: Mutex::default(), in_doubt: AtomicBool::new(false) }
    }

    /// Returns the current authorization. Callers wait while another one renews the token.
    pub(crate) async fn authorization(&self) -> Result<HeaderValue, TokenError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(kept) = state.token.as_ref().filter(|kept| now < kept.renewed_at) {
            return Ok(kept.header.clone());
        }
        let last = state.token.as_ref().filter(|kept| now < kept.ends_at).map(|kept| kept.header.clone());
        if let Some((_, error)) = state.failed.as_ref().filter(|(until, _)| now < *until) {
            return last.ok_or(*error);
        }
        let issued = timeout(ISSUE_TIMEOUT, self.provider.issue(&self.server)).await;
        let issued = issued.unwrap_or(Err(TokenError::Unreachable("no answer in time")));
        match issued.and_then(|issued| CachedToken::of(&issued, now)) {
            Ok(kept) => {
                let header = kept.header.clone();
                *state = State { token: Some(kept), failed: None };
                Ok(header)
            }
            Err(error) => {
                state.failed = Some((Instant::now() + RETRY_DELAY, error));
                last.ok_or(error)
            }
        }
    }

    /// Records that the target accepted the last sent token.
    pub(crate) fn accepted(&self) {
        if self.in_doubt.load(Ordering::Relaxed) {
            self.in_doubt.store(false, Ordering::Relaxed);
        }
    }

    /// Records that the target refused this authorization. Returns whether a retry with another token makes sense. A
    /// token that replaced a refused one and is refused too stays until its renewal; otherwise a target could cause
    /// endless token requests.
    pub(crate) async fn refused(&self, header: &HeaderValue) -> bool {
        let mut state = self.state.lock().await;
        if state.token.as_ref().is_none_or(|kept| kept.header != *header) {
            return true;
        }
        if self.in_doubt.swap(true, Ordering::Relaxed) {
            return false;
        }
        state.token = None;
        true
    }
}

impl CachedToken {
    fn of(issued: &IssuedToken, now: Instant) -> Result<Self, TokenError> {
        let token = issued.token.expose_secret();
        let sendable = token.len() <= MAX_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        let header = header.filter(|_| sendable && !token.is_empty());
        let mut header = header.ok_or(TokenError::Unreadable("its token is invalid"))?;
        header.set_sensitive(true);
        let valid_for = issued.valid_for.min(MAX_CACHE_TIME);
        let ends_at = now + valid_for;
        Ok(Self { header, renewed_at: ends_at - MAX_RENEWAL_LEAD.min(valid_for / 5), ends_at })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures::FutureExt as _;
    use futures::future::{BoxFuture, join_all};
    use parking_lot::Mutex as SyncMutex;

    use super::*;

    /// Gives `token-1`, `token-2`, … or the failure that is set.
    #[derive(Clone, Default)]
    struct Issuer {
        asked: Arc<AtomicU32>,
        fails: Arc<SyncMutex<Option<TokenError>>>,
    }

    impl TokenProvider for Issuer {
        fn serves(&self, _: &Url) -> bool {
            true
        }

        fn issue<'a>(&'a self, _: &'a Url) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
                match *self.fails.lock() {
                    Some(error) => Err(error),
                    None => Ok(IssuedToken {
                        token: format!("token-{number}").into(),
                        valid_for: Duration::from_mins(10),
                    }),
                }
            }
            .boxed()
        }
    }

    impl Issuer {
        fn held(&self) -> TokenCache {
            TokenCache::new(Arc::new(self.clone()), "https://api.example.org".parse().unwrap())
        }

        fn asked(&self) -> u32 {
            self.asked.load(Ordering::SeqCst)
        }

        fn fails(&self, error: Option<TokenError>) {
            *self.fails.lock() = error;
        }
    }

    async fn shown(held: &TokenCache) -> Result<String, TokenError> {
        held.authorization().await.map(|header| header.to_str().unwrap().replace("Bearer ", ""))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_token_until_it_nearly_expires() {
        let issuer = Issuer::default();
        let held = issuer.held();
        let all = join_all((0..50).map(|_| shown(&held))).await;
        assert!(all.iter().all(|one| one.as_deref() == Ok("token-1")), "{all:?}");
        tokio::time::advance(Duration::from_secs(530)).await;
        assert_eq!(shown(&held).await.as_deref(), Ok("token-1"));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(shown(&held).await.as_deref(), Ok("token-2"));
        assert_eq!(issuer.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_issuer_is_paused_and_last_token_used_until_expiry() {
        let issuer = Issuer::default();
        let held = issuer.held();
        shown(&held).await.unwrap();
        let error = TokenError::Unavailable(503);
        issuer.fails(Some(error));
        tokio::time::advance(Duration::from_secs(550)).await;
        for _ in 0..5 {
            assert_eq!(shown(&held).await.as_deref(), Ok("token-1"));
        }
        assert_eq!(issuer.asked(), 2);
        tokio::time::advance(Duration::from_mins(1)).await;
        for _ in 0..5 {
            assert_eq!(shown(&held).await, Err(error));
        }
        assert_eq!(issuer.asked(), 3);
        issuer.fails(None);
        tokio::time::advance(RETRY_DELAY).await;
        assert_eq!(shown(&held).await.as_deref(), Ok("token-4"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_dropped_once_until_one_is_accepted_again() {
        let issuer = Issuer::default();
        let held = issuer.held();
        let first = held.authorization().await.unwrap();
        assert!(held.refused(&first).await);
        let second = held.authorization().await.unwrap();
        // A late answer to another call that carried the first token.
        assert!(held.refused(&first).await);
        assert_eq!(held.authorization().await.unwrap(), second);
        for _ in 0..3 {
            assert!(!held.refused(&second).await);
        }
        assert_eq!(issuer.asked(), 2);
        held.accepted();
        assert!(held.refused(&second).await);
        assert_eq!(shown(&held).await.as_deref(), Ok("token-3"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_token_is_never_sent_and_a_token_is_never_printed() {
        let token = |text: &str| IssuedToken { token: text.into(), valid_for: Duration::from_mins(1) };
        for bad in ["", "two words", "line\nbreak", "ümlaut", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            assert!(CachedToken::of(&token(bad), Instant::now()).is_err(), "{bad}");
        }
        let kept = CachedToken::of(&token("hunter2"), Instant::now()).unwrap();
        assert!(kept.header.is_sensitive());
        assert!(!format!("{:?} {:?}", kept.header, token("hunter2")).contains("hunter2"));
    }
}
