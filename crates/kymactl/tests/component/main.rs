//! `kymactl diff` and `kymactl tree` with a real hub, a real target and running operators.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, condition};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, Cluster, Program, Registry, SharedTestEnv, until};
use tokio::process::{Child, Command};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const HUB: &str = "apps";
const CRD: &str = "helmcomponents.component.kyma-project.io";
const READY_TIMEOUT: Duration = Duration::from_mins(2);

const CHART: [(&str, &str); 6] = [
    ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n"),
    ("values.yaml", "replicas: 2\ngreeting: hello\ntoken: hush-one\nextra: true\n"),
    (
        "templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {greeting: '{{ .Values.greeting }}'}\n",
    ),
    (
        "templates/extra.yaml",
        "{{ if .Values.extra }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n{{ end }}\n",
    ),
    (
        "templates/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: shop}\nstringData: {token: '{{ .Values.token }}'}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moment, annotations: {helm.sh/hook: 'post-install,pre-upgrade'}}\n",
    ),
    (
        "templates/workload.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec:\n  replicas: {{ .Values.replicas }}\n  \
         selector: {matchLabels: {app: shop}}\n  template:\n    metadata: {labels: {app: shop}}\n    spec: {containers: \
         [{name: main, image: 'example.org/shop:1'}]}\n",
    ),
];

struct World {
    hub: Cluster,
    target: Cluster,
    registry: Registry,
    directory: PathBuf,
    _operators: Child,
}

/// Marks in the audit logs of hub and target.
type Marks = [AuditMark; 2];

impl World {
    async fn start() -> Self {
        let test_env = TEST_ENV.test_env().await.unwrap();
        let hub = async { test_env.cluster("hub").with_audit().await };
        let target = async { test_env.cluster("target").with_workloads().with_audit().await };
        let (hub, target) = tokio::try_join!(hub, target).unwrap();
        let registry = test_env.registry().await.unwrap();
        let directory = test_env.directory().join("component");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("hub.kubeconfig"), hub.kubeconfig()).unwrap();
        registry.push_chart(&directory, ("shop", "1.0.0"), &CHART).await.unwrap();
        let client = hub.client().unwrap();
        let namespace = serde_json::from_value::<Namespace>(json!({"metadata": {"name": HUB}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let access = json!({"metadata": {"name": "blue"}, "stringData": {"config": target.kubeconfig()}});
        let access: Secret = serde_json::from_value(access).unwrap();
        Api::namespaced(client.clone(), HUB).create(&PostParams::default(), &access).await.unwrap();
        let run = ["run", "--install-crds", "--admin-address=", "--log-level=error"];
        let mut operators = command(&directory, &registry, &run).stdin(Stdio::null()).spawn().unwrap();
        testbed::crd_is_brought(&mut operators, &client, CRD).await.unwrap();
        Self { hub, target, registry, directory, _operators: operators }
    }

    async fn kymactl(&self, arguments: &[&str]) -> Output {
        command(&self.directory, &self.registry, arguments).output().await.unwrap()
    }

    fn component(&self, values: &Value) -> Value {
        json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": "shop", "namespace": HUB},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": "blue", "key": "config"}},
                "source": {"chart": {"url": format!("oci://{}/charts/shop", self.registry.address()), "version": "1.0.0"}},
                "release": {"namespace": "store"},
                "values": values,
            },
        })
    }

    /// Runs `kymactl diff -f` with this component.
    async fn diff_of(&self, component: &Value) -> Output {
        let path = self.directory.join("component.yaml");
        std::fs::write(&path, serde_saphyr::to_string(component).unwrap()).unwrap();
        self.kymactl(&["diff", "-f", &path.display().to_string()]).await
    }

    async fn install(&self, values: &Value) -> Api<HelmComponent> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.client().unwrap(), HUB);
        let params = PatchParams::apply("test").force();
        components.patch("shop", &params, &Patch::Apply(self.component(values))).await.unwrap();
        let is_ready = |component: &HelmComponent| {
            let conditions = component.status.as_ref().and_then(|status| status.conditions.as_deref());
            let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
            ready.is_some_and(|ready| {
                ready.status == "True" && ready.observed_generation == component.metadata.generation
            })
        };
        let waited = until("shop is Ready", READY_TIMEOUT, || async {
            Ok(is_ready(&components.get("shop").await?).then_some(()))
        });
        let waited = waited.await;
        assert!(waited.is_ok(), "{:#?}", components.get("shop").await.unwrap().status);
        components
    }

    fn marks(&self) -> Marks {
        [&self.hub, &self.target].map(|cluster| cluster.audit().unwrap().mark().unwrap())
    }

    /// Returns kymactl's requests to hub and target since the marks.
    fn asked(&self, marks: Marks) -> [Vec<AuditEvent>; 2] {
        let [hub, target] = marks;
        [(&self.hub, hub), (&self.target, target)].map(|(cluster, mark)| {
            let events = cluster.audit().unwrap().since(mark).unwrap();
            events.into_iter().filter(|event| event.user_agent.contains("(kymactl")).collect()
        })
    }

    /// Checks that nothing was written since the marks, except for at least `dry_runs` dry runs on the target.
    fn nothing_was_written(&self, marks: Marks, dry_runs: usize) {
        let [hub, target] = self.asked(marks);
        assert!(!hub.is_empty() && !target.is_empty(), "{hub:?} {target:?}");
        let written: Vec<_> = hub.iter().filter(|event| event.is_write()).collect();
        assert!(written.is_empty(), "{written:?}");
        let (dry, wet): (Vec<_>, Vec<_>) = target
            .iter()
            .filter(|event| event.is_write())
            .partition(|event| event.uri.contains("dryRun=All"));
        assert!(wet.is_empty(), "{wet:?}");
        assert!(dry.len() >= dry_runs, "{dry:?}");
    }
}

