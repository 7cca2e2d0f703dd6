use super::*;

fn names(text: &str) -> Vec<String> {
    let set = ObjectSet::parse(text, &Limits::default()).unwrap();
    set.objects().iter().map(|object| object.name().to_owned()).collect()
}

fn cm(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

#[test]
fn documents_are_split_as_helm_splits_them() {
    assert_eq!(names(&format!("{}---\n{}", cm("a"), cm("b"))), ["a", "b"]);
    assert_eq!(names(&format!("---\n# only words\n---\n\n---\nnull\n---\n{}", cm("a"))), ["a"]);
    assert_eq!(names(&format!("---{}---   \n{}", cm("a"), cm("b"))), ["a", "b"]);
    assert_eq!(names(&format!("{}--- # note\n{}...\n", cm("a"), cm("b"))), ["a", "b"]);
    assert_eq!(names(&format!("\u{feff}{}", cm("a"))), ["a"]);
    assert_eq!(names(&cm("a").replace('\n', "\r\n")), ["a"]);
    assert_eq!(names(""), Vec::<String>::new());
}

#[test]
fn dashes_inside_a_block_do_not_split() {
    let text = format!("{}data:\n  k: |\n    ---\n    x: 1\n", cm("a"));
    let set = ObjectSet::parse(&text, &Limits::default()).unwrap();
    assert_eq!(set.objects()[0].body()["data"]["k"], "---\nx: 1\n");
}

#[test]
fn a_list_whose_items_are_null_has_no_objects() {
    for kind in ["List", "ConfigMapList"] {
        let text = format!(
            "apiVersion: v1\nkind: {kind}\nmetadata: {{annotations: {{a: b}}}}\nitems:\n---\n{}",
            cm("a")
        );
        assert_eq!(names(&text), ["a"], "{kind}");
    }
    let named = "apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {items: null}\n";
    assert_eq!(names(named), ["a"], "no list of objects");
    let problem = ObjectSet::parse("apiVersion: v1\nkind: List\n", &Limits::default()).unwrap_err();
    assert!(problem.to_string().contains("metadata.name"), "{problem}");
}

#[test]
fn lists_and_json_become_objects() {
    let text = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"Secret","metadata":{"name":"a\/b"}},
        {"apiVersion":"v1","kind":"ConfigMapList","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}]}]}"#;
    assert_eq!(names(text), ["a/b", "c"]);
}

#[test]
fn items_of_a_typed_list_have_its_kind() {
    let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBindingList\nitems:\n\
                - metadata: {name: bare}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n";
    let set = ObjectSet::parse(text, &Limits::default()).unwrap();
    let kinds: Vec<_> = set.objects().iter().map(|object| (object.group(), object.kind())).collect();
    assert_eq!(kinds, [("rbac.authorization.k8s.io", "RoleBinding"), ("", "ConfigMap")]);
    let untyped = "apiVersion: v1\nkind: List\nitems:\n- metadata: {name: bare}\n";
    assert!(ObjectSet::parse(untyped, &Limits::default()).is_err());
    let half = "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {kind: Secret, metadata: {name: half}}\n";
    assert!(ObjectSet::parse(half, &Limits::default()).is_err(), "only items that name neither");
}

#[test]
fn helms_annotations_of_a_list_hold_for_its_items() {
    let text = "apiVersion: v1\nkind: List\nmetadata:\n  annotations:\n    helm.sh/hook: pre-install\n    \
                helm.sh/resource-policy: keep\n    example.org/other: x\nitems:\n\
                - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n\
                - {apiVersion: v1, kind: ConfigMap, metadata: {name: b, annotations: {helm.sh/hook: test}}}\n\
                - apiVersion: v1\n  kind: SecretList\n  metadata: {annotations: {helm.sh/hook-weight: '5'}}\n  \
                items: [{metadata: {name: c}}]\n";
    let set = ObjectSet::parse(text, &Limits::default()).unwrap();
    let of = |name: &str, key: &str| {
        let object = set.objects().iter().find(|object| object.name() == name).unwrap();
        object.annotation(key).map(str::to_owned)
    };
    assert_eq!(of("a", "helm.sh/hook").as_deref(), Some("pre-install"));
    assert_eq!(of("a", "helm.sh/resource-policy").as_deref(), Some("keep"));
    assert_eq!(of("a", "example.org/other"), None);
    assert_eq!(of("b", "helm.sh/hook").as_deref(), Some("test"), "the item's own counts");
    assert_eq!(of("c", "helm.sh/hook").as_deref(), Some("pre-install"));
    assert_eq!(of("c", "helm.sh/hook-weight").as_deref(), Some("5"));
}

#[test]
fn a_kind_that_only_sounds_like_a_list_stays() {
    assert_eq!(
        names("apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {items: []}\n"),
        ["a"]
    );
}

#[test]
fn the_last_duplicate_counts_and_is_reported() {
    let text = format!("{}data: {{v: '1'}}\n---\n{}---\n{}data: {{v: '2'}}\n", cm("a"), cm("b"), cm("a"));
    let set = ObjectSet::parse(&text, &Limits::default()).unwrap();
    assert_eq!(set.len(), 2);
    assert_eq!(set.objects()[0].body()["data"]["v"], "2");
    assert_eq!(set.warnings().len(), 1);
}

#[test]
fn errors_name_document_and_line() {
    let text = format!("{}---\n{}---\nkind: [x\n", cm("a"), cm("b"));
    let error = ObjectSet::parse(&text, &Limits::default()).unwrap_err();
    assert!(matches!(error, ParseError::Syntax { document: 3, line: 10..=13, .. }), "{error:?}");
    let error = ObjectSet::parse("- a\n", &Limits::default()).unwrap_err();
    assert!(matches!(error, ParseError::Object { document: 1, problem: ObjectError::NotAMap, .. }));
    assert_eq!(error.to_string(), "document 1: the object is not a map");
}

#[test]
fn errors_name_file_item_kind_and_name_of_the_object() {
    let of = |text: &str| ObjectSet::parse(text, &Limits::default()).unwrap_err().to_string();
    let nameless = "apiVersion: v1\nkind: ConfigMap\ndata: {key: value}\n";
    assert_eq!(of(nameless), "document 1: the ConfigMap has no metadata.name");
    let generated = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: once-}\n";
    assert_eq!(
        of(&format!("{}---\n{generated}", cm("a"))),
        "document 2: the Job has only a generateName, which cannot be applied; give it a metadata.name"
    );
    let rendered = format!("---\n# Source: shop/templates/a.yaml\n{}---\n", cm("a"));
    assert_eq!(
        of(&format!("{rendered}# Source: shop/charts/db/templates/b.yaml\n{nameless}")),
        "document 2 (shop/charts/db/templates/b.yaml): the ConfigMap has no metadata.name"
    );
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n\
                - {apiVersion: v1, kind: Secret, data: {password: aHVudGVyMg==}}\n";
    assert_eq!(of(list), "document 1, item 2: the Secret has no metadata.name");
    let nested = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"ConfigMapList","items":[{"data":{}}]}]}"#;
    assert_eq!(of(nested), "document 1, item 1, item 1: the ConfigMap has no metadata.name");
    assert_eq!(of("metadata: {name: a}\nkind: Pod\n"), "document 1: the Pod a has no valid apiVersion");
    assert_eq!(of("metadata: {name: a}\napiVersion: v1\n"), "document 1: the object a has no kind");
}

