//! Events in KLM's words, for those who follow a Kyma's birth and end by them.

use kyma_api::{Kyma, Reason};

use crate::state::State;

/// KLM's notes.
const BORN: &str = "Kyma was installed to SKR";
const DONE: &str = "Success";

/// The target got its Kyma.
pub(crate) fn born(state: &State, kyma: &Kyma) {
    tell(state, kyma, Reason::RemoteInstallation, BORN);
}

/// A step of a deletion is done.
pub(crate) fn ended(state: &State, kyma: &Kyma, step: Reason) {
    tell(state, kyma, step, DONE);
}

/// KLM's action is its reason once more.
fn tell(state: &State, kyma: &Kyma, reason: Reason, note: &str) {
    state.runtime.events.normal(kyma, reason, reason.as_str(), note);
}
