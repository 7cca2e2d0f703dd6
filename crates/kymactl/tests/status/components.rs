//! Commands for one HelmComponent, with a real hub.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use kyma_api::{HelmComponent, annotations, crds, labels};
use serde_json::{Value, json};

use super::{Hub, install_crd};

impl Hub {
    async fn component(&self) -> Api<HelmComponent> {
        let client = self.cluster.client().unwrap();
        install_crd(&client, &crds::helm_component()).await;
        let create = PostParams::default();
        let base =
            json!({"metadata": {"name": "base"}, "data": {"values.yaml": "{level: base, size: base}"}});
        let base: ConfigMap = serde_json::from_value(base).unwrap();
        Api::namespaced(client.clone(), &self.namespace).create(&create, &base).await.unwrap();
        let secret = json!({
            "metadata": {"name": "token", "labels": {labels::COPY_TO_TARGETS: "true"}},
            "stringData": {"token": "0123hush"},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        Api::namespaced(client.clone(), &self.namespace).create(&create, &secret).await.unwrap();
        let component = json!({"metadata": {"name": "shop"}, "spec": {
            "source": {"chart": {"url": "oci://example.org/charts/shop", "version": "1.0.0"}},
            "values": {"level": "module", "own": true},
            "valuesFrom": [
                {"kind": "ConfigMap", "name": "base"},
                {"kind": "Secret", "name": "token", "key": "token", "targetPath": "auth.token"},
            ],
            "userValues": {"level": "user"},
        }});
        let components = Api::namespaced(client, &self.namespace);
        components.create(&create, &serde_json::from_value(component).unwrap()).await.unwrap();
        components
    }

    async fn said(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn values_are_shown_with_their_layer_and_secrets_are_hidden() {
    let hub = Hub::new().await;
    hub.component().await;
    let expected = "\
KEY         VALUE     FROM                     INSTEAD OF
auth.token  (hidden)  Secret token, key token
level       user      user                     module, ConfigMap base
own         true      module
size        base      ConfigMap base
";
    assert_eq!(hub.said(&["values", "shop"]).await, expected);
    let all: Value =
        serde_json::from_str(&hub.said(&["values", "shop", "--output=json", "--show-secrets"]).await)
            .unwrap();
    assert_eq!(all[0]["value"], "0123hush");
    assert_eq!(all[1]["replaced"], json!(["module", "ConfigMap base"]));

    let maps: Api<ConfigMap> = Api::namespaced(hub.cluster.client().unwrap(), &hub.namespace);
    maps.delete("base", &kube::api::DeleteParams::default()).await.unwrap();
    let refused = hub.command(&["values", "shop"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("there is no ConfigMap base"), "{told}");
}

#[tokio::test]
async fn a_component_is_suspended_and_resumed() {
    let hub = Hub::new().await;
    let components = hub.component().await;
    for (command, suspended, says) in [
        ("suspend", Some(true), "shop is now suspended"),
        ("suspend", Some(true), "shop is already suspended"),
        ("resume", None, "shop is now resumed"),
        ("resume", None, "shop is already resumed"),
    ] {
        let said = hub.said(&[command, "shop"]).await;
        assert!(said.starts_with(says), "{said}");
        assert_eq!(components.get("shop").await.unwrap().spec.suspend, suspended);
    }
    let missing = hub.command(&["suspend", "nobody"]).output().await.unwrap();
    assert!(!missing.status.success());
}

#[tokio::test]
async fn a_component_is_asked_for_unless_it_is_suspended() {
    let hub = Hub::new().await;
    let components = hub.component().await;
    let said = hub.said(&["reconcile", "shop", "--no-wait"]).await;
    assert!(said.starts_with("the reconcile of shop is requested"), "{said}");
    let asked = components.get("shop").await.unwrap();
    assert!(asked.metadata.annotations.unwrap().contains_key(annotations::RECONCILE_REQUESTED_AT));
    // No operator runs that could handle the request.
    let alone = hub.command(&["reconcile", "shop", "--timeout=1"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&alone.stderr);
    assert!(!alone.status.success() && told.contains("the request was not handled"), "{told}");
    hub.said(&["suspend", "shop"]).await;
    let refused = hub.command(&["reconcile", "shop"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("kymactl resume shop"), "{told}");
}

#[tokio::test]
async fn the_exit_code_of_test_shows_the_result() {
    let hub = Hub::new().await;
    let components = hub.component().await;
    let said = hub.said(&["test", "shop", "--no-wait"]).await;
    assert!(said.starts_with("the tests of shop are requested"), "{said}");
    // No operator runs that could run the tests.
    let alone = hub.command(&["test", "shop", "--timeout=1"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.code() == Some(3) && told.contains("is helm-component running?"), "{told}");
    for (phase, failure, code) in
        [("Succeeded", None, 0), ("Failed", Some("test hook Pod shop/b: it failed"), 1)]
    {
        let asked = components.get("shop").await.unwrap().metadata.annotations.unwrap();
        let before = asked[annotations::TEST_REQUESTED_AT].clone();
        let command = hub.command(&["test", "shop"]).output();
        // Acts as helm-component.
        let follow = async {
            let asked =
                testbed::until("the tests are asked for", std::time::Duration::from_mins(1), || async {
                    let annotations = components.get("shop").await?.metadata.annotations.unwrap_or_default();
                    Ok(annotations.get(annotations::TEST_REQUESTED_AT).cloned().filter(|at| *at != before))
                });
            let tests = json!({
                "digest": "c", "event": "test", "phase": phase, "succeeded": ["Pod shop/a"], "message": failure,
            });
            let status = json!({"status": {"tests": tests, "lastHandledTestAt": asked.await.unwrap()}});
            let params = kube::api::PatchParams::default();
            components.patch_status("shop", &params, &kube::api::Patch::Merge(status)).await.unwrap();
        };
        let (output, ()) = tokio::join!(command, follow);
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains("succeeded: Pod shop/a"), "{told}");
        assert_eq!(told.contains("failed: test hook Pod shop/b: it failed"), failure.is_some(), "{told}");
    }
}