fn command(directory: &std::path::Path, registry: &Registry, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
    command.args(arguments).arg("--kubeconfig").arg(directory.join("hub.kubeconfig"));
    command.args(["--hub-namespace", HUB]).env("HELM", Program::Helm.path().unwrap()).kill_on_drop(true);
    command.env("ALLOW_LOOPBACK_TARGETS", "true").env("OCI_INSECURE_HOSTS", registry.address());
    command
}

/// Returns exit code, standard output and standard error.
fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Returns the lines with actions.
fn actions(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with(char::is_lowercase)).collect()
}

async fn edit(client: Client, name: &str, data: Value) {
    let maps: Api<ConfigMap> = Api::namespaced(client, "store");
    let params = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    maps.patch(name, &params, &Patch::Merge(json!({ "data": data }))).await.unwrap();
}

#[tokio::test]
async fn diff_prints_the_changes_and_writes_nothing() {
    let world = World::start().await;
    not_applied_yet(&world).await;
    world.install(&json!({"greeting": "servus"})).await;
    let marks = world.marks();
    let (code, out, err) = told(&world.kymactl(&["diff", "shop"]).await);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    world.nothing_was_written(marks, 0);
    as_it_is(&world).await;
    upgraded(&world).await;
    changed_by_others(&world).await;
    as_an_account(&world).await;
    taken_over(&world).await;
    missing(&world).await;
}

async fn not_applied_yet(world: &World) {
    let marks = world.marks();
    let (code, out, err) = told(&world.diff_of(&world.component(&json!({"greeting": "servus"}))).await);
    assert_eq!(code, Some(1), "{out}{err}");
    let untried = "no dry run, because namespace store does not exist yet";
    let expected = [
        "create Namespace store".to_owned(),
        format!("create ConfigMap store/extra: {untried}"),
        format!("create ConfigMap store/shop: {untried}"),
        format!("create Secret store/shop: {untried}"),
        format!("create Deployment.apps store/shop: {untried}"),
        "run hook ConfigMap store/moment: post-install".to_owned(),
    ];
    assert_eq!(actions(&out), expected, "{out}{err}");
    assert!(out.contains("+  greeting: servus") && !out.contains("hush"), "{out}");
    world.nothing_was_written(marks, 4);
    let namespaces: Api<Namespace> = Api::all(world.target.client().unwrap());
    assert!(namespaces.get_opt("store").await.unwrap().is_none());
}

async fn as_it_is(world: &World) {
    let marks = world.marks();
    let (code, out, err) = told(&world.kymactl(&["tree", "shop", "--output", "json"]).await);
    assert_eq!(code, Some(0), "{err}");
    let nodes: Vec<Value> = serde_json::from_str(&out).unwrap();
    let find = |kind: &str, name: &str| {
        nodes
            .iter()
            .find(|node| node["kind"] == kind && node["name"] == name)
            .unwrap_or_else(|| panic!("{out}"))
    };
    let deployment = find("Deployment", "shop");
    assert_eq!((&deployment["health"], deployment.get("drift")), (&json!("Current"), None), "{out}");
    let [set] = &deployment["children"].as_array().unwrap()[..] else { panic!("{out}") };
    assert_eq!(set["kind"], "ReplicaSet");
    let pods: Vec<&Value> = set["children"].as_array().unwrap().iter().collect();
    assert!(pods.len() == 2 && pods.iter().all(|pod| pod["health"] == "Current"), "{out}");
    assert_eq!(find("ConfigMap", "moment")["role"], "hook");
    let (_, table, _) = told(&world.kymactl(&["tree", "shop"]).await);
    assert!(table.contains("├─ Deployment.apps shop") && !table.contains('\u{1b}'), "{table}");
    let [hub, target] = world.asked(marks);
    let mut writes = hub.iter().chain(&target).filter(|event| event.is_write());
    assert_eq!(writes.next(), None);
}

