//! Resolves every `kubectl` command of the documentation as kubectl does, on a cluster with all CRDs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use kyma_api::component::is_core_word;
use serde_json::Value;
use testbed::until_or_why;

use crate::clusters::{call, our_crds, ours};

/// Resources of other projects that the documentation names.
const FOREIGN_RESOURCES: &[&str] = &[
    "hr",
    "helmrelease",
    "helmreleases",
    "helmrepo",
    "ocirepo",
    "manifests",
    "manifest",
    "applications",
    "application",
];

/// Verbs that take a resource, or a resource and a name.
const VERBS: &[&str] = &[
    "get",
    "describe",
    "delete",
    "edit",
    "patch",
    "label",
    "annotate",
    "wait",
    "scale",
    "rollout",
    "logs",
    "exec",
    "port-forward",
    "explain",
];

/// Flags with a value.
const FLAGS_WITH_VALUE: &[&str] = &[
    "-n",
    "--namespace",
    "--kubeconfig",
    "--context",
    "-l",
    "--selector",
    "-o",
    "--output",
    "-L",
    "-p",
    "--patch",
    "--type",
    "-f",
    "--for",
    "--field-selector",
    "--timeout",
    "--as",
    "-c",
];

/// Resources of the cluster by the words that kubectl accepts for them.
#[derive(Default)]
struct DiscoveredResources {
    categories: BTreeMap<String, BTreeSet<String>>,
    resources: BTreeMap<String, BTreeSet<String>>,
    core: BTreeSet<String>,
}

async fn discover(client: &kube::Client) -> Result<DiscoveredResources> {
    let mut paths = vec!["/api/v1".to_owned()];
    let groups = call(client, Method::GET, "/apis", None).await?.ok()?.body;
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["groupVersion"].as_str().context("a group and version")?;
            paths.push(format!("/apis/{version}"));
        }
    }
    let mut found = DiscoveredResources::default();
    for path in paths {
        let list = call(client, Method::GET, &path, None).await?.ok()?.body;
        let group = list["groupVersion"].as_str().unwrap_or_default();
        let group = group.rsplit_once('/').map_or("", |(group, _)| group);
        for resource in list["resources"].as_array().into_iter().flatten() {
            found.add(group, resource);
        }
    }
    Ok(found)
}

/// Returns the resources of the cluster with all CRDs. API servers serve a kind before discovery shows it.
async fn discover_ours() -> Result<DiscoveredResources> {
    let client = ours().await?;
    until_or_why("all CRDs are discovered", Duration::from_mins(1), || async {
        let found = match discover(&client).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let crds = our_crds();
        let mut plurals = crds.iter().filter_map(|crd| crd["spec"]["names"]["plural"].as_str());
        let missing = plurals.find(|plural| !found.resources.contains_key(*plural)).map(str::to_owned);
        Ok(missing.map_or(Ok(found), Err))
    })
    .await
}

impl DiscoveredResources {
    fn add(&mut self, group: &str, resource: &Value) {
        let text = |field: &str| resource[field].as_str().unwrap_or_default().to_lowercase();
        if text("name").contains('/') {
            return;
        }
        let meaning = if group.is_empty() { text("name") } else { format!("{}.{group}", text("name")) };
        let lists = |field: &str| -> Vec<String> {
            let words = resource[field].as_array().into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_lowercase)).collect()
        };
        for category in lists("categories") {
            self.categories.entry(category).or_default().insert(meaning.clone());
        }
        let mut words = vec![text("name"), text("singularName"), text("kind"), meaning.clone()];
        words.extend(lists("shortNames"));
        let is_ours = group.ends_with("kyma-project.io");
        for word in words.into_iter().filter(|word| !word.is_empty()) {
            if !is_ours {
                self.core.insert(word.clone());
            }
            self.resources.entry(word).or_default().insert(meaning.clone());
        }
    }

    /// Returns why a word does not resolve to exactly the resource that it names.
    fn problem(&self, word: &str) -> Option<String> {
        if let Some(members) = self.categories.get(word) {
            return Some(format!("{word} is a category, of {members:?}"));
        }
        // Some resources, such as events, exist in two API groups; kubectl uses the first.
        let known = self.resources.get(word);
        if known
            .is_none_or(|known| known.iter().any(|name| name.contains("kyma-project.io")) && known.len() > 1)
        {
            return Some(format!("{word} stands for {known:?}"));
        }
        None
    }
}

