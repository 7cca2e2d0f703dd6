//! Test sample: one Kyma with one module at any step of a hand-over.

use kyma_api::{SecretKeyRef, annotations, klm, labels, names};
use kyma_object_set::Identity;
use serde_json::{Value, json};

use super::{
    component,
    facts::{COMPONENT_MANAGER, Manifest, MigrationState, Module},
    lease::KlmState,
    note,
};

/// Objects as JSON, so that tests can change single fields.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) kyma: Value,
    pub(super) manifest: Value,
    pub(super) component: Option<Value>,
    pub(super) own_kind: Option<String>,
    pub(super) strays: Vec<String>,
    pub(super) mirrors: Vec<(String, String)>,
    pub(super) access: Result<SecretKeyRef, String>,
    pub(super) klm: KlmState,
    /// Metadata of the objects on the target: the Deployment and the default CR.
    pub(super) target: Vec<(Identity, Value)>,
}

/// Returns a Kyma, with or without a status of KLM.
pub(super) fn kyma(is_klms: bool) -> Value {
    let fields = json!([{"manager": "lifecycle-manager", "operation": "Apply", "subresource": "status"}]);
    let tracked = json!([{"name": "keda", "state": "Ready", "manifest": {"kind": klm::MANIFEST}}]);
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": "sample", "namespace": "kcp-system", "uid": "kyma-uid",
            "managedFields": if is_klms { fields } else { json!([]) },
        },
        "spec": {"channel": "regular"},
        "status": if is_klms { json!({"state": "Ready", "modules": tracked}) } else { json!({}) },
    })
}

