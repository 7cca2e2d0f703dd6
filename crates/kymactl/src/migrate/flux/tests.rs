//! Releases in, components and what is told of them out.

use std::path::{Path, PathBuf};

use kyma_api::{CrdPolicy, HelmComponent, HookPolicy};
use serde_json::json;

use super::convert::{Converted, MIGRATED, convert};
use super::finding::Weight;
use super::{depends, read, report};

fn converted(file: &str, hub: &str) -> Vec<Converted> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples").join(file);
    let (releases, facts) = read::files(&[path], "default").unwrap();
    let mut all: Vec<Converted> = releases.iter().map(|release| convert(release, &facts, hub)).collect();
    depends::connect(&releases, &mut all);
    all
}

/// What helm-component does not act on yet is not of the migration.
fn told(all: &mut [Converted]) -> String {
    let one = |converted: &mut Converted| {
        converted.findings.retain(|finding| finding.path != "the component");
        let yaml = converted.component.as_ref().map(|component| report::yaml(component).unwrap());
        format!("{}\n{}", report::text(converted), yaml.unwrap_or_default())
    };
    all.iter_mut().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_release_becomes_a_component_and_what_does_not_fit_is_told() {
    insta::assert_snapshot!(told(&mut converted("full.yaml", "kcp-system")));
}

#[test]
fn sources_of_each_kind_become_charts_or_are_refused() {
    insta::assert_snapshot!(told(&mut converted("sources.yaml", "apps")));
}

#[test]
fn what_is_printed_is_read_as_the_same_component() {
    for component in converted("sources.yaml", "apps").into_iter().filter_map(|one| one.component) {
        let printed: HelmComponent = serde_saphyr::from_str(&report::yaml(&component).unwrap()).unwrap();
        assert_eq!((printed.spec, printed.metadata), (component.spec, component.metadata));
    }
}

#[test]
fn a_release_that_we_suspended_makes_a_component_that_is_not() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    release["spec"]["suspend"] = true.into();
    assert_eq!(convert(release, &facts, "apps").component.unwrap().spec.suspend, Some(true));
    release["metadata"]["annotations"][MIGRATED] = "apps/shop".into();
    assert_eq!(convert(release, &facts, "apps").component.unwrap().spec.suspend, None);
}

#[test]
fn hooks_are_left_out_where_flux_leaves_them_out_always() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    for action in ["install", "upgrade"] {
        release["spec"][action]["disableHooks"] = true.into();
    }
    let found = convert(release, &facts, "apps");
    assert_eq!(found.component.as_ref().unwrap().spec.hooks, HookPolicy::Skip);
    assert!(found.is_clean());
}

#[test]
fn an_expression_that_is_no_cel_here_suspends_the_component() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    release["spec"]["healthCheckExprs"][0]["failed"] = "status.phase ==".into();
    let found = convert(release, &facts, "apps");
    assert_eq!(found.component.as_ref().unwrap().spec.suspend, Some(true));
    assert!(!found.is_clean());
    let told = report::text(&found);
    assert!(
        told.contains(
            "spec.healthCheckExprs: helm-component refuses it: spec.health.expressions[0].failed is no CEL"
        ),
        "{told}"
    );
}

/// Kustomize sets namespaces, so files need not.
#[test]
fn the_check_of_signatures_stays_where_files_name_no_namespace() {
    let all = converted("no-namespace.yaml", "default");
    let verify = all[0].component.as_ref().unwrap().spec.source.verify.clone().unwrap();
    assert_eq!(verify.keys_secret_ref.unwrap().name, "signers");
}

#[test]
fn objects_of_files_without_a_namespace_lie_in_the_one_that_is_said() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples/no-namespace.yaml");
    let (releases, facts) = read::files(&[path], "shop").unwrap();
    let found = convert(&releases[0], &facts, "shop");
    assert_eq!(found.release, "shop/app");
    assert_eq!(found.component.unwrap().spec.release.unwrap().namespace.as_deref(), Some("shop"));
}

/// The release of a sample, with this in its spec.
fn with(spec: serde_json::Value) -> Converted {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/migrate/flux/samples/no-namespace.yaml");
    let (mut releases, facts) = read::files(&[path], "apps").unwrap();
    if let (Some(whole), serde_json::Value::Object(more)) = (releases[0]["spec"].as_object_mut(), spec) {
        whole.extend(more);
    }
    convert(&releases[0], &facts, "apps")
}

#[test]
fn an_upgrade_that_flux_would_roll_back_after_five_minutes_is_rolled_back_here() {
    let health =
        |spec| with(spec).component.unwrap().spec.timeouts.and_then(|timeouts| timeouts.health_seconds);
    let remediation = json!({"retries": 3});
    assert_eq!(health(json!({"upgrade": {"remediation": remediation}})), Some(300));
    assert_eq!(health(json!({"upgrade": {"remediation": remediation}, "timeout": "1m"})), Some(60));
    assert_eq!(health(json!({"upgrade": {"remediation": remediation, "disableWait": true}})), None);
    assert_eq!(health(json!({"upgrade": {"remediation": {"retries": 3, "strategy": "uninstall"}}})), None);
    assert_eq!(health(json!({})), None);
}

#[test]
fn crds_that_flux_replaces_with_the_installation_alone_are_not_replaced() {
    let crds = |spec| {
        let found = with(spec);
        let told = found.findings.iter().any(|one| one.path.starts_with("spec.install."));
        (found.component.unwrap().spec.crds, told)
    };
    assert_eq!(crds(json!({"install": {"crds": "CreateReplace"}})), (CrdPolicy::Create, true));
    assert_eq!(crds(json!({"install": {"crds": "Skip"}})), (CrdPolicy::Skip, true));
    assert_eq!(crds(json!({"install": {"skipCRDs": true}})), (CrdPolicy::Skip, true));
    let both = json!({"install": {"crds": "Skip"}, "upgrade": {"crds": "CreateReplace"}});
    assert_eq!(crds(both), (CrdPolicy::CreateReplace, false));
    assert_eq!(crds(json!({"install": {"crds": "Create"}})), (CrdPolicy::Create, false));
    assert_eq!(crds(json!({})), (CrdPolicy::Create, false));
}

#[test]
fn what_helm_component_would_refuse_later_suspends_the_component() {
    let ignored = json!({"driftDetection": {"ignore": [{"paths": [""]}]}});
    let patch =
        json!({"postRenderers": [{"kustomize": {"patches": [{"patch": "[{op: remove, path: /a}]"}]}}]});
    for (spec, place) in [(ignored, "spec.driftDetection.ignore"), (patch, "spec.postRenderers")] {
        let found = with(spec);
        let told: Vec<(&str, Weight)> =
            found.findings.iter().map(|one| (one.path.as_str(), one.weight)).collect();
        assert!(told.contains(&(place, Weight::Changes)), "{told:?}");
        assert_eq!(found.component.unwrap().spec.suspend, Some(true));
    }
}

#[test]
fn metadata_of_all_objects_that_flux_would_not_put_right_suspends_the_component() {
    let metadata = json!({"annotations": {"helm.toolkit.fluxcd.io/driftDetection": "disabled"}});
    let found = with(json!({"commonMetadata": metadata, "driftDetection": {"mode": "enabled"}}));
    let told = report::text(&found);
    assert!(
        told.contains("made suspended: spec.commonMetadata.annotations: helm.toolkit.fluxcd.io/"),
        "{told}"
    );
}
