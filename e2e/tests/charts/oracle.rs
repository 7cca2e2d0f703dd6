//! Output of `helm template` for a target, and the paths at which two runs of it differ.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use e2e::helm::Helm;
use e2e::inputs::charts::Chart;
use e2e::snapshot;
use kube::Client;
use kube::discovery::Discovery;
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

/// One object of helm's output.
#[derive(Clone, Debug)]
pub(crate) struct RenderedObject {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// Its document as helm printed it.
    pub(crate) yaml: String,
    /// JSON pointers at which another run of helm differs.
    pub(crate) varying: BTreeSet<String>,
}

/// Capabilities of a target that charts can query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) kube_version: String,
    pub(crate) api_versions: Vec<String>,
}

impl Capabilities {
    pub(crate) async fn of(target: &Client) -> Result<Self> {
        let kube_version = target.apiserver_version().await?.git_version;
        let discovery = Discovery::new(target.clone()).run_aggregated().await?;
        let mut api_versions = BTreeSet::new();
        for group in discovery.groups() {
            for version in group.versions() {
                let api_version = match group.name() {
                    "" => version.to_owned(),
                    name => format!("{name}/{version}"),
                };
                let kinds = group.versioned_resources(version);
                api_versions.extend(kinds.iter().map(|(kind, _)| format!("{api_version}/{}", kind.kind)));
                api_versions.insert(api_version);
            }
        }
        Ok(Self { kube_version, api_versions: api_versions.into_iter().collect() })
    }
}

/// Returns the objects of a revision of a release from two runs of helm.
pub(crate) async fn objects(
    helm: &Helm,
    chart: &Chart,
    release: (&str, u32),
    namespace: &str,
    capabilities: &Capabilities,
) -> Result<Vec<RenderedObject>> {
    let Capabilities { kube_version, api_versions } = capabilities;
    let run = || helm.template(chart, release, namespace, kube_version, api_versions);
    let (one, other) = tokio::try_join!(run(), run())?;
    let (one, other) = (documents(&one)?, documents(&other)?);
    ensure!(one.keys().eq(other.keys()), "two runs of helm print objects of different names");
    ensure!(!one.is_empty(), "helm prints nothing");
    Ok(one
        .into_iter()
        .map(|(key, (value, yaml))| {
            let varying = snapshot::paths(&value, &other[&key].0).into_iter().collect();
            let (api_version, kind, namespace, name) = key;
            RenderedObject { api_version, kind, namespace, name, yaml, varying }
        })
        .collect())
}

/// Returns in one line why helm prints nothing, without paths of this machine.
pub(crate) fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().next().unwrap_or_default();
    line.rsplit_once(": ").map_or(line, |(_, last)| last).to_owned()
}

/// API version, kind, namespace and name.
type Key = (String, String, Option<String>, String);

/// Returns the documents by object. The last of several documents for one object counts, as if they were applied in
/// turn.
fn documents(text: &str) -> Result<BTreeMap<Key, (Value, String)>> {
    let mut found = BTreeMap::new();
    for document in split(text) {
        // helm and kubectl also take the last of equal keys.
        let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
        let value: Value = serde_saphyr::from_str_with_options(&document, options)
            .with_context(|| format!("helm printed YAML that cannot be read: {document:.200}"))?;
        if value.is_null() {
            continue;
        }
        let kind = value["kind"].as_str().unwrap_or_default();
        let items = value["items"].as_array().filter(|_| kind.ends_with("List"));
        match items {
            Some(items) => {
                for item in items {
                    found.insert(key(item)?, (item.clone(), item.to_string()));
                }
            }
            None => {
                found.insert(key(&value)?, (value, document));
            }
        }
    }
    Ok(found)
}

fn key(value: &Value) -> Result<Key> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Ok((
        text(&value["apiVersion"]).context("an object without apiVersion")?,
        text(&value["kind"]).context("an object without kind")?,
        text(&value["metadata"]["namespace"]),
        text(&value["metadata"]["name"]).context("an object without name")?,
    ))
}

/// Splits the text at lines of three dashes.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        let begins =
            line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty() || rest.starts_with(" #"));
        if begins {
            documents.push(String::new());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}
