//! Converts a HelmRelease to a HelmComponent. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kyma_api::{
    CommonMetadata, CrdPolicy, Drift, DriftMode, Health, HealthExpression, HelmComponent, HelmComponentSpec,
    HookPolicy, Release, SecretKeyRef, TargetRef,
};
use kyma_object_set::{IgnoredFields, Patches};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::facts::{Facts, Kind, ReducedObject, Ref, is_set, list, text};
use super::failures;
use super::fields;
use super::finding::{Finding, Severity};
use super::patches;
use super::source::ReleaseReferences;
use super::values_from::ValuesReferences;

/// Annotation on a HelmRelease that `kymactl migrate flux --apply` suspended: the resulting component.
pub(super) const MIGRATED: &str = "component.kyma-project.io/migrated-to";
/// Label that a Flux Kustomization sets on objects.
const KUSTOMIZATION: &str = "kustomize.toolkit.fluxcd.io/name";
/// Maximum length of a release name in Helm.
const MAX_RELEASE_NAME_BYTES: usize = 53;
/// Number of hash digits at the end of a shortened name.
const NAME_HASH_DIGITS: usize = 12;

/// Result of a conversion.
#[derive(Debug)]
pub(super) struct Conversion {
    /// The release, as `namespace/name`.
    pub(super) release: String,
    /// The component; `None` if the conversion was refused.
    pub(super) component: Option<HelmComponent>,
    /// Findings, most severe first.
    pub(super) findings: Vec<Finding>,
}

impl Conversion {
    /// Reports whether no finding blocks the component.
    pub(super) fn is_clean(&self) -> bool {
        !self.findings.iter().any(|finding| finding.severity <= Severity::Suspended)
    }

    /// Sorts findings, most severe first.
    pub(super) fn sort(&mut self) {
        self.findings.sort_by(|a, b| (a.severity, &a.path).cmp(&(b.severity, &b.path)));
    }
}

/// Returns the objects that the conversion needs, for a component in namespace `hub`.
pub(super) fn refers_to(release: &Value, facts: &Facts, hub: &str) -> Vec<Ref> {
    let mut all = reads(release, facts, hub);
    all.extend(ValuesReferences { spec: &release["spec"], namespace: namespace_of(release), hub }.copies());
    all
}

/// Returns the objects that Flux reads for the release.
pub(super) fn reads(release: &Value, facts: &Facts, hub: &str) -> Vec<Ref> {
    let namespace = namespace_of(release);
    let mut all = ReleaseReferences { release, namespace, facts }.refers_to();
    let access = text(release, "/spec/kubeConfig/secretRef/name");
    all.extend(access.map(|name| Ref::new(Kind::Secret, namespace, name)));
    all.extend(ValuesReferences { spec: &release["spec"], namespace, hub }.originals());
    all
}

fn namespace_of(release: &Value) -> &str {
    text(release, "/metadata/namespace").unwrap_or("default")
}

