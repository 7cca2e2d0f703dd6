//! The step that reads a previous installation of the module by a user.

use kyma_controller::{Failure, WatchSpec, find_object};
use kyma_object_set::{Action, CallError, Object};

use super::calls::failure;
use crate::observe::existing_installation::{self, WorkloadPair};
use crate::pass::Pass;
use crate::plan::ExistingInstallation;

impl Pass<'_> {
    /// Reads the objects that show the version. A change of an object that blocks the module requeues the component.
    pub(super) async fn read_existing_installation(&mut self) -> Result<(), Failure> {
        self.done.existing_installation = Some(self.find_existing_installation().await?);
        Ok(())
    }

    async fn find_existing_installation(&self) -> Result<ExistingInstallation, Failure> {
        for desired in existing_installation::candidates(self) {
            let found = self.judge(desired).await?;
            if found != ExistingInstallation::None {
                return Ok(found);
            }
        }
        Ok(ExistingInstallation::None)
    }

    async fn judge(&self, desired: &Object) -> Result<ExistingInstallation, Failure> {
        // A kind that is not served has no objects.
        let Some(mapping) = self.kinds.get(&desired.gvk()) else { return Ok(ExistingInstallation::None) };
        let identity = desired.identity();
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let live = find_object(&api, &identity.name).await;
        let live = live.map_err(|error| failure(&CallError::new(Action::Get, Some(&identity), error)))?;
        let Some(live) = live else { return Ok(ExistingInstallation::None) };
        let mut found = WorkloadPair { desired, live: &live }.existing_installation(&self.ownership);
        // An applied object that changed without a newer version has drifted.
        if existing_installation::is_applied(self) && !matches!(found, ExistingInstallation::Newer(_)) {
            found = ExistingInstallation::None;
        }
        if found != ExistingInstallation::None {
            self.context.watch(WatchSpec {
                namespace: identity.namespace.clone(),
                fields: Some(format!("metadata.name={}", identity.name)),
                ..WatchSpec::in_kind(&mapping.resource)
            });
        }
        Ok(found)
    }
}
