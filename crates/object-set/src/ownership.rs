//! Owners of objects: their marks, the proof that an owner is gone, and the objects that no owner may change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

mod protection;

pub(crate) use protection::is_of_kubernetes;
pub use protection::{Guard, Protection};

/// Owner and field manager of applied objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Field manager: one constant name per operator, which must never change.
    pub manager: String,
    /// Owner of the objects: the value of the label [`OWNER_LABEL`], a hash.
    pub owner: String,
    /// Version of the set, a semantic version where possible; decides between owners that ship the same CRD.
    pub version: String,
}

/// Label on every applied object: the owner's hash, or [`SHARED`] on Namespaces, which have no single owner.
pub const OWNER_LABEL: &str = kyma_api::labels::OWNER;

/// Value of [`OWNER_LABEL`] on Namespaces.
pub const SHARED: &str = "shared";

/// Prefix of the labels on objects that several owners may share (Namespaces, CRDs): one label per owner, this
/// prefix, `/` and the owner's hash.
pub const SHARE_PREFIX: &str = "owner.component.kyma-project.io";

/// Annotation on created objects, for example Namespaces and CRDs: the hash of the owner who created them.
pub const CREATED_BY: &str = kyma_api::annotations::CREATED_BY;

/// Annotation on CRDs: the version of the set that wrote them last.
pub const SET_VERSION: &str = "component.kyma-project.io/set-version";

impl Ownership {
    /// Returns the field manager of creations by POST, which are never reverted.
    pub fn creator(&self) -> String {
        format!("{}-create", self.manager)
    }

    /// Returns the field manager that owns ignored fields instead of the operator's, so that they are not removed or
    /// reset. It applies nothing. Its name is stored on targets, so it cannot change.
    pub fn ignored_fields_manager(&self) -> String {
        format!("{}-yielded", self.manager)
    }

    /// Returns the field manager that writes lists with duplicate keys, until their fields move to the operator's
    /// manager.
    pub fn lists_manager(&self) -> String {
        format!("{}-lists", self.manager)
    }

    /// Returns the field manager of an owner's share in an object of several owners.
    pub fn share_manager(&self, owner: &str) -> String {
        format!("{}-{owner}", self.manager)
    }

    /// Returns the label that marks an owner's share in an object of several owners.
    pub fn share_label(owner: &str) -> String {
        format!("{SHARE_PREFIX}/{owner}")
    }
}

/// Returns the owners that have a share in an object, by its labels.
pub(crate) fn sharers<'a>(labels: impl Iterator<Item = &'a String>) -> Vec<String> {
    labels
        .filter_map(|label| label.strip_prefix(SHARE_PREFIX)?.strip_prefix('/'))
        .map(ToOwned::to_owned)
        .collect()
}

/// Reports whether an owner is proven to be gone, so that its object may be adopted: this operator's field manager
/// wrote all of its marks, and `is_live` returns false for it. Owners that other operators serve are unknown here and
/// count as live.
pub(crate) fn is_dead(
    owner: &str,
    metadata: &ObjectMeta,
    ownership: &Ownership,
    is_live: &(dyn Fn(&str) -> bool + Sync),
) -> bool {
    let share = Ownership::share_label(owner);
    let labels = metadata.labels.as_ref();
    let holds = labels.and_then(|labels| labels.get(OWNER_LABEL)).is_some_and(|holder| holder == owner);
    let shares = labels.is_some_and(|labels| labels.contains_key(&share));
    let (manager, creator) = (ownership.manager.as_str(), ownership.creator());
    let apart = ownership.share_manager(owner);
    !is_live(owner)
        && (holds || shares)
        && (!holds || only_by(metadata, OWNER_LABEL, &[manager, &creator]))
        && (!shares || only_by(metadata, &share, &[&apart]))
}

/// The field managers that wrote a label.
pub(crate) fn writers<'a>(metadata: &'a ObjectMeta, label: &str) -> impl Iterator<Item = &'a str> {
    let field = format!("f:{label}");
    metadata.managed_fields.iter().flatten().filter_map(move |entry| {
        let fields = &entry.fields_v1.as_ref()?.0;
        fields.get("f:metadata")?.get("f:labels")?.get(&field)?;
        entry.manager.as_deref()
    })
}

