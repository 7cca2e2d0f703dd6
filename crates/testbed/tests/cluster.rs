//! Control planes as tests use them.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::{AuditMark, Cluster, SharedTestEnv, Validity, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEADLINE: Duration = Duration::from_mins(2);

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

async fn hub() -> Result<Cluster> {
    TEST_ENV.cluster("hub", testbed::ClusterBuilder::with_audit).await
}

async fn target() -> Result<Cluster> {
    TEST_ENV.cluster("target", testbed::ClusterBuilder::with_workloads).await
}

fn pods(labels: &Value) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.org/main:1.0.0"}]},
    })
}

fn deployment(name: &str, labels: &Value) -> Value {
    let template = pods(labels);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    })
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

#[tokio::test]
async fn deployments_become_available() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("deployments").await?;
    let deployments: Api<Deployment> = Api::namespaced(target.client()?, &namespace);
    create(&deployments, deployment("web", &json!({"app": "web"}))).await?;
    until("the Deployment is available", DEADLINE, || async {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(3)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn pods_that_are_labelled_unready_stay_so() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("unready").await?;
    let client = target.client()?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    create(&deployments, deployment("web", &json!({"app": "web", "testbed/outcome": "unready"}))).await?;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    until("the Pods run", DEADLINE, || async {
        let list = pods.list(&ListParams::default()).await?;
        let running =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        Ok((list.items.len() == 3 && list.iter().all(running)).then_some(()))
    })
    .await?;
    let status = deployments.get("web").await?.status.unwrap_or_default();
    assert_eq!(status.ready_replicas, None);
    Ok(())
}

#[tokio::test]
async fn jobs_complete() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("jobs").await?;
    let jobs: Api<Job> = Api::namespaced(target.client()?, &namespace);
    let mut template = pods(&json!({"app": "once"}));
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template}});
    create(&jobs, job).await?;
    until("the Job is complete", DEADLINE, || async {
        Ok((jobs.get("once").await?.status.unwrap_or_default().succeeded == Some(1)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn claims_get_volumes_and_volumes_go_with_their_claims() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("claims").await?;
    let client = target.client()?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&claims, claim).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut pod = self::pods(&json!({}));
    pod["metadata"] = json!({"name": "user"});
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&pods, pod).await?;
    until("the Pod runs with its volume", DEADLINE, || async {
        let phase = pods.get("user").await?.status.unwrap_or_default().phase;
        Ok((phase.as_deref() == Some("Running")).then_some(()))
    })
    .await?;
    // The scheduler needs only the claim's spec, which is written before its status.
    let claim = until("the claim is bound", DEADLINE, || async {
        let claim = claims.get("data").await?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        Ok((phase == Some("Bound")).then_some(claim))
    })
    .await?;
    let status = claim.status.clone().unwrap_or_default();
    assert_eq!(status.capacity.unwrap_or_default()["storage"].0, "1Gi");

    pods.delete("user", &DeleteParams::default()).await?;
    claims.delete("data", &DeleteParams::default()).await?;
    let volumes: Api<PersistentVolume> = Api::all(client);
    let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
    assert!(!volume.is_empty());
    until("the volume is gone", DEADLINE, || async {
        Ok(volumes.get_opt(&volume).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn load_balancers_get_an_address() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("balancers").await?;
    let services: Api<Service> = Api::namespaced(target.client()?, &namespace);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    create(&services, service).await?;
    until("the Service has an address", DEADLINE, || async {
        let balancer =
            services.get("web").await?.status.unwrap_or_default().load_balancer.unwrap_or_default();
        Ok(balancer.ingress.unwrap_or_default().first().and_then(|ingress| ingress.ip.clone()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn controllers_finalize_namespaces_and_collect_orphans() -> Result<()> {
    let target = target().await?;
    let namespace = target.namespace("garbage").await?;
    let maps: Api<ConfigMap> = Api::namespaced(target.client()?, &namespace);
    let owner = create(&maps, json!({"metadata": {"name": "owner"}})).await?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid().unwrap_or_default()});
    create(&maps, json!({"metadata": {"name": "owned", "ownerReferences": [reference]}})).await?;
    maps.delete("owner", &DeleteParams::default()).await?;
    until("the owned object is gone", DEADLINE, || async {
        Ok(maps.get_opt("owned").await?.is_none().then_some(()))
    })
    .await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(target.client()?);
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    until("the namespace is gone", DEADLINE, || async {
        Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn clusters_of_one_test_env_share_nothing() -> Result<()> {
    let (hub, target) = futures::future::try_join(hub(), target()).await?;
    let namespace = hub.namespace("only-here").await?;
    let elsewhere: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(target.client()?);
    assert!(elsewhere.get_opt(&namespace).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn clusters_side_by_side_have_nodes_of_their_own() -> Result<()> {
    target().await?;
    let wide = TEST_ENV.cluster("wide", |cluster| cluster.with_nodes(3)).await?;
    let client = wide.client()?;
    assert_eq!(Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items.len(), 3);
    let namespace = wide.namespace("daemons").await?;
    let daemons: Api<DaemonSet> = Api::namespaced(client, &namespace);
    let labels = json!({"app": "agent"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": pods(&labels)},
    });
    create(&daemons, set).await?;
    until("the DaemonSet is ready on every node", DEADLINE, || async {
        let status = daemons.get("agent").await?.status.unwrap_or_default();
        Ok((status.number_ready == 3).then_some(()))
    })
    .await
}

#[tokio::test]
async fn rbac_applies_to_users() -> Result<()> {
    let hub = hub().await?;
    let namespace = hub.namespace("users").await?;
    let account = hub.service_account(&namespace, "robot").await?;
    let jane = hub.certificate_user("jane", None, Validity::Long)?;
    let boss = hub.certificate_user("boss", Some("system:masters"), Validity::Long)?;
    for (user, allowed) in [(account, false), (jane, false), (boss, true)] {
        let secrets: Api<Secret> = Api::namespaced(user.client()?, &namespace);
        let answer = secrets.list(&ListParams::default()).await;
        let forbidden = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        assert_eq!((answer.is_ok(), forbidden), (allowed, !allowed), "{user:?}");
    }
    Ok(())
}

#[tokio::test]
async fn expired_certificates_are_refused() -> Result<()> {
    let hub = hub().await?;
    let late = hub.certificate_user("late", Some("system:masters"), Validity::Expired)?;
    let answer = Api::<Secret>::default_namespaced(late.client()?).list(&ListParams::default()).await;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn kubeconfigs_work_in_kubectl_form() -> Result<()> {
    let hub = hub().await?;
    for text in [hub.kubeconfig(), hub.kubeconfig_for_service_account("default", "reader").await?] {
        let parsed = kube::config::Kubeconfig::from_yaml(&text)?;
        let config =
            kube::Config::from_custom_kubeconfig(parsed, &kube::config::KubeConfigOptions::default()).await?;
        kube::Client::try_from(config)?.apiserver_version().await?;
    }
    Ok(())
}

#[tokio::test]
async fn audit_counts_requests_by_user_verb_and_resource() -> Result<()> {
    let hub = hub().await?;
    let audit = hub.audit()?;
    let robot = hub.service_account("audited", "robot").await?;
    let mark = audit.mark()?;
    let maps: Api<ConfigMap> = Api::namespaced(robot.client()?, "audited");
    assert!(maps.list(&ListParams::default()).await.is_err());
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    for _ in 0..2 {
        assert!(maps.patch("x", &PatchParams::apply("test"), &Patch::Apply(&apply)).await.is_err());
    }
    let counts = audit.count(mark, |user| user == robot.user)?;
    let key = |verb: &str| (robot.user.clone(), verb.to_owned(), "configmaps".to_owned());
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(key("list"), 1), (key("patch"), 2)]);
    let events = audit.since(AuditMark::default())?;
    let patch = events.iter().find(|event| event.user == robot.user && event.is_write());
    assert_eq!(patch.map(|event| (event.code, event.name.as_str())), Some((403, "x")));
    Ok(())
}

#[tokio::test]
async fn stopped_clusters_come_back_with_their_data() -> Result<()> {
    let cluster = TEST_ENV.cluster("comes-back", testbed::ClusterBuilder::with_own_authority).await?;
    let namespace = cluster.namespace("kept").await?;
    cluster.stop();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client()?);
    assert!(namespaces.get(&namespace).await.is_err());
    cluster.start_again().await?;
    assert_eq!(namespaces.get(&namespace).await?.name_any(), namespace);
    assert_ne!(cluster.ca(), hub().await?.ca());
    Ok(())
}

#[tokio::test]
async fn dumped_objects_keep_uid_and_version_in_another_cluster() -> Result<()> {
    let test_env = TEST_ENV.test_env().await?;
    let flag = "--storage-media-type=application/json";
    let from = test_env.cluster("dumped").with_own_etcd().with_flag(flag).await?;
    let namespace = from.namespace("dump").await?;
    let maps: Api<ConfigMap> = Api::namespaced(from.client()?, &namespace);
    for name in ["left-out", "kept"] {
        create(&maps, json!({"metadata": {"name": name}, "data": {"key": "value"}})).await?;
    }
    let before = maps.get("kept").await?;
    let keys =
        [format!("/registry/namespaces/{namespace}"), format!("/registry/configmaps/{namespace}/kept")];
    let dump = from.dump_etcd(|key| keys.iter().any(|kept| kept == key)).await?;
    assert_eq!(dump.keys().collect::<Vec<_>>(), keys);
    let text = serde_json::to_string(&dump)?;
    assert!(text.contains(r#"\"key\":\"value\""#), "{text}");

    let to =
        test_env.cluster("restored").with_etcd_dump(serde_json::from_str(&text)?).with_flag(flag).await?;
    let maps: Api<ConfigMap> = Api::namespaced(to.client()?, &namespace);
    assert_eq!(maps.get("kept").await?, before);
    assert!(maps.get_opt("left-out").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn frozen_clusters_are_silent_until_thawed() -> Result<()> {
    let cluster = TEST_ENV.cluster("freezes", |cluster| cluster).await?;
    let client = cluster.client()?;
    cluster.freeze()?;
    let silent = tokio::time::timeout(Duration::from_millis(300), client.apiserver_version()).await;
    assert!(silent.is_err(), "{silent:?}");
    cluster.thaw()?;
    client.apiserver_version().await?;
    Ok(())
}

#[tokio::test]
async fn names_of_clusters_are_plain_words_used_once() -> Result<()> {
    let hub = hub().await?;
    for name in ["hub", "../hub", ""] {
        assert!(hub.test_env().cluster(name).await.is_err(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn registries_serve_plain_http_and_require_a_set_password() -> Result<()> {
    let registry = TEST_ENV.registry().await?;
    let password_proxy = registry.behind_password("user", "word").await?;
    assert_eq!(status(registry.address(), "").await?, 200);
    assert_eq!(status(password_proxy.address(), "").await?, 401);
    assert_eq!(status(password_proxy.address(), "Authorization: Basic dXNlcjpvdGhlcg==\r\n").await?, 401);
    assert_eq!(status(password_proxy.address(), "Authorization: Basic dXNlcjp3b3Jk\r\n").await?, 200);
    Ok(())
}

/// Returns the HTTP status of `/v2/` for a request with these additional headers.
async fn status(address: &str, headers: &str) -> Result<u16> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET /v2/ HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().parse()?)
}
