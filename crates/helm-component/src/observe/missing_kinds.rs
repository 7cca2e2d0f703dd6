//! Determines the kinds that objects or the spec need and the target lacks.

use std::collections::BTreeSet;

use kyma_object_set::GroupKind;

use crate::pass::Pass;
use crate::plan::Observed;

/// Kinds that objects or the spec need and the target lacks.
#[derive(Debug, Default)]
pub(crate) struct MissingKinds {
    /// Kinds that the target does not serve.
    pub(crate) kinds: BTreeSet<String>,
    /// API groups that do not answer, so that the state of a kind in the spec is unknown.
    pub(crate) silent: BTreeSet<String>,
}

impl MissingKinds {
    /// Returns the kinds that are missing at this point of a pass.
    pub(crate) fn of(pass: &Pass<'_>, seen: &Observed) -> Self {
        let mut missing = Self { kinds: seen.missing(), silent: BTreeSet::new() };
        for dependency in pass.context.resource.spec.depends_on.iter().flatten() {
            let Some(api) = &dependency.api else { continue };
            let kind = GroupKind::new(&api.group, &api.kind);
            let versions = pass.kinds.versions(&kind);
            let fits = |version: &String| versions.iter().any(|mapping| mapping.resource.version == *version);
            let served = !versions.is_empty() && api.version.as_ref().is_none_or(fits);
            if !served && pass.kinds.is_unknown(&api.group) {
                missing.silent.insert(api.group.clone());
            } else if !served {
                missing.kinds.insert(kind.to_string());
            }
        }
        missing
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && !self.has_silent()
    }

    pub(crate) fn has_silent(&self) -> bool {
        !self.silent.is_empty()
    }
}
