//! Names of objects on the command line.

use kube::Resource;
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta};

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// Parses the name of a Kyma, such as `blue`, `kyma/blue` or `kyma.operator.kyma-project.io/blue`.
pub(crate) fn kyma(text: &str) -> Result<String, String> {
    name_of::<Kyma>(text)
}

/// Parses the name of a HelmComponent, alone or after its kind.
pub(crate) fn component(text: &str) -> Result<String, String> {
    name_of::<HelmComponent>(text)
}

/// Parses the name of a module, alone or after the kind of its ModuleReleaseMeta.
pub(crate) fn module(text: &str) -> Result<String, String> {
    name_of::<ModuleReleaseMeta>(text)
}

/// Returns the name in `<name>` or `<kind>/<name>`. kube does not escape a name in the URL of a request, so other text
/// would address another resource.
fn name_of<K: Resource<DynamicType = ()>>(text: &str) -> Result<String, String> {
    let (kind, name) = text.rsplit_once('/').map_or((None, text), |(kind, name)| (Some(kind), name));
    if let Some(kind) = kind.filter(|kind| !is_kind::<K>(kind)) {
        return Err(format!("{kind:?} is not the kind {}", K::kind(&())));
    }
    if is_name(name) { Ok(name.to_owned()) } else { Err(format!("{name:?} is not the name of an object")) }
}

/// Reports whether `text` is the kind or its plural, with or without the API group.
fn is_kind<K: Resource<DynamicType = ()>>(text: &str) -> bool {
    let (word, group) = text.split_once('.').map_or((text, None), |(word, group)| (word, Some(group)));
    let is_group = group.is_none_or(|group| group == K::group(&()));
    is_group && (word.eq_ignore_ascii_case(&K::kind(&())) || word == K::plural(&()))
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_start = |first: char| first.is_ascii_alphanumeric();
    text.len() <= MAX_NAME_BYTES && text.starts_with(is_start) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_follow_its_kind() {
        for text in ["blue", "kyma/blue", "kymas/blue", "Kyma/blue", "kyma.operator.kyma-project.io/blue"] {
            assert_eq!(kyma(text).as_deref(), Ok("blue"), "{text}");
        }
        assert_eq!(component("helmcomponent/shop.a-b").as_deref(), Ok("shop.a-b"));
        assert_eq!(module("modulereleasemetas.operator.kyma-project.io/keda").as_deref(), Ok("keda"));
    }

    #[test]
    fn text_that_is_not_a_name_is_refused() {
        for text in [
            "",
            "/",
            "kyma/",
            "blue/status",
            "kyma/blue/status",
            "blue?a",
            "blue#a",
            "blue%2fstatus",
            "..",
            "a b",
            "helmcomponent/blue",
            "kyma.example.org/blue",
        ] {
            assert!(kyma(text).is_err(), "{text}");
        }
    }
}
