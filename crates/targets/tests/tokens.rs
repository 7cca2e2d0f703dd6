//! Token exchange between a scripted issuer and a real apiserver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kyma_api::{ErrorClass, Reason};
use kyma_targets::{
    AccessPolicy, ExchangeSettings, Limits, Target, TargetError, Targets, TokenExchange, TokenProviders,
    classify,
};
use parking_lot::Mutex;
use serde_json::json;
use testbed::{Body, Cluster, InterceptedRequest, ScriptedServer, SharedTestEnv, until, until_access};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const OWN: &str = "own-token-hunter2";
const BOUND: &str = "bound";

/// Behaviour of an issuer, and its recorded requests.
#[derive(Default)]
struct Issuer {
    asked: Mutex<Vec<HashMap<String, String>>>,
    /// Validity that it reports for its tokens, in seconds.
    lasts: Mutex<u64>,
    /// Tokens that it issued.
    gave: Mutex<Vec<String>>,
}

impl Issuer {
    /// Starts the issuer. It exchanges tokens for one of a ServiceAccount, which the cluster itself issues.
    async fn start(self: &Arc<Self>, cluster: &Cluster) -> Result<ScriptedServer> {
        *self.lasts.lock() = 600;
        let (issuer, client) = (Arc::clone(self), cluster.client()?);
        let between = move |passing: InterceptedRequest| {
            let (issuer, client) = (Arc::clone(&issuer), client.clone());
            async move { issuer.answer(&passing, client).await.map_err(io::Error::other) }.boxed()
        };
        ScriptedServer::with(Arc::new(between), cluster).await
    }

    async fn answer(&self, passing: &InterceptedRequest, client: kube::Client) -> Result<Response<Body>> {
        let form: HashMap<String, String> =
            url::form_urlencoded::parse(passing.body()).into_owned().collect();
        self.asked.lock().push(form.clone());
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        if field("subject_token") != OWN || field("audience") == "unknown" {
            let error = if field("audience") == "unknown" { "invalid_target" } else { "invalid_request" };
            let words = json!({"error": error, "error_description": "the issuer's own words"});
            return Ok(respond(StatusCode::BAD_REQUEST, &words));
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
        let bound = secrets.get_opt(BOUND).await?.map(|secret| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(BOUND.to_owned()),
            uid: secret.metadata.uid,
        });
        let audiences = if field("audience") == "elsewhere" { vec!["elsewhere".to_owned()] } else { vec![] };
        let spec = TokenRequestSpec { audiences, bound_object_ref: bound, ..TokenRequestSpec::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let minted = accounts.create_token_request("remote", &PostParams::default(), &request).await?;
        let token = minted.status.context("a token")?.token;
        self.gave.lock().push(token.clone());
        let lasts = *self.lasts.lock();
        let body = json!({
            "access_token": token, "token_type": "Bearer", "expires_in": lasts,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        Ok(respond(StatusCode::OK, &body))
    }

    fn asked(&self) -> Vec<HashMap<String, String>> {
        self.asked.lock().clone()
    }
}

fn respond(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let body = Full::new(body.to_string().into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// A cluster, an issuer of tokens for it, and the operator's own token.
struct Stage {
    cluster: Cluster,
    issuer: Arc<Issuer>,
    server: ScriptedServer,
    directory: tempfile::TempDir,
    own: PathBuf,
}

impl Stage {
    async fn new(name: &'static str) -> Result<Self> {
        let cluster = cluster(name).await?;
        let issuer = Arc::new(Issuer::default());
        let server = issuer.start(&cluster).await?;
        let directory = tempfile::tempdir()?;
        let own = directory.path().join("own-token");
        std::fs::write(&own, format!("{OWN}\n"))?;
        Ok(Self { cluster, issuer, server, directory, own })
    }

    fn targets(&self, audience: &str, program: &str) -> Targets {
        targets(&self.server, &self.cluster, audience, program, &self.own)
    }
}

/// Starts a cluster with the ServiceAccount `remote`, which is cluster-admin.
async fn cluster(name: &'static str) -> Result<Cluster> {
    let cluster = TEST_ENV.cluster(name, |b| b).await?;
    cluster.service_account("default", "remote").await?;
    let client = cluster.client()?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "remote"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "remote", "namespace": "default"}],
    });
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let attributes = ResourceAttributes {
        resource: Some("namespaces".to_owned()),
        name: Some("default".to_owned()),
        verb: Some("get".to_owned()),
        ..ResourceAttributes::default()
    };
    until_access(&client, "system:serviceaccount:default:remote", attributes, true).await?;
    Ok(cluster)
}

fn place(url: &str) -> String {
    url.replace("https://", "")
}

/// Returns targets whose kubeconfigs may name `program`, which selects this token exchange.
fn targets(issuer: &ScriptedServer, cluster: &Cluster, audience: &str, program: &str, own: &Path) -> Targets {
    let exchange = TokenExchange::new(ExchangeSettings {
        endpoint: format!("{}/token", issuer.access().url).parse().unwrap(),
        audience: audience.to_owned(),
        token_file: own.to_owned(),
        servers: vec![place(cluster.url())],
        ca_pem: Some(issuer.access().ca.clone().into_bytes()),
    });
    let token_providers = TokenProviders::default().with(program, exchange.unwrap());
    let policy = AccessPolicy { allow_loopback: true, token_providers, ..AccessPolicy::default() };
    Targets::new(policy, Limits::default(), "tester/1.0.0", "replica-0", 8)
}

/// Returns an access Secret whose kubeconfig names a program for its token.
fn secret(cluster: &Cluster, program: &str) -> Secret {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": cluster.url(), "certificate-authority-data": STANDARD.encode(cluster.ca()),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": program, "args": ["--audience=admin"],
        }}}],
    });
    let data = ByteString(kubeconfig.to_string().into_bytes());
    let mut secret = Secret { data: Some([("config".to_owned(), data)].into()), ..Secret::default() };
    secret.metadata.name = Some(program.to_owned());
    secret
}

