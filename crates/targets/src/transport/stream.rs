//! Bounds a watch stream: silence, and the length of one event.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::AnswerBody;
use crate::dial::Servers;
use crate::error::TargetError;
use crate::limits::Limits;

/// `body` that fails when nothing arrives for too long or one line grows too long; holds `permit` until it
/// is dropped, and tells `servers` when it breaks.
pub(super) fn bounded(
    body: AnswerBody,
    limits: &Limits,
    permit: OwnedSemaphorePermit,
    servers: Arc<Servers>,
) -> AnswerBody {
    Bounded {
        body,
        servers,
        idle: limits.watch_idle,
        silence: Box::pin(tokio::time::sleep(limits.watch_idle)),
        limit: limits.body,
        line: 0,
        _permit: permit,
    }
    .boxed_unsync()
}

struct Bounded {
    body: AnswerBody,
    servers: Arc<Servers>,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    limit: usize,
    line: usize,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = TargetError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TargetError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => {
                let silent = this.silence.as_mut().poll(cx);
                silent.map(|()| {
                    this.servers.lost();
                    Some(Err(TargetError::Deadline(this.idle)))
                })
            }
            Poll::Ready(Some(Ok(frame))) => {
                this.silence.as_mut().reset(Instant::now() + this.idle);
                let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
                this.line = longest_open_line(this.line, data);
                if this.line > this.limit {
                    return Poll::Ready(Some(Err(TargetError::TooLarge(this.limit))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.servers.lost();
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => Poll::Ready(None),
        }
    }
}

/// Bytes since the last line end, after `data`. A line within one frame is bounded by the frame.
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
