//! CA bundles of webhooks, conversions and aggregated APIs, which controllers inject.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Field of a client configuration with the CA bundle.
const CA_BUNDLE: &str = "caBundle";

/// Annotations that name the source of an injected CA. Source: `pkg/apis/certmanager/v1/types.go` of cert-manager.
const CA_SOURCE_ANNOTATIONS: [&str; 2] =
    ["cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret"];

/// Annotations that request the CA of the cluster if they are `true`. The second one is OpenShift's.
const CA_REQUEST_ANNOTATIONS: [&str; 2] =
    ["cert-manager.io/inject-apiserver-ca", "service.beta.openshift.io/inject-cabundle"];

/// Removes CA bundles that have no certificate or that a controller injects: an apply would own the field and overwrite
/// the CA each time.
pub(crate) fn remove_injected(body: &mut Map<String, Value>, group: &str, kind: &str) {
    let is_injected = is_injected(body);
    let leaves = |bundle: &Value| is_injected || bundle.as_str().is_some_and(has_no_certificate);
    let strip = |client: Option<&mut Value>| {
        if let Some(Value::Object(client)) = client
            && client.get(CA_BUNDLE).is_some_and(leaves)
        {
            client.remove(CA_BUNDLE);
        }
    };
    match (group, kind) {
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            let webhooks = body.get_mut("webhooks").and_then(Value::as_array_mut);
            webhooks.into_iter().flatten().for_each(|webhook| strip(webhook.get_mut("clientConfig")));
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let spec = body.get_mut("spec");
            strip(spec.and_then(|spec| spec.pointer_mut("/conversion/webhook/clientConfig")));
        }
        ("apiregistration.k8s.io", "APIService") => strip(body.get_mut("spec")),
        _ => {}
    }
}

/// Reports whether a CA bundle is empty, which means absence to the API server, or a placeholder such as `Cg==` (a line
/// break). No server can be verified with a placeholder, so another writer has to set the CA. Text that is not base64
/// counts as a CA, so that the API server refuses it.
fn has_no_certificate(bundle: &str) -> bool {
    let begin = b"-----BEGIN";
    let has_begin = |pem: &[u8]| pem.windows(begin.len()).any(|part| part == begin);
    STANDARD.decode(bundle).is_ok_and(|pem| !has_begin(pem.as_slice()))
}

/// Reports whether annotations request the injection of a CA.
fn is_injected(body: &Map<String, Value>) -> bool {
    let annotation = |key: &str| body.get("metadata")?.get("annotations")?.get(key)?.as_str();
    CA_SOURCE_ANNOTATIONS.iter().any(|key| annotation(key).is_some_and(|source| !source.is_empty()))
        || CA_REQUEST_ANNOTATIONS.iter().any(|key| annotation(key) == Some("true"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an object of each kind with this CA bundle and annotations, and the pointer to the bundle.
    fn objects(
        bundle: &Value,
        annotations: &Value,
    ) -> [(&'static str, &'static str, Value, &'static str); 4] {
        let metadata = json!({"name": "a", "annotations": annotations});
        let client = json!({"caBundle": bundle, "service": {"name": "s"}});
        let webhooks = json!({"metadata": metadata, "webhooks": [{"name": "w", "clientConfig": client}]});
        let crd =
            json!({"metadata": metadata, "spec": {"conversion": {"webhook": {"clientConfig": client}}}});
        let api_service = json!({"metadata": metadata, "spec": client});
        let in_webhook = "/webhooks/0/clientConfig/caBundle";
        let admission = "admissionregistration.k8s.io";
        [
            (admission, "MutatingWebhookConfiguration", webhooks.clone(), in_webhook),
            (admission, "ValidatingWebhookConfiguration", webhooks, in_webhook),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                crd,
                "/spec/conversion/webhook/clientConfig/caBundle",
            ),
            ("apiregistration.k8s.io", "APIService", api_service, "/spec/caBundle"),
        ]
    }

    #[test]
    fn ca_bundles_are_left_to_the_controller_that_injects_them() {
        let source = |key: &str, value: &str| json!({key: value});
        let ca = || json!(STANDARD.encode("# CA\n-----BEGIN CERTIFICATE-----\nAA==\n"));
        let rows = [
            (ca(), source("cert-manager.io/inject-ca-from", "n/c"), false),
            (ca(), source("cert-manager.io/inject-ca-from-secret", "n/s"), false),
            (ca(), source("cert-manager.io/inject-apiserver-ca", "true"), false),
            (ca(), source("service.beta.openshift.io/inject-cabundle", "true"), false),
            (json!(""), json!({}), false),
            (json!("Cg=="), json!({}), false),
            (json!(STANDARD.encode("CA_PLACEHOLDER")), json!({}), false),
            (json!("no base64!"), json!({}), true),
            (ca(), json!({}), true),
            (ca(), source("cert-manager.io/inject-ca-from", ""), true),
            (ca(), source("cert-manager.io/inject-apiserver-ca", "false"), true),
        ];
        for (bundle, annotations, stays) in rows {
            for (group, kind, object, pointer) in objects(&bundle, &annotations) {
                let Value::Object(mut body) = object.clone() else { unreachable!() };
                remove_injected(&mut body, group, kind);
                let after = Value::Object(body);
                assert_eq!(after.pointer(pointer).is_some(), stays, "{kind} {bundle} {annotations}");
                assert_eq!(after == object, stays, "nothing else changes");
            }
        }
    }

    #[test]
    fn other_kinds_keep_the_field() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"caBundle": ""}});
        let Value::Object(mut body) = object.clone() else { unreachable!() };
        remove_injected(&mut body, "x.io", "APIService");
        assert_eq!(Value::Object(body), object);
    }
}
