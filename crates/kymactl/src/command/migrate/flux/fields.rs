//! Table of the fields of Flux's objects and their conversion.
//!
//! The documentation shows the table, and [`walk`] uses it: each field that is set and not carried over, or that the
//! table does not have, is reported.

use serde_json::Value;

use super::finding::{Finding, Severity};

/// A field, or all fields below it.
pub(super) struct Field {
    /// Path below `spec`, without list indexes.
    pub(super) path: &'static str,
    pub(super) conversion: FieldConversion,
    /// For `Converted` the new field, for `NotNeeded` the reason why it is not needed, otherwise what to do.
    pub(super) says: &'static str,
}

/// Conversion of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldConversion {
    /// A component has an equivalent field.
    Converted,
    /// Not needed by components.
    NotNeeded,
    /// No equivalent; objects of the chart stay unchanged.
    NotConverted,
    /// No equivalent, and the chart would be rendered differently: the component is created suspended.
    Suspends,
    /// No equivalent, and the chart would be installed elsewhere: no component is created.
    Refused,
}

const fn carried(path: &'static str, says: &'static str) -> Field {
    Field { path, conversion: FieldConversion::Converted, says }
}

const fn idle(path: &'static str, says: &'static str) -> Field {
    Field { path, conversion: FieldConversion::NotNeeded, says }
}

const fn lost(path: &'static str, says: &'static str) -> Field {
    Field { path, conversion: FieldConversion::NotConverted, says }
}

const fn changes(path: &'static str, says: &'static str) -> Field {
    Field { path, conversion: FieldConversion::Suspends, says }
}

const EVENTS: &str = "nothing is polled";
const VERSION: &str = "`source.chart.version`: a range unchanged, otherwise the installed version";
const CHECK: &str = "`source.chart.checkEverySeconds`, a minute at least, if the version is a range; otherwise nothing is polled";
const FIXED: &str = "the version is fixed";
const HELD: &str = "a range is not followed then: the installed version stays";
const RETRIES: &str = "failures are retried by their class, without limit";
const NO_WAIT: &str = "no worker waits; `Ready` reports when all objects are ready";
const SSA: &str = "objects are applied with server-side apply";
const CA: &str = "give the CA to the operator, `--oci-ca-file`; client certificates have no equivalent";
const CLOUD: &str = "logins of cloud providers have no equivalent: use a pull secret";
const VERIFY: &str = "`source.verify`; settings without an equivalent are reported and suspend the component";
const CHART_VALUES: &str = "write the values of these files of the chart into `values`";
const PLAIN: &str = "name the host in `--oci-insecure-hosts`";