async fn call(target: &Target) -> Result<(), TargetError> {
    let namespaces = Api::<Namespace>::all(target.client());
    namespaces.get("default").await.map(drop).map_err(|error| classify(&error))
}

#[tokio::test]
async fn token_is_exchanged_once_until_expiry_and_program_never_runs() -> Result<()> {
    let stage = Stage::new("exchanged").await?;
    let Stage { cluster, issuer, directory, .. } = &stage;
    let (program, marker) = (directory.path().join("program"), directory.path().join("was-run"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", marker.display()))?;
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let program = program.to_str().context("a path")?;
    let targets = stage.targets("to-{server}", program);
    let target = targets.from_secret(&secret(cluster, program), "config")?;

    let calls = futures::future::join_all((0..20).map(|_| call(&target))).await;
    calls.into_iter().collect::<Result<Vec<()>, _>>()?;
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["grant_type"], "urn:ietf:params:oauth:grant-type:token-exchange");
    assert_eq!(asked[0]["audience"], format!("to-{}", place(cluster.url())));
    assert!(!marker.exists());

    *issuer.lasts.lock() = 1;
    targets.forget(target.key().context("a key")?);
    let target = targets.from_secret(&secret(cluster, program), "config")?;
    until("the token was exchanged anew as it ended", Duration::from_secs(30), || async {
        call(&target).await?;
        Ok((issuer.asked().len() >= 4).then_some(()))
    })
    .await?;
    let gave = issuer.gave.lock().clone();
    let different: std::collections::BTreeSet<&String> = gave.iter().collect();
    assert_eq!(different.len(), gave.len());
    assert!(!marker.exists());
    Ok(())
}

#[tokio::test]
async fn token_refused_by_target_is_replaced_without_failed_call() -> Result<()> {
    let stage = Stage::new("revoked").await?;
    let Stage { cluster, issuer, .. } = &stage;
    let secrets: Api<Secret> = Api::namespaced(cluster.client()?, "default");
    let metadata = ObjectMeta { name: Some(BOUND.to_owned()), ..ObjectMeta::default() };
    secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await?;
    let targets = stage.targets("a", "get-token");
    let target = targets.from_secret(&secret(cluster, "get-token"), "config")?;
    call(&target).await?;
    // The token is bound to this Secret, so it becomes invalid once the apiserver's cache has the deletion.
    secrets.delete(BOUND, &DeleteParams::default()).await?;
    until("the token was replaced", Duration::from_mins(1), || async {
        call(&target).await?;
        Ok((issuer.asked().len() == 2).then_some(()))
    })
    .await?;
    call(&target).await?;
    assert_eq!(issuer.asked().len(), 2);
    Ok(())
}

#[tokio::test]
async fn issuer_and_target_refusals_and_lost_issuer_have_own_reasons() -> Result<()> {
    let Stage { cluster, issuer, server, directory, own } = &Stage::new("refusing").await?;
    let fails = async |audience: &str, own: &Path| -> Result<TargetError> {
        let targets = targets(server, cluster, audience, "get-token", own);
        let target = targets.from_secret(&secret(cluster, "get-token"), "config")?;
        let errors = [call(&target).await.unwrap_err(), call(&target).await.unwrap_err()];
        assert_eq!(errors[0], errors[1]);
        Ok(errors[0].clone())
    };

    let foreign = fails("elsewhere", own).await?;
    assert_eq!((foreign.reason(), issuer.asked().len()), (Reason::TargetUnauthorized, 2), "{foreign}");
    let refused = fails("unknown", own).await?;
    assert_eq!((refused.reason(), refused.class()), (Reason::TokenRefused, ErrorClass::Unreachable));
    assert!(refused.to_string().contains("invalid_target"), "{refused}");
    assert_eq!(issuer.asked().len(), 3, "an issuer that refused is left alone for a while");
    let without = fails("a", &directory.path().join("nowhere")).await?;
    assert_eq!((without.reason(), without.class()), (Reason::TokenUnavailable, ErrorClass::Transient));
    let gone = {
        let gone = ScriptedServer::start().await?;
        let targets = targets(&gone, cluster, "a", "get-token", own);
        drop(gone);
        let target = targets.from_secret(&secret(cluster, "get-token"), "config")?;
        call(&target).await.unwrap_err()
    };
    assert_eq!((gone.reason(), gone.class()), (Reason::TokenUnavailable, ErrorClass::Transient), "{gone}");
    for error in [foreign, refused, without, gone] {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hunter2") && !text.contains("own words"), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn server_named_by_no_flag_gets_no_token_and_no_exchange() -> Result<()> {
    let stage = Stage::new("named").await?;
    let Stage { cluster, issuer, .. } = &stage;
    let thief = ScriptedServer::start().await?;
    let targets = stage.targets("a", "get-token");
    let mut stolen = secret(cluster, "get-token");
    let data = stolen.data.as_mut().context("data")?.get_mut("config").context("a kubeconfig")?;
    let text = String::from_utf8(data.0.clone())?;
    let text = text
        .replace(cluster.url(), &thief.access().url)
        .replace(&STANDARD.encode(cluster.ca()), &STANDARD.encode(&thief.access().ca));
    data.0 = text.into_bytes();
    let error = targets.from_secret(&stolen, "config").unwrap_err();
    assert_eq!(error.reason(), Reason::AccessInvalid, "{error}");
    assert!(issuer.asked().is_empty() && thief.requests().is_empty());
    Ok(())
}
