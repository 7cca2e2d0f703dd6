//! Requests that must be refused.

use e2e::landscape::HUB_NAMESPACE;
use http::Method;
use kyma_api::{finalizers, labels, release_store};
use serde_json::{Value, json};

use super::{Attempt, CORE, CRDS, NAME, OPERATOR};

pub(super) fn apply_path(path: &str) -> String {
    format!("{path}?fieldManager=thief&force=true")
}

/// Returns changes to an object's spec, ownerReferences and finalizers, and with `with_labels` to its labels; the
/// operator may make none of them.
pub(super) fn metadata(path: &str, with_labels: bool) -> Vec<Attempt> {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0-0"}]);
    let mut changes = vec![
        (
            "a spec",
            json!({"spec": {"channel": "fast", "suspend": false, "kymaSelector": {"matchLabels": {"a": "b"}}}}),
        ),
        ("ownerReferences", json!({"metadata": {"ownerReferences": owner}})),
        ("a foreign finalizer", json!({"metadata": {"finalizers": ["thief.example/hold"]}})),
    ];
    if with_labels {
        changes.push(("a label", json!({"metadata": {"labels": {labels::KYMA_NAME: "another"}}})));
    }
    let attempt = |(what, body)| Attempt { what, method: Method::PATCH, path: path.to_owned(), body };
    changes.into_iter().map(attempt).collect()
}

/// Type of Secrets with registry credentials, in which the apiserver requires `.dockerconfigjson`.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";

fn secret(name: &str, kind: &str, metadata: &Value) -> Value {
    let owner = json!([{"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "name": "c",
        "uid": "0-0"}]);
    let mut body = json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": name, "ownerReferences": owner}});
    if kind == DOCKER_CONFIG {
        body["stringData"] = json!({".dockerconfigjson": "{\"auths\": {}}"});
    }
    for (field, value) in metadata.as_object().into_iter().flatten() {
        body["metadata"][field] = value.clone();
    }
    body
}

pub(super) fn secrets() -> Vec<Attempt> {
    let stored = format!("{}0abc", release_store::RELEASE_PREFIX);
    let revision = format!("{}0abc", release_store::PREFIX);
    let slot = format!("{revision}-1");
    let token = json!({"annotations": {"kubernetes.io/service-account.name": "kyma-operator"}});
    let foreign =
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "0-0"}]});
    let bodies = [
        ("a token Secret", secret("token", "kubernetes.io/service-account-token", &token)),
        ("a token Secret of a stored name", secret(&stored, "kubernetes.io/service-account-token", &token)),
        ("an access Secret", secret("access", "Opaque", &json!({"labels": {labels::KYMA_NAME: "another"}}))),
        ("a Secret of another name", secret("access", release_store::RELEASE_TYPE, &json!({}))),
        (
            "a stored release with a label",
            secret(&stored, release_store::RELEASE_TYPE, &json!({"labels": {labels::KYMA_NAME: "another"}})),
        ),
        ("a stored release of another owner", secret(&stored, release_store::RELEASE_TYPE, &foreign)),
        (
            "a stored release with a finalizer",
            secret(&stored, release_store::RELEASE_TYPE, &json!({"finalizers": [finalizers::COMPONENT]})),
        ),
        ("a revision without a slot", secret(&revision, release_store::TYPE, &json!({}))),
        ("a revision of another owner", secret(&slot, release_store::TYPE, &foreign)),
        ("a token Secret of a revision's name", secret(&slot, "kubernetes.io/service-account-token", &token)),
        ("a pull Secret", secret("pull", DOCKER_CONFIG, &json!({}))),
    ];
    let mut all = Vec::new();
    for (what, body) in bodies {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        all.push(Attempt {
            what,
            method: Method::PATCH,
            path: apply_path(&format!("{CORE}/secrets/{name}")),
            body: body.clone(),
        });
        all.push(Attempt { what, method: Method::POST, path: format!("{CORE}/secrets"), body });
    }
    all
}

pub(super) fn changed_secrets() -> Vec<Attempt> {
    let stored = format!("{CORE}/secrets/{}{NAME}", release_store::RELEASE_PREFIX);
    let labelled = json!({"metadata": {"labels": {labels::KYMA_NAME: "another"}}});
    let changes = [
        (
            "an access Secret's content",
            format!("{CORE}/secrets/{NAME}"),
            json!({"stringData": {"config": "y"}}),
        ),
        ("a label of an access Secret", format!("{CORE}/secrets/{NAME}"), labelled.clone()),
        ("a label of a stored release", stored, labelled),
    ];
    let attempt = |(what, path, body)| Attempt { what, method: Method::PATCH, path, body };
    changes.into_iter().map(attempt).collect()
}

pub(super) fn pauses(operator: &str) -> Vec<Attempt> {
    let pause = |name: &str, spec: Value| {
        json!({"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause", "metadata": {"name": name},
            "spec": spec})
    };
    let brake = format!("brake-{operator}");
    let path = "/apis/operator.kyma-project.io/v1alpha1/namespaces/kcp-system/pauses".to_owned();
    let bodies = [
        ("a Pause of another name", pause("all", json!({"scope": "Deletes", "operators": [operator]}))),
        ("a brake that stops everything", pause(&brake, json!({"scope": "All", "operators": [operator]}))),
        ("a brake of other operators", pause(&brake, json!({"scope": "Deletes", "operators": ["another"]}))),
        ("a brake of all operators", pause(&brake, json!({"scope": "Deletes"}))),
    ];
    let attempt = |(what, body)| Attempt { what, method: Method::POST, path: path.clone(), body };
    bodies.into_iter().map(attempt).collect()
}

