//! The step that reads a previous installation of the module by a user.

use kyma_object_set::{Action, CallError, Object};
use kyma_sdk::{Failure, WatchSpec, find_object};

use super::{Pass, failure};
use crate::observe::predecessor::{self, WorkloadPair};
use crate::plan::Predecessor;

impl Pass<'_> {
    /// Reads the objects that show the version. A change of an object that blocks the module requeues the component.
    pub(super) async fn look_for_predecessor(&mut self) {
        match self.predecessor().await {
            Ok(found) => self.done.predecessor = Some(found),
            Err(failure) => self.done.load = Some(failure),
        }
    }

    async fn predecessor(&self) -> Result<Predecessor, Failure> {
        for desired in predecessor::candidates(self) {
            let found = self.judge(desired).await?;
            if found != Predecessor::None {
                return Ok(found);
            }
        }
        Ok(Predecessor::None)
    }

    async fn judge(&self, desired: &Object) -> Result<Predecessor, Failure> {
        // A kind that is not served has no objects.
        let Some(mapping) = self.kinds.get(&desired.gvk()) else { return Ok(Predecessor::None) };
        let identity = desired.identity();
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let live = find_object(&api, &identity.name).await;
        let live = live.map_err(|error| failure(&CallError::new(Action::Get, Some(&identity), error)))?;
        let Some(live) = live else { return Ok(Predecessor::None) };
        let mut found = WorkloadPair { desired, live: &live }.judge(&self.ownership);
        // An applied object that changed without a newer version has drifted.
        if predecessor::is_applied(self) && !matches!(found, Predecessor::Newer(_)) {
            found = Predecessor::None;
        }
        if found != Predecessor::None {
            self.context.watch(WatchSpec {
                namespace: identity.namespace.clone(),
                fields: Some(format!("metadata.name={}", identity.name)),
                ..WatchSpec::in_kind(&mapping.resource)
            });
        }
        Ok(found)
    }
}
