//! Hub, target and roles of a test, and the component that runs with them.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, ensure};
use greeting_component::{Greeting, Hello};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
};
use kyma_sdk::api::component::{DeletionOrder, DeletionReason};
use kyma_sdk::api::{State, finalizers};
use kyma_sdk::testing::{ConformanceSetup, TestOperator};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{Access, AuditEvent, AuditMark, Cluster, SharedTestEnv, crd_is_served, until, until_quiet};

use crate::binary::output;

/// Deadline of each wait.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// Duration without requests that counts as idle: longer than the second by which the driver delays reports of work in
/// progress.
const IDLE_DURATION: Duration = Duration::from_secs(2);
/// uid of the Kyma that owns managed components.
pub(crate) const KYMA_UID: &str = "22222222-this-kyma";

const ACCESS_SECRET: &str = "access";
const TARGET_NAMESPACE: &str = "kyma-system";

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// The hub namespace of one test, and the component that reconciles it.
pub(crate) struct Fixture {
    pub(crate) hub: Cluster,
    pub(crate) target: Cluster,
    namespace: String,
    mode: &'static str,
    running: Option<TestOperator>,
}

/// Roles and users for a component that the test runs itself.
pub(crate) struct ConformanceEnv {
    pub(crate) setup: ConformanceSetup,
    pub(crate) namespace: String,
    pub(crate) hub_kubeconfig: String,
}

