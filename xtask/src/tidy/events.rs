//! Checks that the compatibility page has a row for every event of KLM, and names only existing reasons.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use regex::Regex;

use super::klm::PAGE;
use super::runbook;

/// Reasons of KLM's events: about a Kyma, its deletion, mandatory modules and Watchers.
const EVENTS: &str = "MetricsError UpdateSpecError UpdateStatusError PatchStatus RemoteInstallation \
                      MetadataSynchronization StatusSynchronization KymaDeletionStuck \
                      SetKcpKymaStateDeleting SetSkrKymaStateDeleting DeleteManifests DeleteCertificateSetup \
                      DeleteSkrWebhookResources DeleteSkrModuleTemplateCrd DeleteSkrModuleReleaseMetaCrd \
                      DeleteSkrKyma DeleteSkrKymaCrd DeleteMetrics EnsureManifestDeletion DropKymaFinalizer \
                      SettingMandatoryModuleTemplateFinalizerError DeletingMandatoryModuleManifestError \
                      AddFinalizerErr WatcherFinalizerErr WatcherGatewayNotFound WatcherStatusUpdate";

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    compare(&page, &runbook::all_reasons(root)?)
}

fn compare(page: &str, reasons: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut missing: BTreeSet<&str> = EVENTS.split_whitespace().collect();
    let name = Regex::new("`(\\w+)`")?;
    for line in events_section(page).lines() {
        let [_, theirs, _, ours, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            continue;
        };
        for event in name.captures_iter(theirs).filter_map(|found| Some(found.get(1)?.as_str())) {
            if !missing.remove(event) {
                findings.push(format!("{PAGE}: {event} is no event of KLM, or has two rows"));
            }
            if ours.starts_with("the same") && !reasons.contains(event) {
                findings.push(format!("{PAGE}: {event} is not the same here: there is no such reason"));
            }
        }
    }
    findings.extend(missing.into_iter().map(|event| format!("{PAGE}: KLM's event {event} has no row")));
    let link = Regex::new(r"\(runbook/(\w+)\.md")?;
    let named = link.captures_iter(page).map(|found| found[1].to_owned());
    let unknown = named.filter(|name| name != "README" && !reasons.contains(name));
    findings.extend(unknown.map(|name| format!("{PAGE}: there is no reason {name}")));
    Ok(findings)
}

fn events_section(page: &str) -> &str {
    let section = page.split_once("\n## Events\n").map_or("", |(_, rest)| rest);
    section.split("\n## ").next().unwrap_or(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &str) -> String {
        let head =
            "[a](runbook/Ready.md) [all](runbook/README.md)\n\n## Metrics\n| `other` | - | the same |\n";
        let all: Vec<String> = EVENTS.split_whitespace().map(|event| format!("`{event}`")).collect();
        format!(
            "{head}\n## Events\n| {} | Warning | none |\n{rows}\n## More\n| `x` | y | z |\n",
            all.join(", ")
        )
    }

    fn compared(page: &str) -> Vec<String> {
        compare(page, &BTreeSet::from(["Ready".to_owned(), "PatchStatus".to_owned()])).unwrap()
    }

    #[test]
    fn each_event_has_one_row() {
        assert_eq!(compared(&page("")), Vec::<String>::new());
        let without = page("").replace("`PatchStatus`, ", "");
        assert_eq!(compared(&without).len(), 1);
        assert_eq!(compared(&page("| `PatchStatus` | Warning | none |")).len(), 1, "twice");
        assert_eq!(compared(&page("| `Invented` | Warning | none |")).len(), 1);
    }

    #[test]
    fn what_is_called_the_same_or_is_linked_is_a_reason() {
        let moved = |name: &str| {
            page(&format!("| `{name}` | Normal | the same, of course |")).replace(&format!("`{name}`, "), "")
        };
        assert_eq!(compared(&moved("PatchStatus")), Vec::<String>::new());
        assert_eq!(compared(&moved("UpdateSpecError")).len(), 1);
        assert_eq!(compared(&page("[b](runbook/Gone.md)")).len(), 1);
    }
}
