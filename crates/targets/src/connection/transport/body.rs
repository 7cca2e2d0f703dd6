//! Body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::TargetError;

/// Body of an answer: a stream, or one that was read whole.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, TargetError>;

/// An answer with its whole body. A large one blocks others until it is handed over.
#[derive(Debug)]
pub(crate) struct CollectedAnswer {
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl CollectedAnswer {
    /// Returns a body that holds the permit for large answers, if it has one.
    pub(super) fn new(bytes: Bytes, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { bytes, _permit: permit }
    }
}

impl From<CollectedAnswer> for AnswerBody {
    fn from(read: CollectedAnswer) -> Self {
        read.boxed_unsync()
    }
}

impl HttpBody for CollectedAnswer {
    type Data = Bytes;
    type Error = TargetError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TargetError>>> {
        let bytes = std::mem::take(&mut self.get_mut().bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }
}

impl From<Bytes> for CollectedAnswer {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, None)
    }
}
