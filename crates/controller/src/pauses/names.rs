//! Names of the Pauses and `ConfigMaps` that an operator creates for its brake and its record of Pauses.

use kyma_api::{PauseScope, PauseSpec};

/// Returns the name of the Pause that an operator creates for itself, and of the `ConfigMap` with its counted
/// targets.
pub(crate) fn brake_name(operator: &str) -> String {
    format!("brake-{operator}")
}

/// Returns the operator whose brake created a Pause of this name and content.
pub(crate) fn braked_operator<'a>(name: &'a str, spec: &PauseSpec) -> Option<&'a str> {
    let operator = name.strip_prefix("brake-")?;
    let is_of_brake = spec.scope == PauseScope::Deletes && spec.operators == [operator];
    is_of_brake.then_some(operator)
}

/// Name of the `ConfigMap` with an operator's record of Pauses.
pub(crate) fn record_name(operator: &str) -> String {
    format!("pauses-{operator}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_brake_is_told_by_name_and_content() {
        let spec = |operators: &[&str], scope| PauseSpec {
            operators: operators.iter().map(|name| (*name).to_owned()).collect(),
            scope,
            ..PauseSpec::default()
        };
        assert_eq!(braked_operator("brake-x", &spec(&["x"], PauseScope::Deletes)), Some("x"));
        assert_eq!(braked_operator("brake-x", &spec(&["y"], PauseScope::Deletes)), None);
        assert_eq!(braked_operator("brake-x", &spec(&[], PauseScope::Deletes)), None);
        assert_eq!(braked_operator("brake-x", &spec(&["x"], PauseScope::All)), None);
        assert_eq!(braked_operator("x", &spec(&["x"], PauseScope::Deletes)), None);
    }
}
