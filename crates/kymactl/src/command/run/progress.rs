//! The objects that the operators of this process have reconciled. A status can be of an earlier run, and objects of
//! modules can be gone since.

use kube::{Api, Client, Resource as _, ResourceExt as _};
use kyma_api::{HelmComponent, Kyma, State, condition, labels, names};
use kyma_controller::{Diagnoses, Diagnosis};

use super::input::RunInput;
use crate::error::Error;

/// Returns the objects that the operators have not found Ready since they started, as text. `--component` programs run
/// in processes of their own, so their components are left out.
pub(super) async fn unconfirmed(
    client: &Client,
    input: &RunInput,
    kyma: &Kyma,
    diagnoses: &Diagnoses,
) -> Result<Vec<String>, Error> {
    let (namespace, name) = (kyma.namespace().unwrap_or_default(), kyma.name_any());
    let pending = pending_reconcile(&diagnoses.of(&namespace, &name), &Kyma::kind(&()), "kyma-operator");
    if let Some(pending) = pending {
        return Ok(vec![format!("{name}: {pending}")]);
    }
    let api: Api<HelmComponent> = Api::namespaced(client.clone(), &namespace);
    let mut open = Vec::new();
    for component in components(kyma, input) {
        let reconciles = diagnoses.of(&namespace, &component);
        let problem = match pending_reconcile(&reconciles, &HelmComponent::kind(&()), "helm-component") {
            Some(pending) => Some(pending),
            None => problem_of(api.get_opt(&component).await?.as_ref()),
        };
        open.extend(problem.map(|problem| format!("HelmComponent {component}: {problem}")));
    }
    Ok(open)
}

/// Returns the names of the HelmComponents of Ready and of mandatory modules.
fn components(kyma: &Kyma, input: &RunInput) -> Vec<String> {
    let kind = HelmComponent::kind(&());
    let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let selected = modules.filter(|module| module.state == State::Ready).filter_map(|module| {
        let component = module.manifest.as_ref()?;
        let is_helm = component.kind.as_deref() == Some(&*kind);
        component.metadata.as_ref().filter(|_| is_helm)?.name.clone()
    });
    let mandatory = input.mandatory().into_iter().filter(|module| module.kind.kind == kind);
    let mandatory = mandatory.map(|module| names::component_name(&kyma.name_any(), &module.name));
    selected.chain(mandatory).collect()
}

/// Returns the reconcile that the run waits for, as text; `None` if the last one of the object succeeded and no event has
/// requested another one. A failed one may not have written the status, so the status may be of an earlier run.
fn pending_reconcile(diagnoses: &[Diagnosis], kind: &str, operator: &str) -> Option<String> {
    let own = || diagnoses.iter().filter(|one| one.kind == kind);
    if own().any(|one| is_idle(one) && one.failures == 0) {
        return None;
    }
    let failure = own().find_map(|one| one.failure.as_deref());
    let failure = failure.map_or_else(String::new, |failure| format!(": {failure}"));
    Some(format!("waits for {operator}{failure}"))
}

fn is_idle(one: &Diagnosis) -> bool {
    one.next.is_some() && one.queued.is_none() && one.working.is_none()
}

/// Returns the reason for which a component is not Ready; `None` if it is Ready or suspended.
fn problem_of(component: Option<&HelmComponent>) -> Option<String> {
    let Some(component) = component else { return Some("it does not exist".to_owned()) };
    let is_skipped = component.labels().get(labels::SKIP_RECONCILIATION).is_some_and(|value| value == "true");
    let status = component.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
    // The watches of helm-component and of the run may be behind a change of the component.
    let is_outdated = status.and_then(|status| status.observed_generation) != component.metadata.generation;
    match ready {
        _ if is_skipped || component.spec.suspend == Some(true) => None,
        Some(_) if is_outdated => Some("its status is of an earlier spec".to_owned()),
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("{}: {}", ready.reason, ready.message)),
        None => Some("it has no status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_counts_once_a_reconcile_of_it_has_succeeded() {
        let of = |kind: &str, queued, working, next| Diagnosis {
            kind: kind.to_owned(),
            queued,
            working,
            next,
            ..Diagnosis::default()
        };
        let pending = |one: Diagnosis| pending_reconcile(&[one], "Kyma", "kyma-operator");
        let waits = Some("waits for kyma-operator".to_owned());
        assert_eq!(pending_reconcile(&[], "Kyma", "kyma-operator"), waits);
        for open in [
            of("Kyma", Some(1.0), None, None),
            of("Kyma", None, Some(1.0), None),
            of("Kyma", Some(0.1), None, Some(9.0)),
            of("HelmComponent", None, None, Some(9.0)),
        ] {
            assert_eq!(pending(open.clone()), waits, "{open:?}");
        }
        let ended = of("Kyma", None, None, Some(9.0));
        assert_eq!(pending(ended.clone()), None);
        let failed = Diagnosis { failures: 1, failure: Some("HubConflict: x".to_owned()), ..ended };
        assert_eq!(pending(failed).as_deref(), Some("waits for kyma-operator: HubConflict: x"));
    }

    #[test]
    fn a_component_counts_if_it_is_ready_or_suspended() {
        let problem = |suspend: bool, skip: &str, ready: &str| {
            let condition = json!({
                "type": "Ready", "status": ready, "reason": "Paused", "message": "by Pause freeze",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let component: HelmComponent = serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": "shop", "labels": {labels::SKIP_RECONCILIATION: skip}},
                "spec": {"source": {}, "suspend": suspend}, "status": {"conditions": [condition]},
            }))
            .unwrap();
            problem_of(Some(&component))
        };
        assert_eq!(problem(false, "false", "True"), None);
        assert_eq!((problem(true, "false", "Unknown"), problem(false, "true", "Unknown")), (None, None));
        for ready in ["False", "Unknown"] {
            assert_eq!(problem(false, "false", ready).as_deref(), Some("Paused: by Pause freeze"));
        }
        assert!(problem_of(None).is_some());
    }

    #[test]
    fn ready_condition_of_an_earlier_spec_does_not_count() {
        let problem = |observed: i64| {
            let condition = json!({
                "type": "Ready", "status": "True", "reason": "Healthy", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let component: HelmComponent = serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": "shop", "generation": 2}, "spec": {"source": {}},
                "status": {"observedGeneration": observed, "conditions": [condition]},
            }))
            .unwrap();
            problem_of(Some(&component))
        };
        assert_eq!(problem(1).as_deref(), Some("its status is of an earlier spec"));
        assert_eq!(problem(2), None);
    }

    #[test]
    fn run_checks_helm_components_of_ready_and_mandatory_modules() {
        let module = |name: &str, state: &str, kind: &str| {
            let manifest = json!({"kind": kind, "metadata": {"name": format!("one-{name}")}});
            json!({"name": name, "state": state, "manifest": manifest})
        };
        let kyma = |modules: &Value| {
            json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {"name": "one"}, "spec": {"channel": "regular"}, "status": {"modules": modules},
            })
        };
        let modules = json!([
            module("keda", "Ready", "HelmComponent"),
            module("nats", "Unmanaged", "HelmComponent"),
            module("lamp", "Ready", "Lantern"),
            {"name": "none", "state": "Ready"},
        ]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kyma.json");
        std::fs::write(&file, kyma(&json!([])).to_string()).unwrap();
        let input = RunInput::read(&file, &[], "kcp-system").unwrap();
        let kyma: Kyma = serde_json::from_value(kyma(&modules)).unwrap();
        assert_eq!(components(&kyma, &input), ["one-keda"]);
    }
}
