//! Steps that make the operators use each of their rights, on one hub and two targets.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::demo;
use e2e::fleet::{Fleet, KYMAS};
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta, ModuleTemplate, Pause, Reason, condition, klm};
use serde_json::{Value, json};
use testbed::{Answer, AuditEvent, RequestMatcher, ScriptedServer, crd_is_served, until, until_or_why};

mod rules;
mod unseen;

/// Name of the image-pull Secret that operators copy to targets, as their role names it.
pub(crate) const PULL_SECRET: &str = "skr-image-pull-secret";
/// ServiceAccount that one component impersonates.
const ACCOUNT: &str = "installer";
const DEADLINE: Duration = Duration::from_mins(2);
const KYMA_CRD: &str = "kymas.operator.kyma-project.io";
const KYMA_GROUP: &str = "operator.kyma-project.io/v1beta2";

pub(crate) struct Scenario<'a> {
    landscape: &'a Landscape,
    fleet: Fleet<'a>,
    hub: Client,
    targets: [Client; 2],
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(landscape: &'a Landscape) -> Result<Self> {
        let [first, second] = landscape.targets() else { anyhow::bail!("the scenario needs two targets") };
        Ok(Self {
            landscape,
            fleet: Fleet::new(landscape)?,
            hub: landscape.hub().client()?,
            targets: [first.client()?, second.client()?],
        })
    }

    pub(crate) async fn run(&self) -> Result<()> {
        tokio::select! {
            done = self.steps() => done,
            ended = self.all_is_meant() => ended,
        }
    }

    async fn steps(&self) -> Result<()> {
        self.fleet.publish().await.context("publish")?;
        self.a_pull_secret().await.context("a pull Secret")?;
        self.objects_without_effect().await.context("objects without effect")?;
        self.the_kind_of_mirrors().await.context("the kind of mirrors")?;
        self.kyma_operator_comes_first().await.context("kyma-operator comes first")?;
        self.rules_on_objects().await.context("rules on objects")?;
        self.a_component_without_a_kyma().await.context("a component without a Kyma")?;
        self.values_of_a_config_map().await.context("values of a ConfigMap")?;
        self.release_meta_syncer_comes_first().await.context("release-meta-syncer comes first")?;
        let _proxy = self.a_target_with_a_past().await.context("a target with a past")?;
        // An event is patched if it repeats one of the last six minutes, which the second time surely does.
        for _ in 0..2 {
            self.access_breaks().await.context("access breaks")?;
        }
        self.a_mandatory_module().await.context("a mandatory module")?;
        self.modules_leave_the_catalogue().await.context("modules leave the catalogue")?;
        self.needs_what_no_log_shows().await.context("rights that no log shows")?;
        let quiet = |_: &str| {};
        let demo = demo::Scenario::new(self.landscape, &quiet)?;
        demo.upgrade().await.context("upgrade")?;
        demo.correct_drift().await.context("drift")?;
        demo.disable_in_use().await.context("disable")?;
        self.rules_on_objects_of_no_module().await.context("rules on objects of no module")?;
        self.delete_kyma(KYMAS[0]).await?;
        self.delete_kyma(KYMAS[1]).await?;
        self.the_kind_of_a_config_is_recreated().await.context("the kind of a ModuleConfig is recreated")
    }

    /// Creates a ModuleConfig and a Pause that select no Kyma, and waits until kyma-operator reports in their
    /// conditions whether they have an effect.
    async fn objects_without_effect(&self) -> Result<()> {
        let nobody = json!({"matchLabels": {"nobody": "has-this"}});
        let config = json!({"module": "lantern", "selector": nobody});
        for (kind, spec) in [("ModuleConfig", config), ("Pause", json!({"selector": nobody}))] {
            let gvk = GroupVersionKind::gvk("operator.kyma-project.io", "v1alpha1", kind);
            let resource = ApiResource::from_gvk(&gvk);
            let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource);
            let object = DynamicObject::new("for-nobody", &resource).data(json!({"spec": spec}));
            api.create(&PostParams::default(), &object).await?;
            until(&format!("{kind} says whether it has an effect"), DEADLINE, || async {
                let conditions = &api.get("for-nobody").await?.data["status"]["conditions"];
                Ok(conditions.as_array().is_some_and(|all| !all.is_empty()).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Recreates the CRD of ModuleConfigs, so that a list lacks the one of [`Self::objects_without_effect`], and
    /// waits until kyma-operator checks with a live read whether it was deleted.
    async fn the_kind_of_a_config_is_recreated(&self) -> Result<()> {
        let (audit, crd) = (self.landscape.hub().audit()?, kyma_api::crds::module_config());
        let (mark, name) = (audit.mark()?, crd.name_any());
        let crds: Api<CustomResourceDefinition> = Api::all(self.hub.clone());
        crds.delete(&name, &DeleteParams::default()).await?;
        gone(&crds, &name).await?;
        crds.create(&PostParams::default(), &crd).await?;
        crd_is_served(&self.hub, &name).await?;
        until("kyma-operator reads the ModuleConfig", DEADLINE, || async {
            let reads = |event: &AuditEvent| {
                event.verb == "get" && event.resource == "moduleconfigs" && event.name == "for-nobody"
            };
            Ok(audit.since(mark)?.iter().any(reads).then_some(()))
        })
        .await
    }

    /// Creates the CRD of Manifests, with which components are mirrored as Manifests.
    async fn the_kind_of_mirrors(&self) -> Result<()> {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = json!({
            "metadata": {"name": format!("{}.operator.kyma-project.io", klm::MANIFESTS)},
            "spec": {
                "group": "operator.kyma-project.io", "scope": "Namespaced",
                "names": {"kind": klm::MANIFEST, "plural": klm::MANIFESTS},
                "versions": [{
                    "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        let crds: Api<CustomResourceDefinition> = Api::all(self.hub.clone());
        crds.create(&PostParams::default(), &serde_json::from_value(crd)?).await?;
        Ok(())
    }

    /// Creates the pull Secret, which operators copy to every target.
    async fn a_pull_secret(&self) -> Result<()> {
        let secret = json!({
            "metadata": {"name": PULL_SECRET, "labels": {kyma_api::labels::COPY_TO_TARGETS: "true"}},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\": {}}"},
        });
        self.secrets().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        Ok(())
    }

    /// Confirms each deletion that a brake stops, by deleting the brake's Pause. Never returns while the watch
    /// works.
    async fn all_is_meant(&self) -> Result<()> {
        let pauses: Api<Pause> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let made = watcher(pauses.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let mut made = pin!(made.filter_map(|pause| async { pause.ok() }));
        while let Some(pause) = made.next().await {
            if pause.name_any().starts_with("brake-") {
                pauses.delete(&pause.name_any(), &DeleteParams::default()).await.ok();
            }
        }
        anyhow::bail!("the watch of Pauses ended")
    }

    /// Freezes release-meta-syncer while the first Kyma is installed, so that kyma-operator creates namespace and
    /// stamp on the target and release-meta-syncer finds them.
    async fn kyma_operator_comes_first(&self) -> Result<()> {
        let syncer = self.landscape.operator("release-meta-syncer")?;
        syncer.freeze()?;
        self.fleet.join(KYMAS[0], &self.landscape.targets()[0]).await?;
        let installed = self.fleet.until_installed(KYMAS[0]).await;
        syncer.thaw()?;
        installed?;
        self.has_catalogue(KYMAS[0]).await
    }

    /// Creates a Greeting without a Kyma, which leaves the modules' namespace on the second target without Kyma's
    /// labels.
    async fn a_component_without_a_kyma(&self) -> Result<()> {
        let secret = self.landscape.access_secret("alone", &self.landscape.targets()[1]).await?;
        self.secrets().create(&PostParams::default(), &secret).await?;
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("demo.kyma-project.io", "v1alpha1", "Greeting"));
        let greetings: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource);
        let access = json!({"name": "kubeconfig-alone", "key": "config"});
        let target = json!({"kubeconfigSecretRef": access});
        let needs = json!([{"component": {"name": "nowhere"}}]);
        let spec = json!({"text": "Hello", "target": target, "deletionPolicy": "Delete", "dependsOn": needs});
        let alone = DynamicObject::new("alone", &resource).data(json!({ "spec": spec }));
        greetings.create(&PostParams::default(), &alone).await?;
        until_or_why("the greeting looks for what it depends on", DEADLINE, || async {
            let status = greetings.get("alone").await?.data["status"].to_string();
            let waits = status.contains("HelmComponent nowhere does not exist");
            Ok(if waits { Ok(()) } else { Err(status) })
        })
        .await?;
        // A dependency on a kind makes the operator watch the target's CRDs.
        let kind = json!([{"api": {"group": "apps", "kind": "Deployment"}}]);
        let served = Patch::Merge(json!({"spec": {"dependsOn": kind}}));
        greetings.patch("alone", &PatchParams::default(), &served).await?;
        until_or_why("the greeting is Ready", DEADLINE, || async {
            let found = greetings.get("alone").await?;
            let status = found.data["status"].to_string();
            Ok(if found.data["status"]["state"] == "Ready" { Ok(()) } else { Err(status) })
        })
        .await?;
        self.a_helm_component_that_needs_a_greeting().await?;
        greetings.delete("alone", &DeleteParams::default()).await?;
        gone(&greetings, "alone").await
    }

    /// Creates a HelmComponent that depends on a Greeting; helm-component may list Greetings only through the role
    /// that greeting-component brings.
    async fn a_helm_component_that_needs_a_greeting(&self) -> Result<()> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let greeting =
            json!({"apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting", "name": "nowhere"});
        let spec = json!({
            "source": {"manifests": {"url": "https://example.org/a.yaml"}},
            "target": {"kubeconfigSecretRef": {"name": "kubeconfig-alone", "key": "config"}},
            "dependsOn": [{"component": greeting}],
        });
        let component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": "greeted"}, "spec": spec,
        });
        components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
        until_or_why("the component looks for the greeting", DEADLINE, || async {
            let status = serde_json::to_value(components.get("greeted").await?.status)?.to_string();
            let waits = status.contains("Greeting nowhere does not exist");
            Ok(if waits { Ok(()) } else { Err(status) })
        })
        .await?;
        components.delete("greeted", &DeleteParams::default()).await?;
        gone(&components, "greeted").await
    }

    /// Makes the component's ServiceAccount cluster-admin on the second target.
    async fn an_account(&self) -> Result<()> {
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": TARGET_NAMESPACE}],
        });
        let bindings: Api<ClusterRoleBinding> = Api::all(self.targets[1].clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        Ok(())
    }

    /// Installs a chart of the catalogue with values from a ConfigMap on the hub, impersonating a ServiceAccount of
    /// the target, with a release that is kept for a rollback; then removes all of it.
    async fn values_of_a_config_map(&self) -> Result<()> {
        self.an_account().await?;
        let values = json!({"metadata": {"name": "values"}, "data": {"values.yaml": "greeting: Ahoy"}});
        let maps: Api<ConfigMap> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        maps.create(&PostParams::default(), &serde_json::from_value(values)?).await?;
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let charts = components.list(&ListParams::default()).await?;
        let chart = charts.iter().find(|found| found.spec.source.chart.is_some()).context("a chart")?;
        let spec = json!({
            "source": chart.spec.source,
            "target": {"kubeconfigSecretRef": {"name": "kubeconfig-alone", "key": "config"}},
            "release": {"name": "alone", "namespace": "alone", "createNamespace": true},
            "valuesFrom": [{"kind": "ConfigMap", "name": "values"}],
            "serviceAccountName": ACCOUNT,
            "rollback": {"mode": "OnFailure"},
            "deletionPolicy": "Delete",
        });
        let component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": "alone"}, "spec": spec,
        });
        components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
        until_or_why("the component is Ready", DEADLINE, || async {
            let found = serde_json::to_value(components.get("alone").await?.status)?;
            let is_kept = found["state"] == "Ready" && found["rollbackTarget"].is_object();
            Ok(if is_kept { Ok(()) } else { Err(found.to_string()) })
        })
        .await?;
        // Without `spec.rollback` the kept release is deleted.
        let without = Patch::Merge(json!({"spec": {"rollback": null}}));
        components.patch("alone", &PatchParams::default(), &without).await?;
        until_or_why("nothing is kept", DEADLINE, || async {
            let found = serde_json::to_value(components.get("alone").await?.status)?;
            Ok(if found["rollbackTarget"].is_null() { Ok(()) } else { Err(found.to_string()) })
        })
        .await?;
        components.delete("alone", &DeleteParams::default()).await?;
        gone(&components, "alone").await?;
        let namespaces: Api<Namespace> = Api::all(self.targets[1].clone());
        namespaces.delete("alone", &DeleteParams::default()).await?;
        gone(&namespaces, "alone").await
    }

    /// Freezes kyma-operator while release-meta-syncer copies the catalogue for the second Kyma, so that
    /// release-meta-syncer creates namespace and stamp on the target and kyma-operator finds them. Then deletes the
    /// Kyma.
    async fn release_meta_syncer_comes_first(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.targets[1].clone());
        namespaces.delete(TARGET_NAMESPACE, &DeleteParams::default()).await?;
        gone(&namespaces, TARGET_NAMESPACE).await?;
        let operator = self.landscape.operator("kyma-operator")?;
        operator.freeze()?;
        self.fleet.join(KYMAS[1], &self.landscape.targets()[1]).await?;
        let copied = self.has_catalogue(KYMAS[1]).await;
        operator.thaw()?;
        copied?;
        self.fleet.until_installed(KYMAS[1]).await?;
        self.delete_kyma(KYMAS[1]).await
    }

    /// Prepares a target whose namespace has no labels, with an older Kyma CRD and a user's Kyma that the first
    /// list omits, and waits until the second Kyma is installed there.
    async fn a_target_with_a_past(&self) -> Result<ScriptedServer> {
        let target = &self.targets[1];
        let namespaces: Api<Namespace> = Api::all(target.clone());
        let bare = Patch::Merge(json!({"metadata": {"labels": null}}));
        namespaces.patch(TARGET_NAMESPACE, &PatchParams::default(), &bare).await?;
        let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
        gone(&crds, KYMA_CRD).await?;
        crds.create(&PostParams::default(), &older_kyma_crd()?).await?;
        crd_is_served(target, KYMA_CRD).await?;
        let remote: Api<Kyma> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
        let modules = ["lantern", "harbour", "greeting"].map(|name| json!({"name": name}));
        let own = json!({
            "apiVersion": KYMA_GROUP, "kind": "Kyma", "metadata": {"name": "default"},
            "spec": {"channel": "regular", "modules": modules},
        });
        remote.create(&PostParams::default(), &serde_json::from_value(own)?).await?;
        let version = remote.list(&ListParams::default()).await?.metadata.resource_version;
        let nothing = json!({
            "apiVersion": KYMA_GROUP, "kind": "KymaList", "metadata": {"resourceVersion": version}, "items": [],
        });
        let proxy = ScriptedServer::in_front_of(&self.landscape.targets()[1]).await?;
        let lists = format!("/apis/{KYMA_GROUP}/namespaces/{TARGET_NAMESPACE}/kymas");
        proxy.next(1, RequestMatcher::path(&lists).method("GET"), Answer::json(&nothing));
        let access = self.landscape.access(&self.landscape.targets()[1]).await?;
        self.grant(KYMAS[1], &proxy.access_of(&access).kubeconfig()).await?;
        self.fleet.create(KYMAS[1]).await?;
        self.fleet.until_installed(KYMAS[1]).await?;
        self.has_catalogue(KYMAS[1]).await?;
        Ok(proxy)
    }

    /// Breaks the access of the first Kyma and restores it: Kyma and components become Ready again.
    async fn access_breaks(&self) -> Result<()> {
        self.grant(KYMAS[0], "no kubeconfig").await?;
        self.says(KYMAS[0], "Ready", "False", Reason::AccessInvalid).await?;
        self.says(KYMAS[0], "ModuleCatalog", "False", Reason::AccessInvalid).await?;
        for component in self.components().await? {
            until(&format!("{} is not Ready", component.name_any()), DEADLINE, || async {
                let found = self.component_api(&component)?.get(&component.name_any()).await?;
                let found = serde_json::to_value(found)?;
                Ok(is(&found, "Ready", "False", Reason::AccessInvalid).then_some(()))
            })
            .await?;
        }
        let access = self.landscape.access(&self.landscape.targets()[0]).await?;
        self.grant(KYMAS[0], &access.kubeconfig()).await?;
        self.fleet.until_installed(KYMAS[0]).await?;
        self.has_catalogue(KYMAS[0]).await
    }

    /// Offers a mandatory module until both targets have it, and withdraws it until it is gone from both.
    async fn a_mandatory_module(&self) -> Result<()> {
        self.push("beacon", &json!([config_map("beacon")])).await?;
        catalogue::offer(self.hub.clone(), "beacon", &json!({"mandatory": {"version": "1.0.0"}})).await?;
        for target in &self.targets {
            let maps: Api<ConfigMap> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
            until("the mandatory module is there", DEADLINE, || async { Ok(maps.get_opt("beacon").await?) })
                .await?;
        }
        let releases: Api<ModuleReleaseMeta> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        releases.delete("beacon", &DeleteParams::default()).await?;
        gone(&releases, "beacon").await?;
        for target in &self.targets {
            gone(&Api::<ConfigMap>::namespaced(target.clone(), TARGET_NAMESPACE), "beacon").await?;
        }
        Ok(())
    }

    /// Adds two modules to the catalogue and removes them again; their copies reach both targets and leave them. Of one
    /// module the release leaves first, of the other the template: of a module that lost one of them, the copy of the
    /// other leaves as well, without a read of the hub.
    async fn modules_leave_the_catalogue(&self) -> Result<()> {
        for module in ["buoy", "float"] {
            self.push(module, &json!([config_map(module)])).await?;
            catalogue::assign(self.hub.clone(), module, "1.0.0").await?;
        }
        for module in ["buoy", "float"] {
            for (templates, releases) in self.targets.iter().map(copies) {
                until("the template is copied", DEADLINE, || async {
                    Ok(templates.get_opt(&format!("{module}-1.0.0")).await?)
                })
                .await?;
                until("the release is copied", DEADLINE, || async { Ok(releases.get_opt(module).await?) })
                    .await?;
            }
        }
        let releases: Api<ModuleReleaseMeta> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let templates: Api<ModuleTemplate> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        releases.delete("buoy", &DeleteParams::default()).await?;
        templates.delete("float-1.0.0", &DeleteParams::default()).await?;
        for (templates, releases) in self.targets.iter().map(copies) {
            gone(&releases, "buoy").await?;
            gone(&templates, "float-1.0.0").await?;
        }
        templates.delete("buoy-1.0.0", &DeleteParams::default()).await?;
        releases.delete("float", &DeleteParams::default()).await?;
        for (templates, releases) in self.targets.iter().map(copies) {
            gone(&templates, "buoy-1.0.0").await?;
            gone(&releases, "float").await?;
        }
        Ok(())
    }

    async fn delete_kyma(&self, name: &str) -> Result<()> {
        let kymas = self.fleet.kymas();
        kymas.delete(name, &DeleteParams::default()).await?;
        gone(&kymas, name).await
    }

    /// Pushes version 1.0.0 of a module with these objects, and publishes its template.
    async fn push(&self, module: &str, objects: &Value) -> Result<()> {
        let objects: Vec<String> = objects.as_array().into_iter().flatten().map(Value::to_string).collect();
        let files = [("manifest.yaml", objects.join("\n---\n"))];
        catalogue::push_files(self.landscape, module, &json!({"manifest": "manifest.yaml"}), &files).await
    }

    /// Creates or changes the access Secret of a Kyma.
    async fn grant(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        let name = format!("kubeconfig-{kyma}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {kyma_api::labels::KYMA_NAME: kyma}},
            "stringData": {"config": kubeconfig},
        });
        let params = PatchParams::apply("person").force();
        self.secrets().patch(&name, &params, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    async fn has_catalogue(&self, name: &str) -> Result<()> {
        self.says(name, condition::types::MODULE_CATALOG, "True", Reason::CatalogSynced).await
    }

    async fn says(&self, name: &str, type_: &str, status: &str, reason: Reason) -> Result<()> {
        until_or_why(&format!("{name} has {type_}={status} for {reason}"), DEADLINE, || async {
            let kyma = serde_json::to_value(self.fleet.kymas().get(name).await?)?;
            Ok(if is(&kyma, type_, status, reason) { Ok(()) } else { Err(kyma["status"].to_string()) })
        })
        .await
    }

    /// Returns the components of the first Kyma, of both kinds.
    async fn components(&self) -> Result<Vec<DynamicObject>> {
        let of_kyma = ListParams::default()
            .labels(&kyma_api::names::label_selector(kyma_api::labels::KYMA_NAME, KYMAS[0]));
        let mut all = Vec::new();
        for (group, kind) in
            [("component.kyma-project.io", "HelmComponent"), ("demo.kyma-project.io", "Greeting")]
        {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
            let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource);
            all.extend(api.list(&of_kyma).await?);
        }
        ensure!(all.len() == 3, "three modules have three components, not {}", all.len());
        Ok(all)
    }

    fn component_api(&self, component: &DynamicObject) -> Result<Api<DynamicObject>> {
        let types = component.types.as_ref().context("components name their kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
        Ok(Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource))
    }
}

