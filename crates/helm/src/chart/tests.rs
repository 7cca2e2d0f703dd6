use kyma_artifacts::{ArtifactError, Limits};

use super::*;

const CHART: &str = "apiVersion: v2\nname: demo\nversion: 1.2.3\n";

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let files: Vec<(String, &[u8])> =
        files.iter().map(|(path, bytes)| (format!("demo/{path}"), *bytes)).collect();
    archive_of(&files)
}

/// Returns an archive of files with complete paths.
fn archive_of(files: &[(String, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn opened(files: &[(&str, &[u8])]) -> Result<Chart, ChartFault> {
    Chart::open(&archive(files))
}

#[test]
fn facts_come_from_chart_yaml_and_the_templates_text() {
    let chart = opened(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("templates/a.yaml", b"{{ if .Capabilities.APIVersions.Has \"v1\" }}{{ end }}"),
    ])
    .unwrap();
    assert_eq!((chart.name(), chart.version()), ("demo", "1.2.3"));
    assert!(chart.names_api_versions(&Map::new()) && chart.depends_on_api_versions(&Map::new()));
    assert!(!chart.uses_lookup());
}

#[test]
fn a_chart_yaml_that_helm_reads_is_read() {
    let text = format!("{CHART}keywords: [a]\nkeywords: [b]\nversion: 1.2.4\n---\nversion: 2.0.0\n");
    assert_eq!(opened(&[("Chart.yaml", text.as_bytes())]).unwrap().version(), "1.2.4");
    let refused = opened(&[("Chart.yaml", b"name: demo\n")]).unwrap_err().to_string();
    assert!(refused.contains("Chart.yaml is unreadable") && refused.contains("version"), "{refused}");
}

#[test]
fn nondeterminism_is_found_in_packed_subcharts_but_not_in_words() {
    let nothing = serde_json::Map::new();
    let chart = |inner: &str| {
        let inner = archive(&[("Chart.yaml", CHART.as_bytes()), ("templates/_a.tpl", inner.as_bytes())]);
        let notes = b"You may now log in {{ .Release.Name }}" as &[u8];
        let files = [("Chart.yaml", CHART.as_bytes()), ("templates/a.txt", notes)];
        opened(&[files[0], files[1], ("charts/inner-1.0.0.tgz", &inner)]).unwrap()
    };
    assert!(!chart("{{ .Values.now }}").is_nondeterministic(&nothing));
    assert!(chart("{{ define \"a\" }}{{ randAlpha 3 }}{{ end }}").is_nondeterministic(&nothing));
    assert!(!chart("").depends_on_kube_version(&nothing));
    assert!(chart("{{ .Capabilities.KubeVersion.Major }}").names_kube_version(&nothing));
    assert!(!chart("").depends_on_api_versions(&nothing));
    assert!(chart("{{ toYaml .Capabilities }}").depends_on_api_versions(&nothing));
}

#[test]
fn library_charts_and_future_chart_apis_are_not_installable() {
    for extra in ["type: library\n", "apiVersion: v3\n"] {
        let text =
            CHART.replace("apiVersion: v2\n", if extra.starts_with("api") { "" } else { "apiVersion: v2\n" });
        let refused = opened(&[("Chart.yaml", format!("{text}{extra}").as_bytes())]);
        assert!(matches!(refused, Err(ChartFault::NotInstallable { .. })));
    }
}

#[test]
fn a_schema_in_a_packed_subchart_must_not_refer_outside() {
    let inner = archive(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("values.schema.json", br#"{"properties":{"a":{"$ref":"file:///etc/passwd"}}}"#),
    ]);
    let chart = opened(&[("Chart.yaml", CHART.as_bytes()), ("charts/inner-1.0.0.tgz", &inner)]).unwrap();
    let mut seen = Vec::new();
    Tree::read(chart.archive())
        .and_then(|tree| {
            tree.each(&mut |file, bytes| {
                let is_schema = file == "charts/inner-1.0.0/values.schema.json";
                seen.extend(is_schema.then(|| String::from_utf8_lossy(bytes).into_owned()));
                Ok(())
            })
        })
        .unwrap();
    let [schema] = &seen[..] else { panic!("{seen:?}") };
    assert!(!schema.contains("passwd"), "{schema}");
    let refused = chart.schema_fault(schema);
    let Some(ChartFault::RemoteReference { file, target }) = refused else { panic!("{refused:?}") };
    assert_eq!(target, "file:///etc/passwd");
    assert_eq!(file, "charts/inner-1.0.0/values.schema.json");
}

#[test]
fn files_outside_of_the_charts_folder_reach_no_engine() {
    let files: [(String, &[u8]); 2] = [
        ("demo/Chart.yaml".to_owned(), CHART.as_bytes()),
        ("values.schema.json".to_owned(), br#"{"$ref":"file:///etc/passwd"}"#),
    ];
    let refused = Chart::open(&archive_of(&files));
    assert!(matches!(refused, Err(ChartFault::NotAChart { .. })), "{refused:?}");
}

#[test]
fn references_within_a_schema_are_fine() {
    opened(&[
        ("Chart.yaml", CHART.as_bytes()),
        (
            "values.schema.json",
            br##"{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a"}"##,
        ),
    ])
    .unwrap();
}

#[test]
fn an_archive_bomb_is_stopped() {
    let zeros = vec![0; 5 << 20];
    let names: Vec<String> = (0..21).map(|index| format!("files/{index}")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("Chart.yaml", CHART.as_bytes())];
    files.extend(names.iter().map(|name| (name.as_str(), zeros.as_slice())));
    assert!(matches!(opened(&files), Err(ChartFault::Unreadable(ArtifactError::TooLarge { .. }))));
}

#[test]
fn a_file_may_be_larger_than_five_mebibytes() {
    let large = vec![0; (5 << 20) + 1];
    opened(&[("Chart.yaml", CHART.as_bytes()), ("files/large", &large)]).unwrap();
}

/// Returns an archive with raw names and types, which `Builder` would refuse to write.
fn raw(entries: &[(&[u8], tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (path, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path);
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Returns whether the archive for engines has no original schema, and a replacement that cannot be compiled.
fn is_kept_from_engines(chart: &Chart) -> bool {
    let mut is_kept = false;
    let read = Tree::read(chart.archive()).and_then(|tree| {
        tree.each(&mut |file, bytes| {
            let text = String::from_utf8_lossy(bytes);
            is_kept |= is_schema(file) && chart.schema_fault(&text).is_some();
            assert!(!text.contains("file:///") && !text.contains("elsewhere"), "{file}");
            Ok(())
        })
    });
    read.is_ok() && is_kept
}

#[test]
fn a_schema_that_only_the_engine_could_read_is_refused() {
    let deep = format!("{}{{\"$ref\":\"file:///x\"}}{}", "[".repeat(200), "]".repeat(200));
    for schema in [
        "\u{feff}{\"$ref\":\"file:///x\"}",
        r#"{"minimum":1e999,"$ref":"file:///x"}"#,
        r#"{"title":"\ud800","$ref":"file:///x"}"#,
        r#"{"$schema":"http://elsewhere.example/meta"}"#,
        r#"{"$schema":"file:///x"}"#,
        &deep,
    ] {
        let chart =
            opened(&[("Chart.yaml", CHART.as_bytes()), ("values.schema.json", schema.as_bytes())]).unwrap();
        assert!(is_kept_from_engines(&chart), "{schema:.60}");
    }
}

#[test]
fn a_schema_is_found_however_its_path_or_type_is_written() {
    let schema: &[u8] = br#"{"$ref":"file:///x"}"#;
    let regular = tar::EntryType::Regular;
    let inner =
        |path: &[u8], kind| raw(&[(b"sub/Chart.yaml", regular, CHART.as_bytes()), (path, kind, schema)]);
    let plain = inner(b"sub/values.schema.json", regular);
    for (path, kind, content) in [
        (&b"demo/values.schema.json/."[..], regular, schema),
        (b"demo/values.schema.json", tar::EntryType::Continuous, schema),
        (b"demo/charts/./sub.tgz", regular, &plain),
        (b"demo/charts/sub.tgz", regular, &inner(b"sub/values.schema.json", tar::EntryType::new(b'Z'))),
        (b"demo/charts/sub.tgz", regular, &inner(b"sub/values.schema.json", tar::EntryType::Continuous)),
        (b"demo/charts/sub.tgz", regular, &inner(b"sub/values.schema.json/.", regular)),
    ] {
        let chart = raw(&[(b"demo/Chart.yaml", regular, CHART.as_bytes()), (path, kind, content)]);
        let is_kept = Chart::open(&chart).as_ref().map_or(true, is_kept_from_engines);
        assert!(is_kept, "{} {kind:?}", String::from_utf8_lossy(path));
    }
}

#[test]
fn archive_for_engine_contains_exactly_the_files_read() {
    let regular = tar::EntryType::Regular;
    let inner =
        raw(&[(b"sub/./Chart.yaml", regular, CHART.as_bytes()), (b"sub/", tar::EntryType::Directory, b"")]);
    let chart = raw(&[
        (b"./demo/Chart.yaml", regular, CHART.as_bytes()),
        (b"demo\\templates\\a.yaml", regular, b"a: 1"),
        (b"demo/charts//sub.tgz", regular, &inner),
    ]);
    let chart = Chart::open(&chart).unwrap();
    let files =
        |archive: &[u8]| kyma_artifacts::archive::Unpacker::new(&Limits::default()).files("test", archive);
    let packed = files(chart.archive()).unwrap();
    let paths: Vec<&str> = packed.keys().map(String::as_str).collect();
    let context = "templates/helm-component.kyma-project.io/context.yaml";
    let own = format!("demo/{context}");
    assert_eq!(paths, ["demo/Chart.yaml", "demo/charts/sub.tgz", "demo/templates/a.yaml", &own]);
    assert_eq!(
        files(&packed["demo/charts/sub.tgz"]).unwrap().into_keys().collect::<Vec<_>>(),
        ["sub/Chart.yaml".to_owned(), format!("sub/{context}")]
    );
}
