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
const OVERTAKEN: Duration = Duration::from_millis(300);

/// Handling of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The event is passed on.
    Comes,
    /// The event is passed on twice.
    Doubled,
    /// The event is overtaken by the next event of another object.
    Overtaken,
    /// The event is delayed by this time, behind events that are delayed already.
    Late(Duration),
    /// The event is not passed on, and the stream ends.
    Lost,
}

/// Returns a watch's response in which `judge` decides the handling of each event, `{"type", "object"}`. The events
/// of one object stay in order, and a bookmark or the end of the stream comes after all earlier events, as
/// apiservers guarantee.
pub fn disordered(
    answer: Response<Body>,
    judge: impl FnMut(&Value) -> Fate + Send + 'static,
) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let (told, mut lines) = mpsc::channel::<Bytes>(64);
    let events = Events { body, rest: BytesMut::new() };
    tokio::spawn(async move {
        let gone = told.clone();
        // Stops when the cluster's stream or the client ends.
        tokio::select! {
            () = gone.closed() => {}
            _ = tell(events, judge, told) => {}
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

/// Passes events on until the stream ends. Fails if the client is gone.
async fn tell(
    mut events: Events,
    mut judge: impl FnMut(&Value) -> Fate,
    told: mpsc::Sender<Bytes>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    let mut held = VecDeque::<DelayedEvent>::new();
    loop {
        let due = held.front().map_or_else(Instant::now, |first| first.due);
        let line = tokio::select! {
            () = sleep_until(due), if !held.is_empty() => {
                let first = held.pop_front();
                send_all(&told, first).await?;
                continue;
            }
            line = events.next() => line,
        };
        let event = line.as_deref().and_then(|line| serde_json::from_slice::<Value>(line).ok());
        let (Some(line), Some(event)) = (line, event) else {
            return send_all(&told, held).await;
        };
        let uid = &event["object"]["metadata"]["uid"];
        let fate = if event["type"] == "BOOKMARK" { None } else { Some(judge(&event)) };
        let is_behind = held.iter().any(|other| other.uid == *uid);
        let ends_waiting = matches!(fate, None | Some(Fate::Lost));
        if ends_waiting || is_behind && !matches!(fate, Some(Fate::Late(_))) {
            send_all(&told, held.drain(..)).await?;
        }
        match fate {
            Some(Fate::Lost) => return Ok(()),
            Some(Fate::Late(time)) => held.push_back(DelayedEvent::new(&line, uid, time, false)),
            Some(Fate::Overtaken) => held.push_back(DelayedEvent::new(&line, uid, OVERTAKEN, true)),
            Some(Fate::Doubled) => {
                told.send(line.clone()).await?;
                told.send(line).await?;
                let_go(&told, &mut held).await?;
            }
            Some(Fate::Comes) | None => {
                told.send(line).await?;
                let_go(&told, &mut held).await?;
            }
        }
    }
}

/// Sends the events that were overtaken.
async fn let_go(
    told: &mpsc::Sender<Bytes>,
    held: &mut VecDeque<DelayedEvent>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    let (free, late): (VecDeque<DelayedEvent>, VecDeque<DelayedEvent>) =
        held.drain(..).partition(|other| other.overtaken);
    *held = late;
    send_all(told, free).await
}

async fn send_all(
    told: &mpsc::Sender<Bytes>,
    held: impl IntoIterator<Item = DelayedEvent>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    for one in held {
        told.send(one.line).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::answer::whole;
    use super::*;

    /// Returns what a client receives of these events, by uid; `b` is a bookmark.
    async fn heard(events: &[&str], fates: &[Fate]) -> String {
        let line = |uid: &&str| {
            let type_ = if *uid == "b" { "BOOKMARK" } else { "MODIFIED" };
            format!("{}\n", json!({"type": type_, "object": {"metadata": {"uid": uid}}}))
        };
        let lines: String = events.iter().map(line).collect();
        let mut fates = Vec::from(fates).into_iter();
        let answer = disordered(Response::new(whole(lines.into())), move |_| fates.next().unwrap());
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

    #[tokio::test]
    async fn each_event_meets_its_fate() {
        use Fate::{Comes, Doubled, Late, Lost, Overtaken};
        let late = Late(Duration::from_mins(1));
        assert_eq!(heard(&["x", "y", "z"], &[Comes, Doubled, Comes]).await, "xyyz");
        assert_eq!(heard(&["x", "y", "z"], &[Overtaken, Comes, Comes]).await, "yxz");
        assert_eq!(heard(&["x", "y"], &[Overtaken, Lost]).await, "x", "the stream ends");
        assert_eq!(heard(&["x", "y", "z"], &[late, Comes, late]).await, "yxz", "late ones before the end");
        assert_eq!(heard(&["x", "x", "y"], &[Overtaken, Comes, Comes]).await, "xxy", "in order for each");
        assert_eq!(
            heard(&["x", "b", "y"], &[Overtaken, Comes]).await,
            "xby",
            "a bookmark leaves none behind"
        );
    }
}
