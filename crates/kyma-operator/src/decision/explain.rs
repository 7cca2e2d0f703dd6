//! Explains the version of a module by the inputs of the decision. Pure.
//!
//! The decision is the one that kyma-operator reported.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use kyma_api::condition::{self, types};
use kyma_api::{
    Kyma, ModuleConfig, ModuleReleaseMeta, ModuleStatus, ModuleTemplate, Reason, State, Upgrade, UpgradeMode,
};
use serde::Serialize;
use serde_json::json;

use crate::decision::selection::{ModuleEntry, Selection};
use crate::hub::catalogue::{Catalogue, Release, Template};
use crate::hub::component::{ComponentKind, ComponentView};
use crate::hub::config::{Config, Configs, EffectiveEntry, govern};

/// Objects on the hub about one Kyma.
#[derive(Debug)]
pub struct Sources {
    /// The Kyma.
    pub kyma: Kyma,
    /// All templates of its namespace.
    pub templates: Vec<ModuleTemplate>,
    /// All release metas of its namespace.
    pub releases: Vec<ModuleReleaseMeta>,
    /// All ModuleConfigs of its namespace.
    pub configs: Vec<ModuleConfig>,
    /// Its components, of all kinds.
    pub components: Vec<DynamicObject>,
}

/// One module of a Kyma.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The module.
    pub module: String,
    /// The version that is installed or being installed, if any.
    pub version: Option<String>,
    /// Its state; `Unknown` if none is reported, or if the target does not answer.
    pub state: &'static str,
    /// The reason of the decision; `None` if an older operator reported it.
    pub reason: Option<String>,
    /// Meaning of the reason in one sentence.
    pub rule: Option<&'static str>,
    /// Time of the last change, RFC 3339.
    pub since: Option<String>,
    /// The operator's message.
    pub message: Option<String>,
    /// Inputs of the decision, in the order of evaluation.
    pub inputs: Vec<Input>,
}

/// One input of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Name of the input.
    pub about: String,
    /// Value of the input.
    pub says: String,
}

impl Input {
    fn new(about: impl Into<String>, says: impl Into<String>) -> Self {
        Self { about: about.into(), says: says.into() }
    }
}

/// Explains every module of the Kyma: those with an entry in its status, then mandatory ones.
pub fn explain(sources: &Sources) -> Vec<Explanation> {
    let inputs = DecisionInputs::of(sources);
    let listed = sources.kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let listed = listed.map(|line| inputs.listed(line));
    let mandatory = inputs.catalogue.mandatory().map(|release| inputs.mandatory(release));
    let mut found: Vec<Explanation> = listed.chain(mandatory).collect();
    if let Some(condition) = unreachable(&sources.kyma) {
        // These states are from the last time that the target answered.
        let settled = [State::Ready, State::Unmanaged].map(State::as_str);
        for one in found.iter_mut().filter(|one| settled.contains(&one.state)) {
            one.state = state_word(State::Unset);
            one.reason = Some(condition.reason.clone());
            one.rule = Reason::from_word(&condition.reason).map(Reason::summary);
            one.since = Some(condition.last_transition_time.0.to_string());
            one.message = Some(condition.message.clone());
        }
    }
    found
}

/// Returns the condition that says why the target does not answer.
fn unreachable(kyma: &Kyma) -> Option<&Condition> {
    let conditions = kyma.status.as_ref()?.conditions.as_deref()?;
    condition::get(conditions, types::TARGET_REACHABLE).filter(|found| found.status != "True")
}

fn state_word(state: State) -> &'static str {
    if state == State::Unset { "Unknown" } else { state.as_str() }
}

/// The sources in the form that decisions use.
struct DecisionInputs<'a> {
    labels: BTreeMap<String, String>,
    selection: Selection,
    selection_source: &'static str,
    initial: Vec<&'a str>,
    catalogue: Catalogue,
    configs: Configs,
    components: Vec<ComponentView>,
}

