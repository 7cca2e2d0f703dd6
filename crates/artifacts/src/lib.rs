//! Reads content of modules from its sources: OCI registries, Helm repositories, HTTP servers.
//!
//! [`Artifacts`] pulls OCM component versions, charts and manifests, and verifies them by digest on arrival and on
//! every read from its cache. Content is returned only for credentials that the source itself has permitted. If
//! signatures are required ([`Trust`]), unsigned content is not read. It also pushes component versions in the layout
//! of `modulectl` and the OCM tools.

mod artifacts;
mod bounds;
mod config;
mod content;
mod error;
mod fetch;
#[cfg(fuzzing)]
pub mod fuzzing;
mod media_types;
mod push;
mod refusal;
mod selector;
mod source;
mod storage;
mod trust;

pub use artifacts::Artifacts;
pub use bounds::bounded_cache::BoundedCache;
pub use bounds::single_flight::SingleFlight;
pub use config::{Config, Deadlines, Limits, WELL_KNOWN_HOSTS};
pub use content::archive;
pub use content::chart::{
    ChartArchive, ChartMetadata, ChartSource, ChartVersion, ChartVersions, read_chart_yaml,
};
pub use content::images::{LocalisedImages, image_tag};
pub use content::manifests::{Manifests, ManifestsSource};
pub use content::ocm::{Image, ModuleContent};
pub use error::ArtifactError;
pub use push::{ComponentVersion, Progress, PushedArtifact};
pub use refusal::Refusal;
pub use selector::reference::{OciReference, RegistryBase, Repository};
pub use selector::version_range::{VersionRange, lenient_version};
pub use source::credentials::Credentials;
pub use storage::digest::Digest;
pub use trust::{Signer, Trust, TrustRoot};
