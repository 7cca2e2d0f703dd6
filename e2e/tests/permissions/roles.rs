//! Reads the rights that a live cluster grants to an account.

use anyhow::{Context, Result};
use e2e::permissions::{Right, rights};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use testbed::Cluster;

/// Returns all rights that bindings grant to this user or ServiceAccount by name.
pub(crate) async fn bound_to(cluster: &Cluster, user: &str) -> Result<Vec<Right>> {
    let client = cluster.client()?;
    let all = ListParams::default();
    let mut found = Vec::new();
    for binding in Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await? {
        if names(binding.subjects.as_deref(), user) {
            let rules = rules(&client, &binding.role_ref, "").await?;
            found.extend(rights(&binding.role_ref.name, None, &rules));
        }
    }
    for binding in Api::<RoleBinding>::all(client.clone()).list(&all).await? {
        if names(binding.subjects.as_deref(), user) {
            let namespace = binding.namespace().context("a RoleBinding has a namespace")?;
            let rules = rules(&client, &binding.role_ref, &namespace).await?;
            found.extend(rights(&binding.role_ref.name, Some(&namespace), &rules));
        }
    }
    Ok(found)
}

async fn rules(client: &Client, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>> {
    let rules = if role.kind == "ClusterRole" {
        Api::<ClusterRole>::all(client.clone()).get(&role.name).await?.rules
    } else {
        Api::<Role>::namespaced(client.clone(), namespace).get(&role.name).await?.rules
    };
    Ok(rules.unwrap_or_default())
}

fn names(subjects: Option<&[Subject]>, user: &str) -> bool {
    subjects.into_iter().flatten().any(|subject| {
        let namespace = subject.namespace.as_deref().unwrap_or_default();
        subject.name == user || format!("system:serviceaccount:{namespace}:{}", subject.name) == user
    })
}
