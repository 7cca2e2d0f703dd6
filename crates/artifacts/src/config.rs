//! Settings for sources: allowed addresses, sizes and times.

use std::{path::PathBuf, time::Duration};

/// Settings of [`Artifacts`](crate::Artifacts).
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the content-addressed cache. Created if missing; each process that shares it counts its own
    /// bytes.
    pub cache_dir: PathBuf,
    /// Maximum size of the cache in bytes; the least recently used content is evicted first. Default 1 GiB.
    pub cache_bytes: u64,
    /// `host[:port]` that are called with plain HTTP. Default none. Meant for tests and for registries on a private
    /// network; credentials for these hosts are sent unencrypted.
    pub insecure_hosts: Vec<String>,
    /// Further `host[:port]` to which a source may refer, by redirect, token realm or repository index, besides
    /// itself, [`WELL_KNOWN_HOSTS`] and the hosts of a known public registry. A leading `*.` covers every subdomain.
    pub allowed_hosts: Vec<String>,
    /// `host[:port]` of sources that may be in a private network or on this machine. A leading `*.` covers every
    /// subdomain. [`Config::insecure_hosts`] may be there too. A link-local address or metadata service must be given
    /// as an address. Default none: a source has a public address.
    pub private_hosts: Vec<String>,
    /// PEM certificates that are trusted in addition to the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// File from which `ca_pem` was read. It is read again when it changes. Default none.
    pub ca_file: Option<PathBuf>,
    /// Proxy for every request, without credentials. Proxy variables of the environment are ignored. Default none.
    pub proxy: Option<url::Url>,
    /// `host[:port]` that are reached without the proxy. A leading `*.` covers every subdomain. Default none.
    pub proxy_except: Vec<String>,
    /// Sent with every request, e.g. `helm-component/0.1.0`.
    pub user_agent: String,
    /// Limits on sizes.
    pub limits: Limits,
    /// Limits on time.
    pub deadlines: Deadlines,
}

impl Config {
    /// Returns the defaults, with the cache in `cache_dir`.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            cache_bytes: 1 << 30,
            insecure_hosts: Vec::new(),
            allowed_hosts: Vec::new(),
            private_hosts: Vec::new(),
            ca_pem: None,
            ca_file: None,
            proxy: None,
            proxy_except: Vec::new(),
            user_agent: concat!("kyma-artifacts/", env!("CARGO_PKG_VERSION")).to_owned(),
            limits: Limits::default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// Hosts of public registries and code hosts to which these redirect or delegate tokens. They are part of no private
/// network, so a redirect to them cannot be used against one.
pub const WELL_KNOWN_HOSTS: &[&str] = &[
    "auth.docker.io",
    "registry-1.docker.io",
    "production.cloudflare.docker.com",
    "production.cloudfront.docker.com",
    "github.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
    "raw.githubusercontent.com",
    "pkg-containers.githubusercontent.com",
    "quay.io",
    "*.quay.io",
    "storage.googleapis.com",
];

/// Public registries and repositories, and the hosts to which they redirect for content or tokens. No other source may
/// redirect to these hosts: anyone can publish there.
pub(crate) const KNOWN_REGISTRIES: &[(&str, &[&str])] = &[
    ("registry-1.docker.io", &["*.r2.cloudflarestorage.com"]),
    ("public.ecr.aws", &["*.cloudfront.net"]),
    ("*.dkr.ecr.*.amazonaws.com", &["*.s3.*.amazonaws.com", "*.s3.dualstack.*.amazonaws.com"]),
    ("*.dkr.ecr.*.amazonaws.com.cn", &["*.s3.*.amazonaws.com.cn"]),
    (
        "registry.k8s.io",
        &["*.pkg.dev", "*.s3.*.amazonaws.com", "*.s3.dualstack.*.amazonaws.com", "*.cloudfront.net"],
    ),
    ("quay.io", &["*.s3.*.amazonaws.com", "*.cloudfront.net"]),
    ("mcr.microsoft.com", &["*.data.mcr.microsoft.com"]),
    ("*.azurecr.io", &["*.data.azurecr.io", "*.blob.core.windows.net"]),
    ("registry.gitlab.com", &["gitlab.com", "cdn.registry.gitlab-static.net"]),
    // Not a registry: the index of Bitnami's charts.
    ("charts.bitnami.com", &["repo.broadcom.com"]),
];

/// Registries of public charts, to which every `index.yaml` may refer.
pub(crate) const PUBLIC_REGISTRIES: &[&str] = &[
    "docker.io",
    "index.docker.io",
    "registry-1.docker.io",
    "ghcr.io",
    "quay.io",
    "public.ecr.aws",
    "registry.k8s.io",
];

/// Limits on the size of content, in bytes. Larger content is
/// [`ArtifactError::TooLarge`](crate::ArtifactError::TooLarge).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// An OCI manifest. Default 4 MiB, as in registries.
    pub manifest: u64,
    /// `component-descriptor.yaml`. Default 100 KiB, as in KLM.
    pub descriptor: u64,
    /// A layer, packed. Default 32 MiB.
    pub blob: u64,
    /// A signature: its payload or bundle. Default 256 KiB.
    pub signature: u64,
    /// `index.yaml` of a chart repository. Default 64 MiB: public ones have up to 30.
    pub index: u64,
    /// All content of an archive, unpacked. Default 100 MiB, as in Helm.
    pub unpacked: u64,
    /// One file in an archive, unpacked. Default 100 MiB: Helm 4.3 has no limit of its own for one file.
    pub file: u64,
    /// Entries in an archive. Default 10 000.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest: 4 << 20,
            descriptor: 100 << 10,
            blob: 32 << 20,
            signature: 256 << 10,
            index: 64 << 20,
            unpacked: 100 << 20,
            file: 100 << 20,
            entries: 10_000,
        }
    }
}

/// Limits on time.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Connecting. Default 5 s.
    pub connect: Duration,
    /// One request with its body. Default 60 s.
    pub request: Duration,
    /// Longest time without data within a body. The first byte of an answer may take as long as the request. Default:
    /// 15 s.
    pub idle: Duration,
    /// Time for which a proof that a credential may read an artifact is kept, and for which a tag counts as resolved.
    /// Default 10 min.
    pub proof: Duration,
    /// Time for which an older proof still counts while the source cannot be reached at all. A refusal ends it at
    /// once. Default 24 h.
    pub proof_unreachable: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_mins(1),
            idle: Duration::from_secs(15),
            proof: Duration::from_mins(10),
            proof_unreachable: Duration::from_hours(24),
        }
    }
}
