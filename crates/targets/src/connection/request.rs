//! Classifies requests: whether one opens a stream, writes, or changes objects. Pure.

use http::{Method, Request, Uri};

/// Reports whether a request opens a stream.
pub(crate) fn is_stream(uri: &Uri) -> bool {
    parameters(uri).any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true"))
}

/// Reports whether a request changes objects, so that watches report events.
pub(crate) fn changes<B>(request: &Request<B>) -> bool {
    !request.method().is_safe() && !parameters(request.uri()).any(|pair| pair.starts_with("dryRun="))
}

/// Reports whether a request is a write.
pub(crate) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_a_change_unless_it_is_a_dry_run() {
        let of = |method: Method, uri: &str| {
            changes(&Request::builder().method(method).uri(uri).body(()).expect("a request"))
        };
        assert!(of(Method::PATCH, "/api/v1/namespaces/a/services/b?fieldManager=c&force=true"));
        assert!(of(Method::DELETE, "/api/v1/namespaces/a/services/b"));
        assert!(!of(Method::PATCH, "/api/v1/namespaces/a/services/b?fieldManager=c&dryRun=All"));
        assert!(!of(Method::GET, "/api/v1/namespaces/a/services/b"));
    }
}
