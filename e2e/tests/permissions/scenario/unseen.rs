//! Rights that the apiserver checks itself when an object is written, so that no audit log shows their use.

use anyhow::{Context, Result};
use e2e::landscape::{ACCESS_USER, HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::{HelmComponent, Reason};
use serde_json::{Value, json};
use testbed::{until_access, until_or_why};

use super::{DEADLINE, KYMAS, Scenario, gone, is};

/// helm-component's role on targets.
const ROLE: &str = "helm-component-target";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Name of a role with a verb that helm-component does not have.
const STRONG: &str = "strong";

/// A right, and the object of a module that cannot be installed without it.
struct Row {
    verb: &'static str,
    resource: &'static str,
    object: Value,
}

impl Scenario<'_> {
    /// Checks for each right that its module is refused without it and installed with it.
    pub(super) async fn needs_what_no_log_shows(&self) -> Result<()> {
        let roles: Api<ClusterRole> = Api::all(self.targets[0].clone());
        let whole = roles.get(ROLE).await?.rules.context("the role has rules")?;
        self.strong_roles(&roles).await?;
        for Row { verb, resource, object } in rows() {
            let module = format!("{verb}-{resource}");
            self.push(&module, &json!([object])).await?;
            self.set(&roles, &without(&whole, verb, resource)).await?;
            self.is_allowed(verb, resource, false).await?;
            self.apply_component(&module, 1).await?;
            self.reports(&module, "Applied", "False", Reason::TargetForbidden).await?;
            self.set(&roles, &whole).await?;
            self.is_allowed(verb, resource, true).await?;
            self.apply_component(&module, 2).await?;
            self.reports(&module, "Ready", "True", Reason::Ready).await?;
            self.standalone().delete(&module, &DeleteParams::default()).await?;
            gone(&self.standalone(), &module).await?;
        }
        Ok(())
    }

    async fn strong_roles(&self, everywhere: &Api<ClusterRole>) -> Result<()> {
        let strong = json!({"metadata": {"name": STRONG}, "rules": strong_rules()});
        everywhere.create(&PostParams::default(), &serde_json::from_value(strong.clone())?).await?;
        let here: Api<Role> = Api::namespaced(self.targets[0].clone(), TARGET_NAMESPACE);
        here.create(&PostParams::default(), &serde_json::from_value(strong)?).await?;
        Ok(())
    }

    async fn set(&self, roles: &Api<ClusterRole>, granted: &[PolicyRule]) -> Result<()> {
        let granted = Patch::Merge(json!({"rules": granted}));
        roles.patch(ROLE, &PatchParams::default(), &granted).await?;
        Ok(())
    }

    /// Waits until the apiserver allows or denies the verb, since it learns of a changed role through a watch.
    async fn is_allowed(&self, verb: &str, resource: &str, wanted: bool) -> Result<()> {
        let attributes = ResourceAttributes {
            group: Some(RBAC.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(verb.to_owned()),
            namespace: Some(TARGET_NAMESPACE.to_owned()),
            ..ResourceAttributes::default()
        };
        until_access(&self.targets[0], ACCESS_USER, attributes, wanted).await
    }

    async fn apply_component(&self, module: &str, attempt: u32) -> Result<()> {
        let component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": module},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{}", KYMAS[0]), "key": "config"}},
                "source": {"ocm": {"component": format!("kyma-project.io/module/{module}"), "version": "1.0.0"}},
                "release": {"name": module, "namespace": TARGET_NAMESPACE},
                "userValues": {"attempt": attempt},
                "deletionPolicy": "Delete",
            },
        });
        let params = PatchParams::apply("person").force();
        self.standalone().patch(module, &params, &Patch::Apply(&component)).await?;
        Ok(())
    }

    async fn reports(&self, module: &str, type_: &str, status: &str, reason: Reason) -> Result<()> {
        until_or_why(&format!("{module} has {type_}={status} for {reason}"), DEADLINE, || async {
            let found = serde_json::to_value(self.standalone().get(module).await?)?;
            let is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"];
            let as_wanted = is_seen && is(&found, type_, status, reason);
            Ok(if as_wanted { Ok(()) } else { Err(found["status"].to_string()) })
        })
        .await
    }

    fn standalone(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

fn rows() -> [Row; 4] {
    let role = |kind: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": kind,
            "metadata": {"name": "module", "namespace": TARGET_NAMESPACE}, "rules": strong_rules(),
        })
    };
    let binding = |kind: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": "module", "namespace": TARGET_NAMESPACE},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": STRONG},
            "subjects": [{"kind": "ServiceAccount", "name": "module", "namespace": TARGET_NAMESPACE}],
        })
    };
    [
        Row { verb: "escalate", resource: "roles", object: role("Role") },
        Row { verb: "escalate", resource: "clusterroles", object: role("ClusterRole") },
        Row { verb: "bind", resource: "roles", object: binding("Role") },
        Row { verb: "bind", resource: "clusterroles", object: binding("ClusterRole") },
    ]
}

/// Returns a rule with a verb that helm-component has on no resource.
fn strong_rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["deletecollection"]}])
}

/// Returns the rules without one verb on one RBAC resource.
fn without(whole: &[PolicyRule], verb: &str, resource: &str) -> Vec<PolicyRule> {
    let mut left = Vec::new();
    for rule in whole {
        let is_on = |list: &Option<Vec<String>>| list.iter().flatten().any(|one| one == resource);
        if !(is_on(&rule.resources) && rule.verbs.iter().any(|one| one == verb)) {
            left.push(rule.clone());
            continue;
        }
        for one in rule.resources.iter().flatten() {
            let mut verbs = rule.verbs.clone();
            verbs.retain(|held| one != resource || held != verb);
            left.push(PolicyRule { resources: Some(vec![one.clone()]), verbs, ..rule.clone() });
        }
    }
    left
}
