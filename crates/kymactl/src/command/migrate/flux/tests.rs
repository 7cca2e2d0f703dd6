//! Tests the conversion of releases to components and findings.

use std::path::{Path, PathBuf};

use kyma_api::{ChartSource, CrdPolicy, HelmComponent, HookPolicy};
use serde_json::{Value, json};

use super::convert::{Conversion, MIGRATED, convert};
use super::facts::{Facts, Kind, ReducedObject, Ref};
use super::finding::Severity;
use super::{depends, read, report};

fn converted(file: &str, hub: &str) -> Vec<Conversion> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples").join(file);
    let (releases, facts) = read::files(&[path], "default").unwrap();
    let mut all: Vec<Conversion> = releases.iter().map(|release| convert(release, &facts, hub)).collect();
    depends::connect(&releases, &mut all);
    all
}

/// Returns components and findings as text, without findings about fields that helm-component does not implement yet.
fn told(all: &mut [Conversion]) -> String {
    let one = |converted: &mut Conversion| {
        converted.findings.retain(|finding| finding.path != "the component");
        let yaml = converted.component.as_ref().map(|component| report::yaml(component).unwrap());
        format!("{}\n{}", report::text(converted), yaml.unwrap_or_default())
    };
    all.iter_mut().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_release_becomes_a_component_with_findings() {
    insta::assert_snapshot!(told(&mut converted("full.yaml", "kcp-system")));
}

#[test]
fn sources_of_each_kind_become_charts_or_are_refused() {
    insta::assert_snapshot!(told(&mut converted("sources.yaml", "apps")));
}

#[test]
fn printed_yaml_parses_as_the_same_component() {
    for component in converted("sources.yaml", "apps").into_iter().filter_map(|one| one.component) {
        let printed: HelmComponent = serde_saphyr::from_str(&report::yaml(&component).unwrap()).unwrap();
        assert_eq!((printed.spec, printed.metadata), (component.spec, component.metadata));
    }
}

#[test]
fn a_release_that_we_suspended_makes_a_component_that_is_not() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    release["spec"]["suspend"] = true.into();
    assert_eq!(convert(release, &facts, "apps").component.unwrap().spec.suspend, Some(true));
    release["metadata"]["annotations"][MIGRATED] = "apps/shop".into();
    assert_eq!(convert(release, &facts, "apps").component.unwrap().spec.suspend, None);
}

#[test]
fn hooks_are_left_out_where_flux_leaves_them_out_always() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/full.yaml");
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
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    release["spec"]["healthCheckExprs"][0]["failed"] = "status.phase ==".into();
    let found = convert(release, &facts, "apps");
    assert_eq!(found.component.as_ref().unwrap().spec.suspend, Some(true));
    assert!(!found.is_clean());
    let told = report::text(&found);
    assert!(
        told.contains(
            "spec.healthCheckExprs: helm-component refuses it: spec.health.expressions[0].failed is not valid CEL"
        ),
        "{told}"
    );
}

#[test]
fn expression_with_flux_only_function_suspends_the_component() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/full.yaml");
    let (mut releases, facts) = read::files(&[path], "default").unwrap();
    let release = &mut releases[0];
    release["spec"]["healthCheckExprs"][0]["current"] = "status.phase.lowerAscii() == 'filled'".into();
    let found = convert(release, &facts, "apps");
    assert_eq!(found.component.as_ref().unwrap().spec.suspend, Some(true));
    let told = report::text(&found);
    let expected = "spec.healthCheckExprs: health.expressions[0].current calls unknown functions: lowerAscii";
    assert!(told.contains(expected), "{told}");
}

/// Kustomize sets namespaces, so files may have none.
#[test]
fn the_check_of_signatures_stays_where_files_name_no_namespace() {
    let all = converted("no-namespace.yaml", "default");
    let verify = all[0].component.as_ref().unwrap().spec.source.verify.clone().unwrap();
    assert_eq!(verify.keys_secret_ref.unwrap().name, "signers");
}

#[test]
fn objects_in_files_without_namespace_use_the_given_namespace() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/no-namespace.yaml");
    let (releases, facts) = read::files(&[path], "shop").unwrap();
    let found = convert(&releases[0], &facts, "shop");
    assert_eq!(found.release, "shop/app");
    assert_eq!(found.component.unwrap().spec.release.unwrap().namespace.as_deref(), Some("shop"));
}

