//! Reads sources and fetches their content.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use kyma_api::{ErrorClass, Reason, Source};
use kyma_artifacts::{
    ArtifactError, Artifacts, BoundedCache, ChartSource, Credentials, Digest, Image, ManifestsSource,
    OciReference, RegistryBase, archive::run_unpacking,
};
use kyma_controller::Failure;
use kyma_helm::chart::Chart;
use url::Url;

/// Maximum number of opened charts.
const MAX_OPENED_CHARTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Maximum size of their archives, in bytes.
const MAX_OPENED_CHART_BYTES: usize = 16 << 20;

/// Charts by the digest of their archive, so that components of the same chart unpack, read and pack it once. The
/// caller checks before whether the component may read the chart.
pub(crate) type OpenedCharts = BoundedCache<Digest, Arc<Chart>>;

/// A source that was read and is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentLocation {
    /// An OCM component version.
    Ocm {
        /// Repository of the component versions.
        base: RegistryBase,
        /// Name of the component.
        component: String,
        /// Version of the component.
        version: String,
        /// Digest that the component version must have.
        digest: Option<Digest>,
    },
    /// A Helm chart.
    Chart(ChartSource),
    /// Plain manifests.
    Manifests(ManifestsSource),
}

/// Fetched content.
#[derive(Debug, Clone)]
pub enum Content {
    /// A chart, to be rendered.
    Chart {
        /// Digest of the artifact that the source names.
        digest: Digest,
        /// The chart.
        chart: Arc<Chart>,
    },
    /// Plain objects.
    Manifests {
        /// Digest of the artifact that the source names.
        digest: Digest,
        /// YAML documents.
        yaml: Bytes,
        /// Images of the OCM component, if the source is one.
        images: Vec<Image>,
    },
}

impl Content {
    /// Returns the digest of the artifact that the source names.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Chart { digest, .. } | Self::Manifests { digest, .. } => *digest,
        }
    }
}

/// Reads a source whose range was replaced by the resolved version. `default_base` is the repository of OCM
/// components whose source names none.
pub fn place(source: &Source, default_base: Option<&RegistryBase>) -> Result<ContentLocation, Failure> {
    match source {
        Source { ocm: Some(ocm), chart: None, manifests: None, .. } => {
            let base = match &ocm.repository {
                Some(repository) => repository.parse().map_err(|error| failure(&error))?,
                None => default_base.cloned().ok_or_else(|| {
                    invalid_spec("spec.source.ocm names no repository and the operator has no default (--oci-registry)")
                })?,
            };
            Ok(ContentLocation::Ocm {
                base,
                component: ocm.component.clone(),
                version: ocm.version.clone(),
                digest: digest(ocm.digest.as_deref())?,
            })
        }
        Source { ocm: None, chart: Some(chart), manifests: None, .. } => {
            chart_place(chart).map(ContentLocation::Chart)
        }
        Source { ocm: None, chart: None, manifests: Some(manifests), .. } => {
            let digest = digest(manifests.digest.as_deref())?;
            if manifests.url.starts_with("oci://") {
                let reference = reference(&manifests.url, manifests.version.as_deref(), digest)?;
                return Ok(ContentLocation::Manifests(ManifestsSource::Oci(reference)));
            }
            Ok(ContentLocation::Manifests(ManifestsSource::Http { url: address(&manifests.url)?, digest }))
        }
        _ => Err(invalid_spec("spec.source needs exactly one of `ocm`, `chart` and `manifests`")),
    }
}

fn chart_place(chart: &kyma_api::ChartSource) -> Result<ChartSource, Failure> {
    let digest = digest(chart.digest.as_deref())?;
    if chart.url.starts_with("oci://") {
        // A tag cannot hold `+`; Helm writes `_` instead.
        let tag = chart.version.as_deref().map(|version| version.replace('+', "_"));
        return reference(&chart.url, tag.as_deref(), digest).map(ChartSource::Oci);
    }
    let url = address(&chart.url)?;
    match (&chart.name, &chart.version) {
        (Some(name), Some(version)) => {
            Ok(ChartSource::Repository { url, name: name.clone(), version: version.clone(), digest })
        }
        _ => Err(invalid_spec("spec.source.chart of an HTTP repository needs `name` and `version`")),
    }
}

fn reference(url: &str, tag: Option<&str>, digest: Option<Digest>) -> Result<OciReference, Failure> {
    let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
    let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
    format!("{}{tag}{digest}", url.trim_end_matches('/')).parse().map_err(|error| failure(&error))
}

