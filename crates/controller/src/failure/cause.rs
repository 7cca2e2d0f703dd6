//! Describes why a call to the hub failed.

use std::error::Error;
use std::io;

use kube_runtime::watcher;

/// Reason that kube sets if an answer is no Kubernetes `Status`. API servers refuse with a `Status`, so it is the answer
/// of a proxy, which can have any code and last for a moment.
pub(super) const UNPARSED_REASON: &str = "Failed to parse error data";
/// Maximum length of displayed text of a server that is not an API server, in characters.
const MAX_EXCERPT_CHARS: usize = 200;
/// Maximum length of the chain of causes.
const MAX_CAUSES: usize = 16;

/// Describes why a call failed: the message of the API server, or the innermost cause of a failed connection, such as
/// `Connection refused (os error 111)` or what is wrong with a certificate.
pub fn describe_cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answers {} {}", status.code, status.reason)
        }
        kube::Error::Api(status) if is_page(&status.message) => {
            format!("a proxy answers {}, and not the API server", status.code)
        }
        kube::Error::Api(status) if status.reason == UNPARSED_REASON && status.code == 404 => {
            "the server does not serve this kind (404): install its CRD, or check the address".to_owned()
        }
        kube::Error::Api(status) if status.reason == UNPARSED_REASON => {
            format!(
                "the server answers {} without a Kubernetes status: {}",
                status.code,
                excerpt(&status.message)
            )
        }
        kube::Error::Api(status) => status.message.clone(),
        other => innermost(other),
    }
}

/// Returns the first line of a text, shortened.
fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(MAX_EXCERPT_CHARS).collect()
}

/// Describes why a watch failed, as [`describe_cause`] does for a call.
pub fn describe_watch_cause(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => describe_cause(cause),
        watcher::Error::WatchError(status) => describe_cause(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Reports whether a message is a page of HTML, as proxies send it.
fn is_page(message: &str) -> bool {
    message.trim_start().starts_with('<')
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    for _ in 0..MAX_CAUSES {
        let Some(error) = next else { break };
        let said = error.to_string();
        if !said.is_empty() {
            text = said;
        }
        // The error inside of an `io::Error` is not among its sources.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct WrappingError(#[source] io::Error);

    #[test]
    fn the_innermost_cause_is_named() {
        let refused = WrappingError(io::Error::from_raw_os_error(111));
        let text = describe_cause(&kube::Error::Service(Box::new(refused)));
        assert!(text.contains("refused"), "{text}");
        let hidden =
            WrappingError(io::Error::other(WrappingError(io::Error::other("certificate has expired"))));
        let text = describe_cause(&kube::Error::Service(Box::new(hidden)));
        assert_eq!(text, "certificate has expired");
    }

    #[test]
    fn a_failed_watch_is_described_by_its_cause() {
        let refused = || kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        for failed in
            [watcher::Error::InitialListFailed(refused()), watcher::Error::WatchStartFailed(refused())]
        {
            assert_eq!(describe_watch_cause(&failed), "connection refused");
        }
        let gone = kube::core::Status::failure("too old resource version", "Expired").with_code(410);
        let gone = watcher::Error::WatchError(gone.boxed());
        assert_eq!(describe_watch_cause(&gone), "too old resource version");
    }

    #[test]
    fn answers_without_a_status_are_described_and_shortened() {
        let describe = |code: u16, text: &str| {
            let status = kube::core::Status::failure(text, UNPARSED_REASON).with_code(code);
            describe_cause(&kube::Error::Api(status.boxed()))
        };
        assert!(describe(404, "404 page not found").contains("install its CRD"));
        let expected = "the server answers 503 without a Kubernetes status: no healthy upstream";
        assert_eq!(describe(503, "no healthy upstream\nmore"), expected);
        assert!(describe(502, &"a".repeat(1 << 20)).len() < 300);
    }

    #[test]
    fn the_api_servers_message_is_shown_once_and_without_debug_text() {
        let status = kube::core::Status::failure("kymas is forbidden: no", "Forbidden").with_code(403);
        assert_eq!(describe_cause(&kube::Error::Api(status.boxed())), "kymas is forbidden: no");
        let bare = kube::core::Status::failure("", "Forbidden").with_code(403);
        assert_eq!(describe_cause(&kube::Error::Api(bare.boxed())), "the API server answers 403 Forbidden");
        let page = kube::core::Status::failure("<html>\n<h1>Bad Gateway</h1>", "").with_code(502);
        let text = describe_cause(&kube::Error::Api(page.boxed()));
        assert_eq!(text, "a proxy answers 502, and not the API server");
    }
}
