//! Inputs that determine a component's objects.

use kyma_api::{HelmComponentSpec, InstalledValues, Reason, ReleaseRevision, ResolvedVersion, Source};
use kyma_controller::Failure;
use kyma_helm::values::{self, MAX_VALUES_BYTES, MergedValues};
use kyma_object_set::IgnoredFields;
use serde_json::{Map, Value, json};

use super::digest::digest;
use super::loaded::LoadedContent;
use crate::changes::{self, Changes};
use crate::hub_secrets::Additions;
use crate::objects::Marks;
use crate::ranges;
use crate::release::Release;
use crate::values::from::FromLayer;

/// All inputs that determine a component's objects, except the content itself and the target's kinds.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    /// The source, with the version that a range resolved to.
    pub source: Source,
    /// Name and namespace of the release.
    pub release: Release,
    /// Marks on every object.
    pub marks: Marks,
    /// The merged values.
    pub(super) merged: MergedValues,
    /// Optional entries of `valuesFrom` whose values are merged.
    pub values_from: Vec<InstalledValues>,
    /// Changes of the objects by the spec.
    pub(super) changes: Changes,
    /// Fields that other managers may change.
    pub ignored_fields: IgnoredFields,
    /// Additions to the objects by the operator.
    pub additions: Additions,
    /// Digest of all inputs.
    pub digest: String,
    /// Digest over the requested inputs: all except the target's version.
    pub requested_digest: String,
    /// Digest of the values.
    pub values_digest: String,
    /// The installed release, from which the next revision follows.
    pub installed: InstalledRelease,
}

/// The last applied release, from the status.
#[derive(Debug, Clone, Default)]
pub(crate) struct InstalledRelease {
    /// Revision; absent if no chart has read one yet.
    pub revision: Option<ReleaseRevision>,
    /// Digest of the artifact.
    pub source: Option<String>,
    /// Digest of the values.
    pub values: Option<String>,
}

impl Inputs {
    /// Collects the inputs from the spec, the values of its `valuesFrom` and the resolved version of its chart, for a
    /// target of this Kubernetes version.
    pub(crate) fn of(
        spec: &HelmComponentSpec,
        resolved: Option<&ResolvedVersion>,
        from: &FromLayer,
        release: Release,
        marks: Marks,
        kube_version: &str,
        additions: Additions,
    ) -> Result<Self, Failure> {
        let (user, overrides) = (spec.user_values.as_ref(), spec.overrides.as_ref());
        let merged = values::merge(spec.values.as_ref(), &from.values, user, overrides);
        let values = serde_json::to_vec(&merged.values).unwrap_or_default();
        if values.len() > MAX_VALUES_BYTES {
            return Err(Failure::new(
                Reason::ValuesInvalid,
                format!("the merged values are larger than {MAX_VALUES_BYTES} bytes"),
            ));
        }
        let values_digest = digest(&[&values]);
        let source = ranges::pinned(&spec.source, resolved).into_owned();
        let mut whole = json!({
            "source": source,
            "values": values_digest,
            "release": [release.name, release.namespace],
            "marks": [marks.owner, marks.kyma, marks.version],
            "crds": spec.crds,
            "kube": kube_version,
        });
        if spec.source.ocm.is_some() {
            // Images are localised: objects of versions that did not do that are applied again.
            whole["images"] = "localised".into();
        }
        changes::tell(spec, &mut whole);
        let ignored = spec.drift.as_ref().and_then(|drift| drift.ignore.as_deref()).unwrap_or_default();
        if !ignored.is_empty() {
            whole["ignored"] = json!(ignored);
        }
        if let Some(name) = &additions.pull_secret {
            whole["pullSecret"] = name.as_str().into();
        }
        if let Some(injectable) = &additions.injectable {
            whole["injectable"] = json!(injectable);
        }
        // Other keys may not have signed this content.
        if !additions.verified_by.is_empty() {
            whole["verifiedBy"] = json!(additions.verified_by);
        }
        let changes = Changes::of(spec)?;
        let ignored_fields = IgnoredFields::parse(ignored)
            .map_err(|error| Failure::new(Reason::SpecInvalid, format!("spec.{error}")))?;
        let text = whole.to_string();
        // These inputs change without a change of the component.
        for unasked in ["kube", "pullSecret", "injectable", "verifiedBy"] {
            whole[unasked] = Value::Null;
        }
        let (digest, requested_digest) =
            (digest(&[text.as_bytes()]), digest(&[whole.to_string().as_bytes()]));
        let installed = InstalledRelease::default();
        Ok(Self {
            source,
            release,
            marks,
            merged,
            values_from: from.optional.clone(),
            changes,
            ignored_fields,
            additions,
            digest,
            requested_digest,
            values_digest,
            installed,
        })
    }

