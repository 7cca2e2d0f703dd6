//! Reads the recorded fencing generation of a Kyma's target from the hub.

use futures::future::BoxFuture;
use kube::Api;
use kyma_api::Kyma;
use kyma_targets::{Ledger, TargetError, TargetRecord};

use super::record::target_record;
use crate::calls::objects::find_object;
use crate::process::runtime::Runtime;

/// The Kyma on the hub, whose status records the fencing generation.
pub struct KymaLedger {
    kymas: Api<Kyma>,
    name: String,
}

impl KymaLedger {
    /// Returns the ledger for the Kyma of this name.
    pub fn new(runtime: &Runtime, namespace: &str, name: &str) -> Self {
        Self { kymas: Api::namespaced(runtime.hub.clone(), namespace), name: name.to_owned() }
    }
}

impl Ledger for KymaLedger {
    fn recorded(&self) -> BoxFuture<'_, Result<Option<TargetRecord>, TargetError>> {
        Box::pin(async {
            let read = find_object(&self.kymas, &self.name).await;
            let read = read.map_err(|_| TargetError::Unconfirmed)?;
            let Some(kyma) = read else { return Ok(None) };
            let recorded = target_record(&kyma);
            // A stripped status proves nothing; kyma-operator writes it again.
            if recorded.target_uid.is_some() { Ok(Some(recorded)) } else { Err(TargetError::Unconfirmed) }
        })
    }
}
