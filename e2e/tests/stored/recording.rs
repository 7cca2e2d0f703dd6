//! Recordings: files with the objects that hub and target stored when an operator stopped.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use testbed::EtcdDump;

use crate::charts::Archive;
use crate::clusters::{ACCESS, HUB_NAMESPACE};
use crate::states::STATES;

/// End of the names of recordings, whose beginning is a version of helm-component.
const EXTENSION: &str = ".json.gz";

/// Beginnings of the hub's keys that are recorded.
const HUB_KEYS: [&str; 12] = [
    "/registry/namespaces/kcp-system",
    // Its uid is the identity of the hub.
    "/registry/namespaces/kube-system",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/",
    "/registry/component.kyma-project.io/",
    "/registry/secrets/kcp-system/",
    "/registry/configmaps/kcp-system/",
    "/registry/serviceaccounts/kcp-system/",
    "/registry/roles/kcp-system/",
    "/registry/rolebindings/kcp-system/",
    "/registry/clusterroles/helm-component",
    "/registry/clusterrolebindings/helm-component",
    "/registry/validatingadmissionpol",
];

/// Beginnings of the target's keys that are recorded, besides those of the components' namespaces.
const TARGET_KEYS: [&str; 4] = [
    // The uid of kube-system is the identity of the target.
    "/registry/namespaces/",
    "/registry/serviceaccounts/kube-system/modules",
    "/registry/clusterroles/helm-component",
    "/registry/clusterrolebindings/modules",
];

/// Kinds of objects that are recorded in the components' namespaces, as etcd's keys name them.
const TARGET_KINDS: [&str; 7] =
    ["configmaps", "secrets", "serviceaccounts", "deployments", "replicasets", "jobs", "pods"];

/// ConfigMap of each namespace with the certificate authority of the cluster, which another cluster does not have.
const ROOT_CA: &str = "/kube-root-ca.crt";

/// Objects that hub and target stored when the operator stopped, and the charts of the components.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Recording {
    /// Time of the stop.
    pub(crate) recorded_at: Timestamp,
    pub(crate) archives: Vec<Archive>,
    pub(crate) hub: EtcdDump,
    pub(crate) target: EtcdDump,
}

impl Recording {
    /// Reads a recording.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        serde_json::from_reader(GzDecoder::new(file)).with_context(|| path.display().to_string())
    }

    /// Writes the recording.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(directory())?;
        // Renamed at the end, so that no incomplete file counts as the recording of the version.
        let incomplete = path.with_extension("incomplete");
        let file = File::create(&incomplete).with_context(|| incomplete.display().to_string())?;
        let mut archive = GzEncoder::new(file, Compression::best());
        serde_json::to_writer_pretty(&mut archive, self)?;
        archive.finish()?;
        std::fs::rename(&incomplete, path)?;
        Ok(())
    }
}

/// Returns the path of the recording of the current version.
pub(crate) fn current() -> PathBuf {
    directory().join(format!("{}{EXTENSION}", env!("CARGO_PKG_VERSION")))
}

/// Returns the paths of all recordings.
pub(crate) fn all() -> Result<Vec<PathBuf>> {
    let directory = directory();
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| directory.display().to_string())?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.to_string_lossy().ends_with(EXTENSION));
    paths.sort();
    Ok(paths)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stored")
}

/// Reports whether a key of the hub is recorded. The Secret with access to the target is not: its credentials and the
/// target's address are valid in one run only.
pub(crate) fn keeps_on_hub(key: &str) -> bool {
    let is_access = key == format!("/registry/secrets/{HUB_NAMESPACE}/{ACCESS}");
    !is_access && !key.ends_with(ROOT_CA) && HUB_KEYS.iter().any(|begin| key.starts_with(begin))
}

/// Reports whether a key of the target is recorded.
pub(crate) fn keeps_on_target(key: &str) -> bool {
    let is_of_component = || {
        let mut parts = key.trim_start_matches("/registry/").split('/');
        let (kind, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        TARGET_KINDS.contains(&kind) && STATES.iter().any(|state| state.name == namespace)
    };
    !key.ends_with(ROOT_CA) && (TARGET_KEYS.iter().any(|begin| key.starts_with(begin)) || is_of_component())
}

#[test]
fn recording_has_no_access_and_no_objects_of_the_clusters() {
    assert!(keeps_on_hub("/registry/secrets/kcp-system/helm-component-kept-1"));
    assert!(!keeps_on_hub("/registry/secrets/kcp-system/access"));
    assert!(!keeps_on_hub("/registry/clusterroles/admin"));
    assert!(keeps_on_target("/registry/jobs/running-hook/migrate"));
    assert!(!keeps_on_target("/registry/configmaps/running-hook/kube-root-ca.crt"));
    assert!(!keeps_on_target("/registry/minions/node-0"));
}

#[test]
fn recorded_dumps_contain_no_kubeconfig() {
    use base64::Engine as _;

    // A length that is a multiple of three, so that the encoded text begins like that of every kubeconfig.
    let begin = "apiVersion: v1\nkind: Config";
    let encoded = base64::engine::general_purpose::STANDARD.encode(begin);
    for path in all().unwrap() {
        let recording = Recording::load(&path).unwrap();
        let text = serde_json::to_string(&(&recording.hub, &recording.target)).unwrap();
        assert!(!text.contains(&encoded), "{}", path.display());
    }
}
