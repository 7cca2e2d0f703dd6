//! Selects the kept render of a request, or the Secret that a new one replaces. Pure.

use std::collections::BTreeSet;

use kyma_api::{Digests, RollbackTarget};

/// Description of the render that a Secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Digest of the render's inputs.
    pub request: String,
    /// Digest of the render. Results vary, so each render of a request has another digest.
    pub render: String,
    /// Release that was installed at the time, as of [`Standing::installed`]. `None` in Secrets of versions that kept
    /// a single render.
    pub after: Option<String>,
}

/// Criteria for the stored renders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// Digest of the render of the completely installed release, if its results vary.
    render: Option<String>,
    /// Digest of the completely installed content.
    content: Option<String>,
    /// Digest of the render of the rollback target.
    kept: Option<String>,
    /// Renders that this process made, if signatures are required; no others may be used unless the status records
    /// them.
    made_here: Option<BTreeSet<String>>,
}

/// Location of the render of a request among the Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderLocation {
    /// The render is kept at this index.
    Kept(usize),
    /// The render is not kept; the Secret at this index is free for it.
    Free(usize),
}

impl Standing {
    /// Reads the criteria from the status of a component.
    pub(crate) fn of(digests: &Digests, target: Option<&RollbackTarget>) -> Self {
        let target = target.filter(|target| target.message.is_none());
        Self {
            render: digests.stored_render.clone(),
            content: digests.source.clone(),
            kept: target.and_then(|target| target.digests.stored_render.clone()),
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
    fn needs(&self, entry: &Entry) -> bool {
        let render = Some(&entry.render);
        let is_older = entry.after.is_none() && self.render.is_none();
        is_older || render == self.render.as_ref() || render == self.kept.as_ref()
    }

    /// Reports whether the render may be used. A release that was replaced has ended: if it returns, it gets new
    /// passwords.
    fn takes(&self, entry: &Entry) -> bool {
        if let Some(made_here) = &self.made_here {
            let recorded = [&self.render, &self.kept].into_iter().flatten();
            if !recorded.chain(made_here).any(|render| *render == entry.render) {
                return false;
            }
        }
        let installed = self.installed();
        installed.is_empty() || self.needs(entry) || entry.after.as_deref() == Some(installed)
    }

    /// Returns the location of the render of this request among these Secrets, or the one that is free for it.
    pub(crate) fn locate(&self, held: &[Option<Entry>], request: &str) -> RenderLocation {
        let mut entries = held.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)));
        if let Some((at, entry)) = entries.find(|(_, entry)| entry.request == request) {
            return if self.takes(entry) { RenderLocation::Kept(at) } else { RenderLocation::Free(at) };
        }
        // Of two renders that were never completely installed, the later one is replaced: the first may have left
        // lasting objects.
        let dearness = |at: usize| match &held[at] {
            Some(entry) if !self.takes(entry) => (0, at),
            None => (1, at),
            Some(entry) if !self.needs(entry) => (2, held.len() - at),
            Some(_) => (3, held.len() - at),
        };
        RenderLocation::Free((0..held.len()).min_by_key(|at| dearness(*at)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Secrets and the status of a component.
    #[derive(Default)]
    struct Shelf {
        held: [Option<Entry>; 3],
        digests: Digests,
        target: Option<RollbackTarget>,
        renders: usize,
    }

    impl Shelf {
        /// Loads the render of this request: returns its digest, and whether it was kept.
        fn load(&mut self, request: &str) -> (String, bool) {
            let standing = Standing::of(&self.digests, self.target.as_ref());
            match standing.locate(&self.held, request) {
                RenderLocation::Kept(at) => {
                    let entry = self.held[at].as_ref().unwrap();
                    assert_eq!(entry.request, request);
                    (entry.render.clone(), true)
                }
                RenderLocation::Free(at) => {
                    self.renders += 1;
                    let render = format!("{request} {}", self.renders);
                    let after = Some(standing.installed().to_owned());
                    let entry = Entry { request: request.to_owned(), render: render.clone(), after };
                    self.held[at] = Some(entry);
                    (render, false)
                }
            }
        }

        fn has(&mut self, request: &str) -> bool {
            self.load(request).1
        }

        /// Applies the whole release; returns whether its render was kept.
        fn installs(&mut self, request: &str) -> bool {
            let (render, was_kept) = self.load(request);
            let content = Some(format!("content of {request}"));
            self.digests = Digests { stored_render: Some(render), source: content, ..Digests::default() };
            was_kept
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
    fn what_is_installed_stays_whatever_is_tried_and_fails() {
        let mut shelf = Shelf::default();
        assert!(!shelf.installs("a"));
        for failing in ["b", "c", "d", "e"] {
            assert!(!shelf.has(failing), "{failing}");
            assert!(shelf.has(failing), "{failing}: the next try is the same");
            assert!(shelf.has("a"), "{failing}");
        }
        assert!(shelf.installs("a"));
    }

    #[test]
    fn a_release_that_was_left_for_another_is_over() {
        let mut shelf = Shelf::default();
        shelf.installs("a");
        shelf.installs("b");
        assert!(shelf.has("b") && !shelf.has("a"), "new passwords, as with Helm");
        assert!(shelf.has("a"), "from then on it is tried with the same");
        assert!(shelf.installs("a") && shelf.has("a") && !shelf.has("b"), "b was made for another a");
        shelf.installs_certain("plain");
        assert!(!shelf.has("a"));
        assert!(shelf.has("a") && shelf.secrets() == 2);
    }

    #[test]
    fn a_long_line_of_releases_takes_two_secrets() {
        let mut shelf = Shelf::default();
        for release in ["a", "b", "c", "d", "e"] {
            assert!(!shelf.installs(release) && shelf.has(release));
        }
        assert_eq!(shelf.secrets(), 2);
    }

    #[test]
    fn nothing_that_was_rendered_is_over_before_anything_is_installed() {
        let mut shelf = Shelf::default();
        assert!(!shelf.has("a") && !shelf.has("b") && !shelf.has("c"));
        assert!(shelf.has("a") && shelf.has("b") && shelf.has("c"));
        assert!(!shelf.has("d") && shelf.has("a"), "the first may have left a database");
        assert!(shelf.installs("a"));
    }

    #[test]
    fn what_a_rollback_brings_back_stays_while_others_come_and_fail() {
        let mut shelf = Shelf::default();
        shelf.installs("a");
        shelf.keeps();
        shelf.installs("b");
        assert!(!shelf.has("c") && shelf.has("b") && shelf.has("a"));
        assert!(!shelf.has("d") && shelf.has("b") && shelf.has("a"));
        assert!(shelf.installs("a"), "it was brought back");
        shelf.installs("b");
        shelf.keeps();
        assert!(!shelf.has("a"), "b is the one to come back to now");
    }

    #[test]
    fn the_single_render_of_earlier_versions_stays_until_another_is_installed() {
        let mut shelf = Shelf::default();
        shelf.held[0] = Some(Entry { request: "a".to_owned(), render: "a 0".to_owned(), after: None });
        shelf.installs_certain("content of a");
        assert!(!shelf.has("b") && shelf.has("b") && shelf.has("a"));
        assert!(!shelf.has("c") && !shelf.has("d") && shelf.has("a"));
        assert!(shelf.installs("a") && shelf.has("a"));
        shelf.installs("b");
        assert!(!shelf.has("a"));
    }

    #[test]
    fn signed_content_comes_from_no_render_that_is_not_on_record() {
        let digests = Digests { stored_render: Some("recorded".to_owned()), ..Digests::default() };
        let entry = |render: &str, after: Option<&str>| Entry {
            request: "r".to_owned(),
            render: render.to_owned(),
            after: after.map(str::to_owned),
        };
        let made_here = BTreeSet::from(["made".to_owned()]);
        let strict = || Standing::of(&digests, None).with_signatures(&made_here);
        let rows = [
            (entry("recorded", None), true),
            (entry("made", Some("recorded")), true),
            (entry("foreign", Some("recorded")), false),
            (entry("foreign", None), false),
        ];
        for (held, expected) in rows {
            let location = strict().locate(&[Some(held.clone()), None, None], "r");
            assert_eq!(location == RenderLocation::Kept(0), expected, "{held:?}");
        }
        let first = Standing::default().with_signatures(&made_here);
        assert_eq!(first.locate(&[Some(entry("foreign", Some("")))], "r"), RenderLocation::Free(0));
        let lax = Standing::of(&digests, None);
        assert_eq!(lax.locate(&[Some(entry("foreign", Some("recorded")))], "r"), RenderLocation::Kept(0));
    }
}