impl Sample {
    /// Returns the sample after KLM has installed the module.
    pub(super) fn installed() -> Self {
        let deployment = Identity::new("apps", "Deployment", Some("kyma-system"), "keda");
        let default = Identity::new("operator.kyma-project.io", "Keda", Some("kyma-system"), "default");
        let by = |manager: &str, operation: &str| json!([{"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {}}}]);
        Self {
            kyma: kyma(true),
            manifest: manifest(),
            component: None,
            own_kind: None,
            strays: Vec::new(),
            mirrors: Vec::new(),
            access: Ok(SecretKeyRef { name: "access".to_owned(), key: "config".to_owned() }),
            klm: KlmState::Stopped,
            target: vec![
                (deployment, json!({"uid": "d", "managedFields": by(klm::APPLIER, "Apply")})),
                (default, json!({"uid": "cr", "managedFields": by(klm::DEFAULT_CR_MANAGER, "Update")})),
            ],
        }
    }

    pub(super) fn facts(&self) -> MigrationState {
        let typed = |value: &Value| serde_json::from_value(value.clone()).unwrap();
        let module = Module {
            manifest: self.read_manifest(),
            manifest_status: self.manifest["status"].clone(),
            component: self.component.as_ref().map(|it| serde_json::from_value(it.clone()).unwrap()),
            own_kind: self.own_kind.clone(),
        };
        let is_there = module.manifest.is_some() || module.component.is_some();
        MigrationState {
            kyma: typed(&self.kyma),
            status: self.kyma["status"].clone(),
            klm: self.klm,
            modules: is_there.then(|| ("keda".to_owned(), module)).into_iter().collect(),
            strays: self.strays.clone(),
            mirrors: self.mirrors.clone(),
            access: self.access.clone(),
            target_kyma: Identity::new("operator.kyma-project.io", "Kyma", Some("kyma-system"), "default"),
            target: self
                .target
                .iter()
                .map(|(identity, meta)| (identity.clone(), serde_json::from_value(meta.clone()).unwrap()))
                .collect(),
        }
    }

    fn read_manifest(&self) -> Option<Manifest> {
        (!self.manifest.is_null()).then(|| serde_json::from_value(self.manifest.clone()).unwrap())
    }

    /// Adds records and labels.
    pub(super) fn mark(&mut self, value: &str) {
        let of_manifest =
            note::text(&note::of_manifest(&self.read_manifest().unwrap(), &self.manifest["status"]));
        let of_kyma = note::text(&note::of_kyma(&self.facts()));
        for (object, text) in [(&mut self.kyma, of_kyma), (&mut self.manifest, of_manifest)] {
            object["metadata"]["labels"][labels::SKIP_RECONCILIATION] = json!("true");
            object["metadata"]["labels"][labels::HAND_OVER] = json!(value);
            object["metadata"]["annotations"][annotations::BEFORE_HAND_OVER] = json!(text);
        }
    }

    pub(super) fn kyma_label(&mut self, value: &str) {
        self.kyma["metadata"]["labels"][labels::HAND_OVER] = json!(value);
    }

    /// Returns the inventory for the component.
    pub(super) fn recorded(&self) -> Value {
        component::record(&self.facts(), &self.read_manifest().unwrap())
    }

    /// Adds a component with this status.
    pub(super) fn component(&mut self, waits: bool, status: &Value) {
        let mut body = component::body(&self.facts(), "keda", &self.read_manifest().unwrap(), waits).unwrap();
        body["metadata"]["generation"] = json!(1);
        body["status"] = status.clone();
        self.component = Some(body);
    }

    /// Sets the status to applied.
    pub(super) fn applied(&mut self) {
        self.condition("Applied", "True", "Succeeded");
        let status = &mut self.component.as_mut().unwrap()["status"];
        let first = &mut status["objects"][0]["items"][0];
        first["hash"] = json!("h");
        first["fingerprint"] = json!("f");
    }

    /// Sets the status to stopped.
    pub(super) fn stopped(&mut self) {
        self.condition("Ready", "Unknown", "SkipReconciliation");
    }

    fn condition(&mut self, type_: &str, status: &str, reason: &str) {
        self.component.as_mut().unwrap()["status"]["conditions"] = json!([{
            "type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    }

    /// Sets helm-component's marks on the target's objects.
    pub(super) fn taken_over(&mut self) {
        let owner = names::owner_hash("kcp-system", &names::component_name("sample", "keda"));
        let meta = &mut self.target[0].1;
        meta["managedFields"] =
            json!([{"manager": COMPONENT_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
        meta["labels"] = json!({ labels::OWNER: owner });
    }

    /// Restores KLM's marks on the target's objects.
    pub(super) fn given_back(&mut self) {
        self.target = Self::installed().target;
    }

    /// Removes KLM's finalizers.
    pub(super) fn dropped(&mut self) {
        self.manifest["metadata"]["finalizers"] = json!([]);
        self.manifest["metadata"]["labels"][labels::HAND_OVER] = json!(labels::HAND_OVER_DONE);
    }

    /// Sets a status of kyma-operator.
    pub(super) fn reported(&mut self) {
        let entry = json!({"manager": "kyma-operator", "operation": "Apply", "subresource": "status"});
        self.kyma["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
        self.kyma["status"]["modules"][0]["manifest"]["kind"] = json!("HelmComponent");
    }

    /// Removes KLM's part of the status.
    pub(super) fn settled(&mut self) {
        let fields = self.kyma["metadata"]["managedFields"].as_array_mut().unwrap();
        fields.retain(|entry| entry["manager"] != "lifecycle-manager");
    }
}

fn manifest() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": klm::MANIFEST,
        "metadata": {
            "name": "sample-keda-1", "namespace": "kcp-system", "uid": "m", "finalizers": klm::MANIFEST_FINALIZERS,
            "labels": {labels::MODULE_NAME: "keda", labels::CHANNEL: "regular", labels::CONTROLLER_NAME: ""},
            "annotations": {
                annotations::OCM_COMPONENT_NAME: "kyma-project.io/module/keda", klm::SYNCED_REF: "sha256:1",
            },
        },
        "spec": {
            "version": "1.0.0", "customResourcePolicy": "CreateAndDelete",
            "install": {"name": "raw-manifest", "source": {"ref": "sha256:1"}},
            "manager": {"group": "apps", "version": "v1", "kind": "Deployment", "name": "keda", "namespace": "kyma-system"},
            "resource": {
                "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Keda",
                "metadata": {"name": "default", "namespace": "kyma-system"},
            },
        },
        "status": {
            "state": "Ready",
            "synced": [{"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "kyma-system", "name": "keda"}],
            "conditions": [{
                "type": klm::MODULE_CR, "status": "True", "reason": "ModuleCRCreated", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}