impl Fixture {
    /// Starts the component, with an access Secret for the target.
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let fixture = Self::without_access(name).await?;
        fixture.grant_access().await?;
        Ok(fixture)
    }

    /// Returns roles and users for a test that runs the component itself.
    pub(crate) async fn conformance_env(name: &str) -> Result<ConformanceEnv> {
        let fixture = Self::prepare(name).await?;
        let user = fixture.hub_user().await?;
        let setup = ConformanceSetup {
            hub: user.config()?,
            hub_admin: fixture.hub.client()?,
            flags: fixture.flags(),
            kubeconfig: fixture.target.service_account("default", &fixture.namespace).await?.kubeconfig(),
            target_admin: fixture.target.client()?,
            step_timeout: DEADLINE,
        };
        Ok(ConformanceEnv { setup, namespace: fixture.namespace.clone(), hub_kubeconfig: user.kubeconfig() })
    }

    /// Starts the component without an access Secret.
    pub(crate) async fn without_access(name: &str) -> Result<Self> {
        let mut fixture = Self::prepare(name).await?;
        fixture.start_operator().await?;
        Ok(fixture)
    }

    /// Starts the component on a hub that is the target of every Kyma.
    pub(crate) async fn single_cluster(name: &str) -> Result<Self> {
        let mut fixture = Self::prepare(name).await?;
        fixture.mode = "single-cluster";
        let roles = roles(&fixture.namespace, "single-cluster")?;
        apply_documents(&fixture.hub, &roles, &fixture.namespace).await?;
        fixture.start_operator().await?;
        Ok(fixture)
    }

    async fn prepare(name: &str) -> Result<Self> {
        let hub = TEST_ENV.cluster("hub", |cluster| cluster.with_controllers().with_audit()).await?;
        let target = TEST_ENV.cluster("target", |cluster| cluster.with_workloads().with_audit()).await?;
        let namespace = hub.namespace(name).await?;
        install_crds(&hub).await?;
        let fixture = Self { hub, target, namespace, mode: "fleet", running: None };
        fixture.grant_roles().await?;
        Ok(fixture)
    }

    /// Returns the hub namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) async fn start_operator(&mut self) -> Result<()> {
        let user = self.hub_user().await?.config()?;
        self.running = Some(TestOperator::start(Hello, &self.flags(), user)?);
        Ok(())
    }

    pub(crate) async fn stop_operator(&mut self) -> Result<()> {
        Ok(self.running.take().context("the component runs")?.stop().await?)
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop_operator().await
    }

    pub(crate) async fn grant_access(&self) -> Result<()> {
        self.put_access(&self.user().await?.kubeconfig()).await
    }

    /// Returns the component's user on the hub.
    async fn hub_user(&self) -> Result<Access> {
        self.hub.service_account("default", &self.namespace).await
    }

    /// Returns the user of the component on the target.
    pub(crate) async fn user(&self) -> Result<Access> {
        self.target.service_account("default", &self.namespace).await
    }

    pub(crate) async fn put_access(&self, kubeconfig: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.client()?, &self.namespace);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ACCESS_SECRET},
            "stringData": {"config": kubeconfig}});
        secrets.patch(ACCESS_SECRET, &PatchParams::apply("test").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<Greeting> {
        self.create_with(name, json!({}), spec).await
    }

    /// Creates a greeting as kyma-operator does.
    pub(crate) async fn create_managed(&self, name: &str, spec: Value) -> Result<Greeting> {
        let owner = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "owner",
            "uid": KYMA_UID, "blockOwnerDeletion": false});
        let metadata = json!({"ownerReferences": [owner], "finalizers": [finalizers::COMPONENT]});
        self.create_with(name, metadata, spec).await
    }

    /// Creates a greeting without a reference to an access Secret.
    pub(crate) async fn create_local(&self, name: &str) -> Result<Greeting> {
        let greeting = json!({"apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting",
            "metadata": {"name": name}, "spec": {"text": "Hello"}});
        Ok(self.greetings()?.create(&PostParams::default(), &serde_json::from_value(greeting)?).await?)
    }

    async fn create_with(&self, name: &str, mut metadata: Value, mut spec: Value) -> Result<Greeting> {
        metadata["name"] = name.into();
        spec["target"] = json!({"kubeconfigSecretRef": {"name": ACCESS_SECRET, "key": "config"}});
        let greeting = json!({"apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting",
            "metadata": metadata, "spec": spec});
        Ok(self.greetings()?.create(&PostParams::default(), &serde_json::from_value(greeting)?).await?)
    }

    pub(crate) async fn change(&self, name: &str, spec: Value) -> Result<()> {
        self.merge(name, json!({"spec": spec})).await
    }

    /// Creates a Pause and waits until the component has read it.
    pub(crate) async fn pause(&self, name: &str, scope: &str) -> Result<()> {
        let pause = json!({"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause",
            "metadata": {"name": name}, "spec": {"scope": scope}});
        self.pauses()?.create(&PostParams::default(), &serde_json::from_value(pause)?).await?;
        let operator = self.running.as_ref().context("the component runs")?;
        let line = format!(r#"pauses{{operator="greeting-component",scope="{scope}"}} 1"#);
        until(&line, DEADLINE, || async { Ok(operator.metrics()?.contains(&line).then_some(())) }).await
    }

    /// Deletes a Pause.
    pub(crate) async fn resume(&self, name: &str) -> Result<()> {
        self.pauses()?.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn pauses(&self) -> Result<Api<kyma_sdk::api::Pause>> {
        Ok(Api::namespaced(self.hub.client()?, &self.namespace))
    }

    pub(crate) async fn annotate(&self, name: &str, key: &str, value: &str) -> Result<()> {
        self.merge(name, json!({"metadata": {"annotations": {key: value}}})).await
    }

    pub(crate) async fn label(&self, name: &str, key: &str, value: Option<&str>) -> Result<()> {
        self.merge(name, json!({"metadata": {"labels": {key: value}}})).await
    }

    pub(crate) async fn order(&self, name: &str, kyma_uid: &str) -> Result<()> {
        let order = DeletionOrder {
            reason: DeletionReason::Disabled,
            kyma_uid: kyma_uid.to_owned(),
            kyma_generation: 1,
        };
        self.merge(name, json!({"metadata": {"annotations": order.to_annotations()}})).await
    }

    async fn merge(&self, name: &str, patch: Value) -> Result<()> {
        self.greetings()?.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.greetings()?.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes the hub namespace. Its roles are deleted with it, in no order, so the component first gets equal ones
    /// for all namespaces; without them its finalizers would keep the namespace.
    pub(crate) async fn delete_hub_namespace(&self) -> Result<()> {
        let rules = roles(&self.namespace, "hub")?;
        let lasting: Vec<String> = rules
            .split("---\n")
            .filter(|document| {
                document.contains("\nkind: Role\n") || document.contains("\nkind: RoleBinding\n")
            })
            .map(|document| {
                let cluster_wide = document.replace("kind: Role", "kind: ClusterRole");
                let cluster_wide =
                    cluster_wide.replace("name: greeting-component", "name: greeting-component-lasting");
                cluster_wide.replacen(&format!("  namespace: {}\n", self.namespace), "", 1)
            })
            .collect();
        apply_documents(&self.hub, &lasting.join("---\n"), &self.namespace).await?;
        let namespaces: Api<Namespace> = Api::all(self.hub.client()?);
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        let greetings = self.greetings()?;
        until(&format!("{name} is gone"), DEADLINE, || async {
            Ok(greetings.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    pub(crate) async fn until_state(&self, name: &str, state: State) -> Result<Greeting> {
        self.until_greeting_is(name, &format!("state {state}"), |it| {
            it.status.as_ref().is_some_and(|status| status.state == Some(state))
        })
        .await
    }

    /// Waits until the condition Ready has this reason, or these words in its message.
    pub(crate) async fn until_ready_says(&self, name: &str, words: &str) -> Result<Greeting> {
        self.until_greeting_is(name, words, |it| {
            let conditions = it.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|one| one.type_ == "Ready" && (one.reason == words || one.message.contains(words)))
        })
        .await
    }

    /// Waits until the component has sent no request for `IDLE_DURATION`, in which it would have reacted to every
    /// event.
    pub(crate) async fn until_settled(&self, name: &str) -> Result<Greeting> {
        let of_component = |event: &AuditEvent| event.user.contains(&self.namespace);
        until_quiet(&[&self.hub, &self.target], IDLE_DURATION, DEADLINE, of_component).await?;
        Ok(self.greetings()?.get(name).await?)
    }

    async fn until_greeting_is(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Greeting) -> bool,
    ) -> Result<Greeting> {
        let greetings = self.greetings()?;
        let found = until(&format!("{name}: {what}"), DEADLINE, || async {
            Ok(greetings.get_opt(name).await?.filter(&is))
        })
        .await;
        match found {
            Ok(found) => Ok(found),
            Err(error) => {
                let status = greetings.get_opt(name).await?.and_then(|greeting| greeting.status);
                Err(error.context(format!("{status:#?}")))
            }
        }
    }

    /// Creates the namespace that a component creates with its first object.
    pub(crate) async fn ensure_target_namespace(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.target.client()?);
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TARGET_NAMESPACE}});
        namespaces.patch(TARGET_NAMESPACE, &PatchParams::apply("test"), &Patch::Apply(&namespace)).await?;
        Ok(())
    }

    pub(crate) async fn until_greeting(&self, name: &str, text: Option<&str>) -> Result<()> {
        until(&format!("{name} says {text:?}"), DEADLINE, || async {
            Ok((self.greeting_on_target(name).await?.as_deref() == text).then_some(()))
        })
        .await
    }

    pub(crate) async fn greeting_on_target(&self, name: &str) -> Result<Option<String>> {
        let map = self.on_target::<ConfigMap>()?.get_opt(name).await?;
        Ok(map.and_then(|map| map.data).and_then(|mut data| data.remove("greeting")))
    }

    pub(crate) fn on_target<K>(&self) -> Result<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        Ok(Api::namespaced(self.target.client()?, TARGET_NAMESPACE))
    }

    pub(crate) fn writes_on_target(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        self.calls(&self.target, mark, AuditEvent::is_write)
    }

    pub(crate) fn reads_on_target(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        self.calls(&self.target, mark, |event| !event.is_write())
    }

    pub(crate) fn writes_on_hub(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        self.calls(&self.hub, mark, AuditEvent::is_write)
    }

    pub(crate) fn reads_on_hub(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        self.calls(&self.hub, mark, |event| !event.is_write())
    }

    /// Returns the component's calls since `mark` that `filter` selects.
    fn calls(
        &self,
        cluster: &Cluster,
        mark: AuditMark,
        filter: impl Fn(&AuditEvent) -> bool,
    ) -> Result<Vec<AuditEvent>> {
        let user = format!("system:serviceaccount:default:{}", self.namespace);
        let events = cluster.audit()?.since(mark)?;
        Ok(events.into_iter().filter(|event| event.user == user && filter(event)).collect())
    }

    fn greetings(&self) -> Result<Api<Greeting>> {
        Ok(Api::namespaced(self.hub.client()?, &self.namespace))
    }

    /// Returns the flags of the component's command `run`.
    fn flags(&self) -> Vec<String> {
        vec![
            format!("--hub-namespace={}", self.namespace),
            format!("--target-namespace={TARGET_NAMESPACE}"),
            format!("--mode={}", self.mode),
            "--concurrency=8".to_owned(),
            "--reconcile-deadline=1m".to_owned(),
            "--allow-loopback-targets".to_owned(),
        ]
    }

    /// Applies the rendered roles, and binds those of the target to the user of the access Secret.
    async fn grant_roles(&self) -> Result<()> {
        apply_documents(&self.hub, &roles(&self.namespace, "hub")?, &self.namespace).await?;
        apply_documents(&self.target, &roles(&self.namespace, "target")?, &self.namespace).await?;
        let binding = format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: access\n\
             roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: greeting-component-target\n\
             subjects:\n  - kind: ServiceAccount\n    name: {0}\n    namespace: default\n",
            self.namespace
        );
        apply_documents(&self.target, &binding, &self.namespace).await?;
        // The API server learns of roles through watches, and a component that may not read the hub's identity ends.
        let namespaces: Api<Namespace> = Api::all(self.hub_user().await?.client()?);
        until("the component may read the hub's identity", DEADLINE, || async {
            Ok(namespaces.get("kube-system").await.ok().map(drop))
        })
        .await
    }
}

