//! Validates an entry of `spec.modules` with the compiled rules of the schema.

use kyma_api::patterns::is_channel;
use kyma_api::{KymaModule, limits};
use serde_json::Value;

use super::ModuleEntry;

/// Reads an entry. Returns `None` if it is no object with a valid name.
pub(super) fn read(raw: &Value) -> Option<ModuleEntry> {
    let name = raw.get("name")?.as_str().filter(|name| is_module(name))?.to_owned();
    let mut entry = ModuleEntry::of(name);
    match parse(raw) {
        Ok(module) => fill(&mut entry, module),
        Err(why) => entry.invalid = Some(format!("module {}: {why}", entry.name)),
    }
    Some(entry)
}

fn parse(raw: &Value) -> Result<KymaModule, String> {
    let module: KymaModule = serde_json::from_value(raw.clone())
        .map_err(|_| "the entry has a field of a wrong type or value".to_owned())?;
    if module.channel.as_deref().is_some_and(|channel| !channel.is_empty() && !is_channel(channel)) {
        return Err("channel is not a channel name (3 to 32 letters a-z)".to_owned());
    }
    let version = module.version.as_deref().filter(|version| !version.is_empty());
    if version.is_some_and(|version| semver::Version::parse(version).is_err()) {
        return Err("version is not a semantic version".to_owned());
    }
    let controller = module.controller.as_deref().filter(|controller| !controller.is_empty());
    if controller.is_some_and(|controller| !is_label_value(controller)) {
        return Err("controller is not a label value".to_owned());
    }
    let days = module.upgrade.as_ref().and_then(|upgrade| upgrade.deadline_days);
    if days.is_some_and(|days| !(0..=365).contains(&days)) {
        return Err("upgrade.deadlineDays is not between 0 and 365".to_owned());
    }
    if module.values.as_ref().is_some_and(|values| !limits::fits(values, limits::USER_VALUES_BYTES)) {
        return Err(format!("values take more than {} bytes", limits::USER_VALUES_BYTES));
    }
    Ok(module)
}

fn fill(entry: &mut ModuleEntry, module: KymaModule) {
    entry.channel = module.channel.filter(|channel| !channel.is_empty());
    entry.version = module.version.filter(|version| !version.is_empty());
    entry.managed = module.managed;
    entry.controller = module.controller.filter(|controller| !controller.is_empty());
    entry.policy = module.custom_resource_policy;
    entry.values = module.values.map(Value::Object);
    entry.upgrade = module.upgrade.unwrap_or_default();
}

/// Reports whether the text is a label value: letters, digits, dashes, underscores and dots, at most 63, with a
/// letter or digit at both ends.
fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(inner)
        && is_outer(text.bytes().next())
        && is_outer(text.bytes().next_back())
}

/// Reports whether the text is a module name: lower case letters, digits, dashes and dots, at most 64, with a letter
/// or digit at both ends.
fn is_module(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(inner)
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric())
}
