//! Words that `kubectl` resolves to kinds, and the check that a CRD takes none of another kind.
//!
//! kubectl looks for a category before it looks for a resource of the same word. A CRD with the category `kyma` would
//! turn `kubectl delete kyma --all` into a deletion of its own objects.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::schema::crds;

/// Category of every kind of component: `kubectl get kyma-components` lists them all.
pub const COMPONENT_CATEGORY: &str = "kyma-components";

/// Words of Kubernetes' own resources: singular, plural, short names.
const CORE_WORDS: &[&str] = &[
    "apiservice",
    "apiservices",
    "bindings",
    "binding",
    "certificatesigningrequest",
    "certificatesigningrequests",
    "clusterrole",
    "clusterrolebinding",
    "clusterrolebindings",
    "clusterroles",
    "cm",
    "componentstatus",
    "componentstatuses",
    "configmap",
    "configmaps",
    "controllerrevision",
    "controllerrevisions",
    "crd",
    "crds",
    "cronjob",
    "cronjobs",
    "cs",
    "csidriver",
    "csidrivers",
    "csinode",
    "csinodes",
    "csistoragecapacities",
    "csistoragecapacity",
    "csr",
    "customresourcedefinition",
    "customresourcedefinitions",
    "cj",
    "daemonset",
    "daemonsets",
    "deploy",
    "deployment",
    "deployments",
    "deviceclass",
    "deviceclasses",
    "ds",
    "endpoint",
    "endpoints",
    "endpointslice",
    "endpointslices",
    "ep",
    "ev",
    "event",
    "events",
    "flowschema",
    "flowschemas",
    "horizontalpodautoscaler",
    "horizontalpodautoscalers",
    "hpa",
    "ing",
    "ingress",
    "ingressclass",
    "ingressclasses",
    "ingresses",
    "ip",
    "ipaddress",
    "ipaddresses",
    "job",
    "jobs",
    "lease",
    "leases",
    "limitrange",
    "limitranges",
    "limits",
    "localsubjectaccessreview",
    "localsubjectaccessreviews",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicy",
    "mutatingadmissionpolicybinding",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfiguration",
    "mutatingwebhookconfigurations",
    "namespace",
    "namespaces",
    "netpol",
    "networkpolicies",
    "networkpolicy",
    "no",
    "node",
    "nodes",
    "ns",
    "pc",
    "pdb",
    "persistentvolume",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "persistentvolumes",
    "po",
    "pod",
    "poddisruptionbudget",
    "poddisruptionbudgets",
    "pods",
    "podtemplate",
    "podtemplates",
    "priorityclass",
    "priorityclasses",
    "prioritylevelconfiguration",
    "prioritylevelconfigurations",
    "pv",
    "pvc",
    "quota",
    "rc",
    "replicaset",
    "replicasets",
    "replicationcontroller",
    "replicationcontrollers",
    "resourceclaim",
    "resourceclaims",
    "resourceclaimtemplate",
    "resourceclaimtemplates",
    "resourcequota",
    "resourcequotas",
    "resourceslice",
    "resourceslices",
    "role",
    "rolebinding",
    "rolebindings",
    "roles",
    "rs",
    "runtimeclass",
    "runtimeclasses",
    "sa",
    "sc",
    "secret",
    "secrets",
    "selfsubjectaccessreview",
    "selfsubjectaccessreviews",
    "selfsubjectreview",
    "selfsubjectreviews",
    "selfsubjectrulesreview",
    "selfsubjectrulesreviews",
    "service",
    "serviceaccount",
    "serviceaccounts",
    "servicecidr",
    "servicecidrs",
    "services",
    "statefulset",
    "statefulsets",
    "storageclass",
    "storageclasses",
    "sts",
    "subjectaccessreview",
    "subjectaccessreviews",
    "svc",
    "tokenreview",
    "tokenreviews",
    "vac",
    "validatingadmissionpolicies",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfiguration",
    "validatingwebhookconfigurations",
    "volumeattachment",
    "volumeattachments",
    "volumeattributesclass",
    "volumeattributesclasses",
];

/// Categories of Kubernetes that CRDs may join.
const SHARED_CATEGORIES: &[&str] = &["all", "api-extensions"];

/// A word of a CRD that already means another resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordConflict {
    /// The word.
    pub word: String,
    /// Field of `spec.names` that has it.
    pub field: &'static str,
    /// The resource that the word names without the CRD.
    pub meaning: String,
}

impl std::fmt::Display for WordConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spec.names.{} has {:?}, which is a name of {}", self.field, self.word, self.meaning)
    }
}

/// Returns whether a word names a resource of Kubernetes itself.
pub fn is_core_word(word: &str) -> bool {
    CORE_WORDS.contains(&word)
}

/// Returns the words of a CRD that already name another resource, of Kubernetes or of this project.
///
/// Several kinds may share a category unless a resource has the same name.
pub fn word_conflicts(crd: &CustomResourceDefinition) -> Vec<WordConflict> {
    conflicts(crd, &crds::all())
}