fn pages(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            pages(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the resource words in a line, as in `get kymas,secrets` or `wait kyma/a`.
fn words_of(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for command in line.split("kubectl ").skip(1) {
        let end = command.find(['|', ';', '`', '#', ')']).unwrap_or(command.len());
        let mut arguments = command[..end].split_whitespace();
        let mut plain = Vec::new();
        while let Some(argument) = arguments.next() {
            if FLAGS_WITH_VALUE.contains(&argument) {
                arguments.next();
            } else if argument == "--" {
                break;
            } else if argument == "--raw" || argument == "-f" || argument == "--local" {
                plain.clear();
                break;
            } else if !argument.starts_with('-') {
                plain.push(argument);
            }
        }
        let Some((verb, rest)) = plain.split_first() else { continue };
        if !VERBS.contains(verb) {
            continue;
        }
        let rest = if *verb == "rollout" { rest.get(1..).unwrap_or_default() } else { rest };
        let Some(first) = rest.first() else { continue };
        let (word, is_pair) = first.split_once('/').map_or((*first, false), |(word, _)| (word, true));
        // A field of a resource.
        let word = if *verb == "explain" { word.split('.').next().unwrap_or(word) } else { word };
        // A Pod by its name.
        if !is_pair && ["logs", "exec", "port-forward"].contains(verb) {
            continue;
        }
        found.extend(word.split(',').map(|word| word.trim_matches(['"', '\'', '\\']).to_lowercase()));
    }
    found.retain(|word| !word.is_empty() && !word.contains(['<', '$']));
    found
}

#[test]
fn resources_are_found_in_command_lines() {
    let line = "a=$(kubectl --kubeconfig x -n y get kyma,secrets.v1 b -o json); kubectl wait --for=delete hc/a `kubectl logs x`";
    assert_eq!(words_of(line), ["kyma", "secrets.v1", "hc"]);
    assert_eq!(words_of("kubectl get --raw /readyz; kubectl apply -f x; kubectl get <kind> a"), [""; 0]);
}

#[tokio::test]
async fn kubectl_commands_of_the_documentation_mean_what_they_name() -> Result<()> {
    let discovered = discover_ours().await?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name)).to_vec();
    pages(&root.join("docs"), &mut files)?;
    let (mut problems, mut count) = (Vec::new(), 0);
    for file in files {
        for (number, line) in fs::read_to_string(&file)?.lines().enumerate() {
            for word in words_of(line) {
                count += 1;
                let is_foreign =
                    FOREIGN_RESOURCES.contains(&word.as_str()) || word.contains(".services.cloud.");
                let problem = discovered.problem(&word).filter(|_| !is_foreign);
                problems
                    .extend(problem.map(|problem| format!("{}:{}: {problem}", file.display(), number + 1)));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    ensure!(count > 150, "only {count} commands were found");
    // Every word of every CRD, with and without a command that uses it.
    for crd in our_crds() {
        let names = &crd["spec"]["names"];
        let short = names["shortNames"].as_array().cloned().unwrap_or_default();
        let words = [&names["plural"], &names["singular"], &names["kind"]].into_iter().chain(&short);
        for word in words.filter_map(Value::as_str).map(str::to_lowercase) {
            ensure!(discovered.problem(&word).is_none(), "{:?}", discovered.problem(&word));
        }
    }
    Ok(())
}

#[tokio::test]
async fn words_of_kubernetes_are_all_known() -> Result<()> {
    let discovered = discover_ours().await?;
    let unknown: Vec<_> =
        discovered.core.iter().filter(|word| !word.contains('.') && !is_core_word(word)).collect();
    ensure!(unknown.is_empty(), "CRDs may take the words {unknown:?}");
    Ok(())
}
