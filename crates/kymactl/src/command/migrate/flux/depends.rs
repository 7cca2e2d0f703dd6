//! Converts `dependsOn` among releases that are migrated together. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use kyma_api::{ComponentDependency, Dependency};
use serde_json::Value;

use super::convert::Conversion;
use super::facts::{list, text};
use super::finding::{Finding, Severity};

/// Maximum number of dependencies of a component.
const MAX_DEPENDENCIES: usize = 64;

/// Sets the dependencies of the components, in the order of the releases'.
pub(super) fn connect(releases: &[Value], all: &mut [Conversion]) {
    let made = |one: &Conversion| Some((one.release.clone(), one.component.as_ref()?.name_any()));
    let components: BTreeMap<String, String> = all.iter().filter_map(made).collect();
    for (release, converted) in releases.iter().zip(all) {
        let Some(component) = &mut converted.component else { continue };
        let mut dependencies = Vec::new();
        for (number, one) in list(&release["spec"], "/dependsOn").enumerate() {
            let place = format!("spec.dependsOn[{number}]");
            let told = |says: String| Finding::new(&place, Severity::NotConverted, says);
            // Reported with its field.
            if text(one, "/readyExpr").is_some() {
                continue;
            }
            let own = converted.release.split('/').next().unwrap_or_default();
            let namespace = text(one, "/namespace").unwrap_or(own);
            let named = format!("{namespace}/{}", text(one, "/name").unwrap_or_default());
            match components.get(&named) {
                None => converted.findings.push(told(format!(
                    "{named} is not converted together with this one: name both, or add `dependsOn` with \
                     its component once that exists"
                ))),
                Some(_) if dependencies.len() >= MAX_DEPENDENCIES => {
                    let says = format!("a component has at most {MAX_DEPENDENCIES} dependencies");
                    converted.findings.push(told(says));
                }
                Some(name) => dependencies.push(Dependency {
                    component: Some(ComponentDependency {
                        name: name.clone(),
                        ..ComponentDependency::default()
                    }),
                    ..Dependency::default()
                }),
            }
        }
        component.spec.depends_on = (!dependencies.is_empty()).then_some(dependencies);
        converted.sort();
    }
}

/// Returns the names of the components that this one depends on.
pub(super) fn needs(converted: &Conversion) -> impl Iterator<Item = &str> {
    let all = converted.component.iter().flat_map(|component| component.spec.depends_on.iter().flatten());
    all.filter_map(|one| Some(one.component.as_ref()?.name.as_str()))
}

/// Returns positions sorted so that dependencies come first. A cycle is broken at one of its members.
pub(super) fn order(all: &[Conversion]) -> Vec<usize> {
    let by_name: BTreeMap<String, usize> = all
        .iter()
        .enumerate()
        .filter_map(|(position, one)| Some((one.component.as_ref()?.name_any(), position)))
        .collect();
    let mut order = Vec::with_capacity(all.len());
    let mut seen = BTreeSet::new();
    for first in 0..all.len() {
        // Stack of positions, with whether their dependencies were visited.
        let mut way = vec![(first, false)];
        while let Some((position, is_free)) = way.pop() {
            if is_free {
                order.push(position);
            } else if seen.insert(position) {
                way.push((position, true));
                let needs = needs(&all[position]).filter_map(|name| by_name.get(name));
                way.extend(needs.map(|need| (*need, false)));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::convert::convert;
    use super::*;
    use crate::command::migrate::flux::facts::{Facts, Kind, ReducedObject, Ref};

    /// Returns converted releases of namespace `apps` with these dependencies.
    fn connected(releases: &[(&str, Value)]) -> Vec<Conversion> {
        let source =
            json!({"kind": "HelmRepository", "spec": {"type": "oci", "url": "oci://registry.example.org"}});
        let repository = Ref::new(Kind::HelmRepository, "apps", "r");
        let facts =
            Facts::from([(repository.clone(), Some(ReducedObject::of(Kind::HelmRepository, source)))]);
        let chart = json!({"spec": {"chart": "a", "version": "1.0.0", "sourceRef": {"kind": "HelmRepository", "name": "r"}}});
        let release = |(name, on): &(&str, Value)| json!({"metadata": {"name": name, "namespace": "apps"}, "spec": {"chart": chart, "dependsOn": on}});
        let releases: Vec<Value> = releases.iter().map(release).collect();
        let mut all: Vec<Conversion> =
            releases.iter().map(|release| convert(release, &facts, "hub")).collect();
        connect(&releases, &mut all);
        all
    }

    fn on(names: &[&str]) -> Value {
        names.iter().map(|name| json!({"name": name})).collect()
    }

    fn told(converted: &Conversion) -> Vec<(&str, Severity)> {
        let lost = converted
            .findings
            .iter()
            .filter(|one| one.severity <= Severity::NotConverted && one.severity != Severity::ActionRequired);
        lost.map(|one| (one.path.as_str(), one.severity)).collect()
    }

    #[test]
    fn components_depend_on_each_other_as_the_releases_did() {
        let all = connected(&[
            ("shop", json!([{"name": "base"}, {"name": "base", "namespace": "apps"}])),
            ("base", Value::Null),
        ]);
        assert_eq!(needs(&all[0]).collect::<Vec<_>>(), ["apps-base", "apps-base"]);
        assert_eq!(told(&all[0]), []);
        assert_eq!(all[1].component.as_ref().unwrap().spec.depends_on, None);
    }

    #[test]
    fn dependencies_without_component_are_reported() {
        let all = connected(&[
            (
                "shop",
                json!([{"name": "base"}, {"name": "base", "namespace": "other"}, {"name": "a", "readyExpr": "true"}]),
            ),
            ("a", Value::Null),
        ]);
        assert_eq!(needs(&all[0]).count(), 0);
        let expected = ["spec.dependsOn[0]", "spec.dependsOn[1]", "spec.dependsOn[2].readyExpr"];
        assert_eq!(told(&all[0]), expected.map(|place| (place, Severity::NotConverted)));
        assert!(all[0].is_clean());
    }

    #[test]
    fn dependencies_are_migrated_first() {
        let all = connected(&[
            ("a", on(&["b", "c"])),
            ("b", on(&["c"])),
            ("c", Value::Null),
            ("d", on(&["e"])),
            ("e", on(&["d"])),
        ]);
        let order = order(&all);
        assert_eq!(order[..3], [2, 1, 0]);
        let mut rest = order[3..].to_vec();
        rest.sort_unstable();
        assert_eq!(rest, [3, 4], "a circle is gone round once");
    }
}
