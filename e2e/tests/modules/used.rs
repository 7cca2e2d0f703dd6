//! Removes modules while users still have objects of their kinds.

use anyhow::{Context, Result, ensure};
use e2e::landscape::{TARGET_NAMESPACE, apply_all};
use e2e::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_deleted;
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, ModuleStatus, State};
use serde_json::{Value, json};

use crate::scenario::{KYMA, Scenario};

/// The user's field manager.
const USER: &str = "kubectl";
/// Number of Functions: more than a message lists.
const FUNCTION_COUNT: usize = 22;

/// A kind whose CRD a module's operator would install; no node runs that operator here.
struct ServedKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

/// Known only from `associatedResources`: no manifest has the CRDs of Function and ScaledObject.
const FUNCTION: ServedKind = ServedKind {
    group: "serverless.kyma-project.io",
    version: "v1alpha2",
    kind: "Function",
    plural: "functions",
};
const SCALED_OBJECT: ServedKind =
    ServedKind { group: "keda.sh", version: "v1alpha1", kind: "ScaledObject", plural: "scaledobjects" };
/// A kind of template-operator's own manifest.
const MANAGED: ServedKind = ServedKind {
    group: "operator.kyma-project.io",
    version: "v1alpha1",
    kind: "Managed",
    plural: "manageds",
};

impl ServedKind {
    fn crd(&self) -> Value {
        let Self { group, version, kind, plural } = self;
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "names": {"kind": kind, "plural": plural}, "scope": "Namespaced",
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        })
    }

    fn object(&self, name: &str) -> Value {
        let api_version = format!("{}/{}", self.group, self.version);
        json!({"apiVersion": api_version, "kind": self.kind, "metadata": {"name": name, "namespace": "default"}})
    }

    fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    fn api(&self, scenario: &Scenario<'_>, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(scenario.target.clone(), namespace, &self.resource())
    }
}

