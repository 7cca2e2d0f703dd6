//! Index of Kymas by channel, version and module.

use std::collections::BTreeSet;

use kyma_api::names;
use kyma_controller::{Index, KymaKey};

/// Channel and versions that one module of a Kyma depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// The module.
    pub(crate) module: String,
    /// Channel that it follows; `None` for a pinned version.
    pub(crate) channel: Option<String>,
    /// Versions that it runs, or would run if the template existed.
    pub(crate) versions: BTreeSet<String>,
}

/// Something in the catalogue that a Kyma can depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Topic {
    Module(String),
    Channel(String, String),
    Version(String, String),
    Template(String),
}

/// Kymas by the topics that they depend on.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    kymas: Index<Topic, KymaKey>,
}

impl Subscriptions {
    /// Replaces the subscriptions of one Kyma.
    pub(crate) fn set(&mut self, kyma: &KymaKey, subscriptions: &[Subscription]) {
        self.kymas.set(kyma.clone(), subscriptions.iter().flat_map(topics));
    }

    /// Returns Kymas that depend on the module.
    pub(crate) fn of_module(&self, module: &str) -> BTreeSet<KymaKey> {
        self.of(&Topic::Module(module.to_owned()))
    }

    /// Returns Kymas whose module follows the channel.
    pub(crate) fn of_channel(&self, module: &str, channel: &str) -> BTreeSet<KymaKey> {
        self.of(&Topic::Channel(module.to_owned(), channel.to_owned()))
    }

    /// Returns Kymas whose module runs or selects the version.
    pub(crate) fn of_version(&self, module: &str, version: &str) -> BTreeSet<KymaKey> {
        self.of(&Topic::Version(module.to_owned(), version.to_owned()))
    }

    /// Returns Kymas that look up a template of this name.
    pub(crate) fn of_template_name(&self, name: &str) -> BTreeSet<KymaKey> {
        self.of(&Topic::Template(name.to_owned()))
    }

    fn of(&self, topic: &Topic) -> BTreeSet<KymaKey> {
        self.kymas.dependents(topic).cloned().collect()
    }
}

fn topics(subscription: &Subscription) -> Vec<Topic> {
    let module = &subscription.module;
    let mut topics = vec![Topic::Module(module.clone())];
    topics.extend(subscription.channel.iter().map(|channel| Topic::Channel(module.clone(), channel.clone())));
    for version in &subscription.versions {
        topics.push(Topic::Version(module.clone(), version.clone()));
        topics.push(Topic::Template(names::template_name(module, version)));
    }
    topics
}

#[cfg(test)]
impl Subscriptions {
    /// Reports whether no Kyma has a subscription.
    pub(super) fn is_empty(&self) -> bool {
        self.kymas.is_empty() && self.kymas.dependencies() == 0
    }
}
