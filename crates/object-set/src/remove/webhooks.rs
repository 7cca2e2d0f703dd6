//! Webhooks of the set itself whose backend no longer answers, which must not block the removal of the set.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use serde_json::Value;

use super::object::ObjectRemover;
use super::removal::Removal;
use super::rules::{Purpose, Rules};
use crate::cluster::Cluster;
use crate::error::{CallError, Failure};
use crate::inventory::Inventory;
use crate::object::Identity;
use crate::ownership::{Ownership, Protection};

/// Deletes the set's own webhook configurations that have this webhook, which does not answer a request that precedes
/// [`uninstall`](super::uninstall). Configurations of others stay.
///
/// # Errors
/// If discovery of the target fails.
pub async fn remove_webhook(
    cluster: &Cluster,
    inventory: &Inventory,
    ownership: &Ownership,
    protection: &Protection,
    webhook: &str,
) -> Result<Removal, CallError> {
    let kinds = cluster.discovery.covering(&cluster.client, &inventory.kinds()).await?;
    let (purpose, going) = (Purpose::Uninstall, BTreeSet::new());
    let rules = Rules { inventory, ownership, protection, purpose, going };
    let remover = ObjectRemover::new(cluster, kinds, rules);
    let identities: Vec<Identity> = inventory.iter().map(|(identity, _)| identity.clone()).collect();
    let mut removal = Removal::default();
    if cluster.dry_run.is_none() {
        let webhooks = BTreeSet::from([webhook.to_owned()]);
        remove_configurations(&remover, &mut removal, &identities, &webhooks).await;
    }
    Ok(removal)
}

/// Deletes the set's own webhook configurations ahead of their step, if a deletion failed because one of their
/// webhooks does not answer; then tries those deletions again. Configurations of others stay.
pub(super) async fn remove_dead_webhooks(
    remover: &ObjectRemover<'_>,
    removal: &mut Removal,
    going: &[Identity],
) {
    let dead: BTreeSet<String> =
        removal.failed.iter().filter_map(|error| dead_webhook(&error.failure)).collect();
    if dead.is_empty() || remover.cluster.dry_run.is_some() {
        return;
    }
    if !remove_configurations(remover, removal, going, &dead).await {
        return;
    }
    for error in std::mem::take(&mut removal.failed) {
        match error.object.clone().filter(|_| dead_webhook(&error.failure).is_some()) {
            // API servers use a deleted configuration for another moment; until then the call fails and is
            // repeated later.
            Some(identity) => {
                let result = remover.remove_with_retries(&identity, None).await;
                removal.add(identity, result);
            }
            None => removal.failed.push(error),
        }
    }
}

/// Deletes the configurations that have one of these webhooks. Returns whether any is gone.
async fn remove_configurations(
    remover: &ObjectRemover<'_>,
    removal: &mut Removal,
    going: &[Identity],
    webhooks: &BTreeSet<String>,
) -> bool {
    let mut is_removed = false;
    for identity in going.iter().filter(|identity| is_webhook_configuration(identity)) {
        if !removal.gone.contains(identity) && calls_any(remover, identity, webhooks).await {
            let result = remover.remove_with_retries(identity, None).await;
            removal.add(identity.clone(), result);
            is_removed |= removal.gone.contains(identity);
        }
    }
    is_removed
}

/// Reports whether a live configuration has one of these webhooks.
async fn calls_any(remover: &ObjectRemover<'_>, identity: &Identity, webhooks: &BTreeSet<String>) -> bool {
    let entry = remover.rules.inventory.get(identity);
    let Some(mapping) = entry.and_then(|entry| remover.mapping(identity, entry)) else { return false };
    match mapping.api(&remover.cluster.client, None).get_opt(&identity.name).await {
        Ok(Some(live)) => names(&live).any(|name| webhooks.contains(name)),
        _ => false,
    }
}

fn dead_webhook(failure: &Failure) -> Option<String> {
    match failure {
        Failure::WebhookFailed(name) => Some(name.clone()),
        _ => None,
    }
}

fn is_webhook_configuration(identity: &Identity) -> bool {
    identity.is("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
        || identity.is("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
}

fn names(configuration: &DynamicObject) -> impl Iterator<Item = &str> {
    let webhooks = configuration.data.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().filter_map(|webhook| webhook["name"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_configurations_with_the_dead_webhook_count() {
        let configuration: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "a"}, "webhooks": [{"name": "one.x.io"}, {"name": "two.x.io"}, {}]}))
        .unwrap();
        assert_eq!(names(&configuration).collect::<Vec<_>>(), ["one.x.io", "two.x.io"]);
        let of = |group: &str, kind: &str| is_webhook_configuration(&Identity::new(group, kind, None, "a"));
        assert!(of("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"));
        assert!(!of("x.io", "ValidatingWebhookConfiguration"));
        assert_eq!(dead_webhook(&Failure::WebhookFailed("one.x.io".into())).as_deref(), Some("one.x.io"));
        assert_eq!(dead_webhook(&Failure::Denied("one.x.io".into())), None, "it answers, and refuses");
    }
}