pub(crate) fn address(url: &str) -> Result<Url, Failure> {
    Url::parse(url).map_err(|error| invalid_spec(format!("spec.source: {error}")))
}

/// Returns the failure for a source that cannot succeed before the spec changes.
pub(crate) fn invalid_spec(message: impl Into<String>) -> Failure {
    Failure { class: ErrorClass::Invalid, ..Failure::new(Reason::SourceInvalid, message) }
}

fn digest(text: Option<&str>) -> Result<Option<Digest>, Failure> {
    text.map(str::parse).transpose().map_err(|error| failure(&error))
}

/// Returns the failure for content that is not a list of Kubernetes objects. Unless the spec pins it by digest, it
/// may be a page of a proxy, or be corrected in place, so it is dropped from the cache and requested again.
pub(crate) fn reject(
    artifacts: &Artifacts,
    place: &ContentLocation,
    digest: Digest,
    credentials: &Credentials,
    failure: Failure,
) -> Failure {
    match place {
        ContentLocation::Ocm { base, component, version, digest: None } => {
            artifacts.reject_component(base, component, version, credentials);
        }
        ContentLocation::Manifests(source) if !place.is_pinned() => {
            artifacts.reject_manifests(source, digest, credentials);
        }
        _ => return failure,
    }
    Failure { class: ErrorClass::Transient, ..failure }
}

impl ContentLocation {
    /// Returns whether the spec pins the content by digest.
    fn is_pinned(&self) -> bool {
        match self {
            Self::Ocm { digest, .. } => digest.is_some(),
            Self::Manifests(ManifestsSource::Oci(reference)) | Self::Chart(ChartSource::Oci(reference)) => {
                reference.digest().is_some()
            }
            Self::Manifests(ManifestsSource::Http { digest, .. })
            | Self::Chart(ChartSource::Repository { digest, .. } | ChartSource::Archive { digest, .. }) => {
                digest.is_some()
            }
        }
    }

    /// Returns the same source limited to this content, if the source can be addressed by digest.
    fn pinned(&self, content: Digest) -> Self {
        match self.clone() {
            Self::Manifests(ManifestsSource::Oci(reference)) if reference.digest().is_none() => {
                Self::Manifests(ManifestsSource::Oci(reference.pinned(content)))
            }
            Self::Manifests(ManifestsSource::Http { url, digest: None }) => {
                Self::Manifests(ManifestsSource::Http { url, digest: Some(content) })
            }
            Self::Chart(ChartSource::Repository { url, name, version, digest: None }) => {
                Self::Chart(ChartSource::Repository { url, name, version, digest: Some(content) })
            }
            other => other,
        }
    }
}

/// Returns an empty cache of charts: at most 64, with 16 MiB of archives.
pub(crate) fn opened_charts() -> OpenedCharts {
    BoundedCache::new(MAX_OPENED_CHARTS, MAX_OPENED_CHART_BYTES, |chart: &Arc<Chart>| chart.archive().len())
}

/// Fetches the content of `place`, from the cache if these credentials may read it. With `installed`, other content
/// is refused: a change of content under an unchanged name must not change the installed release.
pub(crate) async fn fetch(
    artifacts: &Artifacts,
    opened: &OpenedCharts,
    place: &ContentLocation,
    installed: Option<Digest>,
    credentials: &Credentials,
) -> Result<Content, Failure> {
    let Some(installed) = installed else { return pull(artifacts, opened, place, credentials).await };
    let content = pull(artifacts, opened, &place.pinned(installed), credentials).await?;
    if content.digest() == installed {
        return Ok(content);
    }
    let found = content.digest();
    let message = format!("the source now has {found}, but {installed} was installed from it");
    Err(Failure::new(Reason::DigestMismatch, message))
}