async fn upgraded(world: &World) {
    let marks = world.marks();
    let values = json!({"greeting": "servus", "token": "hush-two", "replicas": 3, "extra": false});
    let (code, out, err) = told(&world.diff_of(&world.component(&values)).await);
    assert_eq!(code, Some(1), "{out}{err}");
    let expected = [
        "run hook ConfigMap store/moment: pre-upgrade",
        "change Secret store/shop",
        "change Deployment.apps store/shop",
        "delete ConfigMap store/extra",
    ];
    assert_eq!(actions(&out), expected, "{out}{err}");
    for line in ["-  replicas: 2", "+  replicas: 3", "token: (hidden, changed)"] {
        let plain = out.replace(['"', '\''], "");
        assert!(plain.contains(line), "{line}: {out}");
    }
    for absent in ["hush", "aHVzaC", "managedFields", "resourceVersion", "status:"] {
        assert!(!out.contains(absent), "{absent}: {out}");
    }
    world.nothing_was_written(marks, 2);
}

async fn changed_by_others(world: &World) {
    told(&world.kymactl(&["suspend", "shop"]).await);
    let components: Api<HelmComponent> = Api::namespaced(world.hub.client().unwrap(), HUB);
    until("it is left alone", READY_TIMEOUT, || async {
        let status = components.get("shop").await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = condition::get(&conditions, condition::types::READY);
        Ok(ready.is_some_and(|ready| ready.reason == "Suspended").then_some(()))
    })
    .await
    .unwrap();
    edit(world.target.client().unwrap(), "shop", json!({"greeting": "edited", "more": "theirs"})).await;
    let marks = world.marks();
    let (code, out, err) = told(&world.kymactl(&["diff", "shop"]).await);
    assert_eq!(code, Some(1), "{out}{err}");
    assert_eq!(actions(&out), ["change ConfigMap store/shop"], "{out}{err}");
    assert!(out.contains("-  greeting: edited\n+  greeting: servus") && !out.contains("-  more"), "{out}");
    assert!(err.contains("suspended"), "{err}");
    world.nothing_was_written(marks, 1);
    let (_, out, _) = told(&world.kymactl(&["tree", "shop"]).await);
    let line = out.lines().find(|line| line.contains("ConfigMap shop")).unwrap_or_else(|| panic!("{out}"));
    assert!(line.contains("changed"), "{out}");
}

/// Checks that objects which Helm installed, and which these values do not render, are reported as removed.
async fn taken_over(world: &World) {
    let chart = format!("oci://{}/charts/shop", world.registry.address());
    let kubeconfig = world.directory.join("target.kubeconfig");
    std::fs::write(&kubeconfig, world.target.kubeconfig()).unwrap();
    let mut helm = Command::new(Program::Helm.path().unwrap());
    helm.args(["install", "mall", &chart, "--version", "1.0.0", "--plain-http", "--namespace", "mall"]);
    helm.args(["--create-namespace", "--kubeconfig"]).arg(&kubeconfig);
    let (code, _, err) = told(&helm.output().await.unwrap());
    assert_eq!(code, Some(0), "{err}");
    let mut component = world.component(&json!({"greeting": "servus", "extra": false}));
    component["metadata"]["name"] = "mall".into();
    component["spec"]["release"] = json!({"name": "mall", "namespace": "mall"});
    let marks = world.marks();
    let (code, out, err) = told(&world.diff_of(&component).await);
    assert_eq!(code, Some(1), "{out}{err}");
    let actions = actions(&out);
    assert!(actions.contains(&"delete ConfigMap mall/extra"), "{out}{err}");
    assert!(!actions.iter().any(|action| action.starts_with("leave")), "{out}{err}");
    world.nothing_was_written(marks, 4);
}

/// Checks that a missing right of the component's ServiceAccount is reported, and that every write impersonates it.
async fn as_an_account(world: &World) {
    let marks = world.marks();
    let mut component = world.component(&json!({"greeting": "servus", "replicas": 5}));
    component["spec"]["serviceAccountName"] = "visitor".into();
    let (code, out, err) = told(&world.diff_of(&component).await);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("TargetForbidden"), "{err}");
    let [_, target] = world.asked(marks);
    let account = "system:serviceaccount:kyma-system:visitor";
    let mut others = target.iter().filter(|event| event.is_write() && event.impersonated != account);
    assert_eq!(others.next(), None);
    assert!(target.iter().any(|event| event.impersonated == account), "{target:?}");
}

async fn missing(world: &World) {
    for command in ["diff", "tree"] {
        let (code, _, err) = told(&world.kymactl(&[command, "nobody"]).await);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("there is no such HelmComponent"), "{err}");
    }
}
