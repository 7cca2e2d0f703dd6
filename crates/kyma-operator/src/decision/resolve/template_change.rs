//! Refuses a ModuleTemplate that was deleted and recreated under its name with other content: the installed version
//! stays.

use kyma_api::Reason;

use super::{Inputs, Install, InstalledModule, ModuleProblem};
use crate::hub::catalogue::Template;

/// Returns the reason if the version was installed from other content than the template has.
pub(super) fn check_content(
    inputs: &Inputs<'_>,
    installed: Option<&InstalledModule>,
    install: &Install,
) -> Option<ModuleProblem> {
    let (module, version) = (&install.release.module, &install.version);
    let own = installed.and_then(|installed| installed.template.as_ref());
    let own = own.filter(|own| own.version == *version);
    let is_other = match own {
        Some(own) => own.is_replaced_by(&install.template),
        None => inputs.contents.is_replaced(module, version, &install.template),
    };
    is_other.then(|| problem(module, version, &install.template))
}

fn problem(module: &str, version: &str, template: &Template) -> ModuleProblem {
    let message = format!(
        "ModuleTemplate {} was deleted and created again with content that differs from the installed \
         version {version} of module {module}: nothing is changed until its former content is restored; \
         publish other content as a new version",
        template.name
    );
    ModuleProblem::warning(Reason::ModuleTemplateChanged, message)
}
