//! Which objects are meant.

use kyma_api::ObjectSelector;

use crate::object::Object;

/// Whether an object, whose namespace is filled in, is one of those meant; what a selector does not say fits any.
pub(crate) fn selects(selector: &ObjectSelector, object: &Object) -> bool {
    let ObjectSelector { group, version, kind, namespace, name } = selector;
    let fits = |wished: &Option<String>, is: &str| wished.as_ref().is_none_or(|wished| wished == is);
    fits(group, object.group())
        && fits(version, object.version())
        && fits(kind, object.kind())
        && fits(namespace, object.namespace().unwrap_or_default())
        && fits(name, object.name())
}
