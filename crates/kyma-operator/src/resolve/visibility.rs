//! Which Kyma may have which module: beta, internal, restricted. As KLM.

use kube::core::{Selector, SelectorExt as _};
use kyma_api::Reason;
use kyma_api::labels;

use super::{Because, Inputs};
use crate::catalogue::{Release, Template};

/// Restricted modules need a `kymaSelector` that matches; a selector on a module that is not on the list of
/// restricted ones admits nobody, and an empty selector matches nothing.
pub(super) fn release(inputs: &Inputs<'_>, release: &Release) -> Result<(), Because> {
    let listed = inputs.policy.restricted.contains(&release.module);
    let allowed = match (&release.selector, listed) {
        (None, listed) => !listed,
        (Some(_), false) => false,
        (Some(selector), true) => {
            let empty = selector.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
                && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
            !empty
                && Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(inputs.labels))
        }
    };
    if allowed { Ok(()) } else { Err(denied(&release.module, "restricted")) }
}

/// A beta or internal version needs the same label on the Kyma.
pub(super) fn template(inputs: &Inputs<'_>, template: &Template) -> Result<(), Because> {
    let has = |label: &str| inputs.labels.get(label).is_some_and(|value| value == "true");
    let name = template.module.as_deref().unwrap_or(&template.name);
    if template.beta && !has(labels::BETA) {
        return Err(denied(name, "beta"));
    }
    if template.internal && !has(labels::INTERNAL) {
        return Err(denied(name, "internal"));
    }
    Ok(())
}

fn denied(module: &str, class: &str) -> Because {
    let message = format!("module {module} is {class} and not allowed for this Kyma");
    Because::error(Reason::NotVisible, message)
}