/// Converts a release to a component in namespace `hub`.
pub(super) fn convert(release: &Value, facts: &Facts, hub: &str) -> Conversion {
    let namespace = namespace_of(release);
    let name = text(release, "/metadata/name").unwrap_or_default();
    let spec = &release["spec"];
    let mut findings = fields::walk(fields::RELEASE, spec, "spec.");
    findings.extend(failures::uninstalls(spec));
    findings.extend(set_back(release));
    let source = ReleaseReferences { release, namespace, facts }.source_for(hub, &mut findings);
    let component = source.map(|source| {
        let mut made = HelmComponentSpec {
            target: target(spec, namespace, facts, hub, &mut findings),
            source,
            release: Some(release_of(spec, namespace, name)),
            values_from: some(ValuesReferences { spec, namespace, hub }.values_from(facts, &mut findings)),
            patches: some(patches::patches(spec, &mut findings)),
            common_metadata: common_metadata(spec, &mut findings),
            crds: crds(spec, &mut findings),
            hooks: hooks(spec, &mut findings),
            health: health(spec),
            drift: Some(drift(spec, &mut findings)),
            timeouts: failures::timeouts(spec, &mut findings),
            rollback: failures::rollback(spec),
            service_account_name: account(spec, namespace, &mut findings),
            suspend: suspended(release),
            ..HelmComponentSpec::default()
        };
        let values =
            spec.get("values").and_then(Value::as_object).filter(|values| !values.is_empty()).cloned();
        if made.values_from.is_some() {
            made.user_values = values;
        } else {
            made.values = values;
        }
        HelmComponent::new(&component_name(namespace, name, hub), made)
    });
    let mut component = component.filter(|_| !findings.iter().any(|one| one.severity == Severity::Refused));
    if let Some(component) = &mut component {
        component.metadata.namespace = Some(hub.to_owned());
        check(component, spec, name, &mut findings);
        let changes = findings.iter().any(|finding| finding.severity == Severity::Suspended);
        component.spec.suspend = (changes || component.spec.suspend == Some(true)).then_some(true);
    }
    let mut converted = Conversion { release: format!("{namespace}/{name}"), component, findings };
    converted.sort();
    converted
}

/// Validates the whole component.
fn check(component: &HelmComponent, spec: &Value, name: &str, findings: &mut Vec<Finding>) {
    let wished = component.spec.release.as_ref().and_then(|release| release.name.as_deref()).unwrap_or(name);
    let made = helm_component::release::of(&component.name_any(), &component.spec, None, "default").name;
    if made != wished {
        let says = format!("a release cannot have the name {wished} here; its name would be {made}");
        findings.push(Finding::new("spec.releaseName", Severity::Suspended, says));
    }
    if component.spec.target.is_none() {
        let says = "the hub is the target: helm-component must run with `--mode=single-cluster`";
        findings.push(Finding::new("spec.kubeConfig", Severity::ActionRequired, says));
    }
    if spec.get("suspend").is_some_and(|suspend| suspend == true) && component.spec.suspend == Some(true) {
        let says = "it is suspended, and so is the component: kymactl resume starts its reconciliation";
        findings.push(Finding::new("spec.suspend", Severity::ActionRequired, says));
    }
    if let Some(says) = helm_component::unknown_functions(&component.spec) {
        findings.push(Finding::new("spec.healthCheckExprs", Severity::Suspended, says));
    }
    for (place, refused) in refused(&component.spec) {
        let says = format!("helm-component refuses it: {refused}");
        findings.push(Finding::new(place, Severity::Suspended, says));
    }
}

/// Returns violations that helm-component would report later, with the field.
fn refused(spec: &HelmComponentSpec) -> impl Iterator<Item = (&'static str, String)> {
    let ignored = spec.drift.as_ref().and_then(|drift| drift.ignore.as_deref()).unwrap_or_default();
    let patches = spec.patches.as_deref().unwrap_or_default();
    let all = [
        ("spec.healthCheckExprs", helm_component::invalid_expressions(spec)),
        ("spec.driftDetection.ignore", IgnoredFields::parse(ignored).err().map(|error| error.to_string())),
        ("spec.postRenderers", Patches::parse(patches).err().map(|error| error.to_string())),
    ];
    all.into_iter().filter_map(|(place, refused)| Some((place, refused?)))
}

/// Returns the component's name: that of the release, after its namespace if that is not `hub`.
fn component_name(namespace: &str, name: &str, hub: &str) -> String {
    if namespace == hub { name.to_owned() } else { shortened(&format!("{namespace}-{name}")) }
}

/// Shortens a name as Flux does: its beginning and the beginning of its SHA-256.
fn shortened(name: &str) -> String {
    if name.len() <= MAX_RELEASE_NAME_BYTES {
        return name.to_owned();
    }
    let hash = hex::encode(Sha256::digest(name));
    let kept: String = name.chars().take(MAX_RELEASE_NAME_BYTES - NAME_HASH_DIGITS - 1).collect();
    format!("{kept}-{}", &hash[..NAME_HASH_DIGITS])
}

