//! Kubeconfigs that operators refuse, and well-formed ones that do not lead to the target.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kyma_api::Reason;
use serde_json::{Value, json};
use testbed::free_address;

use crate::planted::{secret, secret_in_url};
use crate::world::{Row, World};

pub(crate) fn rows(world: &World) -> Result<Vec<Row>> {
    let mut rows = refused(world)?;
    rows.extend(unusable(world)?);
    let spec = crate::causes::sources::content(world, "for-access");
    Ok(rows
        .into_iter()
        .map(|(name, access, reason)| Row { name, access: Some(access), specs: vec![spec.clone()], reason })
        .collect())
}

type BrokenAccess = (&'static str, String, Reason);

/// Returns kubeconfigs that the parser refuses.
fn refused(world: &World) -> Result<Vec<BrokenAccess>> {
    let by = |name, user: Value| broken(world, name, "/users/0/user", user);
    let cluster =
        |name, field: &str, value: Value| broken(world, name, &format!("/clusters/0/cluster/{field}"), value);
    let server = world.quay.url().trim_start_matches("https://");
    let environment = json!([{"name": "TOKEN", "value": secret("exec")}]);
    let exec = json!({"command": "cat", "args": [secret("exec")], "env": environment});
    let oidc = json!({"name": "oidc", "config": {"id-token": secret("provider"), "client-secret": secret("provider")}});
    let pem = |name| STANDARD.encode(secret(name));
    let made = vec![
        by("exec", json!({"exec": exec}))?,
        by("provider", json!({"auth-provider": oidc}))?,
        by("basic", json!({"username": "admin", "password": secret("basic")}))?,
        by("token-list", json!({"token": [secret("token-list")]}))?,
        by("token-space", json!({"token": format!("{} and more", secret("token-space"))}))?,
        by("key-alone", json!({"client-key-data": pem("key-alone")}))?,
        by(
            "key-plain",
            json!({"client-key-data": secret("key-plain"), "client-certificate-data": pem("key-plain")}),
        )?,
        by(
            "key-broken",
            json!({"client-key-data": pem("key-broken"), "client-certificate-data": pem("key-broken")}),
        )?,
        by("unknown", json!({secret("unknown"): secret("unknown")}))?,
        by("as", json!({"token": secret("as"), "as": secret("as")}))?,
        cluster("authority", "certificate-authority-data", json!(secret("authority")))?,
        cluster("insecure", "insecure-skip-tls-verify", json!(secret("insecure")))?,
        cluster(
            "server-user",
            "server",
            json!(format!("https://admin:{}@{server}", secret_in_url("server-user"))),
        )?,
        cluster(
            "server-query",
            "server",
            json!(format!("https://{server}?token={}", secret_in_url("server-query"))),
        )?,
        cluster("proxy", "proxy-url", json!(format!("http://me:{}@127.0.0.1:3128", secret_in_url("proxy"))))?,
    ];
    let mut all: Vec<BrokenAccess> =
        made.into_iter().map(|(name, access)| (name, access, Reason::AccessInvalid)).collect();
    let texts = [
        ("no-yaml", format!("{}: [not, a, kubeconfig", secret("no-yaml"))),
        ("bare-token", secret("bare-token")),
        ("yaml-tab", format!("token:\n\t- {}\n", secret("yaml-tab"))),
        ("yaml-alias", format!("token: *{}\n", "planted-alias")),
        ("yaml-twice", format!("{0}: 1\n{0}: 2\n", secret("yaml-twice"))),
    ];
    all.extend(texts.map(|(name, text)| (name, text, Reason::AccessInvalid)));
    Ok(all)
}

/// Returns well-formed kubeconfigs with a wrong token, address or certificate authority.
fn unusable(world: &World) -> Result<Vec<BrokenAccess>> {
    let token = |name: &'static str| broken(world, name, "/users/0/user", json!({"token": secret(name)}));
    let (name, unauthorized) = token("token-wrong")?;
    let mut all = vec![(name, unauthorized, Reason::TargetUnauthorized)];
    let (name, away) = token("away")?;
    let nowhere = format!("https://{}", free_address()?);
    all.push((
        name,
        replaced(&away, "/clusters/0/cluster/server", json!(nowhere))?,
        Reason::TargetUnreachable,
    ));
    let (name, unnamed) = token("untrusted")?;
    let other = foreign_authority(world)?;
    let untrusted = replaced(&unnamed, "/clusters/0/cluster/certificate-authority-data", json!(other))?;
    all.push((name, untrusted, Reason::TargetUntrusted));
    Ok(all)
}

/// Returns another cluster's certificate authority, as base64 of PEM.
fn foreign_authority(world: &World) -> Result<Value> {
    let other: Value = serde_saphyr::from_str(&world.foreign.kubeconfig())?;
    Ok(other["clusters"][0]["cluster"]["certificate-authority-data"].clone())
}

/// Returns the working kubeconfig with another value in one place.
fn broken(world: &World, name: &'static str, place: &str, value: Value) -> Result<(&'static str, String)> {
    Ok((name, replaced(&world.access.kubeconfig(), place, value)?))
}

fn replaced(kubeconfig: &str, place: &str, value: Value) -> Result<String> {
    let mut kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    let (parent, field) = place.rsplit_once('/').context("a place has a parent")?;
    let parent = kubeconfig.pointer_mut(parent).with_context(|| format!("there is no {parent}"))?;
    parent[field] = value;
    Ok(kubeconfig.to_string())
}
