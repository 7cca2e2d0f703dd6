//! Reads HelmReleases and their sources from a cluster or from files.

use std::{collections::BTreeSet, path::PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    discovery,
};
use serde_json::Value;

use super::convert;
use super::facts::{Facts, Kind, ReducedObject, Ref, text};
use crate::{
    error::Error,
    file::{check_one_standard_input, read_text},
};

const HELM_GROUP: &str = "helm.toolkit.fluxcd.io";
const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
const HELM_RELEASE_KIND: &str = "HelmRelease";
/// Page size of lists.
const LIST_PAGE_SIZE: u32 = 500;
/// Maximum number of references from a release to an object: HelmChart, HelmRepository, Secret.
const MAX_REFERENCES: usize = 3;

/// Reads documents from files. Objects without a namespace get this one.
pub(super) fn files(paths: &[PathBuf], namespace: &str) -> Result<(Vec<Value>, Facts), Error> {
    check_one_standard_input(paths.iter().map(PathBuf::as_path))?;
    let mut releases = Vec::new();
    let mut facts = Facts::new();
    for path in paths {
        let what = path.display().to_string();
        let yaml = read_text(path)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&yaml).map_err(|error| Error::input(&what, error.to_string()))?;
        for mut document in documents.into_iter().flat_map(flat) {
            place(&mut document, namespace);
            match text(&document, "/kind") {
                Some(HELM_RELEASE_KIND) if is_of(&document, HELM_GROUP) => releases.push(document),
                Some(kind) => {
                    // k3s has its own kind HelmChart.
                    let is_meant =
                        |kind: &Kind| is_of(&document, if kind.is_data() { "v1" } else { SOURCE_GROUP });
                    let Some(kind) = Kind::parse(kind).filter(is_meant) else { continue };
                    let name = text(&document, "/metadata/name").unwrap_or_default();
                    let namespace = text(&document, "/metadata/namespace").unwrap_or(namespace);
                    facts.insert(Ref::new(kind, namespace, name), Some(ReducedObject::of(kind, document)));
                }
                None => {}
            }
        }
    }
    if releases.is_empty() {
        return Err(Error::input("--file", format!("contains no HelmRelease of {HELM_GROUP}")));
    }
    Ok((releases, facts))
}

fn place(document: &mut Value, namespace: &str) {
    if text(document, "/metadata/namespace").is_none()
        && let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// Returns the items of a `kubectl` list, or the document itself.
fn flat(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut map) if map.get("kind").is_some_and(|kind| kind == "List") => {
            match map.remove("items") {
                Some(Value::Array(items)) => items,
                _ => vec![],
            }
        }
        other => vec![other],
    }
}

fn is_of(document: &Value, group: &str) -> bool {
    text(document, "/apiVersion").is_some_and(|version| version.split('/').next() == Some(group))
}

/// A cluster with Flux.
pub(super) struct Flux {
    pub(super) client: Client,
    release: ApiResource,
    sources: Vec<ApiResource>,
}

impl Flux {
    /// Discovers the served versions of Flux's kinds.
    pub(super) async fn new(client: Client) -> Result<Self, Error> {
        let kinds = |group: discovery::ApiGroup| {
            let resources = group.resources_by_stability();
            resources.into_iter().map(|(resource, _)| resource).collect::<Vec<_>>()
        };
        let releases = discovery::group(&client, HELM_GROUP).await.map(kinds).unwrap_or_default();
        let release = releases.into_iter().find(|resource| resource.kind == HELM_RELEASE_KIND);
        let release = release.ok_or_else(|| {
            Error::input("the cluster", format!("serves no {HELM_RELEASE_KIND} of {HELM_GROUP}"))
        })?;
        let sources = discovery::group(&client, SOURCE_GROUP).await.map(kinds).unwrap_or_default();
        Ok(Self { client, release, sources })
    }

    /// Lists HelmReleases of a namespace, or of all.
    pub(super) async fn releases(&self, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.release),
            None => Api::all_with(self.client.clone(), &self.release),
        };
        let mut params = ListParams::default().limit(LIST_PAGE_SIZE);
        let mut releases = Vec::new();
        loop {
            let page = api.list(&params).await?;
            for object in page.items {
                releases.push(serde_json::to_value(object).map_err(std::io::Error::other)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(releases),
            }
        }
    }

    pub(super) fn release(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.release)
    }

    /// Reads the objects that the releases refer to, and those for components in namespace `hub`. Objects without
    /// read permission stay unknown.
    pub(super) async fn facts(&self, releases: &[Value], hub: &str) -> Result<Facts, Error> {
        let mut facts = Facts::new();
        for _ in 0..MAX_REFERENCES {
            let wanted: BTreeSet<Ref> = releases
                .iter()
                .flat_map(|release| convert::refers_to(release, &facts, hub))
                .filter(|one| !facts.contains_key(one))
                .collect();
            for one in wanted {
                if let Some(found) = self.read(&one).await? {
                    facts.insert(one, found);
                }
            }
        }
        Ok(facts)
    }

    /// Reads an object. Returns `None` if the caller may not read it, and `Some(None)` if it does not exist.
    async fn read(&self, one: &Ref) -> Result<Option<Option<ReducedObject>>, Error> {
        let read = if one.kind == Kind::Secret {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &one.namespace);
            api.get_opt(&one.name).await.map(|found| found.map(serde_json::to_value))
        } else if one.kind == Kind::ConfigMap {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &one.namespace);
            api.get_opt(&one.name).await.map(|found| found.map(serde_json::to_value))
        } else {
            let Some(resource) = self.sources.iter().find(|resource| resource.kind == one.kind.as_str())
            else {
                return Ok(Some(None));
            };
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &one.namespace, resource);
            api.get_opt(&one.name).await.map(|found| found.map(serde_json::to_value))
        };
        match read {
            Ok(found) => {
                let found = found.transpose().map_err(std::io::Error::other)?;
                Ok(Some(found.map(|object| ReducedObject::of(one.kind, object))))
            }
            Err(kube::Error::Api(status)) if status.code == 403 && one.kind.is_data() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
