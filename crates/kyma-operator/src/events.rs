//! Events in KLM's words, for those who follow a Kyma's birth and end by them.

use kyma_api::{Kyma, Reason};

use crate::state::State;

/// KLM's notes.
const BORN: &str = "Kyma was installed to SKR";
const DONE: &str = "Success";

/// The target got its Kyma.
pub(crate) async fn born(state: &State, kyma: &Kyma) {
    tell(state, kyma, Reason::RemoteInstallation, BORN).await;
}

/// A step of a deletion is done.
pub(crate) async fn ended(state: &State, kyma: &Kyma, step: Reason) {
    tell(state, kyma, step, DONE).await;
}

/// KLM's action is its reason once more.
async fn tell(state: &State, kyma: &Kyma, reason: Reason, note: &str) {
    state.runtime.events.normal(kyma, reason, reason.as_str(), note).await;
}
