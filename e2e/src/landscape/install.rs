//! Objects that a platform team applies before the operators start: CRDs, policies, roles.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testbed::{Cluster, crd_is_served, until_discovered};
use tokio::process::Command;

use super::operator::{OPERATORS, bin};
use super::{ACCESS_ACCOUNT, ACCESS_NAMESPACE, HUB_NAMESPACE};

/// Field manager of these objects.
const FIELD_MANAGER: &str = "platform-team";

/// Applies CRDs, admission policies and each operator's hub role.
pub(super) async fn hub(hub: &Cluster) -> Result<()> {
    let client = hub.client()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB_NAMESPACE}});
    apply(&client, FIELD_MANAGER, &serde_json::from_value(namespace)?).await?;
    for place in ["crds", "deploy/policies"] {
        for path in yaml_files(&workspace().join(place))? {
            apply_all(&client, FIELD_MANAGER, &std::fs::read_to_string(&path)?)
                .await
                .with_context(|| path.display().to_string())?;
        }
    }
    for name in ["kymas", "moduletemplates", "modulereleasemetas"] {
        crd_is_served(&client, &format!("{name}.operator.kyma-project.io")).await?;
    }
    crd_is_served(&client, "helmcomponents.component.kyma-project.io").await?;
    for operator in OPERATORS {
        apply_all(
            &client,
            FIELD_MANAGER,
            &printed(operator.name, &["rbac", "--namespace", HUB_NAMESPACE]).await?,
        )
        .await?;
    }
    Ok(())
}

/// Applies the union of the operators' target roles, bound to their common account.
pub(super) async fn target(target: &Cluster) -> Result<()> {
    let client = target.client()?;
    target.service_account(ACCESS_NAMESPACE, ACCESS_ACCOUNT).await?;
    for operator in OPERATORS {
        apply_all(&client, FIELD_MANAGER, &printed(operator.name, &["rbac", "--for", "target"]).await?)
            .await?;
        let role = format!("{}-target", operator.name);
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCESS_ACCOUNT, "namespace": ACCESS_NAMESPACE}],
        });
        apply(&client, FIELD_MANAGER, &serde_json::from_value(binding)?).await?;
    }
    Ok(())
}

/// Applies every document of a manifest as this field manager, like `kubectl apply --server-side --force-conflicts`.
///
/// # Errors
/// The text is no YAML of objects, or the cluster refuses one.
pub async fn apply_all(client: &Client, manager: &str, yaml: &str) -> Result<()> {
    let documents: Vec<DynamicObject> = serde_saphyr::from_multiple(yaml)?;
    for object in documents {
        apply(client, manager, &object).await?;
    }
    Ok(())
}

async fn apply(client: &Client, manager: &str, object: &DynamicObject) -> Result<()> {
    let name = object.name_any();
    let types = object.types.as_ref().with_context(|| format!("{name} names no kind"))?;
    let kind = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = until_discovered(client, &kind).await?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let applied = api.patch(&name, &PatchParams::apply(manager).force(), &Patch::Apply(object)).await;
    applied.with_context(|| format!("{} {name}", kind.kind))?;
    Ok(())
}

/// Returns the output of a binary of the workspace.
async fn printed(name: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(bin(name)).args(arguments).output().await;
    let output = output.with_context(|| format!("cannot start {name}; is it built?"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn yaml_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    Ok(paths)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