/// `helm.toolkit.fluxcd.io` HelmRelease, v2, v2beta2 and v2beta1.
pub(super) const RELEASE: &[Field] = &[
    carried("releaseName", "`release.name`; `<targetNamespace>-<name>`, else `<name>`, shortened as by Flux"),
    carried("targetNamespace", "`release.namespace`; without it the namespace of the HelmRelease"),
    carried(
        "storageNamespace",
        "`release.storageNamespace`: Helm's record is read there, once; without it the namespace of the HelmRelease",
    ),
    carried("chart.spec.chart", "`source.chart`"),
    carried("chart.spec.version", VERSION),
    carried("chart.spec.sourceRef", "`source.chart.url`"),
    changes("chart.spec.valuesFiles", CHART_VALUES),
    changes("chart.spec.valuesFile", CHART_VALUES),
    idle("chart.spec.ignoreMissingValuesFiles", "not needed without the files"),
    carried("chart.spec.verify", VERIFY),
    carried("chart.spec.interval", CHECK),
    idle("chart.spec.reconcileStrategy", FIXED),
    idle("chart.metadata", "there is no object for the chart"),
    carried("chartRef", "`source.chart`, of the OCIRepository or HelmChart"),
    carried("values", "`values`; `userValues` if there are `valuesFrom`, over which they take precedence"),
    carried("valuesFrom[].kind", "`valuesFrom[].kind`"),
    carried("valuesFrom[].name", "`valuesFrom[].name`; a Secret needs a label, which is reported"),
    carried("valuesFrom[].valuesKey", "`valuesFrom[].key`"),
    carried(
        "valuesFrom[].targetPath",
        "`valuesFrom[].targetPath`; always a string: a text that Flux would convert, or that cannot be read, is reported and suspends the component",
    ),
    carried("valuesFrom[].literal", "always the case with `targetPath`"),
    carried(
        "valuesFrom[].optional",
        "`valuesFrom[].optional`; an object that must be copied and is not copied yet is reported and suspends the component; if the object is deleted, its installed values stay, `ValuesMissing`",
    ),
    carried("kubeConfig.secretRef", "`target.kubeconfigSecretRef`; without a key `value`, else `value.yaml`"),
    Field {
        path: "kubeConfig.configMapRef",
        conversion: FieldConversion::Refused,
        says: "logins of cloud providers have no equivalent: make a Secret with a kubeconfig and set `kubeConfig.secretRef`",
    },
    carried("serviceAccountName", "`serviceAccountName`"),
    carried("suspend", "`suspend`"),
    carried("commonMetadata.labels", "`commonMetadata.labels`"),
    carried("commonMetadata.annotations", "`commonMetadata.annotations`"),
    carried("postRenderers[].kustomize.patches", "`patches`"),
    carried("postRenderers[].kustomize.patchesStrategicMerge", "`patches`"),
    carried("postRenderers[].kustomize.patchesJson6902", "`patches`"),
    changes("postRenderers[].kustomize.images", "set the images by `values` or `patches`"),
    carried(
        "driftDetection.mode",
        "`drift.mode`: enabled is Correct, warn is Warn, disabled is Off; without it Warn",
    ),
    carried("driftDetection.ignore", "`drift.ignore`"),
    carried(
        "timeout",
        "`timeouts.hookSeconds` and `timeouts.healthSeconds`; without it 300 if a failed upgrade is rolled back",
    ),
    carried("upgrade.timeout", "the same, before `timeout`"),
    idle("install.timeout", "that of upgrades applies"),
    carried("uninstall.timeout", "`timeouts.deleteSeconds`"),
    carried(
        "install.crds",
        "`crds: Skip`, if it is Skip and `upgrade.crds` is absent; otherwise that of upgrades applies to installations too, and a difference is reported",
    ),
    carried("install.skipCRDs", "`crds: Skip`, if `upgrade.crds` is absent"),
    carried("upgrade.crds", "`crds`, for installations too; without it Create, as in Flux"),
    carried("install.createNamespace", "`release.createNamespace`"),
    carried("install.disableHooks", "`hooks: Skip`, with `upgrade.disableHooks`"),
    carried("upgrade.disableHooks", "`hooks: Skip`, with `install.disableHooks`"),
    lost("uninstall.disableHooks", "hooks of the removal run unless `hooks: Skip`"),
    carried("upgrade.disableWait", "no `timeouts.healthSeconds`"),
    idle("upgrade.disableWaitForJobs", NO_WAIT),
    idle("install.disableWait", NO_WAIT),
    idle("install.disableWaitForJobs", NO_WAIT),
    idle("uninstall.disableWait", NO_WAIT),
    idle("waitStrategy", NO_WAIT),
    carried(
        "upgrade.remediation",
        "`rollback.mode: OnFailure`, unless its strategy is uninstall, which is reported, it has no retries, or `upgrade.strategy` is RetryOnFailure",
    ),
    idle("upgrade.strategy", RETRIES),
    idle("install.strategy", RETRIES),
    idle("install.remediation", RETRIES),
    idle("install.replace", "records of earlier releases are no obstacle"),
    idle("install.disableOpenAPIValidation", "the API server checks each object"),
    idle("upgrade.disableOpenAPIValidation", "the API server checks each object"),
    lost("install.disableSchemaValidation", "`values.schema.json` of the chart always applies"),
    lost("upgrade.disableSchemaValidation", "`values.schema.json` of the chart always applies"),
    idle("install.serverSideApply", SSA),
    idle("upgrade.serverSideApply", SSA),
    lost("install.disableTakeOwnership", "objects without a live owner are adopted, unless `adopt: Never`"),
    lost("upgrade.disableTakeOwnership", "objects without a live owner are adopted, unless `adopt: Never`"),
    lost(
        "upgrade.force",
        "immutable fields are refused and named; `recreate` names the objects that may be recreated",
    ),
    changes("upgrade.preserveValues", "write the output of `helm get values` into `values`"),
    idle("upgrade.cleanupOnFail", "a rollback prunes objects that the previous version does not have"),
    lost("test", "tests of the chart run on request: `kymactl test`"),
    idle("rollback", "a rollback applies the last Ready release"),
    lost("uninstall.deletionPropagation", "`deletionPolicy` decides whether anything is removed"),
    lost("uninstall.keepHistory", "the records of `release.history` are deleted with the component"),
    carried(
        "dependsOn[].name",
        "`dependsOn[].component`, if that HelmRelease is converted with this one; otherwise it is reported",
    ),
    carried("dependsOn[].namespace", "the same"),
    lost(
        "dependsOn[].readyExpr",
        "write it as `ready` beside `dependsOn[].component`: `self` is the other component there",
    ),
    carried("healthCheckExprs[].apiVersion", "`health.expressions[].apiVersion`"),
    carried("healthCheckExprs[].kind", "`health.expressions[].kind`"),
    carried("healthCheckExprs[].current", "`health.expressions[].current`"),
    carried("healthCheckExprs[].failed", "`health.expressions[].failed`"),
    carried("healthCheckExprs[].inProgress", "`health.expressions[].inProgress`"),
    idle("interval", EVENTS),
    lost("maxHistory", "nothing is recorded, unless `release.history.max` sets the number of revisions"),
    idle("persistentClient", "one client serves all components of a target"),
];

