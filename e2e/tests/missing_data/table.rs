//! Every kind that an operator reads, from which the rows about lists are generated. SECURITY.md describes the
//! effect of each loss; `cargo xtask tidy` compares both with the roles, so that a new kind needs a row.

use crate::faults::Side;

/// A kind on the hub or on targets.
pub(crate) struct Kind {
    /// The resource, as named in roles.
    pub(crate) resource: &'static str,
    /// The side on which its lists are altered, or `None` if no operator lists it.
    pub(crate) listed_on: Option<Side>,
    /// The reason that Kymas report while its list is empty and operators run.
    pub(crate) says: Option<&'static str>,
    /// The reason that Kymas report while its list is empty and operators start.
    pub(crate) says_at_start: Option<&'static str>,
}

const fn kind(resource: &'static str, listed_on: Option<Side>) -> Kind {
    Kind { resource, listed_on, says: None, says_at_start: None }
}

impl Kind {
    const fn says(self, reason: &'static str) -> Self {
        Self { says: Some(reason), says_at_start: Some(reason), ..self }
    }

    const fn says_at_start(self, reason: &'static str) -> Self {
        Self { says_at_start: Some(reason), ..self }
    }
}

const HUB: Option<Side> = Some(Side::Hub);
const TARGETS: Option<Side> = Some(Side::Targets);

/// One row per kind.
pub(crate) const KINDS: [Kind; 19] = [
    kind("kymas", HUB),
    kind("helmcomponents", HUB),
    // A component kind with an operator of its own.
    kind("greetings", HUB),
    kind("moduletemplates", HUB).says("ModuleTemplateMissing"),
    kind("modulereleasemetas", HUB).says("ModuleReleaseMetaMissing"),
    // A running operator reads a known ModuleConfig that a list lacks by name, and finds it.
    kind("moduleconfigs", HUB).says_at_start("ModuleConfigMissing"),
    kind("pauses", HUB),
    kind("secrets", HUB).says("AwaitingAccess"),
    kind("customresourcedefinitions", HUB),
    // Only metadata is listed; values are read by name.
    kind("configmaps", HUB),
    // Read by name only.
    kind("namespaces", None),
    // Read only with --manifest-mirror; Manifests cause no installation or removal.
    kind("manifests", None),
    kind("validatingadmissionpolicies", TARGETS),
    kind("validatingadmissionpolicybindings", TARGETS),
    // These kinds have other effects on targets than on the hub.
    kind("kymas", TARGETS),
    kind("moduletemplates", TARGETS),
    kind("modulereleasemetas", TARGETS),
    kind("customresourcedefinitions", TARGETS),
    // One for all kinds of modules. Secrets have none: Helm's records are listed without a watch, and the copy of a
    // pull secret is watched only with --skr-image-pull-secret.
    kind("deployments", TARGETS),
];
