//! A Kyma and its target, where modules are installed, upgraded and removed while users and their operators write
//! objects.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::remains::until_as_before;
use e2e::snapshot::{self, Snapshot};
use e2e::wait;
use futures::FutureExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, Reason, condition, labels, names};
use serde_json::{Value, json};
use testbed::{Cluster, until, until_or_why};

use crate::editions::{
    CLUSTER_ROLE, CRD, EDITIONS, Edition, GROUP, MODULES, SHARED_NAMESPACE, USER_NAMESPACE,
};
use crate::interleaving::{Action, ExpectedContent, Interleaving, Step};

const DEADLINE: Duration = Duration::from_mins(2);
/// Name of a user's object in a Namespace that modules ship.
const USER_OBJECT: &str = "users";

/// A Kyma and its target.
pub(crate) struct TestKyma {
    pub(crate) kyma: String,
    hub: Client,
    pub(crate) target: Client,
    /// Snapshot of the target without modules.
    pub(crate) before: Snapshot,
}

/// Objects that users and their operators created, as they must stay.
#[derive(Default)]
struct UserObjects {
    leaves: Vec<DynamicObject>,
    maps: Vec<ConfigMap>,
}

impl TestKyma {
    /// Creates a Kyma without modules on this target, and waits until it is Ready with its catalogue.
    pub(crate) async fn create(landscape: &Landscape, number: usize, target: &Cluster) -> Result<Self> {
        let kyma = format!("kyma-{number}");
        let hub = landscape.hub().client()?;
        let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
        let secret = landscape.access_secret(&kyma, target).await?;
        secrets.create(&PostParams::default(), &secret).await?;
        let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
        let object = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": kyma}, "spec": {"channel": "regular"},
        }))?;
        kymas.create(&PostParams::default(), &object).await?;
        wait::until(&format!("{kyma} is Ready"), kymas, &kyma, |kyma: Option<&Kyma>| {
            let conditions = kyma.and_then(|kyma| kyma.status.as_ref()?.conditions.as_deref());
            let holds = |type_| condition::get(conditions.unwrap_or_default(), type_);
            ["Ready", "ModuleCatalog"]
                .iter()
                .all(|type_| holds(type_).is_some_and(|held| held.status == "True"))
        })
        .await?;
        let target = target.client()?;
        until_default_objects(&target).await?;
        let before = snapshot::take(&target).await?;
        Ok(Self { kyma, hub, target, before })
    }

    /// Takes all steps. Checks the expected content of the target after each one, and at the end that nothing of
    /// the modules is left.
    pub(crate) async fn run(&self, interleaving: &Interleaving) -> Result<()> {
        let mut expected = ExpectedContent::default();
        let mut users = UserObjects::default();
        for step in &interleaving.0 {
            expected = self.take(*step, expected, &mut users).await.with_context(|| step.to_string())?;
        }
        self.end(&users).await
    }

    /// Installs, upgrades and removes both modules in parallel.
    pub(crate) async fn run_in_parallel(&self) -> Result<()> {
        let mut users = UserObjects::default();
        let mut expected = ExpectedContent::default();
        for action in [Action::Install, Action::Upgrade] {
            expected = (0..2).fold(expected, |so_far, module| so_far.after(Step { action, module }));
            self.choose(&expected).await?;
            if action == Action::Install {
                expected.holder = Some(self.first_to_come().await?);
            }
            self.until_settled(&expected).await?;
            self.users_act(&expected, &mut users).await?;
            self.nothing_is_lost(&expected, &users).await?;
        }
        expected = ExpectedContent::default();
        self.choose(&expected).await?;
        self.until_the_last_is_blocked().await?;
        self.nothing_is_lost(&expected, &users).await?;
        self.users_delete_leaves(&mut users).await?;
        self.until_settled(&expected).await?;
        self.end(&users).await
    }

    async fn take(
        &self,
        step: Step,
        before: ExpectedContent,
        users: &mut UserObjects,
    ) -> Result<ExpectedContent> {
        let expected = before.after(step);
        self.choose(&expected).await?;
        if step.action == Action::Remove && expected.is_empty() {
            self.until_blocked(MODULES[step.module]).await?;
            self.nothing_is_lost(&expected, users).await?;
            self.users_delete_leaves(users).await?;
        }
        self.until_settled(&expected).await?;
        self.users_act(&expected, users).await?;
        self.nothing_is_lost(&expected, users).await?;
        Ok(expected)
    }

    /// Enables exactly the expected editions in the target's Kyma.
    async fn choose(&self, expected: &ExpectedContent) -> Result<()> {
        let modules = expected.editions.iter().flatten();
        let modules = modules.map(|edition| json!({"name": edition.module, "version": edition.version}));
        self.choose_modules(&modules.collect::<Vec<_>>()).await
    }

    pub(crate) async fn choose_modules(&self, modules: &[Value]) -> Result<()> {
        let kymas: Api<Kyma> = Api::namespaced(self.target.clone(), TARGET_NAMESPACE);
        let edit = Patch::Merge(json!({"spec": {"modules": modules}}));
        kymas.patch("default", &PatchParams::default(), &edit).await?;
        Ok(())
    }

    /// Waits until each module is Ready, refused or gone, as expected.
    async fn until_settled(&self, expected: &ExpectedContent) -> Result<()> {
        until_or_why("modules are as expected", DEADLINE, || async {
            for (module, edition) in expected.editions.iter().enumerate() {
                let name = MODULES[module];
                let found = self.component(name).await?;
                let status = found.as_ref().map_or(Value::Null, |found| found["status"].clone());
                let as_expected = match (edition, &found) {
                    (None, found) => found.is_none(),
                    (Some(_), None) => false,
                    (Some(edition), Some(found)) if expected.is_refused(module) => {
                        is_present(found, edition)
                            && wait::has_condition(found, "Applied", "False", Reason::OwnedByOther)
                    }
                    (Some(edition), Some(found)) => {
                        is_present(found, edition)
                            && status["version"] == edition.version
                            && wait::has_condition(found, "Ready", "True", Reason::Ready)
                    }
                };
                if !as_expected {
                    return Ok(Err(format!("{name} instead of {edition:?}: {}", status["conditions"])));
                }
            }
            Ok(Ok(()))
        })
        .await
    }

    /// Waits until one module is refused. Returns the other one, which owns the ClusterRole.
    async fn first_to_come(&self) -> Result<usize> {
        until("one module is refused", DEADLINE, || async {
            for (module, name) in MODULES.iter().enumerate() {
                let found = self.component(name).await?.unwrap_or_default();
                if wait::has_condition(&found, "Applied", "False", Reason::OwnedByOther) {
                    return Ok(Some(1 - module));
                }
            }
            Ok(None)
        })
        .await
    }

    async fn until_blocked(&self, module: &str) -> Result<()> {
        until_or_why(&format!("users' leaves hold up the removal of {module}"), DEADLINE, || async {
            let found = self.component(module).await?.context("the component waits")?;
            Ok(if is_blocked(&found) { Ok(()) } else { Err(found["status"]["conditions"].to_string()) })
        })
        .await
    }

    /// Waits until users' leaves block all components that are left. A module whose CRD another one still ships may
    /// be gone by then.
    async fn until_the_last_is_blocked(&self) -> Result<()> {
        until_or_why("users' leaves hold up the removal of the last module", DEADLINE, || async {
            let found = try_join_all(MODULES.map(|module| self.component(module))).await?;
            let left: Vec<&Value> = found.iter().flatten().collect();
            let settled = !left.is_empty() && left.iter().all(|component| is_blocked(component));
            let states = || left.iter().map(|component| component["status"]["conditions"].to_string());
            Ok(if settled { Ok(()) } else { Err(states().collect::<Vec<_>>().join("\n")) })
        })
        .await
    }

    /// Creates objects as users do, with all fields of each edition, and copies objects with all their labels as an
    /// operator of users does.
    async fn users_act(&self, expected: &ExpectedContent, users: &mut UserObjects) -> Result<()> {
        if users.maps.is_empty() {
            let own = json!({"metadata": {"name": USER_OBJECT, "namespace": USER_NAMESPACE}, "data": {"mine": "yes"}});
            users.maps.push(self.create_map(own).await?);
        }
        for (module, edition) in expected.editions.iter().enumerate() {
            let Some(edition) = edition else { continue };
            let leaf: DynamicObject = serde_json::from_value(edition.leaf())?;
            if users.leaves.iter().all(|made| made.name_any() != leaf.name_any()) {
                users.leaves.push(self.create_leaf(edition, &leaf).await?);
            }
            let copied = users.maps.iter().any(|map| map.name_any().ends_with(edition.module));
            if !expected.is_refused(module) && !copied {
                users.maps.extend(self.copy(edition).await?);
            }
        }
        Ok(())
    }

    /// Creates a leaf once the API server serves version and fields of its edition. The server learns of a changed CRD
    /// through a watch, so a Ready component does not prove that.
    async fn create_leaf(&self, edition: &Edition, leaf: &DynamicObject) -> Result<DynamicObject> {
        let leaves = self.leaves(edition.api_version());
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let what = format!("{} is served", edition.api_version());
        let waiting = until_or_why(&what, DEADLINE, || async {
            match leaves.create(&dry_run, leaf).await {
                Ok(made) if made.data["spec"] == leaf.data["spec"] => Ok(Ok(())),
                Ok(made) => Ok(Err(format!("it would be {}", made.data))),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Err(status.message.clone())),
                Err(error) => Err(error.into()),
            }
        });
        // Boxed, since the compiler's proof that a deep future is `Send` has a limit.
        waiting.boxed().await?;
        Ok(leaves.create(&PostParams::default(), leaf).await?)
    }

    /// Copies a ConfigMap as kustomize-controller's children get its labels and annotations (its issue 192), and as
    /// operators do that create a deep copy under another name.
    async fn copy(&self, edition: &Edition) -> Result<[ConfigMap; 2]> {
        let original: Api<ConfigMap> = Api::namespaced(self.target.clone(), SHARED_NAMESPACE);
        let original = serde_json::to_value(original.get(edition.module).await?)?;
        let metadata = &original["metadata"];
        let child = json!({
            "metadata": {
                "name": format!("child-of-{}", edition.module), "namespace": USER_NAMESPACE,
                "labels": metadata["labels"], "annotations": metadata["annotations"],
            },
            "data": original["data"],
        });
        let mut twin = original.clone();
        twin["metadata"]["name"] = format!("twin-of-{}", edition.module).into();
        twin["metadata"]["namespace"] = USER_NAMESPACE.into();
        twin["metadata"]["resourceVersion"] = Value::Null;
        Ok([self.create_map(child).await?, self.create_map(twin).await?])
    }

    async fn create_map(&self, map: Value) -> Result<ConfigMap> {
        let maps: Api<ConfigMap> = Api::namespaced(self.target.clone(), USER_NAMESPACE);
        let map: ConfigMap = serde_json::from_value(map)?;
        Ok(maps.create(&PostParams::default(), &map).await?)
    }

    /// Checks that leaves keep all their fields, that users' objects are unchanged, that the expected module owns
    /// the ClusterRole, and that shared Namespaces exist while a module is installed.
    async fn nothing_is_lost(&self, expected: &ExpectedContent, users: &UserObjects) -> Result<()> {
        for leaf in &users.leaves {
            let name = leaf.name_any();
            let edition = EDITIONS.iter().find(|edition| name.ends_with(edition.version));
            let api = self.leaves(edition.context("each leaf is of an edition")?.api_version());
            let live = api.get(&name).await.with_context(|| format!("leaf {name}"))?;
            ensure!(live.uid() == leaf.uid(), "{name} is another one");
            ensure!(live.data["spec"] == leaf.data["spec"], "{name} was {} and is {}", leaf.data, live.data);
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.target.clone(), USER_NAMESPACE);
        for map in &users.maps {
            let live = maps.get(&map.name_any()).await?;
            ensure!(live.resource_version() == map.resource_version(), "{live:?} was {map:?}");
        }
        let roles: Api<ClusterRole> = Api::all(self.target.clone());
        let role = roles.get_opt(CLUSTER_ROLE).await?;
        let owner = role.as_ref().and_then(|role| role.labels().get(labels::OWNER)).cloned();
        let holder = expected.holder.map(|module| {
            names::owner_hash(HUB_NAMESPACE, &names::component_name(&self.kyma, MODULES[module]))
        });
        ensure!(owner == holder, "the role is {owner:?}'s instead of {holder:?}'s");
        if !expected.is_empty() {
            let namespaces: Api<Namespace> = Api::all(self.target.clone());
            for name in [SHARED_NAMESPACE, USER_NAMESPACE] {
                let phase = namespaces.get(name).await?.status.and_then(|status| status.phase);
                ensure!(phase.as_deref() == Some("Active"), "{name}: {phase:?}");
            }
        }
        Ok(())
    }

    async fn users_delete_leaves(&self, users: &mut UserObjects) -> Result<()> {
        for leaf in users.leaves.drain(..) {
            let version = leaf.types.as_ref().and_then(|types| types.api_version.rsplit('/').next());
            let api = self.leaves(version.context("a leaf has a version")?);
            api.delete(&leaf.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Checks that only users' objects and their Namespace are left, without labels of the operators; then deletes
    /// them and waits until the target is as before.
    async fn end(&self, users: &UserObjects) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.target.clone(), USER_NAMESPACE);
        let theirs = maps.list(&ListParams::default()).await?;
        let theirs = theirs.iter().filter(|map| map.name_any() != "kube-root-ca.crt").count();
        ensure!(theirs == users.maps.len(), "{theirs} of {} objects of users", users.maps.len());
        let namespaces: Api<Namespace> = Api::all(self.target.clone());
        let kept = namespaces.get(USER_NAMESPACE).await?;
        let marks: Vec<&String> =
            kept.labels().keys().filter(|label| label.contains("kyma-project.io")).collect();
        ensure!(marks.is_empty(), "{USER_NAMESPACE} is still marked: {marks:?}");
        let crds: Api<CustomResourceDefinition> = Api::all(self.target.clone());
        until("the CRD is gone", DEADLINE, || async { Ok(crds.get_opt(CRD).await?.is_none().then_some(())) })
            .await?;
        namespaces.delete(USER_NAMESPACE, &DeleteParams::default()).await?;
        until_or_why("the target is as before", DEADLINE, || async {
            let left = until_as_before(&self.target, &self.before).await?;
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
        })
        .await
    }

    fn leaves(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(GROUP, version, "Leaf");
        let resource = ApiResource::from_gvk_with_plural(&kind, "leaves");
        Api::namespaced_with(self.target.clone(), USER_NAMESPACE, &resource)
    }

    pub(crate) async fn component(&self, module: &str) -> Result<Option<Value>> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let found = components.get_opt(&names::component_name(&self.kyma, module)).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }
}

/// Waits until the namespace of the user's Kyma has the objects that Kubernetes creates in each namespace, some time
/// after the namespace.
async fn until_default_objects(target: &Client) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    let waiting = until("the namespace has its default objects", DEADLINE, || async {
        let account = accounts.get_opt("default").await?;
        let authority = maps.get_opt("kube-root-ca.crt").await?;
        Ok(account.and(authority).map(drop))
    });
    // Boxed, since the compiler's proof that a deep future is `Send` has a limit.
    waiting.boxed().await
}

/// Reports whether the component requests this edition, and its status is of the current generation.
fn is_present(component: &Value, edition: &Edition) -> bool {
    component["spec"]["module"]["version"] == edition.version
        && component["metadata"]["deletionTimestamp"].is_null()
        && component["status"]["observedGeneration"] == component["metadata"]["generation"]
}

/// Reports whether users' objects block the component's removal.
fn is_blocked(component: &Value) -> bool {
    let mut conditions = component["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|held| held["reason"] == Reason::DeletionBlocked.as_str())
}
