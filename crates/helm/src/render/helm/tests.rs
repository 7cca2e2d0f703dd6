use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use testbed::Program;

use super::*;
use crate::chart::Chart;
use crate::render::CachingRenderer;
use kyma_api::Reason;

fn helm() -> HelmProgram {
    let program = Program::Helm.path().expect("the helm program, from `cargo xtask setup`");
    HelmProgram::find(Some(&program), patient()).unwrap()
}

/// Returns a chart of these files, with a plain Chart.yaml if they have none.
pub(crate) fn chart(files: &[(&str, &str)]) -> Arc<Chart> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let plain = [("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.0.0\n")];
    let has_metadata = files.iter().any(|(path, _)| *path == "Chart.yaml");
    for (path, text) in plain.iter().filter(|_| !has_metadata).chain(files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("demo/{path}"), text.as_bytes()).unwrap();
    }
    let archive = tar.into_inner().unwrap().finish().unwrap();
    Arc::new(Chart::open(&archive).unwrap())
}

pub(crate) fn request(chart: &Arc<Chart>, values: Value) -> RenderRequest {
    let Value::Object(values) = values else { panic!("values are a map") };
    RenderRequest {
        chart: Arc::clone(chart),
        release: "demo".to_owned(),
        namespace: "here".to_owned(),
        values,
        kube_version: "v1.34.7".to_owned(),
        api_versions: Arc::new(BTreeSet::from(["example.org/v1/Thing".to_owned()])),
        revision: None,
        crds: true,
        deadline: None,
    }
}

const TEMPLATE: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}", namespace: "{{ .Release.Namespace }}"}
data:
  kube: "{{ .Capabilities.KubeVersion.Version }}"
  thing: "{{ .Capabilities.APIVersions.Has "example.org/v1/Thing" }}"
  value: "{{ .Values.value }}"
"#;

#[tokio::test]
async fn chart_renders_with_target_version_kinds_and_given_values() {
    let chart = chart(&[("templates/a.yaml", TEMPLATE), ("crds/c.yaml", "kind: CustomResourceDefinition\n")]);
    let rendered = helm().render(&request(&chart, json!({"value": "x"}))).await.unwrap();
    for expected in [
        "name: \"demo\"",
        "namespace: \"here\"",
        "v1.34.7",
        "thing: \"true\"",
        "value: \"x\"",
        "kind: CustomResourceDefinition",
    ] {
        assert!(rendered.manifest.contains(expected), "{expected} in {}", rendered.manifest);
    }
}

#[tokio::test]
async fn chart_that_passes_on_all_capabilities_gets_target_kinds() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  all: {{ toJson .Capabilities | quote }}\n";
    let rendered = helm().render(&request(&chart(&[("templates/a.yaml", text)]), json!({}))).await.unwrap();
    assert!(rendered.manifest.contains("example.org/v1/Thing"), "{}", rendered.manifest);
}

/// Writes a shell script that can be executed. Another process writes the file: this one could not execute it while a
/// child that another test just forked has it open for writing.
fn write_program(program: &Path, script: &str) {
    let source = program.with_extension("txt");
    std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
    let mut install = std::process::Command::new("install");
    let installed = install.args(["-m", "755"]).args([source.as_path(), program]).status();
    assert!(installed.unwrap().success());
}

/// Returns the output of a shell script that replaces the engine, after it has read its input.
async fn printed(script: &str, values: Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("engine");
    write_program(&program, &format!("input=$(/bin/cat)\n{script}"));
    let engine = HelmProgram::find(Some(&program), RenderLimits::default()).unwrap();
    let chart = chart(&[("templates/a.yaml", TEMPLATE)]);
    engine.render(&request(&chart, values)).await.unwrap().manifest.to_string()
}

#[tokio::test]
async fn values_are_in_engine_input_only_not_argument_env_or_file() {
    // Only the printable part of the packed chart: the output must be UTF-8.
    let script = r#"echo "$@"; /usr/bin/env
/usr/bin/find "$HOME" -type f -print -exec /bin/cat {} + | /usr/bin/tr -cd '\12\40-\176'
echo; echo input; echo "$input""#;
    let printed = printed(script, json!({"password": "planted"})).await;
    let (elsewhere, input) = printed.split_once("\ninput\n").unwrap();
    for looked_at in ["template --namespace=here", "HOME=", "chart.tgz\n"] {
        assert!(elsewhere.contains(looked_at), "{looked_at} in {elsewhere}");
    }
    assert!(!elsewhere.contains("planted"), "{elsewhere}");
    assert_eq!(input, "{\"password\":\"planted\"}\n");
}

