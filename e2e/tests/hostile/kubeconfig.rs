//! Access Secrets that request more than access to a cluster: each is refused by every operator, for a stable
//! reason that names the field, and no program is run, no file read, and no connection opened.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::HUB_NAMESPACE;
use kube::Api;
use kube::api::PostParams;
use kyma_api::HelmComponent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer, until_or_why};

use crate::faults::PLANTED;
use crate::world::{World, kyma};

const GUEST: &str = "guest";
const DEADLINE: Duration = Duration::from_mins(2);

const CLUSTER: &str = "/clusters/0/cluster";
const USER: &str = "/users/0/user";

/// Servers to which the kubeconfigs lead.
struct RogueServers {
    /// Server that operators would take for an apiserver.
    apiserver: ScriptedServer,
    /// Server to which proxies and redirects lead.
    redirect_target: ScriptedServer,
}

pub(crate) async fn scenario(world: &World) -> Result<()> {
    let servers = RogueServers {
        apiserver: ScriptedServer::start().await?,
        redirect_target: ScriptedServer::start().await?,
    };
    let marker = world.landscape.directory().join("a-program-was-run");
    let token = world.landscape.directory().join("a-token");
    std::fs::write(&token, PLANTED)?;
    world.grant(GUEST, "{}", 0).await?;
    world.kymas().create(&PostParams::default(), &kyma(GUEST, &json!([]))?).await?;
    components(world).create(&PostParams::default(), &component()?).await?;

    let base: Value = serde_saphyr::from_str(&servers.apiserver.access().kubeconfig())?;
    let mut rows = fields(&base, &marker.to_string_lossy(), &token.to_string_lossy(), &servers)?;
    rows.extend(addresses(&base, &servers, world)?);
    for row in rows {
        world.grant(GUEST, &row.kubeconfig.to_string(), 0).await?;
        refused(world, &row).await.with_context(|| row.words.to_owned())?;
    }
    ensure!(!marker.exists(), "a program that a kubeconfig names was run");
    for server in [&servers.apiserver, &servers.redirect_target] {
        ensure!(server.connections() == 0, "a connection was opened: {:?}", server.requests());
    }
    without_the_flag(world, &servers, &base).await?;
    redirected(world, &servers, &base).await
}

/// A kubeconfig, the reason for which it is refused, and words of the message.
struct Row {
    kubeconfig: Value,
    reason: &'static str,
    words: &'static str,
}

/// Returns kubeconfigs that the parser refuses by field.
fn fields(base: &Value, marker: &str, token: &str, servers: &RogueServers) -> Result<Vec<Row>> {
    let with = |place: &str, field: &str, value: Value| -> Result<Value> {
        let mut changed = base.clone();
        changed.pointer_mut(place).context("a place")?[field] = value;
        Ok(changed)
    };
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [marker], "interactiveMode": "Never"});
    let provider = json!({"name": "gcp", "config": {"cmd-path": "touch", "cmd-args": marker}});
    let away = servers.redirect_target.access().url.clone();
    let plain = servers.apiserver.access().url.replace("https://", "http://");
    let made = [
        (USER, "exec", exec, "users[].user.exec"),
        (USER, "auth-provider", provider, "users[].user.auth-provider"),
        (USER, "tokenFile", json!(token), "users[].user.tokenFile"),
        (USER, "client-certificate", json!(token), "users[].user.client-certificate"),
        (USER, "client-key", json!(token), "users[].user.client-key"),
        (USER, "username", json!(PLANTED), "users[].user.username"),
        (USER, "password", json!(PLANTED), "users[].user.password"),
        (USER, "as", json!("system:admin"), "users[].user.as "),
        (USER, "as-uid", json!("0"), "users[].user.as-uid"),
        (USER, "as-groups", json!(["system:masters"]), "users[].user.as-groups"),
        (USER, "as-user-extra", json!({"a": ["b"]}), "users[].user.as-user-extra"),
        (USER, PLANTED, json!(PLANTED), "unknown field in users[].user"),
        (CLUSTER, "certificate-authority", json!(token), "clusters[].cluster.certificate-authority "),
        (CLUSTER, "insecure-skip-tls-verify", json!(true), "clusters[].cluster.insecure-skip-tls-verify"),
        (CLUSTER, "proxy-url", json!(away), "clusters[].cluster.proxy-url"),
        (CLUSTER, "server", json!(plain), "clusters[].cluster.server is not allowed"),
        (CLUSTER, "server", json!("file:///etc/passwd"), "clusters[].cluster.server is not allowed"),
        (
            CLUSTER,
            "server",
            json!(format!("https://{PLANTED}@127.0.0.1")),
            "clusters[].cluster.server is not valid",
        ),
    ];
    let row = |(place, field, value, words)| {
        Ok(Row { kubeconfig: with(place, field, value)?, reason: "AccessInvalid", words })
    };
    made.into_iter().map(row).collect()
}

