//! Limits of a watch stream: silence, the length of one event, and the rate.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::body::AnswerBody;
use super::pace::Pace;
use super::weight::Weight;
use crate::connection::contact::LastAnswer;
use crate::connection::dial::Servers;
use crate::connection::limits::Limits;
use crate::error::TargetError;

/// Returns a body that fails if nothing arrives for too long or one line is too long, and that is read at the
/// target's pace. Reports a broken connection to the target's servers.
pub(super) fn bounded(body: AnswerBody, limits: &Limits, shared: SharedState) -> AnswerBody {
    BoundedBody {
        body,
        shared,
        idle: limits.watch_idle,
        silence: Box::pin(tokio::time::sleep(limits.watch_idle)),
        limit: limits.line,
        line: 0,
        heaviest: limits.line_weight,
        weight: Weight::default(),
        pause: None,
    }
    .boxed_unsync()
}

/// State that a stream shares with other calls to the target.
pub(super) struct SharedState {
    pub(super) pace: Arc<Mutex<Pace>>,
    pub(super) servers: Arc<Servers>,
    pub(super) answered: Arc<LastAnswer>,
    /// Permit that is held until the stream ends.
    pub(super) _permit: OwnedSemaphorePermit,
}

struct BoundedBody {
    body: AnswerBody,
    shared: SharedState,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    limit: usize,
    line: usize,
    heaviest: usize,
    weight: Weight,
    /// Pause during which nothing is read, so that the sender waits.
    pause: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    fn check(&mut self, data: &[u8]) -> Result<(), TargetError> {
        self.silence.as_mut().reset(Instant::now() + self.idle);
        self.line = longest_open_line(self.line, data);
        if self.line > self.limit {
            return Err(TargetError::TooLarge(self.limit));
        }
        if self.weight.add_lines(data) > self.heaviest {
            return Err(TargetError::TooLarge(self.heaviest));
        }
        let pause = self.shared.pace.lock().took(data, std::time::Instant::now());
        self.pause = pause.map(|pause| Box::pin(tokio::time::sleep(pause)));
        Ok(())
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = TargetError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TargetError>>> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
            this.silence.as_mut().reset(Instant::now() + this.idle);
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => {
                let silent = this.silence.as_mut().poll(cx);
                silent.map(|()| {
                    this.shared.servers.record_failed_connection();
                    Some(Err(TargetError::Deadline(this.idle)))
                })
            }
            Poll::Ready(Some(Ok(frame))) => {
                this.shared.answered.now();
                let checked = this.check(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
                Poll::Ready(Some(checked.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.shared.servers.record_failed_connection();
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => Poll::Ready(None),
        }
    }
}

/// Returns the bytes since the last line end, after `data`. A line within one frame is limited by the frame.
fn longest_open_line(before: usize, data: &[u8]) -> usize {
    match data.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => data.len() - end - 1,
        None => before + data.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_across_frames_and_starts_again_after_its_end() {
        let frames: [(&[u8], usize); 4] = [(b"abc", 3), (b"de", 5), (b"f\nghij", 4), (b"\n", 0)];
        let mut line = 0;
        for (frame, expected) in frames {
            line = longest_open_line(line, frame);
            assert_eq!(line, expected);
        }
    }
}
