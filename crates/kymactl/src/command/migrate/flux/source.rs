//! Converts Flux's sources to a component's source.

use jiff::SignedDuration;
use kyma_api::{ChartSource, SecretRef, Source};
use kyma_artifacts::VersionRange;
use serde_json::Value;

use super::facts::{Facts, Kind, ReducedObject, Ref, is_set, text};
use super::fields::{self, Field};
use super::finding::{Finding, Severity};
use super::installed::{InstalledChart, installed, without_digest, without_generation};
use super::verify::VerifyField;

/// Type of a Secret with registry credentials.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";

/// A release with its known references.
pub(super) struct ReleaseReferences<'a> {
    pub(super) release: &'a Value,
    pub(super) namespace: &'a str,
    pub(super) facts: &'a Facts,
}

impl ReleaseReferences<'_> {
    /// Returns the object that `chart` or `chartRef` names.
    fn first(&self) -> Option<Ref> {
        let spec = &self.release["spec"];
        match text(spec, "/chartRef/kind") {
            Some(kind) => Self::named(Kind::parse(kind)?, &spec["chartRef"], self.namespace),
            None => Self::repository(&spec["chart"]["spec"], self.namespace),
        }
    }

    fn named(kind: Kind, reference: &Value, namespace: &str) -> Option<Ref> {
        Some(Ref::new(kind, text(reference, "/namespace").unwrap_or(namespace), text(reference, "/name")?))
    }

    /// Returns the HelmRepository of a chart.
    fn repository(chart: &Value, namespace: &str) -> Option<Ref> {
        let is_one = text(chart, "/sourceRef/kind") == Some(Kind::HelmRepository.as_str());
        is_one.then(|| Self::named(Kind::HelmRepository, &chart["sourceRef"], namespace))?
    }

    /// Returns the objects that the release refers to, as far as the objects read so far show them.
    pub(super) fn refers_to(&self) -> Vec<Ref> {
        let Some(first) = self.first() else { return vec![] };
        let mut all = vec![first.clone()];
        if let (Kind::HelmChart, Some(chart)) = (first.kind, self.source(&first)) {
            all.extend(Self::repository(&chart["spec"], &first.namespace));
        }
        let mut secrets: Vec<Ref> = all.iter().filter_map(|one| self.secret(one)).collect();
        secrets.extend(self.asked(&first).and_then(|asked| asked.secret()));
        all.extend(secrets);
        all
    }

    fn source(&self, named: &Ref) -> Option<&Value> {
        match self.facts.get(named)? {
            Some(ReducedObject::Source(object)) => Some(object),
            _ => None,
        }
    }

    fn secret(&self, source: &Ref) -> Option<Ref> {
        let object = self.source(source)?;
        Some(Ref::new(Kind::Secret, &source.namespace, text(object, "/spec/secretRef/name")?))
    }

    /// Returns the signature check: of the object that `chartRef` names, or else of the release's chart.
    fn asked<'b>(&'b self, first: &'b Ref) -> Option<VerifyField<'b>> {
        let spec = &self.release["spec"];
        let (place, verify) = if spec.get("chartRef").is_some() {
            let object = self.source(first)?;
            (format!("{}: spec.verify", first.says()), &object["spec"]["verify"])
        } else {
            ("spec.chart.spec.verify".to_owned(), &spec["chart"]["spec"]["verify"])
        };
        // Flux creates the HelmChart of a release in its repository's namespace. Objects of files may have no
        // namespace.
        let namespace = first.namespace.as_str();
        verify.is_object().then_some(VerifyField { place, namespace, verify })
    }

    /// Returns the source for components in this namespace. If it is `None`, the findings have the reason.
    pub(super) fn source_for(&self, hub: &str, findings: &mut Vec<Finding>) -> Option<Source> {
        let spec = &self.release["spec"];
        let Some(first) = self.first() else {
            let kind = text(spec, "/chartRef/kind").or_else(|| text(spec, "/chart/spec/sourceRef/kind"));
            let field =
                if spec.get("chartRef").is_some() { "spec.chartRef" } else { "spec.chart.spec.sourceRef" };
            let says = match kind {
                Some(kind) => no_address(kind),
                None => "names no source".to_owned(),
            };
            findings.push(Finding::new(field, Severity::Refused, says));
            return None;
        };
        let object = self.found(&first, fields_of(first.kind), findings)?;
        let mut source = self.source_of(&first, object, hub, findings)?;
        source.verify = self.asked(&first).and_then(|asked| asked.verify(self.facts, hub, findings));
        Some(source)
    }

    fn source_of(
        &self,
        first: &Ref,
        object: &Value,
        hub: &str,
        findings: &mut Vec<Finding>,
    ) -> Option<Source> {
        match first.kind {
            Kind::OciRepository => self.of_oci(first, object, hub, findings),
            Kind::HelmChart => {
                let Some(repository) = Self::repository(&object["spec"], &first.namespace) else {
                    let kind = text(object, "/spec/sourceRef/kind").unwrap_or("source without a kind");
                    let place = format!("{}: spec.sourceRef", first.says());
                    findings.push(Finding::new(place, Severity::Refused, no_address(kind)));
                    return None;
                };
                self.of_repository(&repository, &object["spec"], hub, findings)
            }
            Kind::HelmRepository | Kind::ConfigMap | Kind::Secret => {
                self.of_repository_found(first, object, &self.release["spec"]["chart"]["spec"], hub, findings)
            }
        }
    }

    fn found(&self, named: &Ref, table: &[Field], findings: &mut Vec<Finding>) -> Option<&Value> {
        let Some(object) = self.source(named) else {
            findings.push(Finding::new(
                named.says(),
                Severity::Refused,
                "does not exist, and the chart's address is in it",
            ));
            return None;
        };
        findings.extend(fields::walk(table, &object["spec"], &format!("{}: spec.", named.says())));
        Some(object)
    }

    fn of_repository(
        &self,
        named: &Ref,
        chart: &Value,
        hub: &str,
        findings: &mut Vec<Finding>,
    ) -> Option<Source> {
        let object = self.found(named, fields::HELM_REPOSITORY, findings)?;
        self.of_repository_found(named, object, chart, hub, findings)
    }

    fn of_repository_found(
        &self,
        named: &Ref,
        object: &Value,
        chart: &Value,
        hub: &str,
        findings: &mut Vec<Finding>,
    ) -> Option<Source> {
        let url = Self::url(named, object, findings)?;
        let name = text(chart, "/chart").unwrap_or_default();
        // A suspended source object does not look for newer charts.
        let is_held = is_set(object, "/spec/suspend") || is_set(chart, "/suspend");
        let (version, check_every_seconds) = self.version(chart, is_held, findings)?;
        let (url, name) = if url.starts_with("oci://") {
            (format!("{url}/{name}"), None)
        } else {
            (url, Some(name.to_owned()))
        };
        let chart =
            ChartSource { url, name, version: Some(version), check_every_seconds, ..ChartSource::default() };
        Some(self.with_secret(named, chart, hub, findings))
    }

    fn of_oci(&self, named: &Ref, object: &Value, hub: &str, findings: &mut Vec<Finding>) -> Option<Source> {
        let url = Self::url(named, object, findings)?;
        let InstalledChart { version, digest } = installed(self.release);
        let version = version.map(|version| without_digest(&version).to_owned());
        let reference = &object["spec"]["ref"];
        // Precedence in Flux: digest, then range, then tag.
        let pinned = text(reference, "/digest");
        let range = text(reference, "/semver").filter(|_| pinned.is_none());
        let held = range.zip(version.as_ref()).filter(|_| is_set(object, "/spec/suspend"));
        if let Some((range, installed)) = held {
            findings.push(stays(format!("{}: spec.suspend", named.says()), range, installed));
        } else if let Some(range) = range {
            let place = format!("{}: spec.ref.semver", named.says());
            findings.push(self.followed(place, range));
            findings.push(appended());
            let check_every_seconds = self.check_every(&object["spec"]);
            let chart = ChartSource {
                url,
                version: Some(range.to_owned()),
                check_every_seconds,
                ..ChartSource::default()
            };
            return Some(self.with_secret(named, chart, hub, findings));
        }
        // A tag may differ from the version of the chart.
        let tag = text(reference, "/tag").filter(|_| pinned.is_none() && range.is_none());
        if let Some(tag) = tag.filter(|tag| digest.is_some() && !is_exact(tag)) {
            let says = format!("{tag} is installed now by its digest: the tag is no longer followed");
            findings.push(Finding::new(
                format!("{}: spec.ref.tag", named.says()),
                Severity::NotConverted,
                says,
            ));
        }
        let version = tag.map(str::to_owned).or(version);
        let digest = digest.or_else(|| pinned.map(str::to_owned));
        if version.is_none() && digest.is_none() {
            let says = "names no version, and nothing is installed: set `ref.tag` or `ref.digest`";
            findings.push(Finding::new(format!("{}: spec.ref", named.says()), Severity::Refused, says));
            return None;
        }
        findings.push(appended());
        let chart = ChartSource { url, version, digest, ..ChartSource::default() };
        Some(self.with_secret(named, chart, hub, findings))
    }

    fn url(named: &Ref, object: &Value, findings: &mut Vec<Finding>) -> Option<String> {
        let Some(url) = text(object, "/spec/url") else {
            findings.push(Finding::new(
                format!("{}: spec.url", named.says()),
                Severity::Refused,
                "is missing",
            ));
            return None;
        };
        if url.starts_with("http://") {
            let says = "name the host in `--oci-insecure-hosts`";
            findings.push(Finding::new(
                format!("{}: spec.url", named.says()),
                Severity::ActionRequired,
                says,
            ));
        }
        Some(url.trim_end_matches('/').to_owned())
    }

    /// Returns the followed range with its interval in seconds, or else the installed version.
    fn version(
        &self,
        chart: &Value,
        is_held: bool,
        findings: &mut Vec<Finding>,
    ) -> Option<(String, Option<i32>)> {
        const PLACE: &str = "spec.chart.spec.version";
        let wanted = text(chart, "/version").unwrap_or("*");
        let exact = is_exact(wanted);
        let has_files = ["/valuesFiles/0", "/valuesFile"].iter().any(|one| text(chart, one).is_some());
        let found = installed(self.release)
            .version
            .map(|version| if has_files { without_generation(&version).to_owned() } else { version });
        if !exact && wanted.parse::<VersionRange>().is_ok() {
            if let Some(installed) = found.filter(|_| is_held) {
                findings.push(stays(PLACE, wanted, &installed));
                return Some((installed, None));
            }
            findings.push(self.followed(PLACE, wanted));
            return Some((wanted.to_owned(), self.check_every(chart)));
        }
        let version = match (found, exact) {
            (Some(installed), _) if installed == wanted => Some(installed),
            (Some(installed), true) => {
                let says = format!(
                    "{wanted} is desired, but {installed} is installed and stays: upgrade afterwards"
                );
                findings.push(Finding::new(PLACE, Severity::NotConverted, says));
                Some(installed)
            }
            (Some(installed), false) => {
                let says = format!("{wanted} is not a range: the installed version {installed} stays");
                findings.push(Finding::new(PLACE, Severity::NotConverted, says));
                Some(installed)
            }
            (None, true) => Some(wanted.to_owned()),
            (None, false) => {
                let says =
                    format!("{wanted} is not a version, and the status has no installed version: set one");
                findings.push(Finding::new(PLACE, Severity::Refused, says));
                None
            }
        };
        version.map(|version| (version, None))
    }

    /// Returns a finding about a followed range.
    fn followed(&self, place: impl Into<String>, range: &str) -> Finding {
        let says = match installed(self.release).version {
            Some(version) => format!(
                "{range}: the adoption installs the highest version in it, as Flux would by now; {} is installed",
                without_digest(&version)
            ),
            None => format!("{range}: the adoption installs the highest version in it"),
        };
        Finding::new(place, Severity::Converted, says)
    }

    /// Returns the interval at which Flux looks for newer charts, limited to the component's bounds.
    fn check_every(&self, chart: &Value) -> Option<i32> {
        let interval = text(chart, "/interval").or_else(|| text(self.release, "/spec/interval"))?;
        let seconds = interval.parse::<SignedDuration>().ok()?.as_secs().clamp(60, 604_800);
        i32::try_from(seconds).ok()
    }

    fn with_secret(&self, named: &Ref, chart: ChartSource, hub: &str, findings: &mut Vec<Finding>) -> Source {
        let secret = self.secret(named);
        let pull_secret_ref = secret.map(|secret| {
            let place = format!("{}: spec.secretRef", named.says());
            let host = chart.url.split('/').nth(2).unwrap_or_default();
            match self.facts.get(&secret) {
                Some(Some(ReducedObject::Data { type_, .. })) if type_ == DOCKER_CONFIG => {
                    findings.extend(Finding::copy(&place, &secret, hub));
                    SecretRef { name: secret.name }
                }
                _ => {
                    let name = format!("{}-registry", secret.name);
                    let says = format!(
                        "unless it has type {DOCKER_CONFIG}, create one: kubectl create secret docker-registry {name} -n {hub} \
                         --docker-server={host} --docker-username=… --docker-password=…"
                    );
                    findings.push(Finding::new(place, Severity::ActionRequired, says));
                    SecretRef { name }
                }
            }
        });
        Source { chart: Some(chart), pull_secret_ref, ..Source::default() }
    }
}

fn is_exact(version: &str) -> bool {
    semver::Version::parse(version.strip_prefix('v').unwrap_or(version)).is_ok()
}

/// Returns a finding for a range whose source is suspended.
fn stays(place: impl Into<String>, range: &str, installed: &str) -> Finding {
    let says = format!(
        "the source is suspended: the installed version {installed} stays; write {range} to follow it"
    );
    Finding::new(place, Severity::NotConverted, says)
}

fn no_address(kind: &str) -> String {
    format!("a chart of a {kind} has no address: push it to a registry")
}

fn appended() -> Finding {
    let says = "Flux appends the digest to the chart's version: labels that show the version change, and where they are in \
                Pod templates, those roll out once";
    Finding::new("spec.chartRef", Severity::NotConverted, says)
}

fn fields_of(kind: Kind) -> &'static [Field] {
    match kind {
        Kind::HelmRepository => fields::HELM_REPOSITORY,
        Kind::OciRepository => fields::OCI_REPOSITORY,
        Kind::HelmChart => fields::HELM_CHART,
        Kind::ConfigMap | Kind::Secret => &[],
    }
}
