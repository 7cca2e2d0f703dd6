//! Confirmations by a user: an annotation with the generation that it is for, so that a confirmation does not apply
//! to later changes. Pure.

use kyma_api::HelmComponent;

/// Annotation that confirms a set with far fewer objects than before.
pub(crate) const ALLOW_SHRINK: &str = "component.kyma-project.io/allow-shrink";
/// Annotation that confirms an older version than the one on the target.
pub(crate) const ALLOW_DOWNGRADE: &str = "component.kyma-project.io/allow-downgrade";

/// Reports whether the annotation confirms the current generation.
pub(crate) fn is_confirmed(component: &HelmComponent, annotation: &str) -> bool {
    let confirmed = component.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
    let generation = component.metadata.generation.unwrap_or_default().to_string();
    confirmed.is_some_and(|confirmed| *confirmed == generation)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_confirmation_is_for_one_generation() {
        let component = |generation: i64| -> HelmComponent {
            let metadata = json!({"generation": generation, "annotations": {ALLOW_SHRINK: "3"}});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"source": {}}})).unwrap()
        };
        assert!(is_confirmed(&component(3), ALLOW_SHRINK));
        assert!(!is_confirmed(&component(4), ALLOW_SHRINK));
        assert!(!is_confirmed(&component(3), ALLOW_DOWNGRADE));
    }
}
