//! One rule of an RBAC table, and its guard.

/// One rule and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API groups; `""` is the core group.
    pub groups: &'static [&'static str],
    /// Resources in plural, with the subresource if there is one (`deployments/scale`).
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Names that the rule is limited to; empty: all.
    pub names: &'static [&'static str],
    /// Non-resource paths (`/readyz`). Groups and resources are then empty.
    pub paths: &'static [&'static str],
    /// Step that needs the rule. Rendered as a comment.
    pub why: &'static str,
    /// Limit of the writes that the rule allows on the hub.
    pub guard: Guard,
}

impl Rule {
    /// Returns a rule for resources of one group.
    ///
    /// ```
    /// use kyma_controller::{Guard, Rule};
    ///
    /// const WATCH: Rule = Rule::new(&["demo.example.org"], &["databases"], &["list", "watch"], "wait for Databases");
    /// const REPORT: Rule = Rule::new(&["demo.example.org"], &["databases/status"], &["patch"], "report")
    ///     .guarded(Guard::Role("the status of one kind"));
    /// assert!(WATCH.allows("demo.example.org", "databases", "list"));
    /// assert!(!REPORT.allows("demo.example.org", "databases", "patch"));
    /// ```
    pub const fn new(
        groups: &'static [&'static str],
        resources: &'static [&'static str],
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { groups, resources, verbs, names: &[], paths: &[], why, guard: Guard::Undecided }
    }

    /// Returns a rule for paths outside of the resources.
    pub const fn paths(
        paths: &'static [&'static str],
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { groups: &[], resources: &[], verbs, names: &[], paths, why, guard: Guard::Undecided }
    }

    /// Limits the rule to objects of these names.
    pub const fn named(mut self, names: &'static [&'static str]) -> Self {
        self.names = names;
        self
    }

    /// Sets what limits the writes that the rule allows on the hub.
    pub const fn guarded(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Reports whether the rule allows `verb` on `resource` (plural, with subresource) of `group`, for any name.
    pub fn allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        let any = |list: &[&str], word: &str| list.iter().any(|one| *one == "*" || *one == word);
        any(self.groups, group) && any(self.resources, resource) && any(self.verbs, verb)
    }

    pub(super) fn writes(&self) -> bool {
        self.verbs.iter().any(|verb| !matches!(*verb, "get" | "list" | "watch"))
    }

    /// Reports whether the rule allows everything that `other`, a rule for resources, allows.
    pub fn covers(&self, other: &Self) -> bool {
        let all = |held: &[&str], wanted: &[&str]| {
            held.contains(&"*") || wanted.iter().all(|word| held.contains(word))
        };
        let names = self.names.is_empty() || (!other.names.is_empty() && all(self.names, other.names));
        other.paths.is_empty()
            && self.paths.is_empty()
            && names
            && all(self.groups, other.groups)
            && all(self.resources, other.resources)
            && all(self.verbs, other.verbs)
    }
}

/// Limit of the writes that a rule allows on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No guard. Allowed for a rule that only reads; [`super::Table::unguarded`] finds the others.
    Undecided,
    /// The role itself is narrow enough, for this reason.
    Role(&'static str),
    /// An admission policy. Every expression has to be true.
    Policy(&'static [Check]),
}

/// One validation of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// CEL over `object`, `oldObject` (null on creation) and `authorizer`. `{operator}` and `{namespace}` stand for
    /// the operator's name and the hub namespace, `{finalizer-…}`, `{label-…}` and `{release-store-…}` for the
    /// constants of `kyma_api`.
    pub expression: &'static str,
    /// Message to the refused writer.
    pub message: &'static str,
}

impl Check {
    /// Returns a validation.
    pub const fn new(expression: &'static str, message: &'static str) -> Self {
        Self { expression, message }
    }

    /// The spec stays unchanged.
    pub const SPEC: Self = Self::new(
        "has(object.spec) == has(oldObject.spec) && (!has(object.spec) || object.spec == oldObject.spec)",
        "{operator} does not change the spec",
    );

    /// Owner references stay unchanged: the garbage collector deletes objects with an absent owner.
    pub const OWNERS: Self = Self::new(
        "(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == \
         (oldObject != null && has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : [])",
        "{operator} does not change ownerReferences",
    );

    /// Labels stay unchanged, and created objects have none.
    pub const LABELS: Self = Self::new(
        "(has(object.metadata.labels) ? object.metadata.labels : {}) == \
         (oldObject != null && has(oldObject.metadata.labels) ? oldObject.metadata.labels : {})",
        "{operator} does not change labels",
    );

    /// Finalizers stay unchanged, and created objects have none.
    pub const FINALIZERS: Self = Self::new(
        "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == \
         (oldObject != null && has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : [])",
        "{operator} does not change finalizers",
    );
}

/// A YAML flow list of quoted words; words of RBAC need no escapes.
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", quoted.join(", "))
}
