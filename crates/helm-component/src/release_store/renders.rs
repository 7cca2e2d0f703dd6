//! Selects the stored render of a request, or the slot in which a new one is stored. Pure.

use std::collections::BTreeSet;

use kyma_api::{Digests, RollbackTarget};

/// Description of a stored render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderEntry {
    /// Digest of the render's inputs.
    pub request: String,
    /// Digest of the render. Results vary, so each render of a request has another digest.
    pub render: String,
    /// Release that was installed at the time, as of [`RenderCriteria::installed`]. `None` in Secrets of versions that
    /// stored a single render.
    pub after: Option<String>,
}

/// Criteria for the stored renders.
#[derive(Debug, Clone, Default)]
pub(crate) struct RenderCriteria {
    /// Digest of the render of the completely installed release, if its results vary.
    render: Option<String>,
    /// Digest of the completely installed content.
    content: Option<String>,
    /// Digest of the render of the rollback target.
    rollback_target: Option<String>,
    /// Renders that this process made, if signatures are required; no others may be used unless the status records
    /// them.
    made_here: Option<BTreeSet<String>>,
}

/// Location of the render of a request among the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderLocation {
    /// The render is stored at this index.
    Stored(usize),
    /// The render is not stored; the slot at this index is free for it.
    Free(usize),
}

impl RenderCriteria {
    /// Reads the criteria from the status of a component.
    pub(crate) fn of(digests: &Digests, target: Option<&RollbackTarget>) -> Self {
        let target = target.filter(|target| target.message.is_none());
        Self {
            render: digests.stored_render.clone(),
            content: digests.source.clone(),
            rollback_target: target.and_then(|target| target.digests.stored_render.clone()),
            made_here: None,
        }
    }

    /// Accepts only renders that the status records or that this process made: if signatures are required, a user
    /// with write access to Secrets must not inject content.
    pub(crate) fn with_signatures(self, made_here: &BTreeSet<String>) -> Self {
        Self { made_here: Some(made_here.clone()), ..self }
    }

    /// Returns an identifier of the completely installed release; empty if there is none.
    pub(crate) fn installed(&self) -> &str {
        self.render.as_deref().or(self.content.as_deref()).unwrap_or_default()
    }

    /// Reports whether the render belongs to the installed release or to the rollback target: it must stay until
    /// another release is completely installed.
    fn needs(&self, entry: &RenderEntry) -> bool {
        let render = Some(&entry.render);
        let is_older = entry.after.is_none() && self.render.is_none();
        is_older || render == self.render.as_ref() || render == self.rollback_target.as_ref()
    }

    /// Reports whether the render may be used. A release that was replaced has ended: if it returns, it gets new
    /// passwords.
    pub(crate) fn accepts(&self, entry: &RenderEntry) -> bool {
        if let Some(made_here) = &self.made_here {
            let recorded = [&self.render, &self.rollback_target].into_iter().flatten();
            if !recorded.chain(made_here).any(|render| *render == entry.render) {
                return false;
            }
        }
        let installed = self.installed();
        installed.is_empty() || self.needs(entry) || entry.after.as_deref() == Some(installed)
    }

    /// Returns the index of the usable render of this request among the Secrets of earlier versions.
    pub(crate) fn find_former(&self, former: &[Option<RenderEntry>], request: &str) -> Option<usize> {
        former.iter().position(|entry| {
            entry.as_ref().is_some_and(|entry| entry.request == request && self.accepts(entry))
        })
    }

