//! Charts with subcharts, files and values in all forms that Helm supports, on a real target.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::chart::{packed, publish_files, push};
use crate::world::{World, condition_of, ready_of, world};

/// A subchart with two aliases, one with a tag, one that exports values, one in a subchart, and a library.
const CHART: &str = r#"apiVersion: v2
name: umbrella
version: 1.0.0
dependencies:
  - {name: leaf, version: 1.x, alias: first, condition: "first.enabled"}
  - {name: leaf, version: 1.x, alias: second, condition: "second.enabled"}
  - {name: tagged, version: 1.0.0, tags: [extra]}
  - {name: giver, version: 1.0.0, import-values: [data, {child: inner, parent: taken}]}
  - {name: words, version: 1.0.0}
"#;
const MAIN: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: main
  labels: {{- include "words.labels" . | nindent 4 }}
data:
  imported: "{{ .Values.imported }}"
  taken: "{{ .Values.taken.deep }}"
  file: {{ .Files.Get "files/note.txt" | quote }}
  globbed: {{ (.Files.Glob "files/*.cfg").AsConfig | quote }}
"#;
const LEAF: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Chart.Name }}-config"}
data: {level: "{{ .Values.level }}", global: "{{ .Values.global.colour }}"}
"#;
const SCHEMA: &str = r##"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$defs": {"port": {"type": "integer"}},
  "properties": {"port": {"$ref": "#/$defs/port"}}
}"##;

fn files() -> Vec<(&'static str, &'static str)> {
    vec![
        ("Chart.yaml", CHART),
        (
            "values.yaml",
            "first: {level: one}\nsecond: {enabled: false}\ntags: {extra: false}\nglobal: {colour: red}\n",
        ),
        ("values.schema.json", SCHEMA),
        ("templates/main.yaml", MAIN),
        ("files/note.txt", "a note"),
        ("files/a.cfg", "b=c"),
        (
            "charts/leaf/Chart.yaml",
            "apiVersion: v2\nname: leaf\nversion: 1.2.3\ndependencies: [{name: deep, version: 1.0.0, condition: deep.enabled}]\n",
        ),
        ("charts/leaf/values.yaml", "level: default\ndeep: {enabled: true}\n"),
        ("charts/leaf/templates/a.yaml", LEAF),
        ("charts/leaf/charts/deep/Chart.yaml", "apiVersion: v2\nname: deep\nversion: 1.0.0\n"),
        (
            "charts/leaf/charts/deep/templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deep}\ndata: {colour: '{{ .Values.global.colour }}'}\n",
        ),
        ("charts/tagged/Chart.yaml", "apiVersion: v2\nname: tagged\nversion: 1.0.0\n"),
        ("charts/tagged/templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tagged}\n"),
        ("charts/giver/Chart.yaml", "apiVersion: v2\nname: giver\nversion: 1.0.0\n"),
        ("charts/giver/values.yaml", "exports: {data: {imported: gift}}\ninner: {deep: down}\n"),
        ("charts/words/Chart.yaml", "apiVersion: v2\nname: words\nversion: 1.0.0\ntype: library\n"),
        ("charts/words/templates/_labels.tpl", "{{ define \"words.labels\" }}from: library{{ end }}"),
    ]
}

/// Returns the data of the chart's ConfigMaps by name.
async fn installed(world: &World, namespace: &str) -> Result<Value> {
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, namespace);
    let found = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?;
    let named = found.items.into_iter().filter_map(|map| Some((map.metadata.name?, json!(map.data))));
    Ok(Value::Object(named.collect()))
}

#[tokio::test]
async fn umbrella_chart_renders_subcharts_and_libraries_like_helm() -> Result<()> {
    let world = world().await?;
    let source = publish_files(world, "umbrella", "1.0.0", &files()).await?;
    let spec =
        |values: Value| json!({"source": source, "release": {"namespace": "umbrella"}, "userValues": values});
    world.apply("umbrella", spec(json!({}))).await?;
    world.ready("umbrella", "True", "Ready").await?;
    let main = json!({"imported": "gift", "taken": "down", "file": "a note", "globbed": "a.cfg: b=c"});
    let expected = json!({
        "main": main, "first-config": {"level": "one", "global": "red"}, "deep": {"colour": "red"},
    });
    assert_eq!(installed(world, "umbrella").await?, expected);
    let map = world.on_target("v1", "ConfigMap", "umbrella", "main").await?.context("main")?;
    assert_eq!(map.metadata.labels.unwrap_or_default().get("from").map(String::as_str), Some("library"));

    let other = json!({
        "first": {"enabled": false}, "second": {"enabled": true, "level": "two", "deep": {"enabled": false}},
        "tags": {"extra": true}, "global": {"colour": "blue"},
    });
    world.apply("umbrella", spec(other)).await?;
    testbed::until("the other subcharts are there instead", crate::world::DEADLINE, || async {
        let expected =
            json!({"main": main, "second-config": {"level": "two", "global": "blue"}, "tagged": null});
        Ok((installed(world, "umbrella").await? == expected).then_some(()))
    })
    .await?;

    world.apply("umbrella", spec(json!({"port": "planted-secret"}))).await?;
    let refused = world.ready("umbrella", "False", "ValuesInvalid").await?;
    let (_, _, message) = ready_of(&refused).context("Ready")?;
    assert!(message.contains("/port") && !message.contains("planted-secret"), "{message}");
    Ok(())
}

