//! What a person confirmed about a component: by an annotation with the generation that it is meant for, so that a
//! confirmation never outlives what it was given for (pure).

use kyma_api::HelmComponent;

/// That a much smaller set than the one before is meant.
pub(crate) const ALLOW_SHRINK: &str = "component.kyma-project.io/allow-shrink";
/// That an older version than the one on the target is meant.
pub(crate) const ALLOW_DOWNGRADE: &str = "component.kyma-project.io/allow-downgrade";

/// Whether it is confirmed for the generation as it is.
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