/// `source.toolkit.fluxcd.io` HelmRepository.
pub(super) const HELM_REPOSITORY: &[Field] = &[
    carried("url", "`source.chart.url`"),
    carried("type", "`oci` puts the chart's name at the end of the address"),
    carried(
        "secretRef",
        "`source.pullSecretRef`; a Secret of another type must be recreated, which is reported",
    ),
    lost("certSecretRef", CA),
    lost("passCredentials", "name the other hosts in `--oci-allowed-hosts`"),
    lost("insecure", PLAIN),
    lost("provider", CLOUD),
    idle("interval", EVENTS),
    idle("timeout", "the operator has its own deadlines"),
    carried("suspend", HELD),
    idle("accessFrom", "Flux does not act on it either"),
];

/// `source.toolkit.fluxcd.io` OCIRepository.
pub(super) const OCI_REPOSITORY: &[Field] = &[
    carried("url", "`source.chart.url`"),
    carried("ref.digest", "`source.chart.digest`"),
    carried(
        "ref.tag",
        "`source.chart.version`, with the installed digest: a tag that is no longer followed is reported",
    ),
    carried("ref.semver", "`source.chart.version`, unless there is a digest"),
    changes("ref.semverFilter", "tags cannot be filtered: narrow `source.chart.version`"),
    idle("layerSelector", "the layer of the chart is used"),
    carried("secretRef", "`source.pullSecretRef`"),
    lost("serviceAccountName", "set `source.pullSecretRef` to its pull secret"),
    lost("certSecretRef", CA),
    lost("proxySecretRef", "one proxy serves all: give it to the operator, `--oci-proxy`"),
    carried("verify", VERIFY),
    lost("insecure", PLAIN),
    lost("provider", CLOUD),
    carried("interval", CHECK),
    idle("timeout", "the operator has its own deadlines"),
    idle("ignore", "it does not matter for charts"),
    carried("suspend", HELD),
];

/// `source.toolkit.fluxcd.io` HelmChart.
pub(super) const HELM_CHART: &[Field] = &[
    carried("chart", "`source.chart`"),
    carried("version", VERSION),
    carried("sourceRef", "`source.chart.url`"),
    changes("valuesFiles", CHART_VALUES),
    changes("valuesFile", CHART_VALUES),
    idle("ignoreMissingValuesFiles", "not needed without the files"),
    carried("verify", VERIFY),
    carried("interval", CHECK),
    idle("reconcileStrategy", FIXED),
    carried("suspend", HELD),
    idle("accessFrom", "Flux does not act on it either"),
];

/// Returns the findings of an object's `spec`. `whose` precedes each path.
pub(super) fn walk(fields: &[Field], spec: &Value, whose: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    visit(fields, spec, "", "", whose, &mut findings);
    findings
}