/// Returns the roles that the binary prints for a cluster: `hub`, `target` or `single-cluster`.
fn roles(namespace: &str, cluster: &str) -> Result<String> {
    let (code, roles, error) = output(&["rbac", "--namespace", namespace, "--for", cluster])?;
    ensure!(code == Some(0), "rbac fails: {error}");
    Ok(roles)
}

async fn install_crds(hub: &Cluster) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(hub.client()?);
    let params = PatchParams::apply("test").force();
    let crds_of_others = [kyma_sdk::api::crds::pause(), kyma_sdk::api::crds::helm_component()];
    for crd in std::iter::once(Greeting::crd()).chain(crds_of_others) {
        crds.patch(&crd.name_any(), &params, &Patch::Apply(&crd)).await?;
    }
    crd_is_served(&hub.client()?, Greeting::crd_name()).await
}

/// Returns a CRD of `kind` in an API group of its own. The tests share the target, so each one uses another kind.
pub(crate) fn test_crd(kind: &str) -> Result<CustomResourceDefinition> {
    let plural = format!("{}s", kind.to_lowercase());
    let group = format!("{plural}.example.org");
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    }))?)
}

/// Applies rendered YAML. Bindings are to the test's `ServiceAccount`, and those of cluster roles get its name
/// added, since each test has its own.
async fn apply_documents(cluster: &Cluster, yaml: &str, test: &str) -> Result<()> {
    for document in yaml.split("---\n").filter(|document| !document.trim().is_empty()) {
        let mut object: DynamicObject = serde_saphyr::from_str(document)?;
        let types = object.types.clone().context("a document without kind")?;
        // Admission policies are about the ServiceAccount of a deployed operator; e2e runs it with them.
        if types.kind.starts_with("ValidatingAdmissionPolicy") {
            continue;
        }
        if types.kind == "ClusterRoleBinding" {
            object.metadata.name = Some(format!("{}-{test}", object.name_any()));
        }
        if ["RoleBinding", "ClusterRoleBinding"].contains(&types.kind.as_str()) {
            let account = json!({"kind": "ServiceAccount", "name": test, "namespace": "default"});
            object.data["subjects"] = json!([account]);
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(cluster.client()?, &namespace, &resource),
            None => Api::all_with(cluster.client()?, &resource),
        };
        api.patch(&object.name_any(), &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
    }
    Ok(())
}
