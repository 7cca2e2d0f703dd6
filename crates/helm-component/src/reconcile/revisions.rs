//! Access to the parts of the component's revisions in the release store.

use kyma_sdk::Failure;

use super::Pass;
use crate::release_store::ReleaseStore;
use crate::release_store::slot::{Part, PartKind, RevisionCriteria};

impl Pass<'_> {
    pub(crate) fn release_store(&self) -> ReleaseStore {
        ReleaseStore::of(self.context, &self.key.owner)
    }

    /// Returns the criteria for the parts that the component needs, by its recorded status.
    pub(crate) fn revision_criteria(&self) -> RevisionCriteria {
        let recorded = &self.state.recorded;
        let hooks = recorded.hooks.release.as_ref();
        RevisionCriteria::of(&recorded.digests, recorded.rollback_target.as_ref(), hooks)
    }

    /// Reports whether a Secret of an earlier version may exist. This version creates none, so the watch is not behind;
    /// a dry run has no watch.
    pub(crate) fn may_have_former(&self, name: &str) -> bool {
        self.context.is_dry_run() || self.shared.hub_secrets.revision(name).is_some()
    }

    /// Stores a part of a revision with this render, beside its other parts.
    pub(crate) async fn store_part(
        &self,
        kind: PartKind,
        part: Part,
        render: Option<&str>,
    ) -> Result<(), Failure> {
        let (store, criteria) = (self.release_store(), self.revision_criteria());
        let slots = store.read().await?;
        let at = criteria.slot_for(&slots, kind, &part.revision, render);
        let mut slot = criteria.reduced(&slots, &slots[at]);
        slot.set(kind, part);
        store.write(at, slot).await
    }

    /// Discards the parts of this kind, except those of the revision `kept`.
    pub(crate) async fn discard_parts(&self, kind: PartKind, kept: Option<&str>) -> Result<(), Failure> {
        let (store, criteria) = (self.release_store(), self.revision_criteria());
        let slots = store.read().await?;
        for (at, slot) in slots.iter().enumerate() {
            if slot.part(kind).is_some_and(|part| Some(&*part.revision) != kept) {
                let mut slot = criteria.reduced(&slots, slot);
                slot.take(kind);
                store.write(at, slot).await?;
            }
        }
        Ok(())
    }
}