/// Visits a value. `path` is that of the table, `place` has list indexes.
fn visit(fields: &[Field], value: &Value, path: &str, place: &str, whose: &str, findings: &mut Vec<Finding>) {
    if says_nothing(value) {
        return;
    }
    let mut found =
        |severity, says: &str| findings.push(Finding::new(format!("{whose}{place}"), severity, says));
    if let Some(field) = fields.iter().find(|field| field.path == path) {
        match field.conversion {
            FieldConversion::Converted => {}
            FieldConversion::NotNeeded => found(Severity::NotNeeded, field.says),
            FieldConversion::NotConverted if is_default(path, value) => {}
            FieldConversion::NotConverted => found(Severity::NotConverted, field.says),
            FieldConversion::Suspends => found(Severity::Suspended, field.says),
            FieldConversion::Refused => found(Severity::Refused, field.says),
        }
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let is_on_the_way = |path: &str| {
        let before = [format!("{path}."), format!("{path}[]")];
        path.is_empty() || fields.iter().any(|field| before.iter().any(|one| field.path.starts_with(one)))
    };
    match value {
        Value::Object(map) if is_on_the_way(path) => {
            for (key, value) in map {
                let dot = if place.is_empty() { "" } else { "." };
                visit(fields, value, &below(key), &format!("{place}{dot}{key}"), whose, findings);
            }
        }
        Value::Array(list) if is_on_the_way(path) => {
            for (position, value) in list.iter().enumerate() {
                visit(fields, value, &format!("{path}[]"), &format!("{place}[{position}]"), whose, findings);
            }
        }
        _ => found(Severity::Suspended, "is unknown: check its effect"),
    }
}

/// Reports whether a value is false, zero or empty, which Flux treats as absent.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

/// Reports whether the value is a default that Flux's CRDs set.
fn is_default(path: &str, value: &Value) -> bool {
    [("provider", "generic"), ("uninstall.deletionPropagation", "background")]
        .iter()
        .any(|(of, default)| *of == path && value == default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unconverted_fields_are_reported_with_their_path() {
        let spec = json!({
            "interval": "5m",
            "test": {"enable": true},
            "rollback": {"force": false},
            "chart": {"spec": {"chart": "a", "valuesFiles": ["b.yaml"]}},
            "postRenderers": [{"kustomize": {"patches": [], "images": [{"name": "x"}]}}],
            "uninstall": {"deletionPropagation": "background"},
        });
        let found: Vec<(String, Severity)> =
            walk(RELEASE, &spec, "spec.").into_iter().map(|one| (one.path, one.severity)).collect();
        let expected = [
            ("spec.chart.spec.valuesFiles", Severity::Suspended),
            ("spec.interval", Severity::NotNeeded),
            ("spec.postRenderers[0].kustomize.images", Severity::Suspended),
            ("spec.rollback", Severity::NotNeeded),
            ("spec.test", Severity::NotConverted),
        ];
        assert_eq!(found, expected.map(|(path, severity)| (path.to_owned(), severity)));
    }

    #[test]
    fn unknown_fields_are_reported_at_any_depth() {
        let spec = json!({
            "future": {"a": 1},
            "chart": {"spec": {"chart": "a", "other": "b"}},
            "valuesFrom": [{"kind": "Secret", "name": "a", "more": true}],
        });
        let found = walk(RELEASE, &spec, "spec.");
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["spec.chart.spec.other", "spec.future", "spec.valuesFrom[0].more"]);
        assert!(found.iter().all(|one| one.severity == Severity::Suspended));
    }

    #[test]
    fn no_field_stands_twice_or_below_another() {
        for table in [RELEASE, HELM_REPOSITORY, OCI_REPOSITORY, HELM_CHART] {
            for (position, field) in table.iter().enumerate() {
                for other in &table[position + 1..] {
                    assert_ne!(field.path, other.path);
                    let below =
                        |a: &str, b: &str| a.starts_with(&format!("{b}.")) || a.starts_with(&format!("{b}["));
                    assert!(
                        !below(field.path, other.path) && !below(other.path, field.path),
                        "{}",
                        field.path
                    );
                }
            }
        }
    }

    /// Compares the tables with the documentation line by line.
    #[test]
    fn the_documentation_shows_the_conversion_of_each_field() {
        let page = include_str!("../../../../../../docs/operator/migrating-from-flux.md");
        for (title, table) in [
            ("HelmRelease", RELEASE),
            ("HelmRepository", HELM_REPOSITORY),
            ("OCIRepository", OCI_REPOSITORY),
            ("HelmChart", HELM_CHART),
        ] {
            let lines: String = table.iter().map(line).collect();
            let text = format!("### {title}\n| Field of `spec` | Becomes | |\n|---|---|---|\n{lines}\n");
            assert!(page.contains(&text), "docs/operator/migrating-from-flux.md should have:\n{text}");
        }
    }

    fn line(field: &Field) -> String {
        let becomes = match field.conversion {
            FieldConversion::Converted => "carried over",
            FieldConversion::NotNeeded => "not needed",
            FieldConversion::NotConverted => "not carried over",
            FieldConversion::Suspends => "not carried over, suspended",
            FieldConversion::Refused => "refused",
        };
        format!("| `{}` | {becomes} | {} |\n", field.path, field.says)
    }
}
