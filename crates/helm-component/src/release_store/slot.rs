//! Slots of the release store: the parts of a revision in up to three Secrets, and the slot for a new part. Pure.
//!
//! The first Secret of a slot has the render, and the hooks and objects as far as they fit. Hooks or objects that do
//! not fit have a Secret of their own, so each part may be as large as a Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kyma_api::{Digests, Hooks, RollbackTarget, release_store};

use super::renders::{RenderCriteria, RenderEntry};
use crate::packed::{self, MAX_PACKED_BYTES};

/// Maximum number of a component's revisions: the installed one, the next one, and the rollback target.
pub(crate) const MAX_REVISIONS: usize = 3;
/// Maximum number of Secrets of a slot: one for each part.
pub(crate) const MAX_SLOT_SECRETS: usize = 3;

/// Data of a Secret.
pub(crate) type Data = BTreeMap<String, ByteString>;

/// Kind of a part of a revision, in the order in which the parts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// A render that is not deterministic.
    Render,
    /// Hooks that run when the component is removed.
    Hooks,
    /// Objects and hooks as they were applied.
    Objects,
}

impl PartKind {
    const ALL: [Self; MAX_SLOT_SECRETS] = [Self::Render, Self::Hooks, Self::Objects];

    /// Returns the index of the kind among the parts, and of the Secret for a part that does not fit into the first.
    fn index(self) -> usize {
        match self {
            Self::Render => 0,
            Self::Hooks => 1,
            Self::Objects => 2,
        }
    }

    /// Returns the key of the packed part.
    fn content_key(self) -> &'static str {
        match self {
            Self::Render => "render.yaml.gz",
            Self::Hooks => "hooks.json.gz",
            Self::Objects => "objects.json.gz",
        }
    }

    /// Returns the key of the digest of the packed part.
    fn digest_key(self) -> &'static str {
        match self {
            Self::Render => "render.sha256",
            Self::Hooks => "hooks.sha256",
            Self::Objects => "objects.sha256",
        }
    }

    /// Returns the key of [`Part::revision`].
    fn revision_key(self) -> &'static str {
        match self {
            Self::Render => "render.request",
            Self::Hooks => "hooks.release",
            Self::Objects => "objects.release",
        }
    }
}

/// Key of [`Part::after`] of a render.
const AFTER_KEY: &str = "render.after";

/// A packed part of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Digest of the request of a render, or of the release of hooks and objects.
    pub(crate) revision: String,
    /// Release that was installed when a render was stored, as of [`RenderCriteria::installed`].
    pub(crate) after: Option<String>,
    /// The packed part.
    pub(crate) packed: Vec<u8>,
    /// Digest of the packed part.
    pub(crate) sha256: String,
}

impl Part {
    /// Returns the part with its digest.
    pub(crate) fn new(revision: &str, packed: Vec<u8>) -> Self {
        let sha256 = packed::digest(&packed);
        Self { revision: revision.to_owned(), after: None, packed, sha256 }
    }

    fn entry(&self) -> RenderEntry {
        RenderEntry { request: self.revision.clone(), render: self.sha256.clone(), after: self.after.clone() }
    }
}

/// A slot: the parts of one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    parts: [Option<Part>; MAX_SLOT_SECRETS],
    /// Whether each Secret of the slot had data when the slot was read.
    has_data: [bool; MAX_SLOT_SECRETS],
}

impl Slot {
    /// Returns the part of this kind.
    pub(crate) fn part(&self, kind: PartKind) -> Option<&Part> {
        self.parts[kind.index()].as_ref()
    }

    /// Removes and returns the part of this kind.
    pub(crate) fn take(&mut self, kind: PartKind) -> Option<Part> {
        self.parts[kind.index()].take()
    }

    /// Replaces the part of this kind.
    pub(crate) fn set(&mut self, kind: PartKind, part: Part) {
        self.parts[kind.index()] = Some(part);
    }

    /// Returns the description of the render.
    pub(crate) fn render_entry(&self) -> Option<RenderEntry> {
        self.part(PartKind::Render).map(Part::entry)
    }

    /// Reports whether a Secret of the slot had data when the slot was read.
    pub(crate) fn had_data(&self, secret: usize) -> bool {
        self.has_data[secret]
    }

    /// Reports whether a part other than the render belongs to this release, or the render is this one.
    fn is_of(&self, release: &str, render: Option<&str>) -> bool {
        let has_render = self.part(PartKind::Render).is_some_and(|part| Some(&*part.sha256) == render);
        let others = [PartKind::Hooks, PartKind::Objects].map(|kind| self.part(kind));
        has_render || others.into_iter().flatten().any(|part| part.revision == release)
    }

    /// Returns the further Secrets of a slot that have a part, by the data of its first Secret.
    pub(crate) fn further_secrets(first: &Data) -> Vec<usize> {
        let is_elsewhere = |kind: &PartKind| {
            first.contains_key(kind.digest_key()) && !first.contains_key(kind.content_key())
        };
        let found = PartKind::ALL.into_iter().filter(is_elsewhere).map(PartKind::index);
        found.filter(|index| *index > 0).collect()
    }

