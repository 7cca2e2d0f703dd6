//! Compares roles with used permissions: splits rules into single rights and compares them with the requests of
//! audit logs, without I/O.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;
use testbed::AuditEvent;

/// The smallest part of a rule: one verb on one resource, of one name where the rule has names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Name of the role that grants it.
    pub role: String,
    /// Its namespace; `None` for all.
    pub namespace: Option<String>,
    /// The verb.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource in plural, with subresource.
    pub resource: String,
    /// The only object that it applies to; `None` for all.
    pub name: Option<String>,
}

/// A permitted request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The verb.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource in plural, with subresource.
    pub resource: String,
    /// Namespace; empty for cluster-scoped.
    pub namespace: String,
    /// Name of the object; empty if authorization does not see it.
    pub name: String,
}

/// A right that is granted although no request in a log needs it.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The right as [`Right`] is displayed.
    pub right: &'static str,
    /// Reason why it is granted.
    pub why: &'static str,
}

/// Returns the single rights of a role's rules. Non-resource paths are left out: Kubernetes grants the known ones to
/// all users.
pub fn rights(role: &str, namespace: Option<&str>, rules: &[PolicyRule]) -> Vec<Right> {
    let mut all = Vec::new();
    for rule in rules {
        let names: Vec<Option<&String>> = match rule.resource_names.as_deref().unwrap_or_default() {
            [] => vec![None],
            names => names.iter().map(Some).collect(),
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for (verb, name) in
                    rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, *name)))
                {
                    all.push(Right {
                        role: role.to_owned(),
                        namespace: namespace.map(str::to_owned),
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.cloned(),
                    });
                }
            }
        }
    }
    all
}

/// Returns the permissions that a request needed; empty if it was refused, not answered, or for no resource.
///
/// A server-side apply that creates an object is logged as `patch`, and also needs `create` on its name.
pub fn uses(event: &AuditEvent) -> Vec<Use> {
    if matches!(event.code, 0 | 401 | 403) {
        return Vec::new();
    }
    if !event.impersonated.is_empty() {
        return impersonation(&event.impersonated).into_iter().collect();
    }
    if event.resource.is_empty() {
        return Vec::new();
    }
    let of = |verb: &str, name: &str| Use {
        verb: verb.to_owned(),
        group: event.group.clone(),
        resource: event.resource.clone(),
        namespace: event.namespace.clone(),
        name: name.to_owned(),
    };
    match event.verb.as_str() {
        // Authorization does not read the name in a body, but that of an apply is in its path.
        "create" => vec![of("create", "")],
        "patch" if event.code == 201 => vec![of("patch", &event.name), of("create", &event.name)],
        verb => vec![of(verb, &event.name)],
    }
}

/// Returns the impersonation permission that the sender needed; the impersonated user needs the others.
fn impersonation(user: &str) -> Option<Use> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(Use {
        verb: "impersonate".to_owned(),
        group: String::new(),
        resource: "serviceaccounts".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns findings as lines: unneeded rights, uses that no right permits, and invalid exceptions. Empty if each
/// right is the only one that permits some use.
pub fn findings(rights: &[Right], uses: &BTreeSet<Use>, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    let mut needed = vec![false; rights.len()];
    let mut exercised = vec![false; rights.len()];
    for one in uses {
        let allowing: Vec<usize> = (0..rights.len()).filter(|&right| rights[right].allows(one)).collect();
        for &right in &allowing {
            exercised[right] = true;
        }
        match allowing.as_slice() {
            [] => found.push(format!("no rule allows it, and it was done: {one}")),
            [only] => needed[*only] = true,
            _ => {}
        }
    }
    for (right, (needed, exercised)) in rights.iter().zip(needed.into_iter().zip(exercised)) {
        let excepted = exceptions.iter().find(|exception| exception.right == right.to_string());
        match (needed, excepted) {
            (true, Some(exception)) => {
                found.push(format!("used, so it is no exception: {right} ({})", exception.why));
            }
            (true, None) | (false, Some(_)) => {}
            (false, None) if exercised => {
                found.push(format!("other rules allow all that it is used for: {right}"));
            }
            (false, None) => found.push(format!("idle: {right}")),
        }
    }
    let unknown = exceptions.iter().filter(|exception| {
        let names = |right: &Right| exception.right == right.to_string();
        !rights.iter().any(names)
    });
    found.extend(unknown.map(|exception| format!("an exception that no role grants: {}", exception.right)));
    found
}

/// Returns rights that can be used to gain more rights or to read all secrets.
pub fn powers(rights: &[Right]) -> Vec<String> {
    let is_power = |right: &&Right| {
        let is_any = [&right.verb, &right.group, &right.resource].into_iter().any(|word| word == "*");
        let is_escalation = matches!(right.verb.as_str(), "escalate" | "bind" | "impersonate");
        let are_secrets = right.group.is_empty() && right.resource == "secrets";
        is_any || is_escalation || (are_secrets && right.namespace.is_none() && right.name.is_none())
    };
    rights.iter().filter(is_power).map(ToString::to_string).collect()
}

impl Right {
    fn allows(&self, one: &Use) -> bool {
        let fits = |granted: &str, word: &str| granted == "*" || granted == word;
        fits(&self.verb, &one.verb)
            && fits(&self.group, &one.group)
            && fits(&self.resource, &one.resource)
            && self.name.as_ref().is_none_or(|name| *name == one.name)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == one.namespace)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} {}", self.role, self.verb, of_group(&self.resource, &self.group))?;
        self.name.iter().try_for_each(|name| write!(out, " {name}"))?;
        self.namespace.iter().try_for_each(|namespace| write!(out, " in {namespace}"))
    }
}

