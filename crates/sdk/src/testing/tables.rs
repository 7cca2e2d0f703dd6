//! Checks of a component's CRD and RBAC tables.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube::{CustomResourceExt, Resource};
use kyma_api::component::{self, COMPONENT_CATEGORY};
use kyma_controller::Rule;

use crate::component::Component;
use crate::driver::component_table;

/// Returns the violations of the rules for CRD, name, version and RBAC table.
///
/// ```
/// use kyma_sdk::Component;
/// use kyma_sdk::testing::check_tables;
///
/// fn assert_valid_tables<C: Component>() {
///     assert_eq!(check_tables::<C>(), [""; 0]);
/// }
/// ```
pub fn check_tables<C: Component>() -> Vec<String> {
    let mut found = vec![];
    let version = C::Resource::version(&());
    let crd = component::check(&C::Resource::crd(), &version);
    found.extend(crd.iter().map(|violation| format!("CRD: {violation}")));
    found.extend(check_category(&C::Resource::crd()));
    let words = component::word_conflicts(&C::Resource::crd());
    found.extend(words.iter().map(|conflict| format!("CRD: {conflict}")));
    if !is_dns_label(C::NAME) {
        found.push(format!("NAME {:?} is not a DNS label", C::NAME));
    }
    if C::VERSION.split('.').count() < 3 {
        found.push(format!("VERSION {:?} is not semver", C::VERSION));
    }
    let table = component_table::<C>();
    found.extend(table.hub_cluster.iter().chain(&table.hub_namespace).flat_map(check_hub_rule));
    found.extend(
        table.unguarded().into_iter().map(|rule| {
            format!("hub rule {:?} writes and has no guard: see kyma_sdk::Guard", rule.resources)
        }),
    );
    found.extend(table.target.iter().filter_map(check_why));
    found
}

fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Returns a violation if `kubectl get kyma-components` would leave the kind out.
fn check_category(crd: &Crd) -> Option<String> {
    let has_category = crd.spec.names.categories.iter().flatten().any(|word| word == COMPONENT_CATEGORY);
    (!has_category).then(|| {
        format!(
            "CRD: spec.names.categories lacks {COMPONENT_CATEGORY}; add category = {COMPONENT_CATEGORY:?} to \
             #[kube(…)]"
        )
    })
}

/// No wildcard and no way to more rights on the hub.
fn check_hub_rule(rule: &Rule) -> Vec<String> {
    let mut found: Vec<String> = check_why(rule).into_iter().collect();
    for verb in ["*", "escalate", "bind", "impersonate"] {
        if rule.verbs.contains(&verb) {
            found.push(format!("hub rule {:?}: verb {verb}", rule.resources));
        }
    }
    if rule.groups.contains(&"*") || rule.resources.contains(&"*") {
        found.push(format!("hub rule {:?}: a wildcard", rule.resources));
    }
    found
}

fn check_why(rule: &Rule) -> Option<String> {
    rule.why.trim().is_empty().then(|| format!("rule {:?} has no reason", rule.resources))
}

#[cfg(test)]
mod tests {
    use kyma_api::HelmComponent;

    use super::*;

    #[test]
    fn wide_rules_on_the_hub_are_named() {
        let wide = Rule::new(&["*"], &["roles"], &["escalate", "get"], "to be sure");
        assert_eq!(
            check_hub_rule(&wide),
            [r#"hub rule ["roles"]: verb escalate"#, r#"hub rule ["roles"]: a wildcard"#]
        );
        assert_eq!(check_hub_rule(&Rule::new(&[""], &["secrets"], &["get"], "")).len(), 1);
        assert_eq!(check_hub_rule(&Rule::new(&[""], &["secrets"], &["get"], "access")), [""; 0]);
    }

    #[test]
    fn crd_without_the_category_of_components_is_a_violation() {
        let mut crd = HelmComponent::crd();
        assert_eq!(check_category(&crd), None);
        let violation = "CRD: spec.names.categories lacks kyma-components; add category = \"kyma-components\" to \
                         #[kube(…)]";
        for categories in [None, Some(vec!["all".to_owned()])] {
            crd.spec.names.categories = categories;
            assert_eq!(check_category(&crd).as_deref(), Some(violation));
        }
    }

    #[test]
    fn names_are_dns_labels() {
        assert!(is_dns_label("greeting-component"));
        for wrong in ["", "Greeting", "-a", "a-", "a.b"] {
            assert!(!is_dns_label(wrong), "{wrong}");
        }
    }
}