    /// Reports whether a release of this chart with these values equals the requested one.
    pub(crate) fn is_of(
        &self,
        chart: &(String, String),
        values: &Map<String, Value>,
        loaded: &LoadedContent,
    ) -> bool {
        loaded.chart.as_ref() == Some(chart) && self.merged.values == *values
    }

    /// Returns the digest that identifies the release of this artifact.
    pub(crate) fn release_digest(&self, source: &str) -> String {
        let Release { name, namespace, .. } = &self.release;
        digest(&[json!([source, self.values_digest, name, namespace]).to_string().as_bytes()])
    }

    /// Returns these inputs with the installed release.
    pub(crate) fn after(&self, installed: InstalledRelease) -> Self {
        Self { installed, ..self.clone() }
    }

    /// Returns the revision of the release from an artifact: that of the last applied release if it is the same, and
    /// the next one otherwise.
    pub(crate) fn revision_of(&self, source: &str) -> ReleaseRevision {
        let release = self.release_digest(source);
        let InstalledRelease { revision, source: installed, values } = &self.installed;
        let is_same = installed.as_deref() == Some(source) && values.as_ref() == Some(&self.values_digest);
        let number = match revision {
            Some(last) if last.release == release => last.number,
            Some(last) => last.number.saturating_add(1),
            None if installed.is_none() || is_same => 1,
            None => 2,
        };
        ReleaseRevision { number, release }
    }

    /// Returns the chart's version, if the source names one.
    pub(crate) fn chart_version(&self) -> Option<&str> {
        self.source.chart.as_ref()?.version.as_deref()
    }

    /// Reports whether objects carry the version of the module.
    pub(crate) fn are_versioned(&self) -> bool {
        self.marks.kyma.is_some() && self.marks.version.is_some()
    }

    /// Returns the merged values.
    pub(crate) fn values(&self) -> &Map<String, Value> {
        &self.merged.values
    }

    /// Reports whether a Kyma owns the component.
    pub(crate) fn are_a_kymas(&self) -> bool {
        self.marks.kyma.is_some()
    }

    /// Returns the key paths at which an override replaced the user's value.
    pub(crate) fn overridden(&self) -> &[String] {
        &self.merged.replaced
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kyma_controller::Revision;

    use super::*;

    fn digest_of(source: &Value, additions: Additions) -> String {
        let spec: HelmComponentSpec = serde_json::from_value(json!({"source": source})).unwrap();
        let release = crate::release::of("c", &spec, None, "here");
        let marks = Marks { owner: "abc".to_owned(), kyma: None, version: None };
        Inputs::of(&spec, None, &FromLayer::default(), release, marks, "1.36", additions).unwrap().digest
    }

    #[test]
    fn the_digest_of_the_inputs_covers_additions_to_objects() {
        let source = json!({"manifests": {"url": "https://example.org/a.yaml"}});
        let injectable = |version: &str| {
            let revision = Revision { uid: "u".to_owned(), resource_version: version.to_owned() };
            Some(BTreeMap::from([("s".to_owned(), revision)]))
        };
        let keys = |version: Option<&str>| {
            let revision =
                |version: &str| Revision { uid: "u".to_owned(), resource_version: version.to_owned() };
            BTreeMap::from([("keys".to_owned(), version.map(revision))])
        };
        let all = [
            Additions::default(),
            Additions { pull_secret: Some("pull".to_owned()), ..Additions::default() },
            Additions { pull_secret: Some("other".to_owned()), ..Additions::default() },
            Additions { injectable: Some(BTreeMap::new()), ..Additions::default() },
            Additions { injectable: injectable("1"), ..Additions::default() },
            Additions { injectable: injectable("2"), ..Additions::default() },
            Additions { verified_by: keys(None), ..Additions::default() },
            Additions { verified_by: keys(Some("1")), ..Additions::default() },
            Additions { verified_by: keys(Some("2")), ..Additions::default() },
        ];
        let digests: std::collections::BTreeSet<String> =
            all.iter().map(|additions| digest_of(&source, additions.clone())).collect();
        assert_eq!(digests.len(), all.len());
    }
}
