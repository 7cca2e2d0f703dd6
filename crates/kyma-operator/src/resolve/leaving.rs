//! A module whose removal objects of users hold up: it keeps working meanwhile, and follows its channel as before.

use std::sync::Arc;

use kyma_api::visibility::Viewer;

use super::{
    Decision, Inputs, Install, Installed, Resolved, Wish, deprecation, downtime, halt, kind_changed, version,
};

/// The removal, with the version that the channel of the module has come to meanwhile. A module that was pinned follows
/// nothing, and an upgrade that would not be done otherwise is not done now either.
pub(super) fn follow(inputs: &Inputs<'_>, installed: &Installed, removal: Resolved) -> Resolved {
    let Some(channel) = installed.channel.as_ref().filter(|_| installed.leaving) else { return removal };
    let mut resolved = removal;
    resolved.interest.channel = Some(channel.clone());
    let chosen = choose(inputs, &resolved.module, channel);
    resolved.interest.versions.extend(chosen.as_ref().map(|install| install.version.clone()));
    let Some(install) = chosen.filter(|install| is_upgrade(inputs, installed, install)) else {
        return resolved;
    };
    match downtime::decide(inputs, installed, &install) {
        None => resolved.decision = Decision::Leave(install),
        Some(Decision::Await(_, awaited)) => resolved.until = awaited.until(),
        // Nobody knows when: the policy's change wakes nobody for the sake of what is going.
        Some(_) => {}
    }
    resolved
}

fn choose(inputs: &Inputs<'_>, module: &str, channel: &str) -> Option<Install> {
    let release = inputs.catalogue.release(module)?;
    let viewer = Viewer { labels: inputs.labels, restricted: &inputs.policy.restricted };
    viewer.module(&release.module, release.mandatory.is_some(), release.selector.as_ref()).ok()?;
    let version = release.channels.get(channel)?;
    let template = inputs.catalogue.template(module, version)?;
    viewer.version(template.audience).ok()?;
    let central = inputs.configs.central(inputs.labels, module);
    Some(Install {
        template: Arc::clone(template),
        release: Arc::clone(release),
        version: version.clone(),
        channel: Some(channel.to_owned()),
        mandatory: false,
        wish: Arc::new(Wish { central, ..Wish::of(module) }),
    })
}

fn is_upgrade(inputs: &Inputs<'_>, installed: &Installed, install: &Install) -> bool {
    installed.wanted() != Some(install.version.as_str())
        && kind_changed(installed, install).is_none()
        && version::judge(installed, install).is_none()
        && halt::halted(inputs, installed, install).is_none()
        && deprecation::deprecated(inputs, install).is_none()
}