    /// Reads a slot from the data of its Secrets. Digests of contents are verified when they are unpacked.
    pub(crate) fn decode(secrets: [Data; MAX_SLOT_SECRETS]) -> Self {
        let has_data = secrets.each_ref().map(|data| !data.is_empty());
        let [mut first, second, third] = secrets;
        let word = |data: &Data, key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        let mut further = [Data::new(), second, third];
        let parts = PartKind::ALL.map(|kind| {
            let content = first.remove(kind.content_key());
            let content = content.or_else(|| further[kind.index()].remove(kind.content_key()));
            Some(Part {
                revision: word(&first, kind.revision_key())?,
                after: word(&first, AFTER_KEY).filter(|_| kind == PartKind::Render),
                packed: content?.0,
                sha256: word(&first, kind.digest_key())?,
            })
        });
        Self { parts, has_data }
    }

    /// Returns the data of the slot's Secrets. An earlier part never moves because a later one is added.
    pub(crate) fn encode(self) -> [Data; MAX_SLOT_SECRETS] {
        let mut secrets: [Data; MAX_SLOT_SECRETS] = std::array::from_fn(|_| Data::new());
        let mut size = 0;
        for (kind, part) in PartKind::ALL.into_iter().zip(self.parts) {
            let Some(part) = part else { continue };
            let first = &mut secrets[0];
            first.insert(kind.revision_key().to_owned(), ByteString(part.revision.into_bytes()));
            first.insert(kind.digest_key().to_owned(), ByteString(part.sha256.into_bytes()));
            if let Some(after) = part.after {
                first.insert(AFTER_KEY.to_owned(), ByteString(after.into_bytes()));
            }
            let fits = size + part.packed.len() <= MAX_PACKED_BYTES;
            if fits {
                size += part.packed.len();
            }
            let secret = if fits { 0 } else { kind.index() };
            secrets[secret].insert(kind.content_key().to_owned(), ByteString(part.packed));
        }
        secrets
    }
}

/// Returns the names of the Secrets of a slot of the component with this owner hash.
pub(crate) fn secret_names(owner: &str, slot: usize) -> [String; MAX_SLOT_SECRETS] {
    let first = format!("{}{owner}-{}", release_store::PREFIX, slot + 1);
    let (second, third) = (format!("{first}-2"), format!("{first}-3"));
    [first, second, third]
}

/// Returns a pattern of the names of all Secrets of the component with this owner hash, for messages.
pub(crate) fn secret_pattern(owner: &str) -> String {
    format!("{}{owner}-*", release_store::PREFIX)
}

/// Criteria for the parts that a component needs, by its recorded status.
#[derive(Debug, Clone, Default)]
pub(crate) struct RevisionCriteria {
    /// Criteria for renders.
    pub(crate) renders: RenderCriteria,
    /// Digest of the packed objects of the rollback target.
    objects: Option<String>,
    /// Release that was begun last, by the record of hooks.
    begun: Option<String>,
}

impl RevisionCriteria {
    /// Reads the criteria from the status of a component.
    pub(crate) fn of(digests: &Digests, target: Option<&RollbackTarget>, hooks: Option<&Hooks>) -> Self {
        Self {
            renders: RenderCriteria::of(digests, target),
            objects: target.and_then(|target| target.secret_digest.clone()),
            begun: hooks.map(|record| record.digest.clone()),
        }
    }

    /// Reports whether the part must stay. Hooks of a release other than the begun one stay while the hooks of that
    /// one are not stored: they may be those of the installed release.
    fn needs(&self, slots: &[Slot], kind: PartKind, part: &Part) -> bool {
        match kind {
            PartKind::Render => self.renders.accepts(&part.entry()),
            PartKind::Objects => self.objects.as_ref() == Some(&part.sha256),
            PartKind::Hooks => {
                let is_begun = |part: &Part| self.begun.as_ref() == Some(&part.revision);
                let mut stored = slots.iter().filter_map(|slot| slot.part(PartKind::Hooks));
                is_begun(part) || !stored.any(is_begun)
            }
        }
    }

    /// Reports whether a slot has a part of another kind that must stay.
    pub(crate) fn needs_other(&self, slots: &[Slot], slot: &Slot, kind: PartKind) -> bool {
        let mut others = PartKind::ALL.into_iter().filter(|other| *other != kind);
        others.any(|other| slot.part(other).is_some_and(|part| self.needs(slots, other, part)))
    }

    /// Returns a slot without the parts that are no longer needed.
    pub(crate) fn reduced(&self, slots: &[Slot], slot: &Slot) -> Slot {
        let mut reduced = slot.clone();
        for kind in PartKind::ALL {
            if slot.part(kind).is_some_and(|part| !self.needs(slots, kind, part)) {
                reduced.take(kind);
            }
        }
        reduced
    }

    /// Returns the index of the slot for hooks or objects of a release with this render: a slot of the same revision,
    /// else an unused one. Never one whose part of this kind must stay.
    pub(crate) fn slot_for(
        &self,
        slots: &[Slot; MAX_REVISIONS],
        kind: PartKind,
        release: &str,
        render: Option<&str>,
    ) -> usize {
        let priority = |at: &usize| {
            let slot = &slots[*at];
            // Hooks of the same release are equal.
            let replaces = slot.part(kind).is_some_and(|part| {
                let is_same = kind == PartKind::Hooks && part.revision == release;
                !is_same && self.needs(slots, kind, part)
            });
            if replaces {
                3
            } else if slot.is_of(release, render) {
                0
            } else {
                1 + i32::from(self.needs_other(slots, slot, kind))
            }
        };
        (0..MAX_REVISIONS).min_by_key(priority).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