async fn pull(
    artifacts: &Artifacts,
    opened: &OpenedCharts,
    place: &ContentLocation,
    credentials: &Credentials,
) -> Result<Content, Failure> {
    match place {
        ContentLocation::Ocm { base, component, version, digest } => {
            let content = artifacts
                .component(base, component, version, credentials)
                .await
                .map_err(|error| failure(&error))?;
            if let Some(expected) = digest.filter(|digest| *digest != content.digest) {
                return Err(Failure::new(
                    Reason::DigestMismatch,
                    format!(
                        "{component}:{version} has digest {}, but {expected} was requested",
                        content.digest
                    ),
                ));
            }
            Ok(Content::Manifests { digest: content.digest, yaml: content.manifest, images: content.images })
        }
        ContentLocation::Chart(source) => {
            let archive = artifacts.chart(source, credentials).await.map_err(|error| failure(&error))?;
            let digest = archive.digest;
            if let Some(chart) = opened.get(&digest) {
                return Ok(Content::Chart { digest, chart });
            }
            let chart = run_unpacking(archive.content().clone(), |bytes| Chart::open(bytes))
                .await
                .map_err(|error| Failure::new(Reason::Internal, error.to_string()))?
                .map_err(|fault| Failure::new(Reason::SourceInvalid, fault.to_string()))?;
            let chart = Arc::new(chart);
            opened.put(digest, Arc::clone(&chart));
            Ok(Content::Chart { digest, chart })
        }
        ContentLocation::Manifests(source) => {
            let manifests =
                artifacts.manifests(source, credentials).await.map_err(|error| failure(&error))?;
            Ok(Content::Manifests { digest: manifests.digest, yaml: manifests.yaml, images: vec![] })
        }
    }
}

/// Converts the error of an artifact to a failure for conditions.
pub fn failure(error: &ArtifactError) -> Failure {
    let failure = Failure { class: error.class(), ..Failure::new(error.reason(), error.to_string()) };
    match error.retry_after() {
        Some(delay) => failure.retry_after(delay),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn placed(source: &Value) -> Result<ContentLocation, Failure> {
        let source: Source = serde_json::from_value(source.clone()).unwrap();
        place(&source, Some(&"registry.example.org/modules".parse().unwrap()))
    }

    #[test]
    fn ocm_component_without_repository_uses_operator_default() {
        let Ok(ContentLocation::Ocm { base, component, .. }) =
            placed(&json!({"ocm": {"component": "example.org/module/keda", "version": "1.0.0"}}))
        else {
            panic!("an OCM place")
        };
        assert_eq!(base.to_string(), "registry.example.org/modules");
        assert_eq!(component, "example.org/module/keda");
    }

    #[test]
    fn chart_tag_in_a_registry_has_underscore_for_plus() {
        let Ok(ContentLocation::Chart(ChartSource::Oci(reference))) = placed(
            &json!({"chart": {"url": "oci://registry.example.org/charts/demo", "version": "1.0.0+b1"}}),
        ) else {
            panic!("an OCI chart")
        };
        assert_eq!(reference.tag(), Some("1.0.0_b1"));
    }

    #[test]
    fn a_chart_in_a_repository_needs_name_and_version() {
        let without = placed(&json!({"chart": {"url": "https://charts.example.org", "version": "1.0.0"}}));
        assert_eq!(without.unwrap_err().reason, Reason::SourceInvalid);
        let with =
            placed(&json!({"chart": {"url": "https://charts.example.org", "name": "a", "version": "1.0.0"}}));
        assert!(matches!(with, Ok(ContentLocation::Chart(ChartSource::Repository { .. }))));
    }

    #[test]
    fn installed_content_is_fetched_by_digest_unless_spec_has_one() {
        let installed = Digest::of(b"installed");
        let other = Digest::of(b"other").to_string();
        let digest = |source: Value| match placed(&source).unwrap().pinned(installed) {
            ContentLocation::Manifests(ManifestsSource::Http { digest, .. })
            | ContentLocation::Chart(ChartSource::Repository { digest, .. }) => digest,
            ContentLocation::Manifests(ManifestsSource::Oci(reference)) => reference.digest(),
            other => panic!("{other:?}"),
        };
        let http = json!({"manifests": {"url": "https://example.org/a.yaml"}});
        let oci = json!({"manifests": {"url": "oci://registry.example.org/a", "version": "1"}});
        let chart = json!({"chart": {"url": "https://charts.example.org", "name": "a", "version": "1.0.0"}});
        for source in [http, oci, chart] {
            assert_eq!(digest(source.clone()), Some(installed), "{source}");
        }
        let pinned = json!({"manifests": {"url": "https://example.org/a.yaml", "digest": other}});
        assert_eq!(digest(pinned).map(|digest| digest.to_string()), Some(other));
    }

    #[test]
    fn exactly_one_source_is_needed() {
        assert_eq!(placed(&json!({})).unwrap_err().reason, Reason::SourceInvalid);
    }
}
