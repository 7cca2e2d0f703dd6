//! Messages of conditions.

use kyma_api::labels::APP_VERSION;

use crate::confirmed::ALLOW_DOWNGRADE;
use crate::memory::LEFT_OBJECTS_PREFIX;

/// Maximum number of objects in one message.
const MAX_LISTED_OBJECTS: usize = 10;

pub(super) fn stray_message(manager: &str) -> String {
    format!("spec.manager names {manager}, which is not among the component's objects")
}

pub(super) fn newer_message(found: &str) -> String {
    format!(
        "the target runs version {found}, which is newer than the desired one, as after a restore of the hub from a \
         backup: nothing is changed until {found} or newer is desired; to downgrade anyway, confirm with \
         the annotation {ALLOW_DOWNGRADE}=<metadata.generation>"
    )
}

pub(super) fn newer_installation_message(found: &str) -> String {
    format!(
        "a user installed version {found}, which is newer than the desired one: it is not changed until \
         {found} or newer is desired; to downgrade anyway, confirm with the annotation \
         {ALLOW_DOWNGRADE}=<metadata.generation>"
    )
}

pub(super) fn unknown_installation_message(object: &str) -> String {
    format!(
        "{object} is already installed, not by helm-component, and its version is unknown: it is not \
         changed; set its label {APP_VERSION}, or confirm with the annotation {ALLOW_DOWNGRADE}=<metadata.generation>"
    )
}

/// Returns a message with the released objects.
pub(super) fn with_left(message: String, left: &[String]) -> String {
    match (message.is_empty(), left.is_empty()) {
        (_, true) => message,
        (true, false) => format!("{LEFT_OBJECTS_PREFIX}{}", list(left)),
        (false, false) => format!("{message}; {LEFT_OBJECTS_PREFIX}{}", list(left)),
    }
}

pub(super) fn as_found_message(differing: &[String]) -> String {
    if differing.is_empty() {
        return "adopted from another system; nothing differs".to_owned();
    }
    format!(
        "adopted from another system unchanged, although they differ: {}; the next change of the component \
         corrects them, or drift.mode: Correct",
        list(differing)
    )
}

pub(super) fn flapping_message(names: &[String]) -> String {
    format!("changed repeatedly by another field manager, and not corrected for a while: {}", list(names))
}

pub(super) fn missing_message(kinds: &[String]) -> String {
    format!("the target does not serve {}", list(kinds))
}

pub(super) fn silent_message(groups: &[String]) -> String {
    format!("API groups that do not answer: {}", list(groups))
}

/// Returns the first entries of a list, in order, and the number of the others.
pub(crate) fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_LISTED_OBJECTS);
    let first = names[..names.len() - more].join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}