/// Converts a sample release with this spec.
fn with(spec: Value) -> Conversion {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/no-namespace.yaml");
    let (mut releases, facts) = read::files(&[path], "apps").unwrap();
    if let (Some(whole), Value::Object(more)) = (releases[0]["spec"].as_object_mut(), spec) {
        whole.extend(more);
    }
    convert(&releases[0], &facts, "apps")
}

#[test]
fn flux_remediation_becomes_health_timeout_of_five_minutes() {
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
fn crd_policies_follow_upgrades_of_flux_with_findings() {
    let (none, skip, create, replace) = (None, Some("Skip"), Some("Create"), Some("CreateReplace"));
    let [install, upgrade] = ["spec.install.crds", "spec.upgrade.crds"].map(Some);
    let rows = [
        (none, none, CrdPolicy::Create, None),
        (create, none, CrdPolicy::Create, None),
        (skip, none, CrdPolicy::Skip, install),
        (replace, none, CrdPolicy::Create, install),
        (none, skip, CrdPolicy::Skip, upgrade),
        (create, skip, CrdPolicy::Skip, upgrade),
        (skip, skip, CrdPolicy::Skip, None),
        (replace, skip, CrdPolicy::Skip, upgrade),
        (none, create, CrdPolicy::Create, None),
        (skip, create, CrdPolicy::Create, install),
        (replace, create, CrdPolicy::Create, install),
        (none, replace, CrdPolicy::CreateReplace, None),
        (skip, replace, CrdPolicy::CreateReplace, install),
        (replace, replace, CrdPolicy::CreateReplace, None),
    ];
    let crds = |spec: Value| {
        let found = with(spec);
        let told = found
            .findings
            .iter()
            .map(|one| one.path.clone())
            .find(|path| path.contains("CRDs") || path.ends_with("crds"));
        (found.component.unwrap().spec.crds, told)
    };
    for (of_install, of_upgrade, policy, told) in rows {
        let spec = json!({"install": {"crds": of_install}, "upgrade": {"crds": of_upgrade}});
        assert_eq!(crds(spec.clone()), (policy, told.map(str::to_owned)), "{spec}");
    }
    let skips = Some("spec.install.skipCRDs".to_owned());
    assert_eq!(crds(json!({"install": {"skipCRDs": true}})), (CrdPolicy::Skip, skips));
}

#[test]
fn fields_that_helm_component_refuses_suspend_the_component() {
    let ignored = json!({"driftDetection": {"ignore": [{"paths": [""]}]}});
    let patch =
        json!({"postRenderers": [{"kustomize": {"patches": [{"patch": "[{op: remove, path: /a}]"}]}}]});
    for (spec, place) in [(ignored, "spec.driftDetection.ignore"), (patch, "spec.postRenderers")] {
        let found = with(spec);
        let told: Vec<(&str, Severity)> =
            found.findings.iter().map(|one| (one.path.as_str(), one.severity)).collect();
        assert!(told.contains(&(place, Severity::Suspended)), "{told:?}");
        assert_eq!(found.component.unwrap().spec.suspend, Some(true));
    }
}

#[test]
fn common_metadata_that_flux_leaves_drifted_suspends_component() {
    let metadata = json!({"annotations": {"helm.toolkit.fluxcd.io/driftDetection": "disabled"}});
    let found = with(json!({"commonMetadata": metadata, "driftDetection": {"mode": "enabled"}}));
    let told = report::text(&found);
    assert!(
        told.contains("made suspended: spec.commonMetadata.annotations: helm.toolkit.fluxcd.io/"),
        "{told}"
    );
}

/// Returns the chart of a release with this source, and the findings about the source.
fn chart_of(kind: Kind, source: &Value, spec: &Value) -> (ChartSource, Vec<(String, Severity)>) {
    let place = Ref::new(kind, "apps", "s");
    let facts = Facts::from([(place, Some(ReducedObject::of(kind, json!({"spec": source}))))]);
    let installed = json!({"version": 3, "chartVersion": "1.2.0+1234567890ab", "ociDigest": digest('a')});
    let release = json!({"metadata": {"name": "a", "namespace": "apps"}, "spec": spec, "status": {"history": [installed]}});
    let found = convert(&release, &facts, "apps");
    let told = found
        .findings
        .into_iter()
        .filter(|one| one.severity <= Severity::NotConverted && one.severity != Severity::ActionRequired);
    let told = told.map(|one| (one.path, one.severity)).filter(|(path, _)| path != "spec.chartRef").collect();
    (found.component.unwrap().spec.source.chart.unwrap(), told)
}

#[test]
fn a_release_that_flux_applies_is_reported_until_suspended() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/command/migrate/flux/samples/no-namespace.yaml");
    let (mut releases, facts) = read::files(&[path], "apps").unwrap();
    let release = &mut releases[0];
    let is_told = |release: &Value| {
        let told = report::text(&convert(release, &facts, "apps"));
        told.contains("to do: spec.suspend: Kustomization fleet of Flux may resume it")
    };
    assert!(!is_told(release));
    release["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "fleet"});
    assert!(is_told(release));
    release["spec"]["suspend"] = true.into();
    assert!(!is_told(release));
}

/// Flux creates the HelmChart in the namespace of the repository and reads the keys there.
#[test]
fn keys_of_a_chart_lie_beside_its_repository() {
    let repository = Ref::new(Kind::HelmRepository, "sources", "r");
    let source = json!({"spec": {"url": "oci://registry.example.org"}});
    let facts = Facts::from([(repository, Some(ReducedObject::of(Kind::HelmRepository, source)))]);
    let reference = json!({"kind": "HelmRepository", "name": "r", "namespace": "sources"});
    let verify = json!({"secretRef": {"name": "signers"}});
    let chart = json!({"chart": "a", "version": "1.0.0", "sourceRef": reference, "verify": verify});
    let release = json!({"metadata": {"name": "a", "namespace": "apps"}, "spec": {"chart": {"spec": chart}}});
    let found = convert(&release, &facts, "apps");
    let told = report::text(&found);
    assert!(told.contains("spec.chart.spec.verify.secretRef: copy Secret sources/signers to"), "{told}");
    let verify = found.component.unwrap().spec.source.verify.unwrap();
    assert_eq!(verify.keys_secret_ref.unwrap().name, "signers");
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

#[test]
fn of_a_digest_a_range_and_a_tag_the_first_counts_as_in_flux() {
    let of = |reference: Value| {
        let source = json!({"url": "oci://registry.example.org/a", "ref": reference});
        let spec = json!({"chartRef": {"kind": "OCIRepository", "name": "s"}});
        let (chart, told) = chart_of(Kind::OciRepository, &source, &spec);
        (chart.version.unwrap(), chart.digest, told)
    };
    let pinned = |version: &str| (version.to_owned(), Some(digest('a')), vec![]);
    assert_eq!(of(json!({"digest": digest('a'), "semver": "1.x", "tag": "2.0.0"})), pinned("1.2.0"));
    assert_eq!(of(json!({"semver": "1.x", "tag": "2.0.0"})), ("1.x".to_owned(), None, vec![]));
    assert_eq!(of(json!({"tag": "1.2.0"})), pinned("1.2.0"));
    let (version, found, told) = of(json!({"tag": "latest"}));
    assert_eq!((version.as_str(), found), ("latest", Some(digest('a'))));
    assert_eq!(told, [("OCIRepository apps/s: spec.ref.tag".to_owned(), Severity::NotConverted)]);
}

#[test]
fn a_version_of_a_suspended_source_is_not_followed() {
    let source = json!({"url": "oci://registry.example.org/a", "ref": {"semver": ">=1"}, "suspend": true});
    let spec = json!({"chartRef": {"kind": "OCIRepository", "name": "s"}});
    let (chart, told) = chart_of(Kind::OciRepository, &source, &spec);
    assert_eq!((chart.version.as_deref(), chart.digest), (Some("1.2.0"), Some(digest('a'))));
    assert_eq!(told, [("OCIRepository apps/s: spec.suspend".to_owned(), Severity::NotConverted)]);

    let of = |suspend: bool| {
        let source = json!({"url": "https://charts.example.org", "suspend": suspend});
        let reference = json!({"kind": "HelmRepository", "name": "s"});
        let spec = json!({"chart": {"spec": {"chart": "a", "version": ">=1", "sourceRef": reference}}});
        let (chart, told) = chart_of(Kind::HelmRepository, &source, &spec);
        (chart.version.unwrap(), told)
    };
    assert_eq!(of(false), (">=1".to_owned(), vec![]));
    let held = vec![("spec.chart.spec.version".to_owned(), Severity::NotConverted)];
    assert_eq!(of(true), ("1.2.0+1234567890ab".to_owned(), held));
}
