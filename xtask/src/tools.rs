//! The programs of the test bed, pinned in `xtask/tools.toml`, and how each is identified and obtained.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// `xtask/tools.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pins {
    kube: Kube,
    etcd: Pin,
    kwok: Pin,
    registry: Pin,
    helm: Pin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kube {
    version: String,
    staging: String,
    programs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    version: String,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// File name.
    pub(crate) name: String,
    /// Version without `v`.
    pub(crate) version: String,
    /// Arguments that print the version; empty for a program that cannot.
    pub(crate) version_arguments: &'static [&'static str],
    /// Official builds, if they are published with a checksum.
    pub(crate) download: Option<Download>,
    /// Build from source.
    pub(crate) build: Build,
}

/// An official build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Download {
    /// The file.
    pub(crate) url: String,
    /// A file with the SHA-256, alone or in a line with the name of the file.
    pub(crate) checksum_url: String,
    /// The program's path in the archive; `None` if the file is the program.
    pub(crate) member: Option<String>,
}

/// Build of a program with Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// In the module `xtask/tools/<wrapper>`, which pins all dependencies.
    Wrapper { wrapper: &'static str, package: String, link: String },
    /// `go install package@version`.
    Install { package: String, link: String },
}

impl Pins {
    /// Reads the pins and checks that the wrapper modules agree with them.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join("xtask/tools.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let pins: Self = toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
        let module = |name: &str| {
            let path = root.join("xtask/tools").join(name).join("go.mod");
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        pins.agree_with(&module("kube")?, &module("etcd")?)?;
        Ok(pins)
    }

    fn agree_with(&self, kube: &str, etcd: &str) -> Result<()> {
        let wants = |module: &str, text: &str, line: &str| {
            let found = text.lines().any(|have| have.trim() == line);
            ensure!(found, "xtask/tools/{module}/go.mod has no line `{line}`, as xtask/tools.toml wants");
            Ok(())
        };
        wants("kube", kube, &format!("require k8s.io/kubernetes v{}", self.kube.version))?;
        for program in &self.kube.programs {
            wants("kube", kube, &format!("k8s.io/kubernetes/cmd/{program}"))?;
        }
        let staging: Vec<_> = kube.lines().filter_map(|line| line.split_once(" => ")).collect();
        ensure!(!staging.is_empty(), "xtask/tools/kube/go.mod replaces no staging module");
        for (module, replacement) in staging {
            let version = replacement.rsplit_once(" v").map(|(_, version)| version);
            ensure!(
                version == Some(self.kube.staging.as_str()),
                "xtask/tools/kube/go.mod replaces {} by another version than {}",
                module.trim(),
                self.kube.staging
            );
        }
        wants("etcd", etcd, &format!("require go.etcd.io/etcd/server/v3 v{}", self.etcd.version))
    }

    /// Returns all programs, the slowest to build first.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools: Vec<_> =
            self.kube.programs.iter().map(|name| kube(name, &self.kube.version)).collect();
        tools.extend([
            etcd(&self.etcd.version),
            helm(&self.helm.version),
            kwok(&self.kwok.version),
            registry(&self.registry.version),
        ]);
        tools
    }
}

impl Tool {
    /// Returns whether the program's output contains this version. Output with fewer than three numbers does not
    /// match.
    pub(crate) fn says_version(&self, printed: &str) -> bool {
        let words = printed.split(|letter: char| letter.is_whitespace() || letter == '+' || letter == '"');
        words.map(|word| word.trim_start_matches('v')).any(|word| word == self.version)
    }
}

/// Returns the architecture as in the names of official builds.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn kube(name: &str, version: &str) -> Tool {
    let url = format!("https://dl.k8s.io/v{version}/bin/linux/{}/{name}", architecture());
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let link = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} \
             -X {package}.gitTreeState=clean"
        )
    });
    Tool {
        name: name.to_owned(),
        version: version.to_owned(),
        version_arguments: &["--version"],
        download: Some(Download { checksum_url: format!("{url}.sha256"), url, member: None }),
        build: Build::Wrapper {
            wrapper: "kube",
            package: format!("k8s.io/kubernetes/cmd/{name}"),
            link: link.join(" "),
        },
    }
}

