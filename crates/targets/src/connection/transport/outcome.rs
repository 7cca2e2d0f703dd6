//! Outcome of a call for the breaker.

use http::{Response, StatusCode};

use super::answer::{NotFromApiserver, RequestRefusal};
use crate::connection::breaker::Outcome;
use crate::error::TargetError;

/// Returns the outcome of an answer for the breaker, and the cause of a suspension; `None` for a refusal by this
/// process.
pub(super) fn judged<B>(answer: &Result<Response<B>, TargetError>) -> Option<(Outcome, Option<TargetError>)> {
    match answer {
        Ok(answer) if answer.extensions().get::<RequestRefusal>().is_some() => Some((Outcome::Healthy, None)),
        Ok(answer) if answer.status().is_server_error() => {
            let outcome = match answer.extensions().get::<NotFromApiserver>() {
                Some(_) => Outcome::Unreachable,
                None => Outcome::Failing,
            };
            let detail = "several times in a row".to_owned();
            Some((outcome, Some(TargetError::Server { code: answer.status().as_u16(), detail })))
        }
        Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
            Some((Outcome::Refused, Some(TargetError::Unauthorized)))
        }
        // Errors that are refusals come from the identity check of a new connection.
        Ok(_)
        | Err(
            TargetError::Throttled(_)
            | TargetError::TooLarge(_)
            | TargetError::Forbidden(_)
            | TargetError::Api { .. },
        ) => Some((Outcome::Healthy, None)),
        Err(error @ TargetError::Unauthorized) => Some((Outcome::Refused, Some(error.clone()))),
        Err(error @ TargetError::Server { .. }) => Some((Outcome::Failing, Some(error.clone()))),
        Err(
            TargetError::AddressRefused(_)
            | TargetError::Refused(_)
            | TargetError::Unconfirmed
            | TargetError::Token(_)
            | TargetError::Request,
        ) => None,
        Err(error) => Some((Outcome::Unreachable, Some(error.clone()))),
    }
}
