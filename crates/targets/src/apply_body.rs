//! Bodies of server-side applies, which API servers read as YAML.

use http::Request;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use kube::client::Body;
use kube::{Client, Config};
use kyma_api::yaml_safe;
use tower::service_fn;

/// Media type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// Returns a client for the cluster of a [`Config`], for instance the hub.
///
/// Unlike kube's own client it applies every text unchanged: kube encodes bodies as JSON, and API servers parse those
/// of server-side applies as YAML, in which some characters have another meaning.
///
/// # Errors
/// As for [`Client::try_from`].
pub fn client_from(config: Config) -> kube::Result<Client> {
    let inner = Client::try_from(config)?;
    let (namespace, valid_until) = (inner.default_namespace().to_owned(), *inner.valid_until());
    let service = service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move { inner.send(with_safe_body(request).await?).await }
    });
    Ok(Client::new(service, namespace).with_valid_until(valid_until))
}

/// Returns the request with a body that an API server parses as the intended data.
///
/// # Errors
/// The body cannot be read, which no body in memory causes.
pub(crate) async fn with_safe_body(request: Request<Body>) -> kube::Result<Request<Body>> {
    let is_apply =
        request.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes() == APPLY.as_bytes());
    if !is_apply {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let bytes = body.collect_bytes().await?;
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Request::from_parts(parts, Body::from(yaml_safe(&bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sent(content_type: &str, body: &str) -> String {
        let request = Request::builder().header(CONTENT_TYPE, content_type);
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        let bytes = with_safe_body(request).await.unwrap().into_body().collect_bytes().await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_bodies_of_server_side_applies_change() {
        let body = "{\"a\":\"x\u{2028}y\"}";
        assert_eq!(sent(APPLY, body).await, "{\"a\":\"x\\u2028y\"}");
        assert_eq!(sent("application/merge-patch+json", body).await, body);
    }
}
