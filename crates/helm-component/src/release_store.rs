//! The release store of a component: Secrets of the hub with the parts of at most three revisions.
//!
//! Earlier versions stored each kind of part in Secrets of another type. These are read while the release store lacks
//! the part, and emptied after a later one was stored.

use std::array;

use futures::future::try_join3;
use kyma_api::{HelmComponent, release_store};
use kyma_sdk::{Context, Failure};

use crate::state_secret::StateSecret;

pub(crate) mod renders;
pub(crate) mod slot;

use slot::{Data, MAX_REVISIONS, MAX_SLOT_SECRETS, Slot};

/// The Secrets with a component's revisions.
pub(crate) struct ReleaseStore {
    /// The Secrets of each slot.
    secrets: Vec<[StateSecret; MAX_SLOT_SECRETS]>,
}

impl ReleaseStore {
    /// Returns the release store of the component with this owner hash.
    pub(crate) fn of(context: &Context<HelmComponent>, owner: &str) -> Self {
        let of_slot = |at: usize| {
            let names = slot::secret_names(owner, at);
            names.map(|name| StateSecret::of(context, name, release_store::TYPE))
        };
        Self { secrets: (0..MAX_REVISIONS).map(of_slot).collect() }
    }

    /// Reads all slots.
    ///
    /// # Errors
    /// If the hub does not answer.
    pub(crate) async fn read(&self) -> Result<[Slot; MAX_REVISIONS], Failure> {
        Ok(try_join3(self.read_slot(0), self.read_slot(1), self.read_slot(2)).await?.into())
    }

    /// Reads a slot; a slot without Secrets has no parts.
    ///
    /// # Errors
    /// If the hub does not answer.
    pub(crate) async fn read_slot(&self, at: usize) -> Result<Slot, Failure> {
        let secrets = &self.secrets[at];
        let mut data: [Data; MAX_SLOT_SECRETS] = array::from_fn(|_| Data::new());
        data[0] = secrets[0].read().await?.unwrap_or_default();
        for further in Slot::further_secrets(&data[0]) {
            data[further] = secrets[further].read().await?.unwrap_or_default();
        }
        Ok(Slot::decode(data))
    }

    /// Replaces a slot. If the process ends between the writes, each part that was not replaced is still readable.
    ///
    /// # Errors
    /// If the hub does not accept a write.
    pub(crate) async fn write(&self, at: usize, slot: Slot) -> Result<(), Failure> {
        let secrets = &self.secrets[at];
        let had_data: [bool; MAX_SLOT_SECRETS] = array::from_fn(|secret| slot.had_data(secret));
        let [first, second, third] = slot.encode();
        let is_unused = [false, had_data[1] && second.is_empty(), had_data[2] && third.is_empty()];
        for (secret, data) in [(&secrets[1], second), (&secrets[2], third)] {
            if !data.is_empty() {
                secret.write(data).await?;
            }
        }
        secrets[0].write(first).await?;
        for (secret, _) in secrets.iter().zip(is_unused).filter(|(_, is_unused)| *is_unused) {
            secret.write(Data::new()).await?;
        }
        Ok(())
    }
}
