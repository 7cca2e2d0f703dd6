//! Selection of objects.

use kyma_api::ObjectSelector;

use crate::object::Object;

/// Reports whether a selector matches an object with filled-in namespace. An absent field of the selector matches any
/// value.
pub(crate) fn selects(selector: &ObjectSelector, object: &Object) -> bool {
    let ObjectSelector { group, version, kind, namespace, name } = selector;
    let fits = |selected: &Option<String>, is: &str| selected.as_ref().is_none_or(|selected| selected == is);
    fits(group, object.group())
        && fits(version, object.version())
        && fits(kind, object.kind())
        && fits(namespace, object.namespace().unwrap_or_default())
        && fits(name, object.name())
}
