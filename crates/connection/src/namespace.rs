//! Namespaces of the operators' objects on targets.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use kyma_api::labels;
use kyma_controller::{Failure, Operator};
use kyma_targets::Target;

use crate::connector::{Connector, NamespaceLabels};
use crate::error::Error;

/// Creates the namespace if it is missing, and sets its labels. It has no owner and is never deleted. Returns true if
/// it was written.
///
/// # Errors
/// The target does not answer or forbids a call.
pub async fn ensure_namespace<C: Connector>(
    connector: &C,
    target: &Target,
    name: &str,
) -> Result<bool, Failure> {
    Ok(ensure(target.client(), connector.runtime().operator, C::NAMESPACE_LABELS, name).await?)
}

async fn ensure(
    client: Client,
    operator: Operator,
    label_policy: NamespaceLabels,
    name: &str,
) -> Result<bool, Error> {
    let (labels, manager) = (labels::TARGET_NAMESPACE_LABELS, format!("{}-create", operator.name));
    let failed = |source| Error::EnsureNamespace { name: name.to_owned(), source };
    let found = kyma_targets::ensure_namespace(&client, name, &labels, &manager).await.map_err(failed)?;
    let Some(found) = found else { return Ok(true) };
    if label_policy == NamespaceLabels::SetOnCreation || has_labels(&found) {
        return Ok(false);
    }
    let params = PatchParams::apply(operator.name).force();
    let api: Api<Namespace> = Api::all(client);
    let applied = api.patch(name, &params, &Patch::Apply(&desired_namespace(name))).await;
    applied.map(|_| true).map_err(failed)
}

fn desired_namespace(name: &str) -> Namespace {
    let labels = labels::TARGET_NAMESPACE_LABELS.map(|(label, value)| (label.to_owned(), value.to_owned()));
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

fn has_labels(found: &ObjectMeta) -> bool {
    let actual = |label: &str| found.labels.as_ref()?.get(label);
    labels::TARGET_NAMESPACE_LABELS
        .iter()
        .all(|(label, value)| actual(label).is_some_and(|actual| actual == value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const OPERATOR: Operator = Operator { name: "an-operator", version: "0.1.0" };
    const PATH: &str = "/api/v1/namespaces/kyma-system";

    #[tokio::test]
    async fn labels_are_applied_only_by_operators_that_ensure_them() {
        let target = ScriptedServer::start().await.unwrap();
        let namespace = |labels: &Value| {
            Answer::json(&json!({ "metadata": { "name": "kyma-system", "labels": labels } }))
        };
        let reads = RequestMatcher::path(PATH).method("GET");
        let applies = RequestMatcher::path(PATH).method("PATCH").query("fieldManager=an-operator");
        target.next(2, reads.clone(), namespace(&json!({ "istio-injection": "disabled" })));
        target.always(reads, namespace(&json!(desired_namespace("kyma-system").metadata.labels)));
        target.always(applies.clone(), namespace(&json!({})));
        let ensured = async |labels: NamespaceLabels| {
            let client = target.access().client().unwrap();
            ensure(client, OPERATOR, labels, "kyma-system").await.unwrap()
        };
        assert!(!ensured(NamespaceLabels::SetOnCreation).await);
        assert_eq!(target.count(&applies), 0);
        assert!(ensured(NamespaceLabels::Ensured).await);
        assert_eq!(target.count(&applies), 1);
        assert!(!ensured(NamespaceLabels::Ensured).await, "the namespace has all labels");
    }

    #[tokio::test]
    async fn a_missing_namespace_is_created_with_its_labels() {
        let target = ScriptedServer::start().await.unwrap();
        let absent = Answer::not_found("", "namespaces", "kyma-system");
        target.always(RequestMatcher::path(PATH).method("GET"), absent);
        let creates = RequestMatcher::path("/api/v1/namespaces").method("POST");
        let creates = creates.query("fieldManager=an-operator-create");
        target.always(creates.clone(), Answer::failure(409, "AlreadyExists", "created meanwhile"));
        for labels in [NamespaceLabels::Ensured, NamespaceLabels::SetOnCreation] {
            let client = target.access().client().unwrap();
            assert!(ensure(client, OPERATOR, labels, "kyma-system").await.unwrap());
        }
        assert_eq!(target.count(&creates), 2);
    }
}
