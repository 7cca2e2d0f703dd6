//! Fields of a component's status besides its conditions.

use kyma_api::{Adoption, Digests, FreeForm};
use serde_json::json;

use crate::actions::{history, rollback};
use crate::content::Inputs;
use crate::memory::RecordedStatus;
use crate::pass::Pass;
use crate::plan::{Observed, Operation};

/// Maximum number of listed objects that differ from the content.
const MAX_LISTED_OBJECTS: usize = 20;

/// Returns the desired version, or that of the rollback target: of the module, or of the chart without a module.
pub(super) fn version(pass: &Pass<'_>) -> Option<String> {
    let target = || rollback::active_target(pass).map(|target| target.version.clone());
    let desired = || pass.inputs.as_ref().ok().and_then(Inputs::chart_version).map(str::to_owned);
    rollback::module_version(pass).or_else(target).or_else(desired)
}

/// Returns the digests of the installed content. While surplus objects remain, the digest of the inputs is left out,
/// so that a new process loads the content again: only the content shows which objects are surplus.
pub(super) fn digests(recorded: &Digests, is_of_content: bool, seen: &Observed) -> Digests {
    let is_pruned = matches!(seen.pruned, Some(Ok(()))) && !seen.pruning;
    let is_left =
        is_of_content && seen.operation == Operation::Install && !is_pruned && !seen.surplus().is_empty();
    Digests { inputs: recorded.inputs.clone().filter(|_| !is_left), ..recorded.clone() }
}

/// Returns all fields. `complete`: whether the desired version is the one on the target. `inventory`: the fields with
/// the inventory.
pub(super) fn fields(pass: &Pass<'_>, seen: &Observed, complete: bool, inventory: FreeForm) -> FreeForm {
    let release_name = pass.recorded_release_name();
    let recorded = &pass.state.recorded;
    let overridden = (!recorded.overridden.is_empty()).then_some(&recorded.overridden);
    let values_from = (!recorded.values_from.is_empty()).then_some(&recorded.values_from);
    let is_of_content = pass.state.loaded.as_ref().is_some_and(|loaded| recorded.is(loaded));
    let fields = json!({
        "digests": digests(&recorded.digests, is_of_content, seen),
        "resource": recorded.resource,
        "pruneBaseline": recorded.prune_baseline,
        "resolved": recorded.resolved,
        "releaseName": release_name,
        "revision": recorded.revision,
        "adopted": adoption(recorded),
        "releaseRecord": history::reported_record(pass),
        "overridden": overridden.map(|paths| paths.iter().take(100).collect::<Vec<_>>()),
        "valuesFrom": values_from,
    });
    let serde_json::Value::Object(mut fields) = fields else { return FreeForm::new() };
    fields.extend(recorded.hooks.fields());
    fields.extend(recorded.rollback.fields());
    fields.extend(inventory);
    // Only applied content counts as attempted, and only until all of it is applied.
    if complete || pass.done.applied {
        fields.insert("attemptedVersion".to_owned(), json!(version(pass).filter(|_| !complete)));
    }
    fields
}

/// Returns the adoption with the objects that differ.
fn adoption(recorded: &RecordedStatus) -> Option<Adoption> {
    let adopted = recorded.adopted.clone()?;
    let differing = recorded.inventory.left_as_is().count();
    let names: Vec<String> =
        recorded.inventory.left_as_is().take(MAX_LISTED_OBJECTS).map(ToString::to_string).collect();
    Some(Adoption {
        differing_count: i32::try_from(differing).ok().filter(|count| *count > 0),
        differing_objects: (!names.is_empty()).then_some(names),
        ..adopted
    })
}
