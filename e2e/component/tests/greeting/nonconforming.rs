//! A component that violates the rules of the conformance tests: a proof that these can fail.

use greeting_component::{Greeting, Hello};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kyma_sdk::{Component, Context, Failure, Progress, Removal, Rule};

/// Writes an object that its spec does not describe, and does not delete it.
#[derive(Debug)]
pub(crate) struct NonconformingComponent;

impl Component for NonconformingComponent {
    type Resource = Greeting;

    const NAME: &'static str = Hello::NAME;
    const VERSION: &'static str = Hello::VERSION;
    const TARGET_RULES: &'static [Rule] = Hello::TARGET_RULES;

    async fn install(&self, context: &Context<Greeting>) -> Result<Progress, Failure> {
        context.ensure_namespace("kyma-system").await?;
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("kyma-system".to_owned());
        map.metadata.name = Some(format!("sloppy-{}", context.resource.name_any()));
        let look = context.resource.annotations().get("conformance").cloned().unwrap_or_default();
        map.data = Some([("look".to_owned(), look)].into());
        context.ensure(&map).await?;
        Ok(Progress::ready("1.0.0"))
    }

    async fn remove(&self, _: &Context<Greeting>) -> Result<Removal, Failure> {
        Ok(Removal::Done)
    }
}