/// Reports whether the creator annotation names this owner and was written by this operator's field manager.
pub(crate) fn is_creator(metadata: &ObjectMeta, us: &Ownership) -> bool {
    let field = format!("f:{CREATED_BY}");
    let writes_it = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
        fields.is_some_and(|annotations| annotations.get(&field).is_some())
    };
    let mut writers = metadata.managed_fields.iter().flatten().filter(|entry| writes_it(entry)).peekable();
    metadata.annotations.as_ref().and_then(|all| all.get(CREATED_BY)) == Some(&us.owner)
        && writers.peek().is_some()
        && writers.all(|entry| entry.manager.as_ref() == Some(&us.manager))
}

fn only_by(metadata: &ObjectMeta, label: &str, managers: &[&str]) -> bool {
    let mut writers = writers(metadata, label).peekable();
    writers.peek().is_some() && writers.all(|writer| managers.contains(&writer))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A label, its value and its field manager.
    type Mark<'a> = (&'a str, &'a str, &'a str);

    fn ownership() -> Ownership {
        Ownership { manager: "m".to_owned(), owner: "us".to_owned(), version: String::new() }
    }

    fn marked(marks: &[Mark<'_>]) -> ObjectMeta {
        let labels: serde_json::Map<_, _> =
            marks.iter().map(|(label, value, _)| ((*label).to_owned(), json!(value))).collect();
        let fields = marks.iter().map(|(label, _, manager)| {
            let mut labels = serde_json::Map::new();
            labels.insert(format!("f:{label}"), json!({}));
            json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": labels}}})
        });
        let fields: Vec<_> = fields.collect();
        serde_json::from_value(json!({"labels": labels, "managedFields": fields})).unwrap()
    }

    #[test]
    fn only_a_deleted_owner_of_this_operator_is_dead() {
        let share = Ownership::share_label("o");
        let share = share.as_str();
        let cases: [(&[Mark<'_>], bool, &str); 9] = [
            (&[(OWNER_LABEL, "o", "m")], true, "marked by us"),
            (&[(OWNER_LABEL, "o", "m-create")], true, "inherited through us"),
            (&[(OWNER_LABEL, "o", "greeting")], false, "marked by another operator"),
            (&[(OWNER_LABEL, "o", "m"), (OWNER_LABEL, "o", "greeting")], false, "marked by both"),
            (&[(share, "", "m-o")], true, "shared by us"),
            (&[(share, "", "greeting-o")], false, "shared by another operator"),
            (
                &[(OWNER_LABEL, "o", "m-create"), (share, "", "greeting-o")],
                false,
                "new owner of another operator",
            ),
            (&[(OWNER_LABEL, "o", "m"), (share, "", "m-o")], true, "holder with a share"),
            (&[(OWNER_LABEL, "somebody", "m")], false, "not marked at all"),
        ];
        for (marks, dead, name) in cases {
            assert_eq!(is_dead("o", &marked(marks), &ownership(), &|_| false), dead, "{name}");
            assert!(!is_dead("o", &marked(marks), &ownership(), &|_| true), "{name}, alive");
        }
        let bare =
            ObjectMeta { labels: Some([(OWNER_LABEL.into(), "o".into())].into()), ..ObjectMeta::default() };
        assert!(!is_dead("o", &bare, &ownership(), &|_| false), "nobody knows who marked it");
    }

    #[test]
    fn the_mark_of_a_creator_counts_only_where_we_alone_wrote_it() {
        let object = |value: &str, writers: &[&str]| -> ObjectMeta {
            let annotations = json!({format!("f:{CREATED_BY}"): {}});
            let entry = |manager: &&str| json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:annotations": annotations}}});
            let entries: Vec<_> = writers.iter().map(entry).collect();
            serde_json::from_value(json!({"annotations": {CREATED_BY: value}, "managedFields": entries}))
                .unwrap()
        };
        assert!(is_creator(&object("us", &["m"]), &ownership()));
        assert!(!is_creator(&object("them", &["m"]), &ownership()), "another owner made it");
        assert!(!is_creator(&object("us", &["copier"]), &ownership()), "somebody copied the mark");
        assert!(!is_creator(&object("us", &["m", "copier"]), &ownership()));
        assert!(!is_creator(&object("us", &[]), &ownership()));
        assert!(!is_creator(&ObjectMeta::default(), &ownership()));
    }
}