impl fmt::Display for Use {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, of_group(&self.resource, &self.group))?;
        [("", &self.name), ("in ", &self.namespace)]
            .into_iter()
            .filter(|(_, word)| !word.is_empty())
            .try_for_each(|(before, word)| write!(out, " {before}{word}"))
    }
}

fn of_group(resource: &str, group: &str) -> String {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (dot, slash) =
        (if group.is_empty() { "" } else { "." }, if subresource.is_empty() { "" } else { "/" });
    format!("{resource}{dot}{group}{slash}{subresource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(vec!["x.io".to_owned()]),
            resources: Some(words(resources)),
            resource_names: Some(words(names)),
            verbs: words(verbs),
            ..PolicyRule::default()
        }
    }

    fn done(verb: &str, resource: &str, name: &str) -> Use {
        let [verb, resource, name] = [verb, resource, name].map(str::to_owned);
        Use { verb, group: "x.io".to_owned(), resource, namespace: "n".to_owned(), name }
    }

    fn judged(rules: &[PolicyRule], uses: &[Use], exceptions: &[Exception]) -> Vec<String> {
        findings(&rights("r", None, rules), &uses.iter().cloned().collect(), exceptions)
    }

    #[test]
    fn unused_verbs_resources_and_names_are_reported_separately() {
        let all = [done("get", "as", "one"), done("get", "bs", "one"), done("watch", "as", "one")];
        let rules = [rule(&["as", "bs"], &["get"], &[]), rule(&["as"], &["watch"], &["one"])];
        assert_eq!(judged(&rules, &all, &[]), [""; 0]);
        assert_eq!(judged(&rules, &all[..1], &[]), ["idle: r: get bs.x.io", "idle: r: watch as.x.io one"]);
        let wider = [rule(&["as", "bs"], &["get", "list"], &[]), rule(&["as"], &["watch"], &["one", "two"])];
        let idle = ["idle: r: list as.x.io", "idle: r: list bs.x.io", "idle: r: watch as.x.io two"];
        assert_eq!(judged(&wider, &all, &[]), idle);
    }

    #[test]
    fn a_rule_that_another_one_covers_could_go() {
        let rules = [rule(&["as"], &["get"], &[]), rule(&["as"], &["get"], &["one"])];
        let covered = "other rules allow all that it is used for: r: get as.x.io";
        let both = [covered.to_owned(), format!("{covered} one")];
        assert_eq!(judged(&rules, &[done("get", "as", "one")], &[]), both);
        let another = [done("get", "as", "one"), done("get", "as", "two")];
        assert_eq!(judged(&rules, &another, &[]), both[1..]);
        let any = [rule(&["*"], &["get"], &[]), rule(&["as"], &["get"], &[])];
        assert_eq!(judged(&any, &[done("get", "as", ""), done("get", "bs", "")], &[]), both[..1]);
    }

    #[test]
    fn requests_without_a_right_are_reported() {
        let rules = [rule(&["as"], &["get"], &["one"])];
        let uses = [done("get", "as", "one"), done("get", "as", "two"), done("patch", "as/status", "one")];
        let expected_errors = ["get as.x.io two in n", "patch as.x.io/status one in n"]
            .map(|what| format!("no rule allows it, and it was done: {what}"));
        assert_eq!(judged(&rules, &uses, &[]), expected_errors);
    }

    #[test]
    fn a_right_in_one_namespace_is_none_in_another() {
        let there = rights("r", Some("n"), &[rule(&["as"], &["get"], &[])]);
        let elsewhere = Use { namespace: "m".to_owned(), ..done("get", "as", "one") };
        let found = findings(&there, &BTreeSet::from([elsewhere]), &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1], "idle: r: get as.x.io in n");
    }

    #[test]
    fn an_exception_holds_for_what_is_idle_and_only_for_that() {
        let rules = [rule(&["as"], &["get", "bind"], &[])];
        let bind = Exception { right: "r: bind as.x.io", why: "the log does not show it" };
        assert_eq!(judged(&rules, &[done("get", "as", "")], &[bind]), [""; 0]);
        let used = judged(&rules, &[done("get", "as", ""), done("bind", "as", "")], &[bind]);
        assert_eq!(used, ["used, so it is no exception: r: bind as.x.io (the log does not show it)"]);
        let gone = judged(&rules[..0], &[], &[bind]);
        assert_eq!(gone, ["an exception that no role grants: r: bind as.x.io"]);
    }

    #[test]
    fn an_apply_that_makes_an_object_asks_to_create_it() {
        let event = |verb: &str, code| AuditEvent {
            user: "u".to_owned(),
            impersonated: String::new(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            uri: String::new(),
            group: "x.io".to_owned(),
            resource: "as".to_owned(),
            namespace: "n".to_owned(),
            name: "one".to_owned(),
            code,
            received: jiff_epoch(),
            recorded: jiff_epoch(),
        };
        assert_eq!(uses(&event("patch", 201)), [done("patch", "as", "one"), done("create", "as", "one")]);
        assert_eq!(uses(&event("patch", 200)), [done("patch", "as", "one")]);
        assert_eq!(uses(&event("create", 409)), [done("create", "as", "")]);
        assert_eq!(uses(&event("get", 404)), [done("get", "as", "one")]);
        assert_eq!(uses(&event("get", 403)), []);
    }

    #[test]
    fn a_request_in_another_ones_name_asks_to_act_as_that_one_alone() {
        let event = AuditEvent {
            user: "u".to_owned(),
            impersonated: "system:serviceaccount:n:one".to_owned(),
            user_agent: String::new(),
            verb: "patch".to_owned(),
            uri: String::new(),
            group: "x.io".to_owned(),
            resource: "as".to_owned(),
            namespace: "m".to_owned(),
            name: "two".to_owned(),
            code: 201,
            received: jiff_epoch(),
            recorded: jiff_epoch(),
        };
        let asked = uses(&event);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].to_string(), "impersonate serviceaccounts one in n");
        assert_eq!(uses(&AuditEvent { code: 403, ..event }), []);
    }

    fn jiff_epoch() -> k8s_openapi::jiff::Timestamp {
        k8s_openapi::jiff::Timestamp::UNIX_EPOCH
    }

    #[test]
    fn rights_that_lead_to_more_are_named() {
        let rules =
            [rule(&["as"], &["get", "bind", "escalate", "impersonate"], &[]), rule(&["*"], &["get"], &[])];
        assert_eq!(powers(&rights("r", Some("n"), &rules)).len(), 4);
        let secrets =
            PolicyRule { api_groups: Some(vec![String::new()]), ..rule(&["secrets"], &["list"], &[]) };
        assert_eq!(powers(&rights("r", None, std::slice::from_ref(&secrets))), ["r: list secrets"]);
        assert_eq!(powers(&rights("r", Some("n"), std::slice::from_ref(&secrets))), [""; 0]);
        let one = PolicyRule { resource_names: Some(vec!["one".to_owned()]), ..secrets };
        assert_eq!(powers(&rights("r", None, &[one])), [""; 0]);
    }
}