impl<'a> DecisionInputs<'a> {
    fn of(sources: &'a Sources) -> Self {
        let kyma = &sources.kyma;
        let recorded_selection = kyma.status.as_ref().and_then(|status| status.selection.as_ref());
        let (spec, selection_source) = match recorded_selection {
            Some(selection) => (json!(selection), "the cluster's Kyma"),
            None => (json!(kyma.spec), "the hub's Kyma"),
        };
        let mut catalogue = Catalogue::default();
        for template in &sources.templates {
            catalogue.apply_template(Template::from(template.clone()));
        }
        for release in &sources.releases {
            catalogue.apply_release(Release::from(release.clone()));
        }
        let mut configs = Configs::default();
        for config in &sources.configs {
            configs.apply(Config::from(config.clone()));
        }
        // Without a choice read from a cluster, only the hub's applies.
        let initial = kyma.spec.modules.iter().flatten().filter(|_| recorded_selection.is_some());
        Self {
            labels: kyma.metadata.labels.clone().unwrap_or_default(),
            selection: Selection::read(&spec).unwrap_or_default(),
            selection_source,
            initial: initial.map(|module| module.name.as_str()).collect(),
            catalogue,
            configs,
            components: sources.components.iter().filter_map(view).collect(),
        }
    }

    fn listed(&self, line: &ModuleStatus) -> Explanation {
        let reason = line.reason.as_deref().and_then(Reason::from_word);
        let entry = self.selection.entries.iter().find(|entry| entry.name == line.name);
        let mut inputs = vec![self.choice(entry)];
        if self.initial.contains(&line.name.as_str()) {
            inputs.push(Input::new("initial set", "the module is in it"));
        }
        let channel = &self.selection.channel;
        let effective = entry.map(|entry| govern(&self.configs, &self.labels, channel, entry));
        inputs.extend(effective.iter().flat_map(|effective| self.configured(effective)));
        let in_force = effective.as_ref().map(|effective| &effective.entry);
        let offered = self.offered(&line.name, in_force);
        let version = offered.0.clone().or_else(|| line.version.clone());
        inputs.push(offered.1);
        inputs.extend(version.map(|version| self.template(&line.name, &version)));
        inputs.push(self.component(&line.name));
        Explanation {
            module: line.name.clone(),
            version: line.version.clone(),
            state: state_word(line.state),
            reason: line.reason.clone(),
            rule: reason.map(Reason::summary),
            since: line.last_transition_time.as_ref().map(|time| time.0.to_string()),
            message: line.message.clone(),
            inputs,
        }
    }

    fn mandatory(&self, release: &Release) -> Explanation {
        let component = self.components.iter().find(|view| view.module == release.module);
        let version = release.mandatory.clone().unwrap_or_default();
        let central = self.configs.central(&self.labels, &release.module);
        let mut inputs = vec![Input::new("ModuleReleaseMeta", format!("every Kyma gets version {version}"))];
        if central != crate::decision::selection::CentralOverrides::default() {
            inputs.push(Input::new("ModuleConfigs", "override values or fields"));
        }
        inputs.push(self.template(&release.module, &version));
        inputs.push(self.component(&release.module));
        let ready = component.and_then(|view| view.ready.as_ref());
        let reason = ready.and_then(|ready| Reason::from_word(&ready.reason));
        Explanation {
            module: release.module.clone(),
            version: component.and_then(|view| view.desired_version.clone()),
            state: state_word(component.and_then(|view| view.state).unwrap_or_default()),
            reason: ready.map(|ready| ready.reason.clone()),
            rule: reason.map(Reason::summary),
            since: component.and_then(|view| view.applied_at).map(|at| at.to_string()),
            message: ready.map(|ready| ready.message.clone()).filter(|message| !message.is_empty()),
            inputs,
        }
    }

    fn choice(&self, entry: Option<&ModuleEntry>) -> Input {
        let Some(entry) = entry else {
            return Input::new("choice", format!("not in {}", self.selection_source));
        };
        let mut said = vec![match (&entry.version, &entry.channel) {
            (Some(version), _) => format!("version {version}, pinned"),
            (None, Some(channel)) => format!("channel {channel}"),
            (None, None) => format!("the Kyma's channel {}", self.selection.channel),
        }];
        said.extend((!entry.managed).then(|| "managed: false".to_owned()));
        said.extend(manual(&entry.upgrade));
        said.extend(
            (entry.policy != kyma_api::ResourcePolicy::default()).then(|| {
                format!("customResourcePolicy: {}", json!(entry.policy).as_str().unwrap_or_default())
            }),
        );
        said.extend(entry.invalid.clone());
        Input::new("choice", format!("{}, says {}", said.join(", "), self.selection_source))
    }