#[tokio::test]
async fn the_engine_works_in_a_home_that_nobody_else_may_enter() {
    let script = r#"test . -ef "$HOME" && /bin/ls -ld . | /usr/bin/cut -c 1-10"#;
    assert_eq!(printed(script, json!({})).await, "drwx------\n");
}

#[tokio::test]
async fn a_release_name_is_never_taken_for_a_flag() {
    let chart = chart(&[("templates/a.yaml", TEMPLATE)]);
    let mut hostile = request(&chart, json!({}));
    hostile.release = "--post-renderer=/bin/sh".to_owned();
    assert!(helm().render(&hostile).await.is_err());
}

#[tokio::test]
async fn files_outside_the_chart_and_the_environment_cannot_be_read() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  file: {{ .Files.Get \"../../../etc/hostname\" | quote }}\n  env: {{ env \"HOME\" | quote }}\n";
    let chart = chart(&[("templates/a.yaml", text)]);
    // Helm has no `env` function; a chart that calls it does not render.
    let refused = helm().render(&request(&chart, json!({}))).await.unwrap_err();
    assert!(refused.to_string().contains("\"env\" not defined"), "{refused}");
    let chart = self::chart(&[("templates/a.yaml", &text.replace("{{ env \"HOME\" | quote }}", "x"))]);
    let rendered = helm().render(&request(&chart, json!({}))).await.unwrap();
    assert!(rendered.manifest.contains("file: \"\""), "{}", rendered.manifest);
}

#[tokio::test]
async fn failures_name_the_place_and_never_a_value() {
    let chart = chart(&[("templates/a.yaml", "{{ mustRegexMatch .Values.pw \"a\" }}")]);
    let refused = helm().render(&request(&chart, json!({"pw": "se(cret"}))).await.unwrap_err();
    let shown = refused.to_string();
    assert!(shown.contains("demo/templates/a.yaml:1") && shown.contains("mustRegexMatch"), "{shown}");
    assert!(!shown.contains("cret"), "{shown}");
}

#[tokio::test]
async fn values_against_the_schema_are_refused_by_key_path() {
    let chart = chart(&[("values.schema.json", r#"{"properties":{"pw":{"type":"integer"}}}"#)]);
    let refused = helm().render(&request(&chart, json!({"pw": "secret"}))).await.unwrap_err();
    let RenderError::Schema { violations } = refused else { panic!("{refused}") };
    assert_eq!(violations, ["/pw: got string, want integer"]);
}

#[tokio::test]
async fn values_over_the_limit_are_refused_before_helm_runs() {
    let chart = chart(&[]);
    let refused = helm().render(&request(&chart, json!({"a": "x".repeat(5 << 20)}))).await.unwrap_err();
    assert!(matches!(refused, RenderError::TooLarge { .. }));
}

#[tokio::test]
async fn unchanged_input_renders_same_text_if_chart_is_deterministic() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: \"{{ .Values.v }}\"}\n";
    let certain = chart(&[("templates/a.yaml", text)]);
    let renderer = CachingRenderer::new(helm());
    let first = renderer.render(&request(&certain, json!({"v": 1}))).await.unwrap();
    let again = renderer.render(&request(&certain, json!({"v": 1}))).await.unwrap();
    let other = renderer.render(&request(&certain, json!({"v": 2}))).await.unwrap();
    assert!(Arc::ptr_eq(&first.manifest, &again.manifest), "not rendered again");
    assert_ne!(first.manifest, other.manifest);
    let nondeterministic = chart(&[("templates/a.yaml", &text.replace(".Values.v", "randAlphaNum 20"))]);
    let first = renderer.render(&request(&nondeterministic, json!({"v": 1}))).await.unwrap();
    let again = renderer.render(&request(&nondeterministic, json!({"v": 1}))).await.unwrap();
    assert_ne!(first.manifest, again.manifest, "one component must not know what another has");
}

/// Returns the error of a template within `limits`.
async fn outcome(template: &str, limits: RenderLimits) -> RenderError {
    let helm = HelmProgram { limits, ..helm() };
    let chart = chart(&[("templates/a.yaml", template)]);
    helm.render(&request(&chart, json!({}))).await.map(|rendered| rendered.manifest.len()).unwrap_err()
}

/// Limits with a long timeout, to reach another limit: a busy machine takes long for a gigabyte.
fn patient() -> RenderLimits {
    RenderLimits { deadline: std::time::Duration::from_mins(2), ..RenderLimits::default() }
}

#[tokio::test]
async fn a_template_in_a_circle_fails() {
    let circle = r#"{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}"#;
    let refused = outcome(circle, patient()).await;
    assert_eq!(refused.reason(), Reason::RenderFailed, "{refused}");
}

#[tokio::test]
async fn a_template_that_never_ends_is_stopped() {
    let endless =
        "{{ range until 30000 }}{{ range until 30000 }}{{ range until 30000 }}{{ end }}{{ end }}{{ end }}";
    let limits = RenderLimits { deadline: std::time::Duration::from_secs(1), ..RenderLimits::default() };
    let refused = outcome(endless, limits).await;
    assert_eq!(refused.reason(), Reason::RenderTimeout, "{refused}");
}

#[tokio::test]
async fn a_template_that_wants_too_much_memory_is_stopped() {
    let greedy = r#"{{ $x := "xxxxxxxx" }}{{ range until 30 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}"#;
    let limits = RenderLimits { memory: 2 << 30, ..patient() };
    let refused = outcome(greedy, limits).await;
    assert_eq!(refused.reason(), Reason::RenderTooLarge, "{refused}");
}

#[tokio::test]
async fn values_of_aliases_upon_aliases_are_stopped() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let last = level - 1;
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 9].join(", ")));
    }
    let chart = chart(&[("templates/a.yaml", TEMPLATE), ("values.yaml", &bomb)]);
    let begin = std::time::Instant::now();
    let refused =
        HelmProgram { limits: patient(), ..helm() }.render(&request(&chart, json!({}))).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::RenderFailed, "{refused}");
    assert!(begin.elapsed() < patient().deadline, "{refused}");
}