#[test]
fn errors_name_nothing_that_is_no_name() {
    let of = |text: &str| ObjectSet::parse(text, &Limits::default()).unwrap_err().to_string();
    for secret in ["my pass word", "p\u{e4}ss", "a=b;c", &*"x".repeat(MAX_NAME_BYTES + 1)] {
        for text in [
            format!("# Source: {secret}\napiVersion: v1\nkind: Pod\n"),
            format!("apiVersion: v1\nkind: '{secret}'\n"),
            format!("apiVersion: ''\nmetadata: {{name: '{secret}'}}\n"),
        ] {
            let message = of(&text);
            assert!(!message.contains(secret), "{message}");
        }
    }
}

#[test]
fn one_map_is_all_that_values_may_be() {
    let map = |text: &str| parse_map(text, &Limits::default());
    assert_eq!(map("a: 1\n").unwrap()["a"], 1);
    assert!(map("").unwrap().is_empty());
    assert!(map("# nothing\n").unwrap().is_empty());
    for text in ["---\na: 1\n---\n", "a: 1\n---\n# end\n", "\u{feff}a: 1\r\n...\r\n"] {
        assert_eq!(map(text).unwrap()["a"], 1, "{text}");
    }
    for text in ["- a\n", "a", "a: 1\n---\nb: 2\n"] {
        assert!(matches!(map(text), Err(ParseError::NotMap)), "{text}");
    }
    assert!(matches!(map("a: [b\n"), Err(ParseError::Syntax { .. })));
}

#[test]
fn limits_hold() {
    let limits = Limits { objects: 1, ..Limits::default() };
    let text = format!("{}---\n{}", cm("a"), cm("b"));
    assert!(matches!(ObjectSet::parse(&text, &limits), Err(ParseError::TooLarge { what: "objects", .. })));
    let limits = Limits { text_bytes: 3, ..Limits::default() };
    assert!(matches!(ObjectSet::parse(&text, &limits), Err(ParseError::TooLarge { .. })));
}

#[test]
fn json_counts_as_yaml_does() {
    let limits = Limits { nodes: 10, ..Limits::default() };
    let text = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[1,2,3,4,5,6,7,8]}"#;
    let error = ObjectSet::parse(text, &limits).unwrap_err();
    assert!(matches!(error, ParseError::TooLarge { what: "YAML nodes", .. }), "{error}");
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
        let text = format!("a:\n  {}x{}\n", open.repeat(200_000), close.repeat(200_000));
        let text = if close.is_empty() { text.replace("a:\n  ", "") } else { text };
        assert!(ObjectSet::parse(&text, &Limits::default()).is_err(), "{open}");
    }
}
