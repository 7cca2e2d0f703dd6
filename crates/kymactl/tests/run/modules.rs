//! Installs real modules of other authors, all at the same time.

use crate::{
    TEST_ENV,
    files::{Files, own_modules},
};

/// Directory of the module, name, version.
const MODULES: [(&str, &str, &str); 9] = [
    ("keda-manager", "keda", "1.12.1"),
    ("template-operator", "template-operator", "1.0.6"),
    ("telemetry-manager", "telemetry", "1.69.0"),
    ("serverless", "serverless", "1.13.0"),
    ("istio", "istio", "1.30.0"),
    ("btp-manager", "btp-operator", "1.3.20"),
    ("nats-manager", "nats", "1.6.4"),
    ("docker-registry", "docker-registry", "0.15.0"),
    ("registry-proxy", "registry-proxy", "0.15.0"),
];

#[tokio::test]
async fn once_installs_every_real_module_and_a_chart_together() {
    let Some(inputs) = testbed::inputs("real modules at once").unwrap() else { return };
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("full").with_workloads().await.unwrap();
    let names: Vec<&str> = MODULES.iter().map(|(_, name, _)| *name).chain(["harbour"]).collect();
    let files = Files::new(&cluster, &names).await;
    for (directory, name, version) in MODULES {
        let directory = inputs.join("modules").join(directory);
        let (manifest, default_cr) = (directory.join("raw-manifest.yaml"), directory.join("default-cr.yaml"));
        let mut flags = vec!["--name", name, "--version", version];
        flags.extend([
            "--manifest",
            manifest.to_str().unwrap(),
            "--default-cr",
            default_cr.to_str().unwrap(),
        ]);
        files.publish(name, version, &flags).await;
    }
    let chart = own_modules().join("harbour/module-config.yaml");
    files.publish("harbour", "2.0.0", &["--config", chart.to_str().unwrap()]).await;
    let table = files.once().await;
    for name in names {
        let row = table.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        assert!(row.is_some_and(|row| row.contains("Ready")), "{name}:\n{table}");
    }
}