#[tokio::test]
async fn more_text_than_allowed_is_refused() {
    for megabytes in [12, 100] {
        let text = format!("a: {{{{ repeat {megabytes}000000 \"x\" }}}}");
        let refused = outcome(&text, patient()).await;
        assert_eq!(refused.reason(), Reason::RenderTooLarge, "{megabytes} MB: {refused}");
    }
}

#[test]
fn hooks_that_helm_leaves_out_are_told() {
    let stderr = "level=INFO msg=\"skipping unknown hooks\" hookTypes=crd-install\n\
                  level=INFO msg=\"skipping unknown hooks\" hookTypes=\"pre-install, bogus\"\nother\n";
    let told = skipped_hooks(stderr);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("(crd-install)") && told[1].ends_with("(pre-install, bogus)"), "{told:?}");
    assert!(skipped_hooks("level=INFO msg=other").is_empty());
}

#[tokio::test]
async fn every_character_and_long_keys_reach_the_chart_in_values() {
    let all: String = ('\u{1}'..=char::MAX).collect();
    let key = "k".repeat(2_000);
    let template = "a: {{ .Values.all | sha256sum }} {{ index .Values.map .Values.key }} {{ index .Values.map .Values.nel }}";
    let chart = chart(&[("templates/a.yaml", template)]);
    let map = json!({ key.clone(): "long", "a\u{85}b": "nel" });
    let values = json!({"all": all, "key": key, "nel": "a\u{85}b", "map": map});
    let limits = RenderLimits { values: 16 << 20, ..patient() };
    let rendered = HelmProgram { limits, ..helm() }.render(&request(&chart, values)).await.unwrap();
    let digest = hex::encode(Sha256::digest(all.as_bytes()));
    assert!(rendered.manifest.contains(&format!("{digest} long nel")), "{}", rendered.manifest);
}

#[tokio::test]
async fn capabilities_are_those_of_the_target_in_all_charts() {
    let template = "known: {{ .Capabilities.APIVersions.Has \"policy/v1beta1\" }} {{ .Capabilities.APIVersions.Has \
                    \"example.org/v1/Thing\" }} {{ len .Capabilities.APIVersions }} {{ .Capabilities.KubeVersion.GitVersion }} \
                    {{ .Capabilities.KubeVersion.String }} {{ tpl \"{{ .Capabilities.APIVersions.Has \\\"v1\\\" }}\" . }}";
    let sub = "apiVersion: v2\nname: sub\nversion: 1.0.0\n";
    let files = [
        ("templates/a.yaml", template),
        ("templates/deep/er/z.yaml", template),
        ("charts/sub/Chart.yaml", sub),
        ("charts/sub/templates/z.yaml", template),
    ];
    let rendered = helm().render(&request(&chart(&files), json!({}))).await.unwrap();
    let expected = "known: false true 1 v1.34.7 v1.34.7 false";
    assert_eq!(rendered.manifest.matches(expected).count(), 3, "{}", rendered.manifest);
    assert!(!rendered.manifest.contains("helm-component.kyma-project.io"), "{}", rendered.manifest);
}