fn release_of(spec: &Value, namespace: &str, name: &str) -> Release {
    let target = text(spec, "/targetNamespace");
    let named = match (text(spec, "/releaseName"), target) {
        (Some(named), _) => named.to_owned(),
        (None, Some(target)) => format!("{target}-{name}"),
        (None, None) => name.to_owned(),
    };
    let target = target.unwrap_or(namespace);
    let storage = text(spec, "/storageNamespace").unwrap_or(namespace);
    Release {
        name: Some(shortened(&named)),
        namespace: Some(target.to_owned()),
        create_namespace: Some(is_set(spec, "/install/createNamespace")),
        storage_namespace: (storage != target).then(|| storage.to_owned()),
        history: None,
    }
}

fn target(
    spec: &Value,
    namespace: &str,
    facts: &Facts,
    hub: &str,
    findings: &mut Vec<Finding>,
) -> Option<TargetRef> {
    const PLACE: &str = "spec.kubeConfig.secretRef";
    let secret = Ref::new(Kind::Secret, namespace, text(spec, "/kubeConfig/secretRef/name")?);
    findings.extend(Finding::copy(PLACE, &secret, hub));
    let key = match (text(spec, "/kubeConfig/secretRef/key"), facts.get(&secret)) {
        (Some(key), _) => key.to_owned(),
        (None, Some(Some(ReducedObject::Data { contents, .. }))) => {
            let key = if contents.contains_key("value") { "value" } else { "value.yaml" };
            key.to_owned()
        }
        (None, _) => {
            let says = "names no key: `value` is used; Flux uses `value.yaml` if that key is missing";
            findings.push(Finding::new(PLACE, Severity::ActionRequired, says));
            "value".to_owned()
        }
    };
    Some(TargetRef { kubeconfig_secret_ref: Some(SecretKeyRef { name: secret.name, key }) })
}

fn common_metadata(spec: &Value, findings: &mut Vec<Finding>) -> Option<CommonMetadata> {
    let exempts = |field: &&str| spec["commonMetadata"][*field].get(patches::DRIFT_MARK).is_some();
    for field in ["labels", "annotations"].into_iter().filter(exempts) {
        findings.push(patches::exempted(format!("spec.commonMetadata.{field}"), spec));
    }
    let texts = |pointer: &str| {
        let map = spec.pointer(pointer).and_then(Value::as_object);
        let pairs = map
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Some(pairs.collect::<BTreeMap<_, _>>()).filter(|pairs| !pairs.is_empty())
    };
    let made = CommonMetadata {
        labels: texts("/commonMetadata/labels"),
        annotations: texts("/commonMetadata/annotations"),
    };
    (made != CommonMetadata::default()).then_some(made)
}

/// Returns the CRD policy. A component has only one, so that of upgrades is used: the release is already installed.
/// Without `upgrade.crds` helm-controller creates missing CRDs in upgrades too, although its documentation says Skip.
fn crds(spec: &Value, findings: &mut Vec<Finding>) -> CrdPolicy {
    let skips = is_set(spec, "/install/skipCRDs");
    let field = if skips { "spec.install.skipCRDs" } else { "spec.install.crds" };
    let install = if skips { Some("Skip") } else { text(spec, "/install/crds") };
    let mut told = |field: &str, says: &str| findings.push(Finding::new(field, Severity::Converted, says));
    match (text(spec, "/upgrade/crds"), install) {
        (Some("Skip"), Some("Skip")) => CrdPolicy::Skip,
        (Some("Skip"), _) => {
            told("spec.upgrade.crds", "`crds: Skip`, for installations too: create missing CRDs yourself");
            CrdPolicy::Skip
        }
        (None, Some("Skip")) => {
            told(field, "`crds: Skip`, for later versions too");
            CrdPolicy::Skip
        }
        (Some("CreateReplace"), Some("Skip")) => {
            told(field, "`crds: CreateReplace`, for installations too");
            CrdPolicy::CreateReplace
        }
        (Some("CreateReplace"), _) => CrdPolicy::CreateReplace,
        (_, Some("Skip")) => {
            told(field, "`crds: Create`, for installations too");
            CrdPolicy::Create
        }
        (_, Some("CreateReplace")) => {
            told(
                field,
                "`crds: Create`, because it is not for upgrades; `CreateReplace` would keep CRDs up to date",
            );
            CrdPolicy::Create
        }
        _ => CrdPolicy::Create,
    }
}

