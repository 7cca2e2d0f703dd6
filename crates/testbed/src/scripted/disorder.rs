//! Watches whose events are duplicated, delayed, reordered or lost.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::answer::Body;

/// Maximum time for which an event is held back, if no other event overtakes it.
const MAX_OVERTAKING_WAIT: Duration = Duration::from_millis(300);

/// Delivery of a watch event to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventDelivery {
    /// The event is passed on.
    OnTime,
    /// The event is passed on twice.
    Twice,
    /// The event is overtaken by the next event of another object.
    Overtaken,
    /// The event is delayed by this time, and is not sent before events that are delayed already.
    Late(Duration),
    /// The event is not passed on, and the stream ends.
    Lost,
}

/// Returns a watch's response in which `decide` returns the delivery of each event, `{"type", "object"}`. The events of
/// one object stay in order, and a bookmark or the end of the stream comes after all earlier events, as apiservers
/// guarantee.
pub fn disorder_events(
    answer: Response<Body>,
    decide: impl FnMut(&Value) -> EventDelivery + Send + 'static,
) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let (client, mut lines) = mpsc::channel::<Bytes>(64);
    let events = EventLines { body, rest: BytesMut::new() };
    tokio::spawn(async move {
        let client_end = client.clone();
        // Stops when the cluster's stream or the client ends.
        tokio::select! {
            () = client_end.closed() => {}
            _ = forward_events(events, decide, client) => {}
        }
    });
    let lines = stream::poll_fn(move |context| lines.poll_recv(context));
    let frames = lines.map(|line| Ok::<_, io::Error>(Frame::data(line)));
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

/// The watch events in a body, one on each line.
struct EventLines {
    body: Body,
    rest: BytesMut,
}

impl EventLines {
    /// Returns the next line including its newline, or `None` if the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Some(self.rest.split_to(end + 1).freeze());
            }
            let frame = self.body.frame().await?.ok()?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }
}

/// An event that is held back.
struct DelayedEvent {
    due: Instant,
    uid: Value,
    line: Bytes,
    /// Whether the event is sent as soon as another event has overtaken it.
    waits_to_be_overtaken: bool,
}

impl DelayedEvent {
    fn new(line: &Bytes, uid: &Value, after: Duration, waits_to_be_overtaken: bool) -> Self {
        Self { due: Instant::now() + after, uid: uid.clone(), line: line.clone(), waits_to_be_overtaken }
    }
}

/// Forwards events until the stream ends. Fails if the client is gone.
async fn forward_events(
    mut events: EventLines,
    mut decide: impl FnMut(&Value) -> EventDelivery,
    client: mpsc::Sender<Bytes>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    let mut delayed = VecDeque::<DelayedEvent>::new();
    loop {
        let due = delayed.front().map_or_else(Instant::now, |first| first.due);
        let line = tokio::select! {
            () = sleep_until(due), if !delayed.is_empty() => {
                let first = delayed.pop_front();
                send_all(&client, first).await?;
                continue;
            }
            line = events.next() => line,
        };
        let event = line.as_deref().and_then(|line| serde_json::from_slice::<Value>(line).ok());
        let (Some(line), Some(event)) = (line, event) else {
            return send_all(&client, delayed).await;
        };
        let uid = &event["object"]["metadata"]["uid"];
        let delivery = if event["type"] == "BOOKMARK" { None } else { Some(decide(&event)) };
        let has_delayed_event_of_object = delayed.iter().any(|other| other.uid == *uid);
        let flushes_delayed_events = matches!(delivery, None | Some(EventDelivery::Lost));
        if flushes_delayed_events
            || has_delayed_event_of_object && !matches!(delivery, Some(EventDelivery::Late(_)))
        {
            send_all(&client, delayed.drain(..)).await?;
        }
        match delivery {
            Some(EventDelivery::Lost) => return Ok(()),
            Some(EventDelivery::Late(time)) => delayed.push_back(DelayedEvent::new(&line, uid, time, false)),
            Some(EventDelivery::Overtaken) => {
                delayed.push_back(DelayedEvent::new(&line, uid, MAX_OVERTAKING_WAIT, true));
            }
            Some(EventDelivery::Twice) => {
                client.send(line.clone()).await?;
                client.send(line).await?;
                send_overtaken(&client, &mut delayed).await?;
            }
            Some(EventDelivery::OnTime) | None => {
                client.send(line).await?;
                send_overtaken(&client, &mut delayed).await?;
            }
        }
    }
}

/// Sends the events that were overtaken.
async fn send_overtaken(
    client: &mpsc::Sender<Bytes>,
    delayed: &mut VecDeque<DelayedEvent>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    let (overtaken, late): (VecDeque<DelayedEvent>, VecDeque<DelayedEvent>) =
        delayed.drain(..).partition(|other| other.waits_to_be_overtaken);
    *delayed = late;
    send_all(client, overtaken).await
}

async fn send_all(
    client: &mpsc::Sender<Bytes>,
    delayed: impl IntoIterator<Item = DelayedEvent>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    for one in delayed {
        client.send(one.line).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::answer::whole;
    use super::*;

    /// Returns what a client receives of these events, by uid; `b` is a bookmark.
    async fn received_uids(events: &[&str], deliveries: &[EventDelivery]) -> String {
        let line = |uid: &&str| {
            let type_ = if *uid == "b" { "BOOKMARK" } else { "MODIFIED" };
            format!("{}\n", json!({"type": type_, "object": {"metadata": {"uid": uid}}}))
        };
        let lines: String = events.iter().map(line).collect();
        let mut deliveries = Vec::from(deliveries).into_iter();
        let answer = disorder_events(Response::new(whole(lines.into())), move |_| deliveries.next().unwrap());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let uid = |line: &[u8]| {
            serde_json::from_slice::<Value>(line).unwrap()["object"]["metadata"]["uid"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        lines.map(uid).collect()
    }

    // The clock of tokio is paused, so no event is sent because its `MAX_OVERTAKING_WAIT` ended.
    #[tokio::test(start_paused = true)]
    async fn each_event_is_delivered_as_decided() {
        use EventDelivery::{Late, Lost, OnTime, Overtaken, Twice};
        let late = Late(Duration::from_mins(1));
        assert_eq!(received_uids(&["x", "y", "z"], &[OnTime, Twice, OnTime]).await, "xyyz");
        assert_eq!(received_uids(&["x", "y", "z"], &[Overtaken, OnTime, OnTime]).await, "yxz");
        assert_eq!(
            received_uids(&["x", "y"], &[Overtaken, Lost]).await,
            "x",
            "the stream ends at a lost event"
        );
        assert_eq!(
            received_uids(&["x", "y", "z"], &[late, OnTime, late]).await,
            "yxz",
            "delayed events are sent before the stream ends"
        );
        assert_eq!(
            received_uids(&["x", "x", "y"], &[Overtaken, OnTime, OnTime]).await,
            "xxy",
            "events of one object stay in order"
        );
        assert_eq!(
            received_uids(&["x", "b", "y"], &[Overtaken, OnTime]).await,
            "xby",
            "all earlier events come before a bookmark"
        );
    }
}
