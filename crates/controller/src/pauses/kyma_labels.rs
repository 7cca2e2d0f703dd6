//! Shared cache of the labels of all Kymas.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

/// Labels of one Kyma.
pub(crate) type Labels = BTreeMap<String, String>;

/// Number of deleted Kymas, beyond half of all entries, from which their last revisions are dropped.
const MAX_GONE: usize = 64;

/// Labels of all Kymas, by their value of the label `kyma-name`. A change costs the same however many there are.
/// Cheap to clone; all clones show the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct KymaLabels(Arc<RwLock<LabelState>>);

#[derive(Debug, Default)]
struct LabelState {
    kymas: HashMap<String, Entry>,
    /// Number of the last change.
    revision: u64,
    /// Changes up to this revision were dropped: any Kyma may have changed before it.
    forgotten: u64,
    gone: usize,
}

#[derive(Debug)]
struct Entry {
    /// Labels of the Kyma; `None` after its deletion.
    labels: Option<Arc<Labels>>,
    revision: u64,
}

impl KymaLabels {
    /// Number of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.0.read().revision
    }

    /// The labels of a Kyma.
    pub(crate) fn get(&self, kyma: &str) -> Option<Arc<Labels>> {
        self.0.read().kymas.get(kyma)?.labels.clone()
    }

    /// Reports whether the labels of a Kyma may have changed after a revision.
    pub(crate) fn changed_since(&self, kyma: &str, revision: u64) -> bool {
        let shared = self.0.read();
        shared.forgotten > revision || shared.kymas.get(kyma).is_some_and(|entry| entry.revision > revision)
    }

    /// Sets the labels of a Kyma, or `None` if it is gone. Returns whether they changed.
    pub(crate) fn set(&self, kyma: String, labels: Option<Labels>) -> bool {
        let mut shared = self.0.write();
        let before = shared.kymas.get(&kyma).and_then(|entry| entry.labels.as_deref());
        if before == labels.as_ref() {
            return false;
        }
        let is_gone = labels.is_none();
        shared.revision += 1;
        let entry = Entry { labels: labels.map(Arc::new), revision: shared.revision };
        let replaced = shared.kymas.insert(kyma, entry);
        shared.gone += usize::from(is_gone);
        shared.gone -= usize::from(replaced.is_some_and(|entry| entry.labels.is_none()));
        shared.forget_gone();
        true
    }
}

impl LabelState {
    fn forget_gone(&mut self) {
        if self.gone > MAX_GONE + self.kymas.len() / 2 {
            self.kymas.retain(|_, entry| entry.labels.is_some());
            (self.gone, self.forgotten) = (0, self.revision);
        }
    }
}

impl FromIterator<(String, Labels)> for KymaLabels {
    fn from_iter<I: IntoIterator<Item = (String, Labels)>>(all: I) -> Self {
        let kymas = Self::default();
        for (kyma, labels) in all {
            kymas.set(kyma, Some(labels));
        }
        kymas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(value: &str) -> Labels {
        Labels::from([("region".to_owned(), value.to_owned())])
    }

    #[test]
    fn change_of_one_kyma_copies_no_other() {
        let kymas: KymaLabels = (0..10_000).map(|at| (at.to_string(), labels("eu"))).collect();
        let (shown, other) = (kymas.clone(), kymas.get("1").unwrap());
        let before = kymas.revision();
        assert!(
            kymas.set("0".to_owned(), Some(labels("us"))) && !kymas.set("0".to_owned(), Some(labels("us")))
        );
        assert!(shown.changed_since("0", before) && !shown.changed_since("1", before));
        assert_eq!(shown.get("0").as_deref(), Some(&labels("us")));
        assert!(Arc::ptr_eq(&other, &shown.get("1").unwrap()));
    }

    #[test]
    fn kymas_that_are_gone_are_not_kept_for_ever() {
        let kymas = KymaLabels::default();
        for at in 0..1_000 {
            kymas.set(at.to_string(), Some(labels("eu")));
            let before = kymas.revision();
            assert!(kymas.set(at.to_string(), None) && kymas.changed_since(&at.to_string(), before));
        }
        assert!(kymas.0.read().kymas.len() <= 2 * MAX_GONE + 2, "{}", kymas.0.read().kymas.len());
        assert!(kymas.changed_since("0", 0), "what was forgotten may have changed");
    }
}