#[tokio::test]
async fn a_chart_that_prints_the_version_as_a_whole_gets_helms_own() {
    let chart = chart(&[(
        "templates/a.yaml",
        "version: {{ .Capabilities.KubeVersion }} {{ len .Capabilities.APIVersions }}",
    )]);
    assert!(chart.keeps_compiled_versions());
    let rendered = helm().render(&request(&chart, json!({}))).await.unwrap();
    assert!(rendered.manifest.contains("version: v1.34.7 "), "{}", rendered.manifest);
}

#[tokio::test]
async fn the_revision_is_the_requests_in_all_charts() {
    let template = "release: {{ .Release.Revision }} {{ .Release.IsUpgrade }} {{ .Release.IsInstall }} {{ .Release.Name }}";
    let sub = "apiVersion: v2\nname: sub\nversion: 1.0.0\n";
    let chart = chart(&[
        ("templates/a.yaml", template),
        ("charts/sub/Chart.yaml", sub),
        ("charts/sub/templates/a.yaml", template),
    ]);
    assert!(chart.depends_on_revision(&Map::new()));
    for (revision, expected) in
        [(None, "1 false true"), (Some(1), "1 false true"), (Some(12), "12 true false")]
    {
        let request = RenderRequest { revision, ..request(&chart, json!({})) };
        let rendered = helm().render(&request).await.unwrap();
        assert_eq!(
            rendered.manifest.matches(&format!("release: {expected} demo")).count(),
            2,
            "{}",
            rendered.manifest
        );
    }
    let digest = |revision| RenderRequest { revision, ..request(&chart, json!({})) }.digest();
    assert_ne!(digest(Some(1)), digest(Some(2)));
}

#[tokio::test]
async fn schema_with_outside_reference_counts_only_in_enabled_charts() {
    let metadata = "apiVersion: v2\nname: demo\nversion: 1.0.0\ndependencies:\n- {name: sub, version: 1.0.0, condition: sub.enabled}\n";
    let chart = chart(&[
        ("Chart.yaml", metadata),
        ("templates/a.yaml", "a: 1"),
        ("files/values.schema.json", r#"{"$ref": "https://example.org/x"}"#),
        ("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n"),
        ("charts/sub/values.schema.json", r#"{"$ref": "https://example.org/schema.json"}"#),
        ("charts/sub/templates/b.yaml", "b: 1"),
    ]);
    let rendered = helm().render(&request(&chart, json!({"sub": {"enabled": false}}))).await.unwrap();
    assert!(rendered.manifest.contains("a: 1"));
    let refused = helm().render(&request(&chart, json!({"sub": {"enabled": true}}))).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::SourceInvalid);
    let text = refused.to_string();
    assert!(
        text.contains("charts/sub/values.schema.json") && text.contains("https://example.org/schema.json"),
        "{text}"
    );
}

#[test]
fn a_program_that_is_no_helm_4_or_another_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("helm");
    write_program(&program, "echo v3.18.0");
    let engine = HelmProgram::find(Some(&program), RenderLimits::default()).unwrap();
    assert!(matches!(engine.check(None), Err(HelmProgramError::Version { found, .. }) if found == "v3.18.0"));
    assert!(engine.check_unchanged().is_ok());
    write_program(&program, "echo v4.3.1 ");
    assert!(engine.check_unchanged().is_err(), "it was replaced");
    let engine = HelmProgram::find(Some(&program), RenderLimits::default()).unwrap();
    engine.check(None).unwrap();
    let digest = hex::encode(Sha256::digest(std::fs::read(&program).unwrap()));
    engine.check(Some(&format!("sha256:{}", digest.to_uppercase()))).unwrap();
    engine.check(Some(&digest)).unwrap();
    assert!(matches!(engine.check(Some("00")), Err(HelmProgramError::Digest { .. })));
}
