//! Source of a module's content.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::fields::SecretKeyRef;
use crate::schema::patterns;

/// Source of the content: exactly one of ocm, chart, manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.ocm), has(self.chart), has(self.manifests)].exists_one(set, set)",
    "message": "exactly one of 'ocm', 'chart' or 'manifests' must be specified",
}]))]
pub struct Source {
    /// An OCM component version, as modulectl or kymactl package a module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocm: Option<OcmSource>,
    /// A Helm chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartSource>,
    /// Plain manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<ManifestSource>,
    /// Secret of type kubernetes.io/dockerconfigjson in the component's namespace, with credentials for the source.
    /// For a module of a Kyma it needs the label component.kyma-project.io/pull-secret, with the value true or the
    /// module's name. Absent: the operator's --oci-registry-cred-secret for a module of a Kyma, otherwise none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret_ref: Option<SecretRef>,
    /// Signatures that the content must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A version of an OCM component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OcmSource {
    /// Name of the component, for instance example.org/module/keda.
    #[schemars(regex(pattern = patterns::OCM_COMPONENT), length(max = 255))]
    pub component: String,
    /// Version of the component.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,
    /// Repository of the component: host with an optional path, for instance registry.example.org/modules. Absent:
    /// the operator's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub repository: Option<String>,
    /// Digest of the component version's OCI manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::DIGEST))]
    pub digest: Option<String>,
}

/// A Helm chart in an OCI registry or an HTTP repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.url.startsWith('oci://') != has(self.name)",
    "message": "'name' must be specified for an HTTP repository, and not for oci://, whose address ends in the chart",
}, {
    "rule": "has(self.version) || has(self.digest)",
    "message": "'version' or 'digest' must be specified",
}]))]
pub struct ChartSource {
    /// oci:// with registry, path and chart, or https:// with the address of a chart repository (the directory of
    /// its index.yaml). Plain http only for hosts that the operator allows.
    #[schemars(regex(pattern = "^(oci|https?)://[^/].*$"), length(max = 1024))]
    pub url: String,
    /// Name of the chart in an HTTP repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Version of the chart: an exact one (for oci:// the tag, with + written as _), or a range such as >=1.2 <2,
    /// 1.x, ~1.4, ^2 or 1.2 - 1.4, which includes prereleases only if a bound has one (>=1.2.0-0). The highest
    /// version in a range is looked up on first use, when this source changes, on a requested reconcile, and every
    /// checkEverySeconds; status.resolved has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version: Option<String>,
    /// Digest of the OCI manifest for oci://, of the archive otherwise. Not allowed with a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::DIGEST))]
    pub digest: Option<String>,
    /// Interval in seconds for looking up newer versions in a range, shortened at random by up to a tenth. Absent:
    /// only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub check_every_seconds: Option<i32>,
}

/// Plain manifests in an OCI artefact or at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!self.url.startsWith('oci://') || has(self.version) || has(self.digest)",
    "message": "'version' or 'digest' must be specified for oci://",
}]))]
pub struct ManifestSource {
    /// oci:// with registry and path of an artefact, or https:// with the address of a YAML file. Plain http only
    /// for hosts that the operator allows.
    #[schemars(regex(pattern = "^(oci|https?)://[^/].*$"), length(max = 1024))]
    pub url: String,
    /// Tag of the OCI artefact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
    /// Digest of the OCI manifest for oci://, of the file otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::DIGEST))]
    pub digest: Option<String>,
}

/// Signatures that the content must have: one by any of the keys, identities or OpenPGP keys. They are verified
/// before the content is read. Content without a valid signature is never applied; the installed content stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.keysSecretRef) || has(self.identities) || has(self.keyringSecretRef)",
    "message": "'keysSecretRef', 'identities' or 'keyringSecretRef' must be specified",
}]))]
pub struct Verify {
    /// Concatenated public keys in PEM: ECDSA on P-256 or P-384, RSA of 2048 bits or more, or Ed25519. For
    /// artefacts in OCI registries signed with cosign. Set key, for instance to cosign.pub. The Secret is in
    /// the component's namespace; for a module of a Kyma it needs the label
    /// modules.component.kyma-project.io/<module>=true or component.kyma-project.io/readable-by-all-modules=true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_secret_ref: Option<SecretKeyRef>,
    /// Identities of keyless signers, proved by a certificate and the entry in a transparency log. Needs the
    /// operator's --sigstore-trusted-root. For artefacts in OCI registries signed with cosign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub identities: Option<Vec<SignerIdentity>>,
    /// Concatenated OpenPGP public keys, binary or armoured, for charts signed by helm package --sign, in an HTTP
    /// repository or an OCI registry. Set key, for instance to pubring.gpg. The Secret is in the
    /// component's namespace; for a module of a Kyma it needs the label
    /// modules.component.kyma-project.io/<module>=true or component.kyma-project.io/readable-by-all-modules=true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring_secret_ref: Option<SecretKeyRef>,
}

/// Identity of a signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignerIdentity {
    /// Exact issuer of the identity, for instance https://token.actions.githubusercontent.com.
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: String,
    /// Exact identity: an e-mail address, or the address of the workload that signs.
    #[schemars(length(min = 1, max = 1024))]
    pub subject: String,
}
