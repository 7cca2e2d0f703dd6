//! Determines the hooks of loaded content. Pure.

use std::collections::BTreeSet;

use kyma_helm::hooks::{Hook, ReleaseChange, ReleaseHooks};
use kyma_object_set::Identity;

use crate::content::LoadedContent;
use crate::memory::RecordedStatus;

/// Returns the hooks of loaded content if it is another release than the installed one, or a rollback target. A
/// correction of drift is no release, and neither is a change of the target's kinds alone.
pub(super) fn release_hooks<'a>(
    recorded: &'a RecordedStatus,
    loaded: &'a LoadedContent,
    is_rollback: bool,
) -> Option<ReleaseHooks<'a>> {
    let change = match recorded.digests.source {
        _ if is_rollback => ReleaseChange::Rollback,
        Some(_) => ReleaseChange::Upgrade,
        // Helm had installed a release before.
        None if recorded.adopted.as_ref().is_some_and(|adopted| adopted.revision.is_some()) => {
            ReleaseChange::Upgrade
        }
        None => ReleaseChange::Install,
    };
    let is_one = match change {
        ReleaseChange::Rollback => !recorded.is(loaded),
        ReleaseChange::Install | ReleaseChange::Upgrade => recorded.is_other_release(loaded),
    };
    let release = ReleaseHooks {
        hooks: &loaded.prepared.hooks,
        content: &loaded.release,
        change,
        record: recorded.hooks.release.as_ref(),
    };
    is_one.then_some(release)
}

/// Returns the objects of the hooks of loaded content.
pub(crate) fn identities(loaded: Option<&LoadedContent>) -> BTreeSet<Identity> {
    loaded.into_iter().flat_map(|loaded| &loaded.prepared.hooks).map(Hook::identity).collect()
}

#[cfg(test)]
mod tests {
    use kyma_api::{Adoption, Digests};

    use super::*;
    use crate::actions::hooks::stored::tests::loaded;

    #[test]
    fn content_is_a_release_unless_it_is_the_installed_one() {
        let digests = |inputs: &str, source: &str, values: &str| {
            let digest = |text: &str| Some(text.to_owned());
            let (inputs, source, values) = (digest(inputs), digest(source), digest(values));
            Digests { inputs, source, values, ..Digests::default() }
        };
        let adopted = |revision: Option<i64>| Some(Adoption { revision, ..Adoption::default() });
        let loaded = loaded();
        let rows = [
            (Digests::default(), None, false, Some(ReleaseChange::Install)),
            (Digests::default(), adopted(None), false, Some(ReleaseChange::Install)),
            (Digests::default(), adopted(Some(3)), false, Some(ReleaseChange::Upgrade)),
            (digests("i", "s", "v"), None, false, None),
            (digests("of other kinds", "s", "v"), None, false, None),
            (digests("other", "s", "other"), None, false, Some(ReleaseChange::Upgrade)),
            (digests("other", "other", "v"), None, false, Some(ReleaseChange::Upgrade)),
            (digests("i", "s", "v"), None, true, None),
            (digests("other", "s", "v"), None, true, Some(ReleaseChange::Rollback)),
        ];
        for (digests, adopted, is_rollback, expected) in rows {
            let recorded = RecordedStatus { digests, adopted, ..RecordedStatus::default() };
            let release = release_hooks(&recorded, &loaded, is_rollback);
            let row = (&recorded.digests, &recorded.adopted, is_rollback);
            assert_eq!(release.map(|release| release.change), expected, "{row:?}");
        }
    }

    #[test]
    fn objects_of_all_hooks_are_known() {
        let loaded = loaded();
        assert_eq!(identities(Some(&loaded)).len(), loaded.prepared.hooks.len());
        assert!(identities(None).is_empty());
    }
}
