//! Objects that no set may replace or delete.

use crate::object::Identity;

/// Protection of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Must not be applied or deleted.
    Always,
    /// May be applied or deleted only if it was created by an apply.
    UnlessCreated,
}

/// The protected objects: those of Kubernetes itself, and those that the operator adds.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    objects: Vec<Identity>,
}

impl Protection {
    /// Returns the protection of Kubernetes' own objects: the Namespaces `default` and `kube-*`, and RBAC objects
    /// named `system:*` that no apply created.
    pub fn of_kubernetes() -> Self {
        Self::default()
    }

    /// Adds an object, for example an operator's own CRD.
    pub fn with(mut self, object: Identity) -> Self {
        self.objects.push(object);
        self
    }

    /// Returns the guard of an object; `None` if it is not protected.
    pub fn guard(&self, object: &Identity) -> Option<Guard> {
        if self.objects.contains(object) {
            return Some(Guard::Always);
        }
        if object.is_namespace() && is_of_kubernetes(&object.name) {
            return Some(Guard::Always);
        }
        if object.group == "rbac.authorization.k8s.io" && object.name.starts_with("system:") {
            return Some(Guard::UnlessCreated);
        }
        None
    }
}

/// Reports whether a Namespace belongs to Kubernetes itself.
pub(crate) fn is_of_kubernetes(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_as_the_rule_says() {
        let crd = Identity::new(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            None,
            "kymas.operator.kyma-project.io",
        );
        let protection = Protection::of_kubernetes().with(crd.clone());
        let rbac = "rbac.authorization.k8s.io";
        let cases = [
            (Identity::new("", "Namespace", None, "kube-system"), Some(Guard::Always)),
            (Identity::new("", "Namespace", None, "kube-public"), Some(Guard::Always)),
            (Identity::new("", "Namespace", None, "default"), Some(Guard::Always)),
            (Identity::new("", "Namespace", None, "kyma-system"), None),
            (Identity::new("x.io", "Namespace", None, "default"), None),
            (Identity::new("", "ConfigMap", Some("kube-system"), "mine"), None),
            (Identity::new(rbac, "ClusterRole", None, "system:node"), Some(Guard::UnlessCreated)),
            (Identity::new(rbac, "RoleBinding", Some("kube-system"), "system:x"), Some(Guard::UnlessCreated)),
            (Identity::new(rbac, "ClusterRole", None, "systematic"), None),
            (crd, Some(Guard::Always)),
        ];
        for (object, expected) in cases {
            assert_eq!(protection.guard(&object), expected, "{object}");
        }
    }
}
