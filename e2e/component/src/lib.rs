//! A component of its own kind, written on the sdk as another team would write it: `Greeting` puts a ConfigMap
//! with a greeting and a Deployment that serves it on the target.

use kyma_sdk::k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kyma_sdk::kube::{CustomResource, ResourceExt};
use kyma_sdk::{
    Component, ComponentSpec, ComponentStatus, Context, Failure, Progress, Removal, Rule,
    api::{ErrorClass, Reason},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

/// Greets the people who use a target.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.kyma-project.io", version = "v1alpha1", kind = "Greeting", namespaced)]
#[kube(category = "kyma-components")]
#[kube(status = "ComponentStatus", derive = "Default", derive = "PartialEq")]
#[kube(printcolumn(name = "State", type_ = "string", json_path = ".status.state"))]
pub struct GreetingSpec {
    /// Text of the greeting. Default: Hello.
    #[serde(default = "hello")]
    #[schemars(length(min = 1, max = 200))]
    pub text: String,
    /// The component contract.
    #[serde(flatten)]
    pub component: ComponentSpec,
}

fn hello() -> String {
    "Hello".to_owned()
}

/// Reason that only this reconciler gives.
const TOO_LOUD: Reason = Reason::own(
    "TooLoud",
    Some(ErrorClass::Invalid),
    "The greeting is all capital letters; write it as people speak.",
);

fn is_too_loud(text: &str) -> bool {
    text.len() > 3 && text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

/// The reconciler.
#[derive(Clone, Copy, Debug)]
pub struct Hello;

const NAMESPACE: &str = "kyma-system";
const VERBS: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

impl Component for Hello {
    type Resource = Greeting;

    const NAME: &'static str = "greeting-component";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const TARGET_RULES: &'static [Rule] = &[
        Rule::new(&[""], &["namespaces"], &["get", "create"], "the namespace of both"),
        Rule::new(&[""], &["configmaps"], VERBS, "the greeting"),
        Rule::new(&["apps"], &["deployments"], VERBS, "the server; spec.manager if a Deployment"),
    ];

    const REASONS: &'static [Reason] = &[TOO_LOUD];

    async fn install(&self, context: &Context<Greeting>) -> Result<Progress, Failure> {
        if is_too_loud(&context.resource.spec.text) {
            return Err(Failure::new(TOO_LOUD, "spec.text"));
        }
        let name = context.resource.name_any();
        let version = context.contract.spec.module.as_ref().map_or("0.0.0", |module| &module.version);
        context.ensure_namespace(NAMESPACE).await?;
        context.ensure(&config_map(&name, &context.resource.spec.text)?).await?;
        let deployment = context.ensure(&deployment(&name, version)?).await?;
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        if ready == 0 {
            return Ok(Progress::working(format!("waiting for Deployment {NAMESPACE}/{name}")));
        }
        Ok(Progress::ready(version))
    }

    async fn remove(&self, context: &Context<Greeting>) -> Result<Removal, Failure> {
        let name = context.resource.name_any();
        let server = context.remove::<Deployment>(Some(NAMESPACE), &name).await?;
        let greeting = context.remove::<ConfigMap>(Some(NAMESPACE), &name).await?;
        if server && greeting {
            return Ok(Removal::Done);
        }
        Ok(Removal::waiting(format!("waiting for the deletion of {NAMESPACE}/{name}")))
    }
}

fn config_map(name: &str, text: &str) -> Result<ConfigMap, Failure> {
    object(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"greeting": text},
    }))
}

fn deployment(name: &str, version: &str) -> Result<Deployment, Failure> {
    let labels = json!({"app.kubernetes.io/name": name});
    object(json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/version": version}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "server",
                        "image": "registry.example.com/greeting:1.0.0",
                        "volumeMounts": [{"name": "greeting", "mountPath": "/greeting"}],
                    }],
                    "volumes": [{"name": "greeting", "configMap": {"name": name}}],
                },
            },
        },
    }))
}

fn object<K: DeserializeOwned>(value: serde_json::Value) -> Result<K, Failure> {
    serde_json::from_value(value).map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}