fn etcd(version: &str) -> Tool {
    let base = format!("https://github.com/etcd-io/etcd/releases/download/v{version}");
    let stem = format!("etcd-v{version}-linux-{}", architecture());
    Tool {
        name: "etcd".to_owned(),
        version: version.to_owned(),
        version_arguments: &["--version"],
        download: Some(Download {
            url: format!("{base}/{stem}.tar.gz"),
            checksum_url: format!("{base}/SHA256SUMS"),
            member: Some(format!("{stem}/etcd")),
        }),
        build: Build::Wrapper {
            wrapper: "etcd",
            package: "go.etcd.io/etcd/server/v3".to_owned(),
            link: String::new(),
        },
    }
}

fn helm(version: &str) -> Tool {
    let architecture = architecture();
    let url = format!("https://get.helm.sh/helm-v{version}-linux-{architecture}.tar.gz");
    Tool {
        name: "helm".to_owned(),
        version: version.to_owned(),
        version_arguments: &["version", "--short"],
        download: Some(Download {
            checksum_url: format!("{url}.sha256sum"),
            url,
            member: Some(format!("linux-{architecture}/helm")),
        }),
        build: Build::Install {
            package: "helm.sh/helm/v4/cmd/helm".to_owned(),
            link: format!("-X helm.sh/helm/v4/internal/version.version=v{version}"),
        },
    }
}

/// Its releases come without checksums; a Go build is checked against the module's checksum.
fn kwok(version: &str) -> Tool {
    Tool {
        name: "kwok".to_owned(),
        version: version.to_owned(),
        version_arguments: &["--version"],
        download: None,
        build: Build::Install { package: "sigs.k8s.io/kwok/cmd/kwok".to_owned(), link: String::new() },
    }
}

/// Has no official build and cannot say its version, so one on PATH could be anything.
fn registry(version: &str) -> Tool {
    Tool {
        name: "registry".to_owned(),
        version: version.to_owned(),
        version_arguments: &[],
        download: None,
        build: Build::Install {
            package: "github.com/google/go-containerregistry/cmd/registry".to_owned(),
            link: String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        Pins::read(crate::workspace::root()).unwrap()
    }

    fn module(name: &str) -> String {
        fs::read_to_string(crate::workspace::root().join("xtask/tools").join(name).join("go.mod")).unwrap()
    }

    #[test]
    fn wrapper_modules_that_differ_from_the_pins_are_named() {
        let (kube, etcd) = (module("kube"), module("etcd"));
        let pins = pins();
        pins.agree_with(&kube, &etcd).unwrap();
        let other_kube =
            kube.replace(&format!("k8s.io/kubernetes v{}", pins.kube.version), "k8s.io/kubernetes v1.0.0");
        let other_staging = kube.replacen(&format!(" v{}\n", pins.kube.staging), " v0.1.0\n", 1);
        let other_etcd = etcd.replace(&format!("server/v3 v{}", pins.etcd.version), "server/v3 v3.0.0");
        for (kube, etcd, word) in [
            (&other_kube, &etcd, "require k8s.io/kubernetes"),
            (&other_staging, &etcd, "replaces"),
            (&kube, &other_etcd, "require go.etcd.io"),
        ] {
            let error = pins.agree_with(kube, etcd).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn versions_are_recognised_in_what_programs_print() {
        let tool = |name: &str| pins().tools().into_iter().find(|tool| tool.name == name).unwrap();
        let printed = [
            ("kube-apiserver", "Kubernetes v{}\n"),
            ("etcd", "etcd Version: {}\nGit SHA: abc\n"),
            ("helm", "v{}+g0123456\n"),
            ("kwok", "kwok version v{} go1.26.8 (linux/amd64)\n"),
        ];
        for (name, text) in printed {
            let tool = tool(name);
            assert!(tool.says_version(&text.replace("{}", &tool.version)), "{name}");
            assert!(!tool.says_version(&text.replace("{}", "0.0.1")), "{name}");
            assert!(!tool.says_version(&text.replace("{}", &format!("{}-rc.1", tool.version))), "{name}");
        }
    }
}
