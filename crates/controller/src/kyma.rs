//! Access to a Kyma's target, for operators that reconcile Kymas.

use std::sync::Arc;

use kube::ResourceExt;
use kyma_api::{Kyma, Reason, SecretKeyRef, TargetIdentity, labels, names};
use kyma_targets::{Fence, TargetRecord};

use crate::access::Access;
use crate::failure::Failure;
use crate::process::runtime::Runtime;

mod key;
mod ledger;
pub(crate) mod local;
mod long_names;
mod record;
mod stopped;

pub use key::KymaKey;
pub use ledger::KymaLedger;
pub use long_names::LongNames;
pub use record::{claim_of, target_record};
pub use stopped::record_stop;

/// Key of the kubeconfig in a Secret that is found by its label.
const LABELLED_KEY: &str = "config";

/// The access Secret of a Kyma's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KymaAccess {
    /// Names of all Secrets that determine the choice.
    pub secrets: Vec<String>,
    /// The chosen access Secret.
    pub chosen: Result<SecretKeyRef, Failure>,
}

impl KymaAccess {
    /// Returns the access to the Kyma's target as the watch of access Secrets shows it.
    pub fn known(access: &Access, kyma: &Kyma) -> Self {
        Self::of(kyma, access.labelled(&kyma.name_any()))
    }

    /// Returns the Secret that the Kyma references, otherwise the one that is labelled for the Kyma. `labelled`:
    /// names of the Secrets with its label ([`crate::Access::labelled`]). Pure.
    pub fn of(kyma: &Kyma, labelled: Vec<String>) -> Self {
        if let Some(named) = &kyma.spec.kubeconfig_secret_ref {
            return Self { secrets: vec![named.name.clone()], chosen: Ok(named.clone()) };
        }
        let name = kyma.name_any();
        let chosen = match labelled.as_slice() {
            [one] => Ok(SecretKeyRef { name: one.clone(), key: LABELLED_KEY.to_owned() }),
            [] => Err(Failure::new(
                Reason::AwaitingAccess,
                format!(
                    "no access Secret for Kyma {name}: create one labelled {}={}",
                    labels::KYMA_NAME,
                    names::label_value(&name)
                ),
            )),
            several => Err(Failure::new(
                Reason::AccessAmbiguous,
                format!("{} Secrets are labelled for Kyma {name}: {}", several.len(), several.join(", ")),
            )),
        };
        Self { secrets: labelled, chosen }
    }
}

/// Returns the fence for an operator's writes to a Kyma's target with the verified identity `proven`.
pub fn fence_of(runtime: &Runtime, kyma: &Kyma, proven: &TargetIdentity) -> Fence {
    let namespace = kyma.namespace().unwrap_or_default();
    let ledger = KymaLedger::new(runtime, &namespace, &kyma.name_any());
    Fence {
        claim: claim_of(kyma, &runtime.hub_uid, runtime.operator),
        recorded: TargetRecord::from(proven),
        ledger: Some(Arc::new(ledger)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kyma(spec: &serde_json::Value) -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "sample", "namespace": "kcp-system" }, "spec": spec,
        }))
        .unwrap()
    }

    fn access(spec: &serde_json::Value, labelled: &[&str]) -> KymaAccess {
        KymaAccess::of(&kyma(spec), labelled.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn the_secret_that_a_kyma_names_wins_over_those_that_name_it() {
        let named = json!({ "channel": "regular", "kubeconfigSecretRef": { "name": "own", "key": "k" } });
        let found = access(&named, &["a", "b"]);
        assert_eq!(found.secrets, ["own"]);
        assert_eq!(found.chosen.unwrap(), SecretKeyRef { name: "own".into(), key: "k".into() });
    }

    #[test]
    fn one_labelled_secret_is_the_way_and_several_are_none() {
        let spec = json!({ "channel": "regular" });
        let chosen = access(&spec, &["a"]).chosen.unwrap();
        assert_eq!(chosen, SecretKeyRef { name: "a".into(), key: "config".into() });
        assert_eq!(access(&spec, &[]).chosen.unwrap_err().reason, Reason::AwaitingAccess);
        let several = access(&spec, &["a", "b"]);
        assert_eq!(several.chosen.unwrap_err().reason, Reason::AccessAmbiguous);
        assert_eq!(several.secrets, ["a", "b"], "a label that is taken off either one resolves it");
    }
}
