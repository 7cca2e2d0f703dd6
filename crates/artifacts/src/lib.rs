//! Reads content of modules from its sources: OCI registries, Helm repositories, HTTP servers.
//!
//! [`Artifacts`] pulls OCM component versions, charts and manifests, and verifies them by digest on arrival and on
//! every read from its cache. Content is returned only for credentials that the source itself has permitted. If
//! signatures are required ([`Trust`]), unsigned content is not read. It also pushes component versions in the layout
//! of `modulectl` and the OCM tools.

pub mod archive;
mod artifacts;
mod bounded_cache;
mod cache;
mod chart;
mod config;
mod credentials;
mod digest;
mod error;
mod fetch;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod images;
mod manifests;
mod media_types;
mod ocm;
mod permits;
mod proofs;
mod push;
mod reference;
mod refusal;
mod registry;
mod selection;
mod single_flight;
mod trust;
mod verification_cache;
mod version_range;

pub use artifacts::Artifacts;
pub use bounded_cache::BoundedCache;
pub use chart::{ChartArchive, ChartMetadata, ChartSource, ChartVersion, ChartVersions, read_chart_yaml};
pub use config::{Config, Deadlines, Limits, WELL_KNOWN_HOSTS};
pub use credentials::Credentials;
pub use digest::Digest;
pub use error::ArtifactError;
pub use images::{LocalisedImages, image_tag};
pub use manifests::{Manifests, ManifestsSource};
pub use ocm::{Image, ModuleContent};
pub use push::{ComponentVersion, Progress, PushedArtifact};
pub use reference::{OciReference, RegistryBase, Repository};
pub use refusal::Refusal;
pub use single_flight::SingleFlight;
pub use trust::{Signer, Trust, TrustRoot};
pub use version_range::{VersionRange, lenient_version};
