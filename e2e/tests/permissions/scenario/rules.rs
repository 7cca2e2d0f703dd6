//! Steps with rules on a module's objects, which become admission policies on the target: created, changed and
//! deleted.

use anyhow::Result;
use e2e::landscape::HUB_NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kyma_api::{ModuleConfig, ModuleConfigSpec, ResourceRule, labels};
use serde_json::json;
use testbed::until;

use super::{DEADLINE, Scenario};

impl Scenario<'_> {
    pub(super) async fn rules_on_objects(&self) -> Result<()> {
        let configs: Api<ModuleConfig> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        self.rule_objects_of("dim", "lantern").await?;
        self.until_expressions(&["!has(object.spec.ruled)"]).await?;
        let change = json!({"spec": {"resourceRules": [{"group": "demo.example.com", "resource": "lanterns",
            "expression": "!has(object.spec.tamed)", "message": "nobody is tamed"}]}});
        configs.patch("dim", &PatchParams::default(), &Patch::Merge(change)).await?;
        self.until_expressions(&["!has(object.spec.tamed)"]).await?;
        configs.delete("dim", &DeleteParams::default()).await?;
        self.until_expressions(&[]).await
    }

    /// Creates rules for a module that no Kyma has: the removal of a Kyma looks up the policies of each
    /// ModuleConfig by name, also if none of the Kyma's modules is configured.
    pub(super) async fn rules_on_objects_of_no_module(&self) -> Result<()> {
        self.rule_objects_of("unused", "for-nobody").await
    }

    async fn rule_objects_of(&self, config: &str, module: &str) -> Result<()> {
        let configs: Api<ModuleConfig> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let rule = ResourceRule {
            group: "demo.example.com".to_owned(),
            resource: "lanterns".to_owned(),
            expression: "!has(object.spec.ruled)".to_owned(),
            message: "nobody is ruled".to_owned(),
        };
        let spec = ModuleConfigSpec {
            module: module.to_owned(),
            resource_rules: Some(vec![rule]),
            ..ModuleConfigSpec::default()
        };
        configs.create(&PostParams::default(), &ModuleConfig::new(config, spec)).await?;
        // The operator has read it once it reports on it.
        until(&format!("ModuleConfig {config} has a status"), DEADLINE, || async {
            Ok(configs.get(config).await?.status.map(drop))
        })
        .await
    }

    async fn until_expressions(&self, wanted: &[&str]) -> Result<()> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.targets[0].clone());
        let ours = ListParams::default().labels(labels::MODULE_CONFIG);
        until(&format!("the rules on the target are {wanted:?}"), DEADLINE, || async {
            let found = policies.list(&ours).await?.items.into_iter();
            let found: Vec<String> = found
                .filter_map(|policy| policy.spec?.validations)
                .flatten()
                .map(|validation| validation.expression)
                .collect();
            Ok((found == wanted).then_some(()))
        })
        .await
    }
}
