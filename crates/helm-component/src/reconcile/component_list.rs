//! Checks lists of the hub's components. Pure.

use std::collections::BTreeMap;

use kyma_api::Reason;
use kyma_controller::Failure;

/// Checks that a list of the hub's components has the component that is reconciled. One that lacks it is incomplete, so
/// it does not show that an owner is gone whose objects could be adopted or replaced.
pub(crate) fn has_component(live: &BTreeMap<String, String>, own: &str) -> Result<(), Failure> {
    if live.contains_key(own) {
        return Ok(());
    }
    let message =
        "the hub's list of components lacks this component, so it does not prove that others are deleted";
    Err(Failure::new(Reason::HubUnavailable, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_without_own_component_proves_no_owner_absent() {
        let list = |owners: &[&str]| -> BTreeMap<String, String> {
            owners.iter().map(|owner| ((*owner).to_owned(), String::new())).collect()
        };
        let reason =
            |owners: &[&str]| has_component(&list(owners), "own").err().map(|failure| failure.reason);
        assert_eq!(reason(&["other", "own"]), None);
        assert_eq!(reason(&[]), Some(Reason::HubUnavailable));
        assert_eq!(reason(&["other"]), Some(Reason::HubUnavailable));
    }
}
