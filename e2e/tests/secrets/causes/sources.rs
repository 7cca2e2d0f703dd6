//! Sources that cannot be fetched, parsed or verified.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kyma_api::Reason;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::planted::{HARMLESS_WORD, secret, secret_in_url};
use crate::world::{REGISTRY_USER, Row, World};

pub(crate) async fn rows(world: &World) -> Result<Vec<Row>> {
    let mut rows = texts(world);
    rows.extend(addresses(world));
    rows.extend(passwords(world).await?);
    Ok(rows)
}

/// Returns a source of one harmless ConfigMap.
pub(crate) fn content(world: &World, name: &str) -> Value {
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": HARMLESS_WORD}, "data": {HARMLESS_WORD: HARMLESS_WORD},
    });
    manifests(world, name, manifest.to_string())
}

/// Returns a source of these manifests.
pub(crate) fn manifests(world: &World, name: &str, text: impl Into<String>) -> Value {
    json!({"source": {"manifests": {"url": world.file_server.put(&format!("{name}.yaml"), text)}}})
}

fn row(name: &'static str, spec: Value, reason: Reason) -> Row {
    Row { name, access: None, specs: vec![spec], reason }
}

/// Returns manifests that do not parse because of a secret, or contain no objects.
fn texts(world: &World) -> Vec<Row> {
    let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
    let whole = |tail: String| format!("{head}{tail}");
    let texts = [
        ("open-list", whole(format!("stringData: {{a: [{}\n", secret("open-list")))),
        ("colon", whole(format!("stringData: a: {}: b\n", secret("colon")))),
        ("tab", whole(format!("stringData:\n\ta: {}\n", secret("tab")))),
        ("open-quote", whole(format!("stringData: {{a: \"{}\n", secret("open-quote")))),
        ("escape", whole(format!("stringData: {{a: \"\\{}\"}}\n", secret("escape")))),
        ("alias", whole("stringData: {a: *planted-alias}\n".to_owned())),
        ("tag", whole(format!("stringData: {{a: !!int {}}}\n", secret("tag")))),
        ("scalar", secret("scalar")),
        ("list", format!("- {}\n", secret("list"))),
        ("metadata", format!("apiVersion: v1\nkind: Secret\nmetadata: {}\n", secret("metadata"))),
        ("name", format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: [{}]}}\n", secret("name"))),
        ("directive", format!("%{} 1.0\n---\n{head}", secret("directive"))),
    ];
    let texts = texts.into_iter();
    texts.map(|(name, text)| row(name, manifests(world, name, text), Reason::ManifestInvalid)).collect()
}

/// Returns addresses with a password or a signature in them, and a digest that does not match.
fn addresses(world: &World) -> Vec<Row> {
    let at = |url: String| json!({"source": {"manifests": {"url": url}}});
    let file_server = world.file_server.address();
    let user = |name| format!("http://me:{}@{file_server}/missing.yaml", secret_in_url(name));
    let query = |name, host: &str| format!("http://{host}/missing.yaml?signature={}", secret_in_url(name));
    let tampered = manifests(world, "tampered", format!("a: {}", secret("tampered")));
    let mut digest = tampered.clone();
    digest["source"]["manifests"]["digest"] =
        format!("sha256:{}", hex::encode(Sha256::digest("other"))).into();
    let registry = world.landscape.registry().address();
    let oci = json!({"source": {"manifests": {
        "url": format!("oci://me:{}@{registry}/missing", secret_in_url("oci-user")), "version": "1.0.0",
    }}});
    let chart = json!({"source": {"chart": {
        "url": format!("http://me:{}@{file_server}/charts", secret_in_url("chart-user")), "name": "a", "version": "1.0.0",
    }}});
    let repository = json!({"source": {"ocm": {
        "component": "kyma-project.io/module/missing", "version": "1.0.0",
        "repository": format!("me:{}@{registry}", secret_in_url("ocm-user")),
    }}});
    vec![
        row("query", at(query("query", &file_server)), Reason::SourceNotFound),
        row("query-refused", at(query("query-refused", "127.0.0.1:9")), Reason::SourceInvalid),
        row("user", at(user("user")), Reason::SourceInvalid),
        row(
            "no-address",
            at(format!("http://me:{}@[::", secret_in_url("no-address"))),
            Reason::SourceInvalid,
        ),
        row("oci-user", oci, Reason::SourceInvalid),
        row("chart-user", chart, Reason::SourceInvalid),
        row("ocm-user", repository, Reason::SourceInvalid),
        row("tampered", digest, Reason::DigestMismatch),
    ]
}

/// Creates pull secrets that do not lead to the module, and returns a row for each.
async fn passwords(world: &World) -> Result<Vec<Row>> {
    let address = world.locked.address();
    let auth = |password: &str| STANDARD.encode(format!("{REGISTRY_USER}:{password}"));
    let auths = |entry: Value| json!({"auths": {&address: entry}}).to_string();
    let configs = [
        (
            "password-wrong",
            auths(json!({"auth": auth(&secret("password-wrong"))})),
            Reason::SourceUnauthorized,
        ),
        ("password-json", format!("{{\"auths\": {}", secret("password-json")), Reason::SourceUnauthorized),
        ("password-plain", auths(json!({"auth": secret("password-plain")})), Reason::SourceUnauthorized),
        ("password-list", auths(json!({"password": [secret("password-list")]})), Reason::SourceUnauthorized),
        // The password is right, but the version does not exist.
        ("password-right", auths(json!({"auth": auth(&secret("registry"))})), Reason::SourceNotFound),
    ];
    let mut rows = Vec::new();
    for (name, config, reason) in configs {
        world.secret(name, json!({".dockerconfigjson": config})).await?;
        let source = json!({"source": {
            "ocm": {"component": "kyma-project.io/module/missing", "version": "1.0.0", "repository": address},
            "pullSecretRef": {"name": name},
        }});
        rows.push(row(name, source, reason));
    }
    Ok(rows)
}
