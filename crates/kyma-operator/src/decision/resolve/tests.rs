//! Runs `cases.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kyma_api::visibility::Audience;
use kyma_api::{COMPONENT_GROUP, ModuleConfig, ModuleTemplateSpec, TemplateComponent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::decision::maintenance::Policy;
use crate::decision::selection::Selection;
use crate::hub::catalogue::release::ListedVersion;
use crate::hub::catalogue::{Catalogue, Release, Template};
use crate::hub::component::ComponentKind;
use crate::hub::config::{Config, govern_all, keep_under_missing};

mod labels;
mod pairs;
mod sequences;

/// The time of all decisions.
const NOW: &str = "2026-06-01T00:00:00Z";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    #[serde(default)]
    catalogue: BTreeMap<String, OfferedModule>,
    kyma: KymaCase,
    #[serde(default)]
    installed: BTreeMap<String, InstalledCase>,
    #[serde(default)]
    missing_components: BTreeMap<String, String>,
    #[serde(default)]
    policy: PolicyCase,
    #[serde(default)]
    paused: Option<String>,
    /// The maintenance policy; absent if the file does not exist.
    #[serde(default)]
    maintenance: Option<Value>,
    #[serde(default)]
    skips_windows: bool,
    /// Since when upgrades of modules have been waiting for approval.
    #[serde(default)]
    offered: BTreeMap<String, Timestamp>,
    #[serde(default)]
    missing_configs: BTreeMap<String, String>,
    #[serde(default)]
    recorded: BTreeMap<String, String>,
    #[serde(default)]
    contents: BTreeMap<String, String>,
    /// name -> spec of a ModuleConfig.
    #[serde(default)]
    configs: BTreeMap<String, Value>,
    expect: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KymaCase {
    channel: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    modules: Value,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct OfferedModule {
    channels: BTreeMap<String, String>,
    versions: Option<Vec<ListedCase>>,
    templates: Vec<TemplateCase>,
    mandatory: Option<String>,
    deleting: bool,
    withdrawn: bool,
    selector: Option<LabelSelector>,
    rollout: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ListedCase {
    Version(String),
    Deprecated { version: String, deprecated: Timestamp },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateCase {
    Version(String),
    Full {
        version: String,
        #[serde(default)]
        beta: bool,
        #[serde(default)]
        internal: bool,
        #[serde(default)]
        mandatory: bool,
        #[serde(default)]
        downtime: bool,
        #[serde(default)]
        component: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum InstalledCase {
    Running(String),
    Full {
        running: Option<String>,
        ordered: Option<String>,
        channel: Option<String>,
        group: Option<String>,
        kind: Option<String>,
        #[serde(default)]
        mandatory: bool,
        #[serde(default)]
        leaving: bool,
        #[serde(default)]
        manual: bool,
        /// Uid and digest of the template that it was made from.
        #[serde(default)]
        template: Option<String>,
    },
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct PolicyCase {
    restricted: BTreeSet<String>,
    uninstall_on_visibility_loss: bool,
}

fn catalogue(offered: BTreeMap<String, OfferedModule>) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for (module, offered) in offered {
        if offered.withdrawn {
            catalogue.withdraw(&module, "");
        }
        for case in offered.templates {
            catalogue.apply_template(template(&module, case));
        }
        let listed = |case| {
            let (version, deprecation_date) = match case {
                ListedCase::Version(version) => (version, None),
                ListedCase::Deprecated { version, deprecated } => (version, Some(deprecated)),
            };
            ListedVersion { version, deprecation_date, deprecation_message: None }
        };
        let has_release =
            !offered.channels.is_empty() || offered.versions.is_some() || offered.mandatory.is_some();
        if has_release {
            catalogue.apply_release(Release {
                module,
                channels: offered.channels,
                versions: offered.versions.map(|versions| versions.into_iter().map(listed).collect()),
                mandatory: offered.mandatory,
                deleting: offered.deleting,
                selector: offered.selector,
                rollout: offered.rollout,
                ..Release::default()
            });
        }
    }
    catalogue
}

fn template(module: &str, case: TemplateCase) -> Template {
    let (version, audience, downtime, component) = match case {
        TemplateCase::Version(version) => (version, Audience::default(), false, None),
        TemplateCase::Full { version, beta, internal, mandatory, downtime, component } => {
            (version, Audience { beta, internal, mandatory }, downtime, component)
        }
    };
    let component = component.map(|text| {
        let (api_version, kind) = text.split_once(' ').unwrap();
        TemplateComponent { api_version: api_version.to_owned(), kind: kind.to_owned(), ..Default::default() }
    });
    Template {
        name: format!("{module}-{version}"),
        namespace: "kcp-system".to_owned(),
        generation: Some(1),
        module: Some(module.to_owned()),
        version: Some(version),
        audience,
        cluster_scoped: false,
        uid: String::new(),
        digest: String::new(),
        spec: Arc::new(ModuleTemplateSpec {
            component,
            requires_downtime: Some(downtime),
            ..Default::default()
        }),
    }
}

fn installed(case: InstalledCase) -> InstalledModule {
    let helm = InstalledModule {
        group: COMPONENT_GROUP.to_owned(),
        kind: "HelmComponent".to_owned(),
        ..Default::default()
    };
    match case {
        InstalledCase::Running(version) => {
            InstalledModule { running: Some(version.clone()), desired_version: Some(version), ..helm }
        }
        InstalledCase::Full {
            running,
            ordered,
            channel,
            group,
            kind,
            mandatory,
            leaving,
            manual,
            template,
        } => InstalledModule {
            template: template.map(|former| content(running.as_deref().unwrap_or_default(), &former)),
            is_manual: manual,
            desired_version: ordered.or_else(|| running.clone()),
            running,
            channel,
            group: group.unwrap_or(helm.group),
            kind: kind.unwrap_or(helm.kind),
            mandatory,
            leaving,
        },
    }
}

fn content(version: &str, former: &str) -> TemplateRecord {
    TemplateRecord { version: version.to_owned(), uid: former.to_owned(), digest: former.to_owned() }
}

fn contents(versions: &BTreeMap<String, String>) -> TemplateRecords {
    let mut contents = TemplateRecords::default();
    for (module, version) in versions {
        contents.add(module, Some(&content(version, "former")));
    }
    contents
}

fn maintenance(policy: Option<Value>) -> Maintenance {
    let policy = policy.map(|policy| Policy::parse(policy.to_string().as_bytes()).unwrap());
    Maintenance { policy: policy.ok_or("no policy".to_owned()), least: SignedDuration::from_mins(20) }
}

fn configs(specs: BTreeMap<String, Value>) -> Configs {
    let mut configs = Configs::default();
    for (name, spec) in specs {
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
            "metadata": { "name": name }, "spec": spec,
        });
        configs.apply(Config::from(serde_json::from_value::<ModuleConfig>(object).unwrap()));
    }
    configs
}

fn written(decision: &Decision) -> String {
    let problem =
        |text: &str, problem: &ModuleProblem| format!("{text} {} {}", problem.reason, problem.state);
    match decision {
        Decision::Install(Install { version, channel: Some(channel), .. }) => {
            format!("install {version} from {channel}")
        }
        Decision::Install(install) => format!("install {}", install.version),
        Decision::Await(Some(install), wait) => {
            format!("keep-version {} until {}", install.version, end(wait))
        }
        Decision::Await(None, wait) => format!("keep until {}", end(wait)),
        Decision::Keep(why) => problem("keep", why),
        Decision::KeepVersion(install, why) => problem(&format!("keep-version {}", install.version), why),
        Decision::Remove { reason, problem: None } => format!("remove {reason}"),
        Decision::Remove { reason, problem: Some(why) } => format!("remove {reason} {}", why.reason),
        Decision::UpgradeDuringRemoval(install) => format!("leave {}", install.version),
        Decision::FinishRemoval(install, reason) => format!("finish {} {reason}", install.version),
        Decision::Unmanage => "unmanage".to_owned(),
        Decision::Refuse(why) => problem("refuse", why),
    }
}

fn end(wait: &UpgradeWait) -> String {
    wait.until().map_or_else(|| "approved".to_owned(), |moment| moment.to_string())
}

fn decide_all(case: Case) -> BTreeMap<String, String> {
    let spec = json!({ "channel": case.kyma.channel, "modules": case.kyma.modules });
    let selection = Selection::read(&spec).unwrap();
    let installed: BTreeMap<_, _> =
        case.installed.into_iter().map(|(name, case)| (name, installed(case))).collect();
    let policy = super::Policy {
        restricted: case.policy.restricted,
        uninstall_on_visibility_loss: case.policy.uninstall_on_visibility_loss,
        ..super::Policy::default()
    };
    let missing_component = |(module, version): (String, String)| MissingComponent {
        mandatory: case.catalogue.get(&module).is_some_and(|offered| offered.mandatory.is_some()),
        module,
        version,
        channel: None,
        kind: ComponentKind::helm(),
    };
    let missing_components: Vec<MissingComponent> =
        case.missing_components.into_iter().map(missing_component).collect();
    let configs = configs(case.configs);
    let missing = |(module, config): (&String, &String)| {
        (module.clone(), ConfigUids::from([(config.clone(), "uid".to_owned())]))
    };
    let missing_configs: BTreeMap<String, ConfigUids> = case.missing_configs.iter().map(missing).collect();
    let mut entries = govern_all(&configs, &case.kyma.labels, &selection);
    keep_under_missing(&mut entries, &missing_configs);
    let inputs = Inputs {
        labels: &case.kyma.labels,
        channel: &selection.channel,
        entries: &entries,
        leaving: &govern_leaving(&configs, &case.kyma.labels, &installed),
        configs: &configs,
        missing_configs: &missing_configs,
        contents: &contents(&case.contents),
        recorded: &case.recorded,
        installed: &installed,
        catalogue: &catalogue(case.catalogue),
        policy: &policy,
        upgrades_paused: case.paused.as_deref(),
        missing_components: &missing_components,
        maintenance: &maintenance(case.maintenance),
        skips_windows: case.skips_windows,
        offered: &case.offered,
        now: NOW.parse().unwrap(),
    };
    let mut decisions: BTreeMap<String, String> = BTreeMap::new();
    for resolved in resolve(&inputs) {
        let text = written(&resolved.decision);
        decisions
            .entry(resolved.module)
            .and_modify(|earlier| _ = write!(earlier, "; {text}"))
            .or_insert(text);
    }
    decisions
}

#[test]
fn i63_to_i65_every_case_of_the_specification_holds() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("cases.yaml")).unwrap();
    let mut wrong = String::new();
    let count = cases.len();
    for case in cases {
        let (name, expected) = (case.name.clone(), case.expect.clone());
        let decided = decide_all(case);
        if decided != expected {
            _ = writeln!(wrong, "{name}\n  expected {expected:?}\n  decided  {decided:?}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(count > 30, "the specification lost cases");
}

/// Decides about modules from entries as JSON.
fn decided(
    offered: &str,
    modules: &str,
    installed: &BTreeMap<String, InstalledModule>,
    maintenance: &Maintenance,
) -> Vec<ResolvedModule> {
    decided_with_record(offered, modules, installed, &BTreeMap::new(), maintenance)
}

/// Decides as [`decided`] with recorded versions of modules without a component.
fn decided_with_record(
    offered: &str,
    modules: &str,
    installed: &BTreeMap<String, InstalledModule>,
    recorded: &BTreeMap<String, String>,
    maintenance: &Maintenance,
) -> Vec<ResolvedModule> {
    let offered: BTreeMap<String, OfferedModule> = serde_saphyr::from_str(offered).unwrap();
    let modules: Value = serde_saphyr::from_str(modules).unwrap();
    let selection = Selection::read(&json!({ "channel": "regular", "modules": modules })).unwrap();
    let (configs, labels) = (Configs::default(), BTreeMap::new());
    resolve(&Inputs {
        labels: &labels,
        channel: &selection.channel,
        entries: &govern_all(&configs, &labels, &selection),
        leaving: &govern_leaving(&configs, &labels, installed),
        configs: &configs,
        missing_configs: &BTreeMap::new(),
        contents: &TemplateRecords::default(),
        recorded,
        installed,
        catalogue: &catalogue(offered),
        policy: &super::Policy::default(),
        upgrades_paused: None,
        missing_components: &[],
        maintenance,
        skips_windows: false,
        offered: &BTreeMap::new(),
        now: NOW.parse().unwrap(),
    })
}

#[test]
fn a_decision_has_the_interests_that_can_change_it() {
    const OFFERED: &str = "keda: {channels: {regular: 9.9.9}, templates: [1.0.0]}\nnats: {channels: {regular: 2.0.0}, templates: [1.0.0, 2.0.0]}";
    let case = |modules| decided(OFFERED, modules, &BTreeMap::new(), &Maintenance::default());
    let refused = case("[{name: nats, version: 7.7.7}]");
    assert!(refused[0].subscription.versions.contains("7.7.7"), "offering a refused pin wakes it");
    let followed = case("[{name: keda}, {name: nats, version: 1.0.0}]");
    assert_eq!(followed[0].subscription.channel.as_deref(), Some("regular"));
    assert!(followed[0].subscription.versions.contains("9.9.9"), "the missing template wakes it");
    assert_eq!(followed[1].subscription.channel, None, "a pin follows no channel");
    assert!(followed[1].subscription.versions.contains("1.0.0"));
}

#[test]
fn template_of_recorded_version_requeues_missing_component() {
    const OFFERED: &str = "keda: {channels: {regular: 1.0.0}, templates: [1.0.0]}";
    let (none, recorded) = (BTreeMap::new(), BTreeMap::from([("keda".to_owned(), "1.1.0".to_owned())]));
    let decided = decided_with_record(OFFERED, "[{name: keda}]", &none, &recorded, &Maintenance::default());
    assert_eq!(written(&decided[0].decision), "keep DowngradeRefused Warning");
    assert!(decided[0].subscription.versions.contains("1.1.0"), "{:?}", decided[0].subscription);
}

#[test]
fn a_missing_template_wakes_also_a_module_that_is_being_removed() {
    const OFFERED: &str = "keda: {channels: {regular: 9.9.9}, templates: [1.0.0]}";
    let leaving = json!({ "running": "1.0.0", "channel": "regular", "leaving": true });
    let keda = installed(serde_json::from_value(leaving).unwrap());
    let installed = BTreeMap::from([("keda".to_owned(), keda)]);
    let decided = decided(OFFERED, "[]", &installed, &Maintenance::default());
    assert_eq!(written(&decided[0].decision), "remove Disabled");
    let subscription = &decided[0].subscription;
    assert_eq!(subscription.channel.as_deref(), Some("regular"));
    assert!(
        subscription.versions.contains("9.9.9") && subscription.versions.contains("1.0.0"),
        "{subscription:?}"
    );
}

#[test]
fn time_alone_may_change_a_decision() {
    const OFFERED: &str = "
keda: {channels: {regular: 1.1.0}, templates: [1.0.0, {version: 1.1.0, downtime: true}]}
nats: {versions: [{version: 1.0.0, deprecated: \"2026-07-01T00:00:00Z\"}], templates: [1.0.0]}
otel: {versions: [{version: 1.0.0, deprecated: \"2026-05-01T00:00:00Z\"}], templates: [1.0.0]}
";
    let leaving = json!({ "running": "1.0.0", "channel": "regular", "leaving": true });
    let keda = installed(serde_json::from_value(leaving).unwrap());
    let installed = BTreeMap::from([("keda".to_owned(), keda)]);
    let until = |modules, policy| {
        decided(OFFERED, modules, &installed, &maintenance(policy))[0].until.map(|until| until.to_string())
    };
    let saturday = Some(json!({"default": {"days": ["Sat"], "begin": "20:00:00Z", "end": "00:00:00Z"}}));
    assert_eq!(
        until("[{name: keda}]", saturday.clone()).as_deref(),
        Some("2026-06-06T20:00:00Z"),
        "the window opens"
    );
    let leaving = until("[]", saturday);
    assert_eq!(leaving.as_deref(), Some("2026-06-06T20:00:00Z"), "also for what is being removed");
    assert_eq!(until("[{name: keda}]", None), None, "only a policy changes that");
    let nats = until("[{name: nats, version: 1.0.0}]", None);
    assert_eq!(nats.as_deref(), Some("2026-07-01T00:00:00Z"), "support ends");
    assert_eq!(until("[{name: otel, version: 1.0.0}]", None), None, "it has ended");
}
