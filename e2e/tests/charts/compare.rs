//! Checks that an object on a target is equal to what helm prints for it.
//!
//! The apiserver decides: helm's own text is applied in a dry run with the component's field manager. The result
//! differs from the live object exactly where the component sent something else, left something out, or owns
//! something that helm does not print. Defaults and normalized values are the apiserver's in both.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use e2e::snapshot::{self, Key};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, Status};
use kube::discovery::{Discovery, Scope};
use kube::{Api, Client, Resource, ResourceExt};
use kyma_api::labels;
use serde_json::Value;

use crate::oracle::RenderedObject;

/// Field manager of the dry run: the component's, so that fields which only the component owns count as
/// differences.
const MANAGER: &str = "helm-component";

/// Prefix of helm-component's labels and annotations.
const OWN_PREFIX: &str = "component.kyma-project.io/";

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Objects that are equal.
    pub(crate) equal: usize,
    /// Paths that were skipped because two runs of helm differ there.
    pub(crate) varying: usize,
    /// Kinds that the target does not serve.
    pub(crate) missing: BTreeSet<String>,
    /// Objects that the target refuses, also from helm, with the reasons.
    pub(crate) refused: BTreeMap<String, String>,
    /// Missing objects that could exist.
    pub(crate) absent: Vec<String>,
    /// Objects with the component's label that helm does not print.
    pub(crate) surplus: Vec<String>,
    /// Differences.
    pub(crate) wrong: Vec<String>,
}

impl Findings {
    /// Returns objects that are missing without a reason. Objects of one kind are sent together, so only objects of
    /// other kinds may wait for a refused one.
    pub(crate) fn lost(&self) -> Vec<&String> {
        let kind = |object: &str| object.split(' ').next().map(str::to_owned);
        let refused: BTreeSet<_> = self.refused.keys().map(|object| kind(object)).collect();
        self.absent.iter().filter(|absent| refused.is_empty() || refused.contains(&kind(absent))).collect()
    }
}

/// Compares a release with all objects that carry `owner`.
pub(crate) async fn release(
    target: &Client,
    printed: &[RenderedObject],
    namespace: &str,
    owner: &str,
) -> Result<Findings> {
    let discovery = Discovery::new(target.clone()).run_aggregated().await?;
    let mut findings = Findings::default();
    let mut expected = BTreeSet::new();
    for object in printed {
        let gvk = kind_of(object);
        let Some((resource, capabilities)) = discovery.resolve_gvk(&gvk) else {
            let dot = if gvk.group.is_empty() { "" } else { "." };
            findings.missing.insert(format!("{}{dot}{}", gvk.kind, gvk.group));
            continue;
        };
        let scope = (capabilities.scope == Scope::Namespaced)
            .then(|| object.namespace.clone().unwrap_or_else(|| namespace.to_owned()));
        let key = Key {
            group: gvk.group.clone(),
            kind: gvk.kind.clone(),
            namespace: scope.clone(),
            name: object.name.clone(),
        };
        one(target, &resource, scope.as_deref(), object, &key, &mut findings).await?;
        expected.insert(key);
    }
    let labelled = snapshot::labelled(target, labels::OWNER, owner).await?;
    for (key, object) in &labelled {
        // Controllers copy labels of a Service or PersistentVolumeClaim to the objects that they create for it.
        let derived = object["metadata"]["ownerReferences"].is_array() || key.is("", "Endpoints");
        if !derived && !expected.contains(key) {
            findings.surplus.push(format!("{key} is not in helm's output"));
        }
    }
    Ok(findings)
}

fn kind_of(object: &RenderedObject) -> GroupVersionKind {
    let (group, version) = object.api_version.rsplit_once('/').unwrap_or(("", &object.api_version));
    GroupVersionKind::gvk(group, version, &object.kind)
}

async fn one(
    target: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &RenderedObject,
    key: &Key,
    findings: &mut Findings,
) -> Result<()> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(target.clone(), namespace, resource),
        None => Api::all_with(target.clone(), resource),
    };
    let live = api.get_opt(&object.name).await?;
    let is_owned = live.as_ref().is_some_and(|live| live.labels().contains_key(labels::OWNER));
    let would_be = match dry_run(target, resource, namespace, object).await {
        Ok(would_be) => would_be,
        Err(reason) => {
            findings.refused.insert(key.to_string(), reason);
            return Ok(());
        }
    };
    let Some(live) = live else {
        findings.absent.push(format!("{key} is not on the target"));
        return Ok(());
    };
    // A namespace is created if missing, but not owned.
    if !is_owned && !key.is("", "Namespace") {
        findings.wrong.push(format!("{key} does not carry our label"));
    }
    let (varying, different): (Vec<String>, Vec<String>) =
        snapshot::paths(&comparable(live)?, &comparable(would_be)?)
            .into_iter()
            .filter(|path| !of_the_clock(key, path))
            .partition(|path| varies(path, &object.varying));
    findings.varying += varying.len();
    if different.is_empty() {
        findings.equal += 1;
    } else {
        findings.wrong.push(format!("{key} differs at {}", different.join(", ")));
    }
    Ok(())
}