/// Returns the Kyma CRD without `kubeconfigSecretRef`, as an older operator would have installed it.
fn older_kyma_crd() -> Result<CustomResourceDefinition> {
    let mut crd = serde_json::to_value(kyma_api::crds::kyma())?;
    let versions = crd["spec"]["versions"].as_array_mut().context("a CRD has versions")?;
    for version in versions {
        let fields = version.pointer_mut("/schema/openAPIV3Schema/properties/spec/properties");
        fields.and_then(Value::as_object_mut).map(|fields| fields.remove("kubeconfigSecretRef"));
    }
    Ok(serde_json::from_value(crd)?)
}

fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": TARGET_NAMESPACE}, "data": {"light": "on"},
    })
}

/// Reports whether a condition has this status and reason.
fn is(object: &Value, type_: &str, status: &str, reason: Reason) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == type_ && condition["status"] == status && condition["reason"] == reason.as_str()
    })
}

async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    until_or_why(&format!("{name} is gone"), DEADLINE, || async {
        Ok(match api.get_opt(name).await? {
            None => Ok(()),
            Some(left) => Err(serde_json::to_string(&left)?),
        })
    })
    .await
}

/// Returns access to the copies of the catalogue on a target.
fn copies(target: &Client) -> (Api<ModuleTemplate>, Api<ModuleReleaseMeta>) {
    let templates = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    (templates, Api::namespaced(target.clone(), TARGET_NAMESPACE))
}
