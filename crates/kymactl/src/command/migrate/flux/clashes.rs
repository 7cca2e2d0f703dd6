//! Finds names of components or copies that several releases would share. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde_json::Value;

use super::convert::{self, Conversion};
use super::facts::{Facts, Kind, ReducedObject, Ref};
use super::finding::{Finding, Severity};

/// Finds components, and copies for namespace `hub`, that would share a name. Equal component names are refused, and
/// components with equal names of different copies are suspended.
pub(super) fn keep_apart(releases: &[Value], facts: &Facts, hub: &str, all: &mut [Conversion]) {
    names(all);
    copies(releases, facts, hub, all);
}

/// Refuses equal component names: `a-b/c` and `a/b-c` would become one component.
fn names(all: &mut [Conversion]) {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (position, one) in all.iter().enumerate() {
        if let Some(component) = &one.component {
            by_name.entry(component.name_any()).or_default().push(position);
        }
    }
    for (name, positions) in by_name.into_iter().filter(|(_, positions)| positions.len() > 1) {
        let releases: Vec<String> = positions.iter().map(|one| all[*one].release.clone()).collect();
        let says = format!(
            "{} would both be HelmComponent {name}: convert them for separate namespaces, `--hub-namespace`",
            releases.join(" and ")
        );
        for position in positions {
            let one = &mut all[position];
            one.component = None;
            one.findings.push(Finding::new("metadata.name", Severity::Refused, &says));
            one.sort();
        }
    }
}

/// Suspends components that read ConfigMaps or Secrets of one name from several namespaces, unless they are known to
/// be equal: their copies would have the same name.
fn copies(releases: &[Value], facts: &Facts, hub: &str, all: &mut [Conversion]) {
    let used: Vec<BTreeSet<Ref>> = releases.iter().map(|release| used(release, facts, hub)).collect();
    let mut by_name: BTreeMap<(Kind, &str), BTreeSet<&Ref>> = BTreeMap::new();
    for one in used.iter().flatten() {
        by_name.entry((one.kind, one.name.as_str())).or_default().insert(one);
    }
    by_name.retain(|_, same| same.len() > 1 && !are_equal(same, facts));
    for (one, converted) in used.iter().zip(all) {
        let Some(component) = &mut converted.component else { continue };
        for copied in one.iter().filter(|copied| copied.namespace != hub) {
            let Some(same) = by_name.get(&(copied.kind, copied.name.as_str())) else { continue };
            let others: Vec<String> =
                same.iter().filter(|other| **other != copied).map(|other| other.says()).collect();
            let says = format!(
                "in namespace {hub} it would have the name of {}, which is not known to be the same: rename one of them",
                others.join(" and ")
            );
            converted.findings.push(Finding::new(copied.says(), Severity::Suspended, says));
            component.spec.suspend = Some(true);
        }
        converted.sort();
    }
}

/// Returns the ConfigMaps and Secrets that Flux reads for a release, without those that do not exist.
fn used(release: &Value, facts: &Facts, hub: &str) -> BTreeSet<Ref> {
    let all = convert::reads(release, facts, hub).into_iter();
    all.filter(|one| one.kind.is_data() && facts.get(one) != Some(&None)).collect()
}

/// Reports whether all of them are known and have the same content.
fn are_equal(same: &BTreeSet<&Ref>, facts: &Facts) -> bool {
    let mut known = same.iter().map(|one| match facts.get(*one) {
        Some(Some(known @ ReducedObject::Data { contents, .. }))
            if contents.values().all(Option::is_some) =>
        {
            Some(known)
        }
        _ => None,
    });
    let first = known.next().flatten();
    first.is_some() && known.all(|other| other == first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Converts releases of these namespaces and names, with values from a Secret in each namespace.
    fn kept_apart(releases: &[(&str, &str)], secrets: &[(&str, Value)], hub: &str) -> Vec<Conversion> {
        let mut facts = Facts::new();
        let repository = json!({"kind": "HelmRepository", "spec": {"url": "oci://registry.example.org"}});
        let place = Ref::new(Kind::HelmRepository, "sources", "r");
        facts.insert(place, Some(ReducedObject::of(Kind::HelmRepository, repository)));
        for (namespace, data) in secrets {
            let known =
                data.is_object().then(|| ReducedObject::of(Kind::Secret, json!({"stringData": data})));
            facts.insert(Ref::new(Kind::Secret, namespace, "words"), known);
        }
        let source = json!({"kind": "HelmRepository", "name": "r", "namespace": "sources"});
        let chart = json!({"spec": {"chart": "a", "version": "1.0.0", "sourceRef": source}});
        let values = json!([{"kind": "Secret", "name": "words"}]);
        let release = |(namespace, name): &(&str, &str)| {
            json!({"metadata": {"name": name, "namespace": namespace},
                "spec": {"chart": chart, "valuesFrom": values}})
        };
        let releases: Vec<Value> = releases.iter().map(release).collect();
        let mut all: Vec<Conversion> =
            releases.iter().map(|release| convert::convert(release, &facts, hub)).collect();
        keep_apart(&releases, &facts, hub, &mut all);
        all
    }

    fn worst(all: &[Conversion]) -> Vec<Severity> {
        all.iter().map(|one| one.findings[0].severity).collect()
    }

    #[test]
    fn releases_that_would_be_one_component_are_refused() {
        let all = kept_apart(&[("a-b", "c"), ("a", "b-c"), ("a", "d")], &[], "hub");
        let made: Vec<bool> = all.iter().map(|one| one.component.is_some()).collect();
        assert_eq!(made, [false, false, true]);
        let (path, says) = (&all[0].findings[0].path, &all[0].findings[0].says);
        assert_eq!(path, "metadata.name");
        assert!(says.starts_with("a-b/c and a/b-c would both be HelmComponent a-b-c"), "{says}");
    }

    #[test]
    fn copies_of_one_name_and_another_content_suspend() {
        let (one, other) = (json!({"values.yaml": "a: 1"}), json!({"values.yaml": "a: 2"}));
        let of = |secrets: &[(&str, Value)], hub| kept_apart(&[("a", "x"), ("b", "y")], secrets, hub);
        let differing = of(&[("a", one.clone()), ("b", other.clone())], "hub");
        assert_eq!(worst(&differing), [Severity::Suspended, Severity::Suspended]);
        assert_eq!(differing[0].findings[0].path, "Secret a/words");
        assert!(differing.iter().all(|one| one.component.as_ref().unwrap().spec.suspend == Some(true)));
        assert_eq!(
            worst(&of(&[("a", one.clone()), ("b", one.clone())], "hub")),
            [Severity::ActionRequired, Severity::ActionRequired]
        );
        assert_eq!(worst(&of(&[], "hub")), [Severity::Suspended, Severity::Suspended], "neither is known");
        let beside = of(&[("a", one), ("b", other)], "b");
        assert_eq!(
            worst(&beside),
            [Severity::Suspended, Severity::ActionRequired],
            "what is there already stays"
        );
    }

    #[test]
    fn several_releases_of_a_namespace_share_what_is_copied() {
        let all = kept_apart(&[("a", "x"), ("a", "y")], &[], "hub");
        assert_eq!(worst(&all), [Severity::ActionRequired, Severity::ActionRequired]);
    }
}
