//! Kymas whose names are no label values.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kyma_api::names;

/// The Kymas whose names are longer than a label value, by the value that stands for them.
#[derive(Debug, Default)]
pub struct LongNames(Mutex<HashMap<String, String>>);

impl LongNames {
    /// A Kyma of this name is there.
    pub fn add(&self, name: &str) {
        let value = names::label_value(name);
        if value != name {
            self.lock().insert(value, name.to_owned());
        }
    }

    /// The Kyma of this name is gone.
    pub fn remove(&self, name: &str) {
        self.lock().remove(&names::label_value(name));
    }

    /// The name of the Kyma that a value of the label `kyma-name` stands for.
    pub fn name_of(&self, value: &str) -> String {
        self.lock().get(value).cloned().unwrap_or_else(|| value.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_value_leads_back_to_a_long_name_while_its_kyma_is_there() {
        let (names, long) = (LongNames::default(), "k".repeat(70));
        names.add("short");
        names.add(&long);
        let value = names::label_value(&long);
        assert_eq!((names.name_of("short"), names.name_of(&value)), ("short".to_owned(), long.clone()));
        assert_eq!(names.lock().len(), 1);
        names.remove(&long);
        assert_eq!(names.name_of(&value), value);
    }
}
