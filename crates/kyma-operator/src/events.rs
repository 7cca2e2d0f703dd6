//! Events with KLM's reasons and messages about the creation and deletion of Kymas.

use kyma_api::{Kyma, Reason};

use crate::state::State;

/// KLM's event messages.
const BORN: &str = "Kyma was installed to SKR";
const DONE: &str = "Success";

/// Sends the event that the Kyma was created on the target.
pub(crate) fn born(state: &State, kyma: &Kyma) {
    tell(state, kyma, Reason::RemoteInstallation, BORN);
}

/// Sends the event that a step of a deletion is complete.
pub(crate) fn ended(state: &State, kyma: &Kyma, step: Reason) {
    tell(state, kyma, step, DONE);
}

/// Sends an event whose action equals its reason, as in KLM.
fn tell(state: &State, kyma: &Kyma, reason: Reason, note: &str) {
    state.runtime.events.normal(kyma, reason, reason.as_str(), note);
}
