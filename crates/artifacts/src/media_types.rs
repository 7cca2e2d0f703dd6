//! Media types of artifacts.

/// Media type of a chart's config blob.
pub(crate) const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of a chart's archive.
pub(crate) const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Media type of the config blob of a component version.
pub(crate) const COMPONENT_CONFIG: &str = "application/vnd.ocm.software.component.config.v1+json";
