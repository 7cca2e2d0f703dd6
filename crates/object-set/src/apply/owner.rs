//! Ownership marks of an object, and whether its owner is proven to be gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use crate::cluster::{CREATED_BY, OWNER_LABEL, Ownership};

/// Reports whether an owner is proven to be gone, so that its object may be adopted: this operator's field manager
/// wrote all of its marks, and `is_live` returns false for it. Owners that other operators serve are unknown here and
/// count as live.
pub(super) fn is_dead(
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
pub(super) fn writers<'a>(metadata: &'a ObjectMeta, label: &str) -> impl Iterator<Item = &'a str> {
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