pub(super) fn manifests() -> Vec<Attempt> {
    let path = format!("{OPERATOR}/manifests");
    let manifest = |labels: Value| {
        json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": "bad", "labels": labels}, "spec": {"remote": false, "install": {"name": "a", "source": {}}}})
    };
    let bodies = [
        ("a Manifest that installs", manifest(json!({}))),
        ("a mirror that is reconciled", manifest(json!({labels::MIRROR: "true"}))),
    ];
    let attempt = |(what, body)| Attempt { what, method: Method::POST, path: path.clone(), body };
    bodies.into_iter().map(attempt).collect()
}

fn crd(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": {labels::COMPONENT_CRD: "true"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    })
}

fn webhook() -> Value {
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://thief.example/convert"}}})
}

pub(super) fn created_crds() -> Vec<Attempt> {
    let mut approved = crd("thief.k8s.io", "things", "Thing");
    approved["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    let mut unlabelled = crd("demo.kyma-project.io", "others", "Other");
    unlabelled["metadata"]["labels"] = json!({});
    let mut converted = crd("demo.kyma-project.io", "others", "Other");
    converted["spec"]["conversion"] = webhook();
    let bodies = [
        ("a CRD without the label", unlabelled),
        ("a CRD with a conversion webhook", converted),
        ("a CRD that no role grants", crd("thief.example", "things", "Thing")),
        ("a CRD of our group", crd("component.kyma-project.io", "things", "Thing")),
        ("a CRD of a Kubernetes group", approved),
    ];
    let attempt = |(what, body)| Attempt { what, method: Method::POST, path: CRDS.to_owned(), body };
    bodies.into_iter().map(attempt).collect()
}

pub(super) fn changed_crds() -> Vec<Attempt> {
    let kymas = format!("{CRDS}/kymas.operator.kyma-project.io");
    let greetings = format!("{CRDS}/greetings.demo.kyma-project.io");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0-0"}]);
    let converted = json!({"spec": {"conversion": webhook()}});
    let changes = [
        ("conversion of Kymas", kymas.clone(), converted.clone()),
        (
            "the label on the CRD of Kymas",
            kymas,
            json!({"metadata": {"labels": {labels::COMPONENT_CRD: "true"}}}),
        ),
        ("conversion of components", greetings.clone(), converted),
        ("owners of a component CRD", greetings.clone(), json!({"metadata": {"ownerReferences": owner}})),
        (
            "finalizers of a component CRD",
            greetings,
            json!({"metadata": {"finalizers": ["thief.example/hold"]}}),
        ),
    ];
    let attempt = |(what, path, body)| Attempt { what, method: Method::PATCH, path, body };
    changes.into_iter().map(attempt).collect()
}

/// Returns requests that no operator may make on the hub, whatever its role.
pub(super) fn never(operator: &str) -> Vec<Attempt> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let admin =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subject = json!([{"kind": "ServiceAccount", "name": operator, "namespace": HUB_NAMESPACE}]);
    let binding = |kind: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "thief"},
            "roleRef": admin, "subjects": subject})
    };
    let post = |what, path: String, body| Attempt { what, method: Method::POST, path, body };
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["https://kubernetes.default.svc"]}});
    let policy = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{operator}-create-configmaps.core"
    );
    let approval = "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned();
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "thief"}, "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"},
        "spec": {"serviceAccountName": "kyma-operator", "containers": [{"name": "c", "image": "i"}]}});
    vec![
        post(
            "a token of kyma-operator",
            format!("{CORE}/serviceaccounts/kyma-operator/token"),
            review.clone(),
        ),
        post("a token of its own account", format!("{CORE}/serviceaccounts/{operator}/token"), review),
        post(
            "a RoleBinding",
            format!("{rbac}/namespaces/{HUB_NAMESPACE}/rolebindings"),
            binding("RoleBinding"),
        ),
        post("a ClusterRoleBinding", format!("{rbac}/clusterrolebindings"), binding("ClusterRoleBinding")),
        post("a Pod of another account", format!("{CORE}/pods"), pod),
        post("a client certificate", approval, request),
        Attempt {
            what: "its own role",
            method: Method::PATCH,
            path: format!("{rbac}/namespaces/{HUB_NAMESPACE}/roles/{operator}"),
            body: json!({"metadata": {"labels": {"a": "b"}}}),
        },
        Attempt { what: "its admission policy", method: Method::DELETE, path: policy, body: json!({}) },
        Attempt {
            what: "Secrets of other namespaces",
            method: Method::GET,
            path: "/api/v1/namespaces/kube-system/secrets".to_owned(),
            body: json!({}),
        },
        Attempt {
            what: "the status of a CRD",
            method: Method::PATCH,
            path: format!("{CRDS}/kymas.operator.kyma-project.io/status"),
            body: json!({"status": {"storedVersions": ["v1beta2"]}}),
        },
    ]
}
