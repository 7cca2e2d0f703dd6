//! Reference model of the rules: which version of each module a Kyma ends with. It uses no types of the product, so
//! that tests can compare it with the decisions and with the running operator.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::{Value, json};

// With explicit paths, because another test includes this file too.
#[path = "model/draw.rs"]
pub(crate) mod draw;
#[path = "model/pair.rs"]
pub(crate) mod pair;

/// Modules in the sequences.
pub(crate) const MODULES: [&str; 2] = ["keda", "nats"];
/// Versions, oldest first.
pub(crate) const VERSIONS: [&str; 5] = ["1.0.0", "1.1.0", "1.2.0-rc1", "1.2.0", "2.0.0"];
/// Channels.
pub(crate) const CHANNELS: [&str; 2] = ["regular", "fast"];

/// An action of a user or an administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A user selects a module, or changes the entry.
    Choose(&'static str, Choice),
    /// A user removes the entry of a module.
    Disable(&'static str),
    /// A user sets `managed` of a module.
    Manage(&'static str, bool),
    /// A user sets how upgrades of a module are approved.
    Upgrades(&'static str, Upgrades),
    /// A user changes the Kyma's channel.
    Follow(&'static str),
    /// A channel of a module points to another version.
    Move(&'static str, &'static str, &'static str),
    /// A channel of a module is removed.
    Close(&'static str, &'static str),
    /// A template is created or deleted.
    Template(&'static str, &'static str, bool),
    /// A release meta is created or deleted.
    Release(&'static str, bool),
    /// A version becomes beta or generally available.
    Beta(&'static str, &'static str, bool),
    /// The Kyma gets or loses the beta label.
    Tester(bool),
    /// A Pause of upgrades is created or deleted.
    Pause(bool),
    /// A ModuleConfig sets a module's channel, or is deleted.
    Govern(&'static str, Option<&'static str>),
    /// Users create or delete objects of a module's kinds.
    Use(&'static str, bool),
    /// The module's reconciler reports the requested version as running.
    Report(&'static str),
    /// The operator restarts.
    Restart,
}

/// The version or channel that an entry selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// By the Kyma's channel.
    Default,
    /// By a channel in the entry.
    Channel(&'static str),
    /// By a pinned version.
    Pin(&'static str),
}

impl Choice {
    /// Returns the channel that it follows.
    fn channel(self, default: &'static str) -> Option<&'static str> {
        match self {
            Self::Default => Some(default),
            Self::Channel(channel) => Some(channel),
            Self::Pin(_) => None,
        }
    }
}

/// The approval mode of a module's upgrades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upgrades {
    /// Automatically.
    Automatic,
    /// By the user, who may have approved a version.
    Manual(Option<&'static str>),
}

/// A user's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) choice: Choice,
    pub(crate) managed: bool,
    pub(crate) upgrades: Upgrades,
}

impl Entry {
    /// Returns the entry as JSON, with the module's name in the Kyma.
    pub(crate) fn written(&self, name: &str) -> Value {
        let mut written = json!({ "name": name, "managed": self.managed });
        match self.choice {
            Choice::Default => {}
            Choice::Channel(channel) => written["channel"] = json!(channel),
            Choice::Pin(version) => written["version"] = json!(version),
        }
        if let Upgrades::Manual(approved) = self.upgrades {
            written["upgrade"] = json!({ "mode": "Manual" });
            if let Some(version) = approved {
                written["upgrade"]["approved"] = json!(version);
            }
        }
        written
    }

    /// Reports whether this version needs the user's approval before it replaces another one.
    fn asks(&self, choice: Choice, version: &str) -> bool {
        match (choice, self.upgrades) {
            (Choice::Pin(_), _) | (_, Upgrades::Automatic) => false,
            (_, Upgrades::Manual(approved)) => approved != Some(version),
        }
    }
}

/// An installed module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstalledModule {
    pub(crate) desired_version: &'static str,
    pub(crate) running: Option<&'static str>,
    pub(crate) channel: Option<&'static str>,
    pub(crate) leaving: bool,
}

/// A component of an installed module that was deleted without a deletion request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingComponent {
    pub(crate) version: &'static str,
    pub(crate) channel: Option<&'static str>,
}

/// The catalogue's offer of a module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offer {
    pub(crate) released: bool,
    pub(crate) channels: BTreeMap<&'static str, &'static str>,
    pub(crate) templates: BTreeSet<&'static str>,
    pub(crate) beta: BTreeSet<&'static str>,
}

impl Offer {
    /// Reports whether the release meta exists and has a channel.
    pub(crate) fn is_there(&self) -> bool {
        self.released && !self.channels.is_empty()
    }
}

/// The user's selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenModules {
    pub(crate) channel: &'static str,
    pub(crate) entries: BTreeMap<&'static str, Entry>,
}

impl ChosenModules {
    /// Applies an action of a user; ignores all others.
    fn act(&mut self, action: Action) {
        match action {
            Action::Choose(module, choice) => {
                let new = Entry { choice, managed: true, upgrades: Upgrades::Automatic };
                self.entries.entry(module).or_insert(new).choice = choice;
            }
            Action::Disable(module) => drop(self.entries.remove(module)),
            Action::Manage(module, managed) => {
                self.entries.entry(module).and_modify(|entry| entry.managed = managed);
            }
            Action::Upgrades(module, upgrades) => {
                self.entries.entry(module).and_modify(|entry| entry.upgrades = upgrades);
            }
            Action::Follow(channel) => self.channel = channel,
            _ => {}
        }
    }

    /// Returns the entries as JSON, with the names of modules in the Kyma.
    pub(crate) fn written(&self, name: impl Fn(&str) -> String) -> Vec<Value> {
        self.entries.iter().map(|(module, entry)| entry.written(&name(module))).collect()
    }
}

/// State of the model.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) chosen: ChosenModules,
    pub(crate) offers: BTreeMap<&'static str, Offer>,
    pub(crate) tester: bool,
    pub(crate) paused: bool,
    pub(crate) governed: BTreeMap<&'static str, &'static str>,
    pub(crate) used: BTreeSet<&'static str>,
    pub(crate) installed: BTreeMap<&'static str, InstalledModule>,
    pub(crate) missing_components: BTreeMap<&'static str, MissingComponent>,
}

impl World {
    /// Creates a model that offers both modules in 1.0.0 (regular) and 1.1.0 (fast), without entries.
    pub(crate) fn new() -> Self {
        let offer = Offer {
            released: true,
            channels: BTreeMap::from([("regular", "1.0.0"), ("fast", "1.1.0")]),
            templates: VERSIONS.into(),
            beta: BTreeSet::new(),
        };
        Self {
            chosen: ChosenModules { channel: "regular", entries: BTreeMap::new() },
            offers: MODULES.map(|module| (module, offer.clone())).into(),
            tester: false,
            paused: false,
            governed: BTreeMap::new(),
            used: BTreeSet::new(),
            installed: BTreeMap::new(),
            missing_components: BTreeMap::new(),
        }
    }

    /// Applies an action and all its consequences.
    pub(crate) fn act(&mut self, action: Action) {
        self.change(action);
        self.rest();
    }

    /// Applies the direct change.
    fn change(&mut self, action: Action) {
        self.chosen.act(action);
        match action {
            Action::Move(module, channel, version) => {
                self.offer(module).channels.insert(channel, version);
            }
            Action::Close(module, channel) => drop(self.offer(module).channels.remove(channel)),
            Action::Template(module, version, is) => put(&mut self.offer(module).templates, version, is),
            Action::Release(module, is) => self.offer(module).released = is,
            Action::Beta(module, version, is) => put(&mut self.offer(module).beta, version, is),
            Action::Tester(is) => self.tester = is,
            Action::Pause(is) => self.paused = is,
            Action::Govern(module, Some(channel)) => drop(self.governed.insert(module, channel)),
            Action::Govern(module, None) => drop(self.governed.remove(module)),
            Action::Use(module, is) => put(&mut self.used, module, is),
            Action::Report(module) => {
                self.installed
                    .entry(module)
                    .and_modify(|installed| installed.running = Some(installed.desired_version));
            }
            _ => {}
        }
    }

    /// Applies the consequences for all modules.
    fn rest(&mut self) {
        for module in MODULES {
            self.settle(module);
        }
    }

    /// Deletes a component, which is not a deletion request: everything stays on the target.
    fn delete_component(&mut self, module: &'static str) {
        if let Some(InstalledModule { desired_version: version, channel, .. }) = self.installed.remove(module)
        {
            self.missing_components.insert(module, MissingComponent { version, channel });
        }
    }

    fn offer(&mut self, module: &'static str) -> &mut Offer {
        self.offers.entry(module).or_default()
    }

    fn settle(&mut self, module: &'static str) {
        let held = self.installed.remove(module);
        let after = match (self.chosen.entries.get(module), held) {
            (None, Some(held)) => self.leave(module, held),
            (None, None) => self.finish(module),
            (Some(Entry { managed: false, .. }), _) => {
                self.missing_components.remove(module);
                None
            }
            (Some(entry), held) => self.have(module, *entry, held),
        };
        if let Some(installed) = after {
            self.missing_components.remove(module);
            self.installed.insert(module, installed);
        }
    }

    /// Returns the next state of a module without an entry: `None` once its objects are unused; until then it
    /// follows its channel.
    fn leave(&self, module: &str, held: InstalledModule) -> Option<InstalledModule> {
        if !self.used.contains(module) {
            return None;
        }
        let governed = |channel| self.governed.get(module).copied().unwrap_or(channel);
        let next = held.channel.and_then(|channel| self.target(module, Choice::Channel(governed(channel))));
        let next = next.filter(|next| self.may_replace(&held, next.version));
        let desired_version = next.map_or(held.desired_version, |next| next.version);
        Some(InstalledModule { desired_version, leaving: true, ..held })
    }

    /// Creates a component with a deletion request for a module without an entry whose component is missing, if its
    /// template is known.
    fn finish(&mut self, module: &'static str) -> Option<InstalledModule> {
        let MissingComponent { version, channel } = *self.missing_components.get(module)?;
        let offer = self.offers.get(module).filter(|offer| offer.is_there())?;
        if !offer.templates.contains(version) {
            return None;
        }
        self.missing_components.remove(module);
        self.leave(
            module,
            InstalledModule { desired_version: version, running: None, channel, leaving: true },
        )
    }

    fn have(
        &mut self,
        module: &'static str,
        entry: Entry,
        held: Option<InstalledModule>,
    ) -> Option<InstalledModule> {
        let choice = self.governed.get(module).map_or(entry.choice, |channel| Choice::Channel(channel));
        let target = self.target(module, choice);
        let waits = |held: &InstalledModule, next: &Target| {
            next.version != held.desired_version && entry.asks(choice, next.version)
        };
        if let Some(held) = held.filter(|held| !held.leaving) {
            return Some(match target.filter(|next| !waits(&held, next)) {
                Some(next) if self.may_replace(&held, next.version) => {
                    InstalledModule { desired_version: next.version, channel: next.channel, ..held }
                }
                _ => held,
            });
        }
        // After a withdrawn deletion request, or while the component is missing, everything stays, for the next
        // component to adopt.
        let missing = self.missing_components.get(module).map(|missing| InstalledModule {
            desired_version: missing.version,
            running: None,
            channel: missing.channel,
            leaving: true,
        });
        let left = held.or(missing);
        let Some(target) = target else {
            if let Some(left) = left {
                // The status then reports only the channel.
                let channel = choice.channel(self.chosen.channel);
                self.missing_components
                    .insert(module, MissingComponent { version: left.desired_version, channel });
            }
            return None;
        };
        let next = |desired_version| InstalledModule {
            desired_version,
            running: None,
            channel: target.channel,
            leaving: false,
        };
        let kept = left.filter(|left| waits(left, &target) || !self.may_replace(left, target.version));
        let Some(kept) = kept else { return Some(next(target.version)) };
        let has_template =
            self.offers.get(module).is_some_and(|offer| offer.templates.contains(kept.desired_version));
        if !has_template {
            self.missing_components
                .insert(module, MissingComponent { version: kept.desired_version, channel: kept.channel });
            return None;
        }
        Some(next(kept.desired_version))
    }

    /// Returns the version that the entry selects, if it is permitted.
    fn target(&self, module: &str, choice: Choice) -> Option<Target> {
        let offer = self.offers.get(module).filter(|offer| offer.is_there())?;
        let (version, channel) = match choice {
            Choice::Pin(version) => (version, None),
            Choice::Channel(channel) => (*offer.channels.get(channel)?, Some(channel)),
            Choice::Default => (*offer.channels.get(self.chosen.channel)?, Some(self.chosen.channel)),
        };
        let is_visible = self.tester || !offer.beta.contains(version);
        (is_visible && offer.templates.contains(version)).then_some(Target { version, channel })
    }

    /// Reports whether the version may replace the installed one: no downgrade, and no other version during a Pause.
    fn may_replace(&self, held: &InstalledModule, next: &str) -> bool {
        let version = |text: &str| Version::parse(text).ok();
        let is_lower = version(next) < version(held.running.unwrap_or(held.desired_version));
        !is_lower && (next == held.desired_version || !self.paused)
    }
}

#[derive(Debug, Clone, Copy)]
struct Target {
    version: &'static str,
    channel: Option<&'static str>,
}

fn put(set: &mut BTreeSet<&'static str>, one: &'static str, is: bool) {
    if is {
        set.insert(one);
    } else {
        set.remove(one);
    }
}
