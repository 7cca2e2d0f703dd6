//! Kymas whose names are too long for label values.

use std::collections::HashMap;

use kyma_api::names;
use parking_lot::Mutex;

/// Names of Kymas that are longer than a label value, by their hashed label value.
#[derive(Debug, Default)]
pub struct LongNames(Mutex<HashMap<String, String>>);

impl LongNames {
    /// Adds a Kyma.
    pub fn add(&self, name: &str) {
        let value = names::label_value(name);
        if value != name {
            self.0.lock().insert(value, name.to_owned());
        }
    }

    /// Removes a Kyma.
    pub fn remove(&self, name: &str) {
        self.0.lock().remove(&names::label_value(name));
    }

    /// Reports whether no Kyma has a long name.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the name of the Kyma for a value of the label `kyma-name`.
    pub fn name_of(&self, value: &str) -> String {
        self.0.lock().get(value).cloned().unwrap_or_else(|| value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_value_maps_to_a_long_name_while_its_kyma_exists() {
        let (names, long) = (LongNames::default(), "k".repeat(70));
        names.add("short");
        names.add(&long);
        let value = names::label_value(&long);
        assert_eq!((names.name_of("short"), names.name_of(&value)), ("short".to_owned(), long.clone()));
        assert_eq!(names.0.lock().len(), 1);
        names.remove(&long);
        assert_eq!(names.name_of(&value), value);
        assert!(names.is_empty());
    }
}
