//! Lists that are empty or cut off, and watches that end on demand.

use std::io;

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::answer::{Body, watch_expired_event, whole};

/// Returns a list's response without items and further pages, at the same resourceVersion. Responses that are no
/// lists stay unchanged.
///
/// # Errors
/// The cluster's response breaks off.
pub async fn empty_list(answer: Response<Body>) -> io::Result<Response<Body>> {
    let (mut head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let list = serde_json::from_slice::<Value>(&body).ok().filter(|list| list["items"].is_array());
    let Some(mut list) = list else { return Ok(Response::from_parts(head, whole(body))) };
    list["items"] = json!([]);
    if let Some(metadata) = list["metadata"].as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "continue" | "remainingItemCount"));
    }
    head.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(head, whole(list.to_string().into())))
}

/// Returns the first half of a response whose head announces all of it; then the connection breaks.
///
/// # Errors
/// The cluster's response breaks off by itself.
pub async fn truncate_body(answer: Response<Body>) -> io::Result<Response<Body>> {
    let (mut head, body) = answer.into_parts();
    let mut half = body.collect().await?.to_bytes();
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(half.len()));
    half.truncate(half.len() / 2);
    let frames = stream::unfold(Some(half), |half| async move {
        match half {
            Some(half) if !half.is_empty() => Some((Ok(Frame::data(half)), Some(Bytes::new()))),
            Some(_) => {
                // Lets the earlier frames be sent: the client gets the head and half of the body.
                tokio::task::yield_now().await;
                Some((Err(io::ErrorKind::UnexpectedEof.into()), None))
            }
            None => None,
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
}

/// Returns a watch that ends with 410 once `end` is ready, so that its client lists again. `end` is dropped with
/// the watch, however that ends.
pub fn expire_watch(
    answer: Response<Body>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let frames = stream::unfold(Some((body, Box::pin(end))), |open| async move {
        let (mut body, mut end) = open?;
        tokio::select! {
            () = &mut end => {
                // The line break ends an event that was partly sent.
                let line = format!("\n{}", watch_expired_event());
                Some((Ok(Frame::data(line.into())), None))
            }
            frame = body.frame() => Some((frame?, Some((body, end)))),
        }
    });
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::sync::oneshot;

    use super::*;

    fn answer(body: &str) -> Response<Body> {
        let mut answer = Response::new(whole(Bytes::copy_from_slice(body.as_bytes())));
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        answer
    }

    async fn text(answer: Response<Body>) -> String {
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn an_emptied_list_keeps_its_version_and_is_complete() {
        let metadata = json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 5});
        let list = json!({"kind": "PodList", "metadata": metadata, "items": [{"metadata": {"name": "a"}}]});
        let emptied = empty_list(answer(&list.to_string())).await.unwrap();
        assert!(!emptied.headers().contains_key(CONTENT_LENGTH), "its length is another one");
        let left: Value = serde_json::from_str(&text(emptied).await).unwrap();
        assert_eq!(left, json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []}));
    }

    #[tokio::test]
    async fn only_lists_are_emptied() {
        for other in [r#"{"kind":"Pod"}"#, "no JSON"] {
            assert_eq!(text(empty_list(answer(other)).await.unwrap()).await, other);
        }
    }

    #[tokio::test]
    async fn a_truncated_body_is_half_of_its_content_length() {
        let halved = truncate_body(answer("0123456789")).await.unwrap();
        assert_eq!(halved.headers()[CONTENT_LENGTH], "10");
        let mut frames = halved.into_body().into_data_stream();
        assert_eq!(frames.next().await.unwrap().unwrap(), "01234");
        assert_eq!(frames.next().await.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(frames.next().await.is_none());
    }

    #[tokio::test]
    async fn a_watch_expires_when_its_end_comes_and_not_before() {
        let (end, ends) = oneshot::channel::<()>();
        let open = stream::iter([Ok(Frame::data(Bytes::from("{\"type\"")))]).chain(stream::pending());
        let open = Response::new(StreamBody::new(open).boxed_unsync());
        let mut frames = expire_watch(open, async { drop(ends.await) }).into_body().into_data_stream();
        assert_eq!(frames.next().await.unwrap().unwrap(), "{\"type\"");
        end.send(()).unwrap();
        let last = frames.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(last.strip_prefix(b"\n").unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert!(frames.next().await.is_none());

        let ended = expire_watch(answer("{}\n"), std::future::pending());
        assert_eq!(text(ended).await, "{}\n", "one that ends by itself is not said to have expired");
    }
}
