//! Modules that ship protected objects: each is refused with its reason, and the target stays unchanged.

use std::time::Duration;

use anyhow::Result;
use e2e::catalogue;
use e2e::landscape::Landscape;
use e2e::remains::until_as_before;
use e2e::snapshot;
use e2e::wait;
use kyma_api::Reason;
use serde_json::{Value, json};
use testbed::until_or_why;

use crate::test_kyma::TestKyma;

const DEADLINE: Duration = Duration::from_mins(2);
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const CRDS: &str = "apiextensions.k8s.io/v1";

/// A module that ships a protected object.
struct ForbiddenModule {
    module: &'static str,
    manifest: Value,
    default_cr: Option<Value>,
    /// The object as messages name it.
    names: &'static str,
}

fn object(api_version: &str, kind: &str, metadata: &Value, (field, value): (&str, Value)) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    object[field] = value;
    object
}

fn in_kyma_system(name: &str) -> Value {
    json!({"name": name, "namespace": "kyma-system"})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn crd(plural: &str, group: &str, kind: &str) -> Value {
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v9", "served": true, "storage": true, "schema": schema});
    let spec = json!({"group": group, "scope": "Namespaced", "names": names, "versions": [version]});
    object(CRDS, "CustomResourceDefinition", &json!({"name": format!("{plural}.{group}")}), ("spec", spec))
}

fn forbidden_modules() -> Vec<ForbiddenModule> {
    let nothing = ("rules", json!([]));
    let everybody =
        json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]);
    let mut admins =
        object(RBAC, "ClusterRoleBinding", &json!({"name": "system:basic-user"}), ("subjects", everybody));
    admins["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:basic-user"});
    let kyma = object(
        "operator.kyma-project.io/v1beta2",
        "Kyma",
        &in_kyma_system("default"),
        ("spec", json!({"channel": "fast", "modules": [{"name": "alder"}]})),
    );
    let stamp =
        object("v1", "ConfigMap", &in_kyma_system("kyma-target-stamp"), ("data", json!({"hubUid": "mine"})));
    // An object without a namespace is applied in the release's namespace, which is the stamp's.
    let hidden = json!({"name": "kyma-target-stamp"});
    let hidden = object("v1", "ConfigMap", &hidden, ("data", json!({"hubUid": "mine"})));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [hidden]});
    let harmless = object("v1", "ConfigMap", &json!({"name": "harmless"}), ("data", json!({})));
    let by_default_cr = ForbiddenModule {
        module: "second-founder",
        manifest: harmless,
        default_cr: Some(namespace("kube-yours")),
        names: "Namespace kube-yours",
    };
    let by_manifest = [
        ("kyma-thief", kyma, "Kyma.operator.kyma-project.io kyma-system/default"),
        ("stamp-forger", stamp, "ConfigMap kyma-system/kyma-target-stamp"),
        ("hidden-forger", list, "ConfigMap kyma-system/kyma-target-stamp"),
        (
            "kyma-shadow",
            crd("kymas", "operator.kyma-project.io", "Kyma"),
            "CustomResourceDefinition.apiextensions.k8s.io kymas.operator.kyma-project.io",
        ),
        (
            "helm-shadow",
            crd("helmcomponents", "component.kyma-project.io", "HelmComponent"),
            "CustomResourceDefinition.apiextensions.k8s.io helmcomponents.component.kyma-project.io",
        ),
        (
            "role-thief",
            object(RBAC, "ClusterRole", &json!({"name": "system:discovery"}), nothing),
            "ClusterRole.rbac.authorization.k8s.io system:discovery",
        ),
        ("binding-thief", admins, "ClusterRoleBinding.rbac.authorization.k8s.io system:basic-user"),
        ("founder", namespace("kube-mine"), "Namespace kube-mine"),
    ];
    let by_manifest = by_manifest.into_iter().map(|(module, manifest, names)| ForbiddenModule {
        module,
        manifest,
        default_cr: None,
        names,
    });
    by_manifest.chain([by_default_cr]).collect()
}

/// Pushes all forbidden modules and offers their versions, which a Kyma can then pin.
pub(crate) async fn publish(landscape: &Landscape) -> Result<()> {
    for forbidden in forbidden_modules() {
        let mut config = json!({"manifest": "manifest.yaml"});
        let mut files = vec![("manifest.yaml", forbidden.manifest.to_string())];
        if let Some(default_cr) = forbidden.default_cr {
            config["defaultCR"] = "default-cr.yaml".into();
            files.push(("default-cr.yaml", default_cr.to_string()));
        }
        catalogue::push_files(landscape, forbidden.module, &config, &files).await?;
        let versions = json!({"versions": [{"version": "1.0.0"}]});
        catalogue::offer(landscape.hub().client()?, forbidden.module, &versions).await?;
    }
    Ok(())
}

/// Enables all forbidden modules on one target, waits until each is refused, disables them, and checks that the target
/// is as before.
pub(crate) async fn row(test_kyma: &TestKyma) -> Result<()> {
    let forbidden_modules = forbidden_modules();
    let before = snapshot::take(&test_kyma.target).await?;
    let modules = forbidden_modules.iter().map(|one| json!({"name": one.module, "version": "1.0.0"}));
    test_kyma.choose_modules(&modules.collect::<Vec<_>>()).await?;
    for forbidden in &forbidden_modules {
        until_or_why(&format!("{} is refused", forbidden.module), DEADLINE, || async {
            let found = test_kyma.component(forbidden.module).await?.unwrap_or_default();
            let refused = wait::has_condition(&found, "Ready", "False", Reason::Protected);
            let conditions = found["status"]["conditions"].to_string();
            Ok(if refused && conditions.contains(forbidden.names) { Ok(()) } else { Err(conditions) })
        })
        .await?;
    }
    test_kyma.choose_modules(&[]).await?;
    for forbidden in &forbidden_modules {
        until_or_why(&format!("{} goes", forbidden.module), DEADLINE, || async {
            let found = test_kyma.component(forbidden.module).await?;
            Ok(found.map_or(Ok(()), |found| Err(found["status"].to_string())))
        })
        .await?;
    }
    let left = until_as_before(&test_kyma.target, &before).await?;
    anyhow::ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
