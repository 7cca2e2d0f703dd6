//! Decides whether the hub is the target of a Kyma.

use kyma_api::Kyma;
use kyma_controller::{Failure, KymaKey, local_access_failure};

use crate::state::State;

/// Returns whether the hub is the target of `kyma`.
///
/// # Errors
/// If a flag makes the hub the target, but the Kyma or a component has an access Secret or another cluster on record.
pub(crate) fn is_local(state: &State, kyma: &Kyma) -> Result<bool, Failure> {
    let key = KymaKey::of(kyma);
    let local = kyma_controller::is_local(&state.runtime, kyma).inspect_err(|_| {
        // The removal of the Secret requeues the Kyma.
        state.depends_on_secrets(&key, state.runtime.access.labelled(&key.name));
    })?;
    if !local {
        return Ok(false);
    }
    let components = state.components().of(&key);
    match components.iter().find_map(|view| view.secret.as_deref()) {
        None => Ok(true),
        Some(secret) => Err(local_access_failure(&format!("a component of Kyma {}", key.name), secret)),
    }
}