    fn configured<'b>(&'b self, effective: &'b EffectiveEntry) -> impl Iterator<Item = Input> + 'b {
        effective.by.iter().rev().filter_map(|(name, objects)| {
            let config = self.configs.get(name)?;
            let mut said = vec![format!("priority {}", config.priority)];
            let replaced = config.replaces();
            said.extend((!replaced.is_empty()).then(|| format!("replaces {}", replaced.join(", "))));
            said.extend(match (config.rules(), objects) {
                (_, true) => Some("objects".to_owned()),
                (0, false) => None,
                (count, false) => Some(format!("{count} rules hold")),
            });
            let count = config.resource_rules.len();
            said.extend((count > 0).then(|| format!("rules on its objects: {count}")));
            Some(Input::new(format!("ModuleConfig {name}"), said.join("; ")))
        })
    }

    /// Returns the version that the catalogue has for the entry in force, and the ModuleReleaseMeta as an input.
    fn offered(&self, module: &str, entry: Option<&ModuleEntry>) -> (Option<String>, Input) {
        let says = |text: String| Input::new("ModuleReleaseMeta", text);
        let Some(release) = self.catalogue.release(module) else {
            return (None, says("does not exist".to_owned()));
        };
        if let Some(version) = &release.mandatory {
            return (None, says(format!("every Kyma gets version {version}; users do not select it")));
        }
        let Some(entry) = entry else { return (None, says("exists".to_owned())) };
        let channel = entry.channel.as_ref().unwrap_or(&self.selection.channel);
        let (version, mut text) = match (&entry.version, release.channels.get(channel)) {
            (Some(pin), _) if release.versions.is_some() && release.find(pin).is_none() => {
                (None, format!("version {pin} is not listed"))
            }
            (Some(pin), _) => (Some(pin.clone()), format!("version {pin} may be pinned")),
            (None, Some(version)) => {
                (Some(version.clone()), format!("channel {channel} has version {version}"))
            }
            (None, None) => (None, format!("has no channel {channel}")),
        };
        let listed = version.as_ref().and_then(|version| release.find(version));
        if let Some(date) = listed.and_then(|listed| listed.deprecation_date) {
            text.push_str(&format!("; its support ends {date}"));
        }
        (version, says(text))
    }

    fn template(&self, module: &str, version: &str) -> Input {
        let Some(template) = self.catalogue.template(module, version) else {
            return Input::new("ModuleTemplate", format!("does not exist for version {version}"));
        };
        let marks = [
            (template.audience.beta, "beta"),
            (template.audience.internal, "internal"),
            (template.spec.requires_downtime == Some(true), "requiresDowntime"),
        ];
        let marks = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark);
        let said: Vec<&str> = std::iter::once(template.name.as_str()).chain(marks).collect();
        Input::new("ModuleTemplate", said.join(", "))
    }

    fn component(&self, module: &str) -> Input {
        let Some(view) = self.components.iter().find(|view| view.module == module) else {
            return Input::new("component", "does not exist");
        };
        let or_none = |version: &Option<String>| version.clone().unwrap_or_else(|| "no version".to_owned());
        let since = view.applied_at.map(|at| format!(" since {at}")).unwrap_or_default();
        let (kind, name) = (&view.kind.kind, &view.name);
        let (ordered, running) = (or_none(&view.desired_version), or_none(&view.running));
        let text = format!("{kind} {name}: {ordered} ordered{since}, {running} runs");
        Input::new("component", text)
    }
}

/// Returns the text about approval if upgrades need it.
fn manual(upgrade: &Upgrade) -> Option<String> {
    let approved = upgrade.approved.iter().map(|version| format!("approved {version}"));
    let deadline = upgrade.deadline_days.iter().map(|days| format!("deadline after {days} days"));
    let said: Vec<String> =
        std::iter::once("upgrade.mode: Manual".to_owned()).chain(approved).chain(deadline).collect();
    (upgrade.mode == UpgradeMode::Manual).then(|| said.join(", "))
}

fn view(object: &DynamicObject) -> Option<ComponentView> {
    let types = object.types.as_ref()?;
    ComponentView::of(&ComponentKind::new(&types.api_version, &types.kind), object)
}

#[cfg(test)]
mod tests;