    /// Returns the location of the render of this request among these slots, or the one that is free for it: of two
    /// that are, one that `is_shared` with no other part that must stay.
    pub(crate) fn locate(
        &self,
        held: &[Option<RenderEntry>],
        request: &str,
        is_shared: impl Fn(usize) -> bool,
    ) -> RenderLocation {
        let mut entries = held.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)));
        if let Some((at, entry)) = entries.find(|(_, entry)| entry.request == request) {
            return if self.accepts(entry) { RenderLocation::Stored(at) } else { RenderLocation::Free(at) };
        }
        // Of two renders that were never completely installed, the later one is replaced: the first may have left
        // lasting objects.
        let priority = |at: usize| match &held[at] {
            Some(entry) if !self.accepts(entry) => (1, is_shared(at), 0, at),
            None => (1, is_shared(at), 1, at),
            Some(entry) if !self.needs(entry) => (2, is_shared(at), 0, held.len() - at),
            Some(_) => (3, is_shared(at), 0, held.len() - at),
        };
        RenderLocation::Free((0..held.len()).min_by_key(|at| priority(*at)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Secrets and the status of a component.
    #[derive(Default)]
    struct FakeStore {
        held: [Option<RenderEntry>; 3],
        digests: Digests,
        target: Option<RollbackTarget>,
        renders: usize,
    }

    impl FakeStore {
        /// Loads the render of this request: returns its digest, and whether it was stored.
        fn load(&mut self, request: &str) -> (String, bool) {
            let criteria = RenderCriteria::of(&self.digests, self.target.as_ref());
            match criteria.locate(&self.held, request, |_| false) {
                RenderLocation::Stored(at) => {
                    let entry = self.held[at].as_ref().unwrap();
                    assert_eq!(entry.request, request);
                    (entry.render.clone(), true)
                }
                RenderLocation::Free(at) => {
                    self.renders += 1;
                    let render = format!("{request} {}", self.renders);
                    let after = Some(criteria.installed().to_owned());
                    let entry = RenderEntry { request: request.to_owned(), render: render.clone(), after };
                    self.held[at] = Some(entry);
                    (render, false)
                }
            }
        }

        fn has(&mut self, request: &str) -> bool {
            self.load(request).1
        }

        /// Applies the whole release; returns whether its render was stored.
        fn installs(&mut self, request: &str) -> bool {
            let (render, was_stored) = self.load(request);
            let content = Some(format!("content of {request}"));
            self.digests = Digests { stored_render: Some(render), source: content, ..Digests::default() };
            was_stored
        }

        /// Applies the whole content of a release whose results do not vary.
        fn installs_certain(&mut self, content: &str) {
            self.digests = Digests { source: Some(content.to_owned()), ..Digests::default() };
        }

        /// Keeps the installed release as the rollback target.
        fn keeps(&mut self) {
            self.target = Some(RollbackTarget { digests: self.digests.clone(), ..RollbackTarget::default() });
        }

        fn secrets(&self) -> usize {
            self.held.iter().flatten().count()
        }
    }

    #[test]
    fn the_installed_render_stays_while_other_releases_fail() {
        let mut store = FakeStore::default();
        assert!(!store.installs("a"));
        for failing in ["b", "c", "d", "e"] {
            assert!(!store.has(failing), "{failing}");
            assert!(store.has(failing), "{failing}: the next try is the same");
            assert!(store.has("a"), "{failing}");
        }
        assert!(store.installs("a"));
    }

    #[test]
    fn a_release_that_was_left_for_another_is_over() {
        let mut store = FakeStore::default();
        store.installs("a");
        store.installs("b");
        assert!(store.has("b") && !store.has("a"), "new passwords, as with Helm");
        assert!(store.has("a"), "from then on it is tried with the same");
        assert!(store.installs("a") && store.has("a") && !store.has("b"), "b was made for another a");
        store.installs_certain("plain");
        assert!(!store.has("a"));
        assert!(store.has("a") && store.secrets() == 2);
    }

    #[test]
    fn a_long_line_of_releases_takes_two_secrets() {
        let mut store = FakeStore::default();
        for release in ["a", "b", "c", "d", "e"] {
            assert!(!store.installs(release) && store.has(release));
        }
        assert_eq!(store.secrets(), 2);
    }

    #[test]
    fn no_render_is_discarded_before_the_first_installation() {
        let mut store = FakeStore::default();
        assert!(!store.has("a") && !store.has("b") && !store.has("c"));
        assert!(store.has("a") && store.has("b") && store.has("c"));
        assert!(!store.has("d") && store.has("a"), "the first may have left a database");
        assert!(store.installs("a"));
    }

    #[test]
    fn render_of_rollback_target_stays_while_other_releases_fail() {
        let mut store = FakeStore::default();
        store.installs("a");
        store.keeps();
        store.installs("b");
        assert!(!store.has("c") && store.has("b") && store.has("a"));
        assert!(!store.has("d") && store.has("b") && store.has("a"));
        assert!(store.installs("a"), "it was brought back");
        store.installs("b");
        store.keeps();
        assert!(!store.has("a"), "b is the one to come back to now");
    }

    #[test]
    fn single_render_of_old_version_stays_until_the_next_install() {
        let mut store = FakeStore::default();
        store.held[0] = Some(RenderEntry { request: "a".to_owned(), render: "a 0".to_owned(), after: None });
        store.installs_certain("content of a");
        assert!(!store.has("b") && store.has("b") && store.has("a"));
        assert!(!store.has("c") && !store.has("d") && store.has("a"));
        assert!(store.installs("a") && store.has("a"));
        store.installs("b");
        assert!(!store.has("a"));
    }

    #[test]
    fn signed_content_comes_from_no_render_that_is_not_on_record() {
        let digests = Digests { stored_render: Some("recorded".to_owned()), ..Digests::default() };
        let entry = |render: &str, after: Option<&str>| RenderEntry {
            request: "r".to_owned(),
            render: render.to_owned(),
            after: after.map(str::to_owned),
        };
        let made_here = BTreeSet::from(["made".to_owned()]);
        let strict = || RenderCriteria::of(&digests, None).with_signatures(&made_here);
        let rows = [
            (entry("recorded", None), true),
            (entry("made", Some("recorded")), true),
            (entry("foreign", Some("recorded")), false),
            (entry("foreign", None), false),
        ];
        for (held, expected) in rows {
            let location = strict().locate(&[Some(held.clone()), None, None], "r", |_| false);
            assert_eq!(location == RenderLocation::Stored(0), expected, "{held:?}");
        }
        let first = RenderCriteria::default().with_signatures(&made_here);
        let foreign = [Some(entry("foreign", Some("")))];
        assert_eq!(first.locate(&foreign, "r", |_| false), RenderLocation::Free(0));
        assert_eq!(first.find_former(&foreign, "r"), None);
        let lax = RenderCriteria::of(&digests, None);
        let foreign = [Some(entry("foreign", Some("recorded")))];
        assert_eq!(lax.locate(&foreign, "r", |_| false), RenderLocation::Stored(0));
        assert_eq!(lax.find_former(&foreign, "r"), Some(0));
    }

    #[test]
    fn a_free_slot_without_parts_of_other_revisions_is_preferred() {
        let digests = Digests { stored_render: Some("installed".to_owned()), ..Digests::default() };
        let criteria = RenderCriteria::of(&digests, None);
        let entry = |render: &str, after: &str| {
            let (request, after) = (render.to_owned(), Some(after.to_owned()));
            Some(RenderEntry { request, render: render.to_owned(), after })
        };
        let held = [entry("over", "before"), None, entry("installed", "before")];
        assert_eq!(criteria.locate(&held, "r", |_| false), RenderLocation::Free(0));
        assert_eq!(criteria.locate(&held, "r", |at| at == 0), RenderLocation::Free(1));
        assert_eq!(criteria.locate(&held, "r", |at| at < 2), RenderLocation::Free(0));
        assert_eq!(criteria.find_former(&held, "over"), None, "that release was replaced");
        assert_eq!(criteria.find_former(&held, "installed"), Some(2));
    }
}
