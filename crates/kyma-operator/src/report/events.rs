//! Events with KLM's reasons and messages about the creation and deletion of Kymas.

use kyma_api::{Kyma, Reason};

use crate::state::State;

/// KLM's event messages.
const KYMA_INSTALLED_MESSAGE: &str = "Kyma was installed to SKR";
const STEP_COMPLETE_MESSAGE: &str = "Success";

/// Sends the event that the Kyma was created on the target.
pub(crate) fn send_kyma_installed(state: &State, kyma: &Kyma) {
    send_event(state, kyma, Reason::RemoteInstallation, KYMA_INSTALLED_MESSAGE);
}

/// Sends the event that a step of a deletion is complete.
pub(crate) fn send_deletion_step(state: &State, kyma: &Kyma, step: Reason) {
    send_event(state, kyma, step, STEP_COMPLETE_MESSAGE);
}

/// Sends an event whose action equals its reason, as in KLM.
fn send_event(state: &State, kyma: &Kyma, reason: Reason, note: &str) {
    state.runtime.events.normal(kyma, reason, reason.as_str(), note);
}