/// Reports whether helm fills the field from the clock: two runs within a minute agree, so it may or may not vary.
fn of_the_clock(key: &Key, path: &str) -> bool {
    key.is("batch", "CronJob") && key.name == "linkerd-heartbeat" && path == "/spec/schedule"
}

/// Reports whether the path is one at which two runs of helm differ, or is below one; text of Secrets is stored
/// encoded. Paths above do not count: a list with one more entry is a difference, whatever varies in the other
/// entries.
fn varies(path: &str, varying: &BTreeSet<String>) -> bool {
    varying.iter().any(|other| {
        let stored = match other.strip_prefix("/stringData") {
            Some(rest) => format!("/data{rest}"),
            None => other.clone(),
        };
        path == stored || path.starts_with(&format!("{stored}/"))
    })
}

/// Returns the object without status, server-set metadata, and helm-component's labels and annotations.
fn comparable(object: DynamicObject) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let metadata = value["metadata"].as_object_mut().context("an object has metadata")?;
    for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(field);
    }
    for field in ["labels", "annotations"] {
        let Some(found) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
        found.retain(|name, _| !name.starts_with(OWN_PREFIX));
        if found.is_empty() {
            metadata.remove(field);
        }
    }
    Ok(value)
}

/// Returns the object that an apply of helm's text would give, or the reason of a refusal.
async fn dry_run(
    target: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &RenderedObject,
) -> Result<DynamicObject, String> {
    let path = DynamicObject::url_path(resource, namespace);
    let query = format!("fieldManager={MANAGER}&force=true&dryRun=All");
    let request = http::Request::patch(format!("{path}/{}?{query}", object.name))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(object.yaml.clone().into_bytes())
        .map_err(|error| error.to_string())?;
    target.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => reason(&status),
        other => other.to_string(),
    })
}

/// Returns the reason why the target refuses an object. For custom resources the apiserver lists the causes in
/// random order, so they are sorted.
fn reason(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: BTreeSet<String> =
        causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match status.message.split_once(" is invalid: [") {
        Some((object, _)) if !causes.is_empty() => {
            format!("{object} is invalid: [{}]", causes.into_iter().collect::<Vec<_>>().join(", "))
        }
        _ => status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    #[test]
    fn causes_of_a_refused_object_are_listed_in_one_order() {
        let cause = |field: &str| StatusCause {
            reason: "FieldValueTypeInvalid".to_owned(),
            message: "Invalid value: \"null\"".to_owned(),
            field: field.to_owned(),
        };
        let message = |fields: [&str; 2]| {
            let details = StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: fields.map(cause).into(),
                retry_after_seconds: 0,
            };
            let listed = fields.map(|field| format!("{field}: Invalid value: \"null\"")).join(", ");
            let message = format!("Lamp.example.org \"l\" is invalid: [{listed}]");
            reason(&Status { details: Some(details), ..Status::failure(&message, "Invalid") })
        };
        let sorted = "Lamp.example.org \"l\" is invalid: [spec.a: Invalid value: \"null\", spec.b: Invalid value: \"null\"]";
        assert_eq!(
            (message(["spec.b", "spec.a"]), message(["spec.a", "spec.b"])),
            (sorted.to_owned(), sorted.to_owned())
        );
        assert_eq!(reason(&Status::failure("denied", "Forbidden")), "denied");
    }

    #[test]
    fn only_what_varies_is_left_out() {
        let varying = ["/stringData/password", "/webhooks/0/clientConfig/caBundle", "/spec/rules"];
        let varying: BTreeSet<String> = varying.map(str::to_owned).into();
        assert!(varies("/data/password", &varying) && varies("/spec/rules/0/host", &varying));
        assert!(varies("/webhooks/0/clientConfig/caBundle", &varying));
        assert!(!varies("/webhooks", &varying) && !varies("/data", &varying));
        assert!(!varies("/data/password2", &varying) && !varies("/spec", &varying));
    }

    #[test]
    fn refused_object_of_another_kind_excuses_absent_objects() {
        let absent = vec!["Job.batch n/b is not on the target".to_owned()];
        let mut findings = Findings { absent, ..Findings::default() };
        assert_eq!(findings.lost().len(), 1);
        findings.refused.insert("Secret n/a".to_owned(), "no".to_owned());
        assert!(findings.lost().is_empty());
        findings.refused.insert("Job.batch n/a".to_owned(), "no".to_owned());
        assert_eq!(findings.lost().len(), 1);
    }
}
