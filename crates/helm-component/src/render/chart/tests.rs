use super::*;

const CHART: &str = "apiVersion: v2\nname: demo\nversion: 1.2.3\n";

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("demo/{path}"), *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn opened(files: &[(&str, &[u8])]) -> Result<Chart, ChartFault> {
    Chart::open(archive(files).into())
}

#[test]
fn facts_come_from_chart_yaml_and_the_templates_text() {
    let chart = opened(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("templates/a.yaml", b"{{ if .Capabilities.APIVersions.Has \"v1\" }}{{ end }}"),
    ])
    .unwrap();
    assert_eq!((chart.name(), chart.version()), ("demo", "1.2.3"));
    assert!(chart.reads_api_versions());
    assert!(!chart.uses_lookup());
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
    let refused = opened(&[("Chart.yaml", CHART.as_bytes()), ("charts/inner-1.0.0.tgz", &inner)]);
    let Err(ChartFault::RemoteReference { file, target }) = refused else { panic!("{refused:?}") };
    assert_eq!(target, "file:///etc/passwd");
    assert_eq!(file, "charts/inner-1.0.0/values.schema.json");
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
    assert!(matches!(opened(&files), Err(ChartFault::TooLarge { .. })));
}

#[test]
fn a_file_over_five_mebibytes_is_refused() {
    let large = vec![0; (5 << 20) + 1];
    let refused = opened(&[("Chart.yaml", CHART.as_bytes()), ("files/large", &large)]);
    assert!(matches!(refused, Err(ChartFault::TooLarge { .. })));
}
