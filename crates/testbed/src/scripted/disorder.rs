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

/// Maximum time for which an event waits for another one that overtakes it.
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
    /// The event is delayed by this time, behind events that are delayed already.
    Late(Duration),
    /// The event is not passed on, and the stream ends.
    Lost,
}

/// Returns a watch's response in which `deliver` decides the delivery of each event, `{"type", "object"}`. The events
/// of one object stay in order, and a bookmark or the end of the stream comes after all earlier events, as
/// apiservers guarantee.
pub fn disorder_events(
    answer: Response<Body>,
    deliver: impl FnMut(&Value) -> EventDelivery + Send + 'static,
) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let (client, mut lines) = mpsc::channel::<Bytes>(64);
    let events = Events { body, rest: BytesMut::new() };
    tokio::spawn(async move {
        let closed_client = client.clone();
        // Stops when the cluster's stream or the client ends.
        tokio::select! {
            () = closed_client.closed() => {}
            _ = forward_events(events, deliver, client) => {}
        }
    });
    let lines = stream::poll_fn(move |context| lines.poll_recv(context));
    let frames = lines.map(|line| Ok::<_, io::Error>(Frame::data(line)));
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

/// The lines of a body.
struct Events {
    body: Body,
    rest: BytesMut,
}

impl Events {
    /// Returns the next line with its end, or `None` if the stream ends.
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
    /// Whether it is sent as soon as another event has overtaken it.
    overtaken: bool,
}

impl DelayedEvent {
    fn new(line: &Bytes, uid: &Value, after: Duration, overtaken: bool) -> Self {
        Self { due: Instant::now() + after, uid: uid.clone(), line: line.clone(), overtaken }
    }
}

/// Forwards events until the stream ends. Fails if the client is gone.
async fn forward_events(
    mut events: Events,
    mut deliver: impl FnMut(&Value) -> EventDelivery,
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
        let delivery = if event["type"] == "BOOKMARK" { None } else { Some(deliver(&event)) };
        let is_behind = delayed.iter().any(|other| other.uid == *uid);
        let ends_waiting = matches!(delivery, None | Some(EventDelivery::Lost));
        if ends_waiting || is_behind && !matches!(delivery, Some(EventDelivery::Late(_))) {
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
    let (free, late): (VecDeque<DelayedEvent>, VecDeque<DelayedEvent>) =
        delayed.drain(..).partition(|other| other.overtaken);
    *delayed = late;
    send_all(client, free).await
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
    async fn heard(events: &[&str], deliveries: &[EventDelivery]) -> String {
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

    // Time stands still, so that no event is sent because it waited too long for another one to overtake it.
    #[tokio::test(start_paused = true)]
    async fn each_event_is_delivered_as_decided() {
        use EventDelivery::{Late, Lost, OnTime, Overtaken, Twice};
        let late = Late(Duration::from_mins(1));
        assert_eq!(heard(&["x", "y", "z"], &[OnTime, Twice, OnTime]).await, "xyyz");
        assert_eq!(heard(&["x", "y", "z"], &[Overtaken, OnTime, OnTime]).await, "yxz");
        assert_eq!(heard(&["x", "y"], &[Overtaken, Lost]).await, "x", "the stream ends");
        assert_eq!(heard(&["x", "y", "z"], &[late, OnTime, late]).await, "yxz", "late ones before the end");
        assert_eq!(heard(&["x", "x", "y"], &[Overtaken, OnTime, OnTime]).await, "xxy", "in order for each");
        assert_eq!(
            heard(&["x", "b", "y"], &[Overtaken, OnTime]).await,
            "xby",
            "a bookmark leaves none behind"
        );
    }
}