impl Scenario<'_> {
    /// Disables three modules in use. Users' objects block the removal of serverless and keda until they are
    /// deleted. template-operator's own object is not a user's: it is deleted first, and its operator stays until
    /// it is gone.
    pub(crate) async fn remove_while_used(&self) -> Result<()> {
        let functions: Vec<String> = (1..=FUNCTION_COUNT).map(|number| format!("mine-{number:02}")).collect();
        for served in [&FUNCTION, &SCALED_OBJECT] {
            let crd = served.crd();
            apply_all(&self.target, USER, &crd.to_string()).await?;
            testbed::crd_is_served(&self.target, crd["metadata"]["name"].as_str().unwrap_or_default())
                .await?;
        }
        let objects =
            functions.iter().map(|name| FUNCTION.object(name)).chain([SCALED_OBJECT.object("mine")]);
        for object in objects {
            apply_all(&self.target, USER, &object.to_string()).await?;
        }
        let own = self.hold_managed(&json!(["test.example.org/held"])).await?;
        let operators = self.operators().await?;

        let used = ["keda", "serverless", "template-operator"];
        let others = self.modules.iter().filter(|module| !used.contains(&module.name.as_str()));
        let others: Vec<Value> = others.map(|module| json!({"name": module.name})).collect();
        ensure!(
            others.len() + used.len() == self.modules.len(),
            "the modules have other names: {:?}",
            self.modules
        );
        self.choose(&json!({"spec": {"modules": others}})).await?;

        let named: Vec<String> =
            functions[..20].iter().map(|name| format!("Function default/{name}")).collect();
        let named = format!("delete these first: {} and 2 more", named.join(", "));
        self.both_say("serverless", &named).await?;
        self.both_say("keda", "delete these first: ScaledObject default/mine").await?;
        let place = format!("{}/{}", own.namespace().unwrap_or_default(), own.name_any());
        let waits = format!("waiting until these are deleted: {}.{} {place}", MANAGED.kind, MANAGED.group);
        self.both_say("template-operator", &waits).await?;
        let found = MANAGED.api(self, &own.namespace().unwrap_or_default()).get(&own.name_any()).await?;
        ensure!(found.metadata.deletion_timestamp.is_some(), "the module's own object is deleted first");
        ensure!(self.operators().await? == operators, "the operators serve until nothing is left to serve");

        self.hold_managed(&json!(null)).await?;
        self.is_removed("template-operator").await?;
        for name in &functions[1..] {
            FUNCTION.api(self, "default").delete(name, &DeleteParams::default()).await?;
        }
        self.both_say("serverless", "delete these first: Function default/mine-01").await?;
        FUNCTION.api(self, "default").delete(&functions[0], &DeleteParams::default()).await?;
        self.is_removed("serverless").await?;
        self.both_say("keda", "delete these first: ScaledObject default/mine").await?;
        SCALED_OBJECT.api(self, "default").delete("mine", &DeleteParams::default()).await?;
        self.is_removed("keda").await?;
        self.take_away([&FUNCTION, &SCALED_OBJECT]).await
    }

    /// Sets the finalizers of template-operator's own object, as an operator does that still works on it, and
    /// returns the object.
    async fn hold_managed(&self, finalizers: &Value) -> Result<DynamicObject> {
        let all: Api<DynamicObject> = Api::all_with(self.target.clone(), &MANAGED.resource());
        let own = all.list(&ListParams::default()).await?.items;
        let own = own.first().context("template-operator brings an object of its own")?;
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let api = MANAGED.api(self, &own.namespace().unwrap_or_default());
        Ok(api.patch(&own.name_any(), &PatchParams::default(), &patch).await?)
    }

    /// Returns the uids of the three modules' Deployments.
    async fn operators(&self) -> Result<Vec<String>> {
        let deployments: Api<Deployment> = Api::all(self.target.clone());
        let all = deployments.list(&ListParams::default()).await?.items;
        let names = ["keda-manager", "serverless-operator", "template-operator-controller-manager"];
        let uids = names.map(|name| {
            let found = all.iter().find(|found| found.name_any() == name);
            found.and_then(ResourceExt::uid).with_context(|| format!("Deployment {name} is gone"))
        });
        uids.into_iter().collect()
    }

    /// Waits until the module's entry in the Kyma is Deleting with these words, on the hub and on the target.
    async fn both_say(&self, module: &str, words: &str) -> Result<()> {
        let says = |kyma: Option<&Kyma>| {
            entry(kyma, module).is_some_and(|entry| {
                entry.state == State::Deleting
                    && entry.message.as_deref().is_some_and(|message| message.contains(words))
            })
        };
        let what = format!("{module} says: {words}");
        wait::until(&what, self.kymas(), KYMA, says).await?;
        let shown: Api<Kyma> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        wait::until(&what, shown, "default", says).await?;
        Ok(())
    }

    async fn is_removed(&self, module: &str) -> Result<()> {
        let is_gone = |kyma: Option<&Kyma>| kyma.is_some() && entry(kyma, module).is_none();
        wait::until(&format!("{module} is removed"), self.kymas(), KYMA, is_gone).await?;
        Ok(())
    }

    /// Deletes the CRDs that the test created, and waits until they are gone.
    async fn take_away(&self, served: [&ServedKind; 2]) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.target.clone());
        for ServedKind { group, plural, .. } in served {
            let name = format!("{plural}.{group}");
            let uid = crds.get(&name).await?.uid().context("a stored CRD has a uid")?;
            crds.delete(&name, &DeleteParams::default()).await?;
            wait::until("the CRD is gone", crds.clone(), &name, is_deleted(&uid)).await?;
        }
        Ok(())
    }
}

fn entry<'a>(kyma: Option<&'a Kyma>, module: &str) -> Option<&'a ModuleStatus> {
    let modules = kyma?.status.as_ref()?.modules.as_ref()?;
    modules.iter().find(|entry| entry.name == module)
}