#[tokio::test]
async fn lookup_finds_nothing_and_a_condition_says_that_it_was_called() -> Result<()> {
    let world = world().await?;
    let template = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: looked}
data:
  found: "{{ (lookup "v1" "Namespace" "" "kube-system") | empty | not }}"
  version: "{{ .Capabilities.KubeVersion.Major }}"
"#;
    let chart =
        [("Chart.yaml", "apiVersion: v2\nname: looked\nversion: 1.0.0\n"), ("templates/a.yaml", template)];
    let source = publish_files(world, "looked", "1.0.0", &chart).await?;
    world.apply("looked", json!({"source": source, "release": {"namespace": "looked"}})).await?;
    let ready = world.ready("looked", "True", "Ready").await?;
    let (is, _, message) = condition_of(&ready, "Rendered").context("Rendered")?;
    assert!(is == "True" && message.contains("lookup"), "{message}");
    assert_eq!(installed(world, "looked").await?["looked"], json!({"found": "false", "version": "1"}));
    Ok(())
}

const NUMBERS: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: main}
data:
  big: "{{ .Values.big }}"
  fromSpec: "{{ .Values.fromSpec }}"
  gone: {{ .Values.gone | toJson | quote }}
"#;
const OF_SUBCHART: &str = r"apiVersion: v1
kind: ConfigMap
metadata: {name: sub}
data:
  k: {{ .Values.k | toJson | quote }}
  other: {{ .Values.other | toJson | quote }}
";

/// Returns the ConfigMaps that Helm renders from a chart and files of values, as [`installed`] does.
async fn by_helm(world: &World, chart: &[u8], layers: &[Value]) -> Result<Value> {
    let archive = world.scratch("numbers.tgz");
    std::fs::write(&archive, chart)?;
    let mut arguments = vec!["template".to_owned(), "numbers".to_owned(), archive.display().to_string()];
    for (number, layer) in layers.iter().enumerate() {
        let file = world.scratch(&format!("numbers-{number}.json"));
        std::fs::write(&file, layer.to_string())?;
        arguments.push(format!("--values={}", file.display()));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let maps: Vec<ConfigMap> = serde_saphyr::from_multiple(&world.helm("numbers", &arguments).await?)?;
    let named = maps.into_iter().filter_map(|map| Some((map.metadata.name?, json!(map.data))));
    Ok(Value::Object(named.collect()))
}

#[tokio::test]
async fn large_numbers_and_nulls_are_as_with_helm() -> Result<()> {
    let world = world().await?;
    let files = [
        ("values.yaml", "big: 1000000\ngone: {a: 1}\nsub: {k: default}\n"),
        ("templates/main.yaml", NUMBERS),
        ("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n"),
        ("charts/sub/values.yaml", "k: own\nother: own\n"),
        ("charts/sub/templates/sub.yaml", OF_SUBCHART),
    ];
    let source = push(world, "numbers", "1.0.0", &files).await?;
    let chart = packed("numbers", "1.0.0", &files)?;
    let values = json!({"fromSpec": 12_345_678, "gone": null});
    let user = json!({"sub": {"k": null, "other": null}});
    let overrides = json!({"big": null, "gone": {"b": 7_654_321}, "sub": {"k": 20_000_000}});
    let mut spec = json!({
        "source": source, "release": {"namespace": "numbers"}, "values": values, "userValues": user,
    });
    world.apply("numbers", spec.clone()).await?;
    world.ready("numbers", "True", "Ready").await?;
    let helms = by_helm(world, &chart, &[values.clone(), user.clone()]).await?;
    assert_eq!(helms["main"]["big"], "1e+06", "what charts have to know");
    assert_eq!(installed(world, "numbers").await?, helms);

    spec["overrides"] = overrides.clone();
    world.apply("numbers", spec).await?;
    world.ready("numbers", "True", "Ready").await?;
    assert_eq!(installed(world, "numbers").await?, by_helm(world, &chart, &[values, user, overrides]).await?);
    Ok(())
}