fn hooks(spec: &Value, findings: &mut Vec<Finding>) -> HookPolicy {
    match (is_set(spec, "/install/disableHooks"), is_set(spec, "/upgrade/disableHooks")) {
        (false, false) => HookPolicy::Run,
        (true, true) => HookPolicy::Skip,
        (install, _) => {
            let field = if install { "spec.install.disableHooks" } else { "spec.upgrade.disableHooks" };
            let says = "hooks are skipped for both or for none: they run";
            findings.push(Finding::new(field, Severity::Suspended, says));
            HookPolicy::Run
        }
    }
}

/// Converts health expressions. In both APIs they see the fields of the object by name.
fn health(spec: &Value) -> Option<Health> {
    let expressions = list(spec, "/healthCheckExprs").map(|one| {
        let said = |field: &str| text(one, field).map(str::to_owned);
        HealthExpression {
            api_version: said("/apiVersion").unwrap_or_default(),
            kind: said("/kind").unwrap_or_default(),
            in_progress: said("/inProgress"),
            current: said("/current").unwrap_or_default(),
            failed: said("/failed"),
        }
    });
    some(expressions.collect())
        .map(|expressions| Health { expressions: Some(expressions), ..Health::default() })
}

fn drift(spec: &Value, findings: &mut Vec<Finding>) -> Drift {
    let mode = match text(spec, "/driftDetection/mode") {
        Some("enabled") => DriftMode::Correct,
        Some("disabled") => DriftMode::Off,
        _ => DriftMode::Warn,
    };
    Drift { mode: Some(mode), ignore: some(patches::ignored(spec, findings)) }
}

fn account(spec: &Value, namespace: &str, findings: &mut Vec<Finding>) -> Option<String> {
    let name = text(spec, "/serviceAccountName")?;
    let says = format!(
        "Flux acted as {namespace}/{name}: check in which namespace of the target helm-component expects it"
    );
    findings.push(Finding::new("spec.serviceAccountName", Severity::ActionRequired, says));
    Some(name.to_owned())
}

/// Returns a finding for a release that a Kustomization of Flux may resume after its component was created.
fn set_back(release: &Value) -> Option<Finding> {
    let kustomization = release["metadata"]["labels"][KUSTOMIZATION].as_str();
    let kustomization = kustomization.filter(|_| !is_set(release, "/spec/suspend"))?;
    let says = format!(
        "Kustomization {kustomization} of Flux may resume it: set `spec.suspend: true` in its source first"
    );
    Some(Finding::new("spec.suspend", Severity::ActionRequired, says))
}

/// Returns `Some(true)` if the release was suspended, but not by `kymactl migrate flux`.
fn suspended(release: &Value) -> Option<bool> {
    let ours = release["metadata"]["annotations"].get(MIGRATED).is_some();
    (is_set(release, "/spec/suspend") && !ours).then_some(true)
}

fn some<T>(all: Vec<T>) -> Option<Vec<T>> {
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_as_by_flux() {
        assert_eq!(shortened("short"), "short");
        let long = "a-very-long-namespace-name-for-a-target-and-a-very-long-release-name";
        let name = shortened(long);
        assert_eq!(name.len(), MAX_RELEASE_NAME_BYTES);
        assert!(name.starts_with("a-very-long-namespace-name-for-a-target-"), "{name}");
        // Expected value: `printf '%s' NAME | sha256sum`
        assert!(name.ends_with("-f70223a954b2"), "{name}");
    }
}
