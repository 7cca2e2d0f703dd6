//! Requests without TLS to servers that are starting.

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Reports whether a plain HTTP server responds to a GET with success.
pub(crate) async fn answers(url: &str) -> bool {
    let Ok(url) = url.parse() else { return false };
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    client.get(url).await.is_ok_and(|answer| answer.status().is_success())
}
