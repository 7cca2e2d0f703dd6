//! Dependencies between our crates point one way.

use std::path::Path;

use anyhow::Result;

use crate::workspace::{self, Dependency, Package};

/// Crates of the workspace on which each crate may depend, except for development. `*` is any operator.
const ALLOWED: &[(&str, &[&str])] = &[
    ("kyma-api", &[]),
    ("kyma-tls", &[]),
    ("kyma-targets", &["kyma-api", "kyma-tls"]),
    ("kyma-health", &[]),
    // Its tests store the statuses that health is judged by on API servers.
    ("kyma-object-set", &["kyma-api", "kyma-health"]),
    ("kyma-artifacts", &["kyma-api", "kyma-tls"]),
    ("kyma-helm", &["kyma-api", "kyma-object-set", "kyma-artifacts"]),
    ("kyma-controller", &["kyma-api", "kyma-targets"]),
    ("kyma-sdk", &["kyma-api", "kyma-controller", "kyma-health", "kyma-targets"]),
    ("kyma-connection", &["kyma-api", "kyma-targets", "kyma-controller"]),
    ("kyma-operator", &["kyma-api", "kyma-targets", "kyma-controller", "kyma-connection", "kyma-object-set"]),
    (
        "release-meta-syncer",
        &["kyma-api", "kyma-targets", "kyma-controller", "kyma-connection", "kyma-object-set"],
    ),
    (
        "helm-component",
        &[
            "kyma-api",
            "kyma-targets",
            "kyma-controller",
            "kyma-sdk",
            "kyma-health",
            "kyma-object-set",
            "kyma-artifacts",
            "kyma-helm",
        ],
    ),
    (
        "kymactl",
        &[
            "kyma-api",
            "kyma-targets",
            "kyma-controller",
            "kyma-sdk",
            "kyma-health",
            "kyma-object-set",
            "kyma-artifacts",
            "kyma-helm",
            "kyma-operator",
            "helm-component",
            "release-meta-syncer",
        ],
    ),
    ("testbed", &[]),
    ("testbed-exec", &[]),
    ("e2e", &["kyma-api", "testbed"]),
    ("greeting-component", &["kyma-sdk"]),
    ("xtask", &[]),
];

/// Crates that only tests may use.
const DEVELOPMENT_ONLY: &[&str] = &["testbed", "e2e", "xtask"];

/// Packages that `api` must not depend on: it has types and no IO.
const NOT_IN_API: &[&str] = &["tokio", "hyper", "rustls", "tower", "reqwest", "anyhow"];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    Ok(workspace::packages(root)?.iter().flat_map(findings).collect())
}

fn findings(package: &Package) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
        return vec![format!("{}: a crate that the dependency table of tidy does not know", package.name)];
    };
    let normal = |dependency: &&Dependency| dependency.kind.is_none();
    let ours = package.dependencies.iter().filter(normal).filter(|dependency| dependency.path.is_some());
    let mut findings: Vec<String> = ours
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{} must not depend on {}", package.name, dependency.name))
        .collect();
    findings.extend(
        (package.dependencies.iter().filter(normal))
            .filter(|dependency| package.name == "kyma-api" && NOT_IN_API.contains(&dependency.name.as_str()))
            .map(|dependency| format!("{} must not depend on {}", package.name, dependency.name)),
    );
    findings.extend(
        (package.dependencies.iter())
            .filter(|dependency| {
                dependency.kind.is_some() && !DEVELOPMENT_ONLY.contains(&dependency.name.as_str())
            })
            .filter(|dependency| dependency.path.is_some() && !allowed.contains(&dependency.name.as_str()))
            .map(|dependency| format!("tests of {} must not depend on {}", package.name, dependency.name)),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependency: &str, kind: Option<&str>) -> Package {
        let dependency = Dependency {
            name: dependency.into(),
            kind: kind.map(Into::into),
            path: Some("/somewhere".into()),
        };
        Package { name: name.into(), dependencies: vec![dependency], targets: vec![] }
    }

    #[test]
    fn an_operator_does_not_know_another() {
        let found = findings(&package("kyma-operator", "helm-component", None));
        assert_eq!(found, ["kyma-operator must not depend on helm-component"]);
    }

    #[test]
    fn tests_may_use_the_test_bed() {
        assert!(findings(&package("kyma-sdk", "testbed", Some("dev"))).is_empty());
        assert!(!findings(&package("kyma-sdk", "testbed", None)).is_empty());
    }
}
