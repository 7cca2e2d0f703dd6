//! Texts for generated values.

use kyma_api::labels;

/// Texts with a special meaning, or that parsers may fail on.
pub(super) const TEXTS: [&str; 52] = [
    "",
    "a",
    "regular",
    "fast",
    "none",
    "anchor",
    "keda",
    "default",
    "kcp-system",
    "kyma-system",
    "kube-system",
    "1.0.0",
    "0.0.0",
    "1.2.3-rc",
    "18446744073709551616.0.0",
    "v1",
    "apps",
    "apps/v1",
    "Deployment",
    "Secret",
    "Kyma",
    "HelmComponent",
    "Greeting",
    "component.kyma-project.io/v1alpha1",
    "demo.kyma-project.io/v1alpha1",
    "example.com",
    "example.com/module",
    "kyma-project.io/module/anchor",
    "oci://registry.invalid/module",
    "https://charts.invalid/index",
    "http://127.0.0.1:1/manifest.yaml",
    "http://[::1]:1/",
    "file:///etc/passwd",
    "registry.invalid",
    "127.0.0.1:1",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "kubeconfig-sentinel",
    "config",
    "../../etc/passwd",
    "{{ .Values.x }}",
    "{{ end }}",
    "%s%n%x",
    "null",
    "true",
    "-1",
    "1e400",
    "naïve",
    "\u{202e}txet",
    "🦀🦀🦀",
    "a\u{0}b",
    "a\nb: c",
    "'\"`$(x)",
];

/// Times: first valid ones, then ones that an API server may refuse.
pub(super) const TIMES: [&str; 11] = [
    "2026-01-01T00:00:00Z",
    "2099-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-01-01T00:00:00.123456789+14:00",
    "2026-06-30T23:59:60Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01t00:00:00z",
    "2026-01-01 00:00:00Z",
    "tomorrow",
];
/// Number of valid times.
pub(super) const VALID_TIMES: usize = 5;

/// Labels that operators read.
pub(super) const LABELS: [&str; 8] = [
    labels::BETA,
    labels::INTERNAL,
    labels::SKIP_RECONCILIATION,
    labels::KYMA_NAME,
    labels::MODULE_NAME,
    labels::CHANNEL,
    labels::MANAGED_BY,
    labels::OWNER,
];
