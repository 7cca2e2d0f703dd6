//! A small model of the rules: which version of each module a Kyma ends with. It knows no types of the product, so that
//! what it says can be held against the decisions and against the operator at work.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::{Value, json};

// With their paths, because a test of its own has this file too.
#[path = "model/draw.rs"]
pub(crate) mod draw;
#[path = "model/pair.rs"]
pub(crate) mod pair;

/// Modules that sequences are about.
pub(crate) const MODULES: [&str; 2] = ["keda", "nats"];
/// Versions that come to be, oldest first.
pub(crate) const VERSIONS: [&str; 5] = ["1.0.0", "1.1.0", "1.2.0-rc1", "1.2.0", "2.0.0"];
/// Channels.
pub(crate) const CHANNELS: [&str; 2] = ["regular", "fast"];

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A user asks for a module, or asks differently.
    Choose(&'static str, Choice),
    /// A user takes it out.
    Disable(&'static str),
    /// A user takes it over, or gives it back.
    Manage(&'static str, bool),
    /// A user says who decides about upgrades.
    Upgrades(&'static str, Upgrades),
    /// A user changes the Kyma's channel.
    Follow(&'static str),
    /// A module's channel moves.
    Move(&'static str, &'static str, &'static str),
    /// A module loses a channel.
    Close(&'static str, &'static str),
    /// A template is there, or is not.
    Template(&'static str, &'static str, bool),
    /// The release meta is there, or is not.
    Release(&'static str, bool),
    /// A version is for beta testers only, or for everybody.
    Beta(&'static str, &'static str, bool),
    /// The Kyma is a beta tester, or is not.
    Tester(bool),
    /// Upgrades pause, or go on.
    Pause(bool),
    /// The fleet's owner decides about a module's channel, or no longer.
    Govern(&'static str, Option<&'static str>),
    /// Users make objects of a module's kinds, or delete them.
    Use(&'static str, bool),
    /// The module's reconciler reports that the ordered version runs.
    Report(&'static str),
    /// The operator is started anew.
    Restart,
}

/// How a user asks for a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// In the Kyma's channel.
    Default,
    /// In a channel of its own.
    Channel(&'static str),
    /// In one version.
    Pin(&'static str),
}

impl Choice {
    /// The channel that it follows.
    fn channel(self, default: &'static str) -> Option<&'static str> {
        match self {
            Self::Default => Some(default),
            Self::Channel(channel) => Some(channel),
            Self::Pin(_) => None,
        }
    }
}

/// Who decides about upgrades of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upgrades {
    /// Its channel.
    Automatic,
    /// A person, who may have approved a version.
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
    /// As it stands in a Kyma, under the module's name there.
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

    /// Whether a person has to be asked before this version is installed over another one.
    fn asks(&self, choice: Choice, version: &str) -> bool {
        match (choice, self.upgrades) {
            (Choice::Pin(_), _) | (_, Upgrades::Automatic) => false,
            (_, Upgrades::Manual(approved)) => approved != Some(version),
        }
    }
}

/// A module that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) ordered: &'static str,
    pub(crate) running: Option<&'static str>,
    pub(crate) channel: Option<&'static str>,
    pub(crate) leaving: bool,
}

/// A module that is installed and lost its component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) version: &'static str,
    pub(crate) channel: Option<&'static str>,
}

/// What is offered of a module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offer {
    pub(crate) released: bool,
    pub(crate) channels: BTreeMap<&'static str, &'static str>,
    pub(crate) templates: BTreeSet<&'static str>,
    pub(crate) beta: BTreeSet<&'static str>,
}

impl Offer {
    /// A release meta has a channel, or there is none.
    pub(crate) fn is_there(&self) -> bool {
        self.released && !self.channels.is_empty()
    }
}

/// What users choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) channel: &'static str,
    pub(crate) entries: BTreeMap<&'static str, Entry>,
}

impl Chosen {
    /// Somebody chooses; other actions change nothing here.
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

    /// The entries as they stand in a Kyma, with the names that modules have there.
    pub(crate) fn written(&self, name: impl Fn(&str) -> String) -> Vec<Value> {
        self.entries.iter().map(|(module, entry)| entry.written(&name(module))).collect()
    }
}

/// Everything that matters.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) chosen: Chosen,
    pub(crate) offers: BTreeMap<&'static str, Offer>,
    pub(crate) tester: bool,
    pub(crate) paused: bool,
    pub(crate) governed: BTreeMap<&'static str, &'static str>,
    pub(crate) used: BTreeSet<&'static str>,
    pub(crate) installed: BTreeMap<&'static str, Installed>,
    pub(crate) lost: BTreeMap<&'static str, Lost>,
}

impl World {
    /// Both modules are offered in 1.0.0 (regular) and 1.1.0 (fast), and nobody asks for any.
    pub(crate) fn new() -> Self {
        let offer = Offer {
            released: true,
            channels: BTreeMap::from([("regular", "1.0.0"), ("fast", "1.1.0")]),
            templates: VERSIONS.into(),
            beta: BTreeSet::new(),
        };
        Self {
            chosen: Chosen { channel: "regular", entries: BTreeMap::new() },
            offers: MODULES.map(|module| (module, offer.clone())).into(),
            tester: false,
            paused: false,
            governed: BTreeMap::new(),
            used: BTreeSet::new(),
            installed: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Somebody does something, and everything comes to rest.
    pub(crate) fn act(&mut self, action: Action) {
        self.change(action);
        self.rest();
    }

    /// What is different at once.
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
                    .and_modify(|installed| installed.running = Some(installed.ordered));
            }
            _ => {}
        }
    }

    /// What follows from how things are.
    fn rest(&mut self) {
        for module in MODULES {
            self.settle(module);
        }
    }

    /// Somebody deletes a component, which is no order: everything stays on the target.
    fn lose(&mut self, module: &'static str) {
        if let Some(Installed { ordered: version, channel, .. }) = self.installed.remove(module) {
            self.lost.insert(module, Lost { version, channel });
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
                self.lost.remove(module);
                None
            }
            (Some(entry), held) => self.have(module, *entry, held),
        };
        if let Some(installed) = after {
            self.lost.remove(module);
            self.installed.insert(module, installed);
        }
    }

    /// What nobody asks for goes, once nobody uses it; until then it follows its channel.
    fn leave(&self, module: &str, held: Installed) -> Option<Installed> {
        if !self.used.contains(module) {
            return None;
        }
        let governed = |channel| self.governed.get(module).copied().unwrap_or(channel);
        let next = held.channel.and_then(|channel| self.target(module, Choice::Channel(governed(channel))));
        let next = next.filter(|next| self.may_replace(&held, next.version));
        let ordered = next.map_or(held.ordered, |next| next.version);
        Some(Installed { ordered, leaving: true, ..held })
    }

    /// What nobody asks for and has no component gets one that is to go, if it is known what that may remove.
    fn finish(&mut self, module: &'static str) -> Option<Installed> {
        let Lost { version, channel } = *self.lost.get(module)?;
        let offer = self.offers.get(module).filter(|offer| offer.is_there())?;
        if !offer.templates.contains(version) {
            return None;
        }
        self.lost.remove(module);
        self.leave(module, Installed { ordered: version, running: None, channel, leaving: true })
    }

    fn have(&mut self, module: &'static str, entry: Entry, held: Option<Installed>) -> Option<Installed> {
        let choice = self.governed.get(module).map_or(entry.choice, |channel| Choice::Channel(channel));
        let target = self.target(module, choice);
        // Its removal is taken back: everything stays on the target, for the next one to take over.
        let held = held.filter(|held| !held.leaving);
        let Some(held) = held else {
            if target.is_none() {
                // All that is told of it then.
                let channel = choice.channel(self.chosen.channel);
                self.lost.entry(module).and_modify(|lost| lost.channel = channel);
            }
            let target = target?;
            return Some(Installed {
                ordered: target.version,
                running: None,
                channel: target.channel,
                leaving: false,
            });
        };
        let waits = |next: &Target| next.version != held.ordered && entry.asks(choice, next.version);
        Some(match target.filter(|next| !waits(next)) {
            Some(next) if self.may_replace(&held, next.version) => {
                Installed { ordered: next.version, channel: next.channel, ..held }
            }
            _ => held,
        })
    }

    /// The version that the choice leads to, if it may be had.
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

    /// Never below what runs; other versions than the ordered one only while nobody pauses upgrades.
    fn may_replace(&self, held: &Installed, next: &str) -> bool {
        let version = |text: &str| Version::parse(text).ok();
        let is_lower = version(next) < version(held.running.unwrap_or(held.ordered));
        !is_lower && (next == held.ordered || !self.paused)
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