/// Returns kubeconfigs whose connection is refused by address. This landscape allows loopback addresses.
fn addresses(base: &Value, servers: &RogueServers, world: &World) -> Result<Vec<Row>> {
    let port = servers.apiserver.access().url.rsplit(':').next().context("a port")?.to_owned();
    let hub = world.landscape.hub().url().to_owned();
    let by_name = hub.replace("127.0.0.1", "localhost");
    let made = [
        (format!("https://0.0.0.0:{port}"), "AccessRefused", "an unspecified address"),
        (format!("https://[::]:{port}"), "AccessRefused", "an unspecified address"),
        ("https://169.254.1.1".to_owned(), "AccessRefused", "a link-local address"),
        ("https://[fe80::1]".to_owned(), "AccessRefused", "a link-local address"),
        ("https://169.254.169.254".to_owned(), "AccessRefused", "a metadata service"),
        ("https://[::ffff:169.254.169.254]".to_owned(), "AccessRefused", "a metadata service"),
        ("https://0xa9fea9fe".to_owned(), "AccessRefused", "a metadata service"),
        ("https://100.100.100.200".to_owned(), "AccessRefused", "a metadata service"),
        (hub, "TargetIsHub", "the hub"),
        (by_name, "TargetIsHub", "the hub"),
    ];
    let row = |(server, reason, words): (String, _, _)| {
        let mut kubeconfig = base.clone();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        Row { kubeconfig, reason, words }
    };
    Ok(made.into_iter().map(row).collect())
}

/// Waits until every operator reports that the kubeconfig is refused.
async fn refused(world: &World, row: &Row) -> Result<()> {
    says(&world.kymas(), "Ready", row).await?;
    says(&world.kymas(), "ModuleCatalog", row).await?;
    says(&components(world), "Ready", row).await
}

async fn says<K>(api: &Api<K>, type_: &str, row: &Row) -> Result<()>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let what = format!("{} says {}", std::any::type_name::<K>(), row.reason);
    until_or_why(&what, DEADLINE, || async {
        let found = serde_json::to_value(api.get(GUEST).await?)?;
        let conditions = &found["status"]["conditions"];
        let fits = |condition: &Value| {
            let says =
                |field: &str, words: &str| condition[field].as_str().is_some_and(|text| text.contains(words));
            condition["type"] == type_
                && condition["status"] != "True"
                && says("reason", row.reason)
                && says("message", row.words)
        };
        let is_reported = conditions.as_array().is_some_and(|all| all.iter().any(fits));
        Ok(if is_reported { Ok(()) } else { Err(conditions.to_string()) })
    })
    .await
}

/// Checks that no request is made to a loopback address, given by number or by name, without the flag that allows
/// it. The operators here have the flag, so kymactl is tested.
async fn without_the_flag(world: &World, servers: &RogueServers, base: &Value) -> Result<()> {
    let asked =
        || servers.apiserver.requests().iter().any(|request| request.user_agent.starts_with("kymactl/"));
    let server = base["clusters"][0]["cluster"]["server"].as_str().context("a server")?;
    for (server, flags) in [
        (server.to_owned(), &[] as &[&str]),
        (server.replace("127.0.0.1", "localhost"), &[]),
        (server.to_owned(), &["--allow-loopback-targets"]),
    ] {
        let mut kubeconfig = base.clone();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        world.grant(GUEST, &kubeconfig.to_string(), 1).await?;
        let output = world.landscape.kymactl().args(["target", "test", GUEST]).args(flags).output().await?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_refused = !output.status.success() && text.contains("a loopback address");
        ensure!(is_refused == flags.is_empty(), "{server} {flags:?}: {text}");
        ensure!(asked() != flags.is_empty(), "{server} {flags:?}: asked {}", asked());
    }
    Ok(())
}

/// Checks that a redirect is not followed, so that the token is sent nowhere else.
async fn redirected(world: &World, servers: &RogueServers, base: &Value) -> Result<()> {
    let away = Answer::redirect(&format!("{}/stolen", servers.redirect_target.access().url));
    servers.apiserver.always(RequestMatcher::any(), away);
    world.grant(GUEST, &base.to_string(), 2).await?;
    let row = Row { kubeconfig: base.clone(), reason: "TargetAnswerInvalid", words: "redirect" };
    refused(world, &row).await?;
    ensure!(servers.apiserver.connections() > 0, "no request was sent");
    ensure!(servers.redirect_target.connections() == 0, "a redirect was followed");
    Ok(())
}

fn components(world: &World) -> Api<HelmComponent> {
    Api::namespaced(world.hub.clone(), HUB_NAMESPACE)
}

fn component() -> Result<HelmComponent> {
    serde_json::from_value(json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": {"name": GUEST},
        "spec": {
            "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{GUEST}"), "key": "config"}},
            "release": {"name": "guest", "namespace": "guest"},
            "source": {"manifests": {"url": "http://127.0.0.1:1/nothing.yaml"}},
        },
    }))
    .context("a component")
}