/// Returns the categories of a CRD that name a resource of another one of these CRDs, sorted: kubectl would take the
/// name for the category.
pub fn shadowing_categories<'a>(
    crd: &CustomResourceDefinition,
    others: impl IntoIterator<Item = &'a CustomResourceDefinition>,
) -> Vec<WordConflict> {
    let own: BTreeSet<String> = categories(crd).collect();
    let others = others.into_iter().filter(|other| plural_and_group(other) != plural_and_group(crd));
    let hidden = others.filter_map(|other| {
        let (_, word) = resource_words(other).find(|(_, word)| own.contains(word))?;
        Some(WordConflict { word, field: "categories", meaning: plural_and_group(other) })
    });
    let mut hidden: Vec<WordConflict> = hidden.collect();
    hidden.sort_by(|one, other| (&one.word, &one.meaning).cmp(&(&other.word, &other.meaning)));
    hidden
}

fn conflicts(crd: &CustomResourceDefinition, known: &[CustomResourceDefinition]) -> Vec<WordConflict> {
    let others: Vec<_> =
        known.iter().filter(|other| plural_and_group(other) != plural_and_group(crd)).collect();
    let meaning_among = |crds: &[&CustomResourceDefinition], word: &str, with_categories: bool| {
        let has = |other: &&&CustomResourceDefinition| {
            resource_words(other).any(|(_, found)| found == word)
                || with_categories && categories(other).any(|found| found == word)
        };
        crds.iter().find(has).map(|other| plural_and_group(other))
    };
    let of_core = |word: &str| is_core_word(word).then(|| "a resource of Kubernetes".to_owned());
    let mut found = Vec::new();
    for (field, word) in resource_words(crd) {
        let meaning = meaning_among(&others, &word, true).or_else(|| of_core(&word));
        found.extend(meaning.map(|meaning| WordConflict { word, field, meaning }));
    }
    for word in categories(crd).filter(|word| !SHARED_CATEGORIES.contains(&word.as_str())) {
        let meaning = meaning_among(&others, &word, false)
            .or_else(|| meaning_among(&[crd], &word, false))
            .or_else(|| of_core(&word));
        found.extend(meaning.map(|meaning| WordConflict { word, field: "categories", meaning }));
    }
    found
}

fn plural_and_group(crd: &CustomResourceDefinition) -> String {
    format!("{}.{}", crd.spec.names.plural, crd.spec.group)
}

/// Returns the words that name a resource, each once, with its field. kubectl ignores their case.
fn resource_words(crd: &CustomResourceDefinition) -> impl Iterator<Item = (&'static str, String)> {
    let names = &crd.spec.names;
    let mut words = vec![("plural", names.plural.to_lowercase())];
    words.extend(names.singular.iter().map(|word| ("singular", word.to_lowercase())));
    words.push(("kind", names.kind.to_lowercase()));
    words.extend(names.short_names.iter().flatten().map(|word| ("shortNames", word.to_lowercase())));
    let mut seen = BTreeSet::new();
    words.retain(|(_, word)| seen.insert(word.clone()));
    words.into_iter()
}

fn categories(crd: &CustomResourceDefinition) -> impl Iterator<Item = String> {
    crd.spec.names.categories.iter().flatten().map(|word| word.to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn crd(names: &Value) -> CustomResourceDefinition {
        let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": []});
        serde_json::from_value(json!({"metadata": {"name": "things.example.com"}, "spec": spec})).unwrap()
    }

    #[test]
    fn kubectl_finds_every_kind_of_this_project_by_its_words() {
        for crd in crds::all() {
            assert_eq!(word_conflicts(&crd), [], "{}", plural_and_group(&crd));
        }
    }

    #[test]
    fn words_of_other_resources_are_found_in_every_field() {
        let fields = |names: Value| -> Vec<&'static str> {
            word_conflicts(&crd(&names)).iter().map(|conflict| conflict.field).collect()
        };
        assert_eq!(fields(json!({"kind": "Thing", "plural": "things", "singular": "thing"})), [""; 0]);
        assert_eq!(fields(json!({"kind": "Thing", "plural": "things", "categories": ["all"]})), [""; 0]);
        assert_eq!(
            fields(json!({"kind": "Thing", "plural": "things", "categories": ["kyma-components"]})),
            [""; 0]
        );
        for category in ["kyma", "kymas", "mt", "pods", "things", "Thing", "hc"] {
            let names = json!({"kind": "Thing", "plural": "things", "categories": [category]});
            assert_eq!(fields(names), ["categories"], "{category}");
        }
        for short in ["kyma", "mrm", "po", "secret", "kyma-components"] {
            let names = json!({"kind": "Thing", "plural": "things", "shortNames": [short]});
            assert_eq!(fields(names), ["shortNames"], "{short}");
        }
        assert_eq!(
            fields(json!({"kind": "Kyma", "plural": "kymas", "singular": "kyma"})),
            ["plural", "singular"]
        );
        assert_eq!(fields(json!({"kind": "Pause", "plural": "breaks"})), ["kind"]);
    }

    #[test]
    fn a_category_that_names_a_resource_of_another_crd_is_found() {
        let of = |names: Value| crd(&names);
        let others = [
            of(json!({"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wi"]})),
            of(json!({"kind": "Gadget", "plural": "gadgets", "categories": ["tools"]})),
        ];
        let hidden = |category: &str| -> Vec<String> {
            let crd = of(json!({"kind": "Thing", "plural": "things", "categories": [category]}));
            shadowing_categories(&crd, &others).into_iter().map(|conflict| conflict.meaning).collect()
        };
        for category in ["widgets", "widget", "Widget", "wi"] {
            assert_eq!(hidden(category), ["widgets.example.com"], "{category}");
        }
        for category in ["tools", "kyma-components", "things"] {
            assert_eq!(hidden(category), [""; 0], "{category}");
        }
    }
}
