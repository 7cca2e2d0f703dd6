//! Adds to messages about a missing right which `ServiceAccount` lacks it, and what to do. Pure.

use kyma_api::Reason;
use kyma_controller::Failure;
use kyma_targets::ServiceAccount;

use crate::component::{Progress, Removal};

/// Adds the `ServiceAccount` to the messages of an installation that lacked a right.
pub(super) fn progress(
    account: Option<&ServiceAccount>,
    progress: Result<Progress, Failure>,
) -> Result<Progress, Failure> {
    progress
        .map(|progress| with_account(account, progress))
        .map_err(|failure| failure_with_account(account, failure))
}

/// Adds the `ServiceAccount` to the messages of a removal that lacked a right.
pub(super) fn removal(
    account: Option<&ServiceAccount>,
    removal: Result<Removal, Failure>,
) -> Result<Removal, Failure> {
    match removal {
        Ok(Removal::Waiting(progress)) => Ok(Removal::Waiting(with_account(account, progress))),
        Ok(Removal::Done) => Ok(Removal::Done),
        Err(failure) => Err(failure_with_account(account, failure)),
    }
}

fn with_account(account: Option<&ServiceAccount>, progress: Progress) -> Progress {
    let Progress { reason, message, mut conditions, failure, .. } = progress;
    for condition in &mut conditions {
        condition.message =
            message_with_account(account, condition.reason, std::mem::take(&mut condition.message));
    }
    Progress {
        message: message_with_account(account, reason, message),
        conditions,
        failure: failure.map(|failure| failure_with_account(account, failure)),
        ..progress
    }
}

fn failure_with_account(account: Option<&ServiceAccount>, failure: Failure) -> Failure {
    Failure { message: message_with_account(account, failure.reason, failure.message), ..failure }
}

fn message_with_account(account: Option<&ServiceAccount>, reason: Reason, message: String) -> String {
    match account.filter(|_| reason == Reason::TargetForbidden) {
        Some(account) => format!(
            "{message}; the request was sent as {account}: grant the right to this ServiceAccount on the target, or name another one"
        ),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_account_may_not_do_names_it() {
        let account = ServiceAccount::new("kyma-system", "installer");
        let forbidden =
            || Failure::new(Reason::TargetForbidden, "creating Job here/j: the roles do not allow it");
        let said = progress(account.as_ref(), Ok(Progress::stopped(forbidden()))).unwrap();
        let failure = said.failure.clone().unwrap();
        assert_eq!(said.message, failure.message);
        assert!(
            failure.message.starts_with(
                "creating Job here/j: the roles do not allow it; the request was sent as \
             system:serviceaccount:kyma-system:installer: "
            ),
            "{failure}"
        );
        assert_eq!(failure.retry_after, None, "how often it failed decides");
        let ended = removal(account.as_ref(), Err(forbidden())).unwrap_err();
        assert_eq!(ended.message, failure.message);

        let own = progress(None, Err(forbidden())).unwrap_err();
        assert_eq!(own, forbidden());
        for reason in [Reason::WebhookDenied, Reason::ApplyRefused] {
            let other = Failure::new(reason, "spec.x");
            assert_eq!(progress(account.as_ref(), Err(other.clone())), Err(other));
        }
    }
}
