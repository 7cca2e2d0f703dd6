//! Lists of built-in kinds that a strategic merge patch merges item by item, and the field that identifies an item.
//!
//! From `patchStrategy` and `patchMergeKey` in the Go types of Kubernetes 1.36, without status. A map or list that is
//! not here is merged field by field or replaced as a whole. The keys of a list are those of patches, which are fewer
//! than those of server-side apply: for example, ports of a Service have the key `port` alone.

use super::shape::Field::{Keyed, Map, Replaced, Scalars};

/// Merge strategies of the fields of one type.
pub(super) struct Shape(&'static [(&'static str, Field)]);

/// Merge strategy of one field.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// A map that is merged field by field.
    Map(&'static Shape),
    /// A map that is replaced as a whole.
    Replaced,
    /// A list of maps, of which those with the same value of this field are merged.
    Keyed(&'static str, &'static Shape),
    /// A list of unique scalars.
    Scalars,
}

impl Shape {
    /// Returns the shape of an object of this kind.
    pub(super) fn of(group: &str, kind: &str) -> &'static Self {
        match (group, kind) {
            ("", "Pod") => &POD,
            ("", "PodTemplate") => &POD_TEMPLATE_OBJECT,
            ("", "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job") => &WORKLOAD,
            ("batch", "CronJob") => &CRON_JOB,
            ("", "Node") => &NODE,
            ("", "Service") => &SERVICE,
            ("", "ServiceAccount") => &SERVICE_ACCOUNT,
            ("policy", "PodDisruptionBudget") => &DISRUPTION_BUDGET,
            (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
            ) => &WEBHOOKS,
            ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => &MUTATING_POLICY,
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &VALIDATING_POLICY,
            ("storage.k8s.io", "CSINode") => &CSI_NODE,
            ("resource.k8s.io", "ResourceClaimTemplate") => &CLAIM_TEMPLATE,
            _ => &OBJECT,
        }
    }

    /// Returns the merge strategy of a field, if it differs from that of its JSON type.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }
}

/// A type without special merge strategies.
pub(super) static PLAIN: Shape = Shape(&[]);

static METADATA: Shape = Shape(&[("finalizers", Scalars), ("ownerReferences", Keyed("uid", &PLAIN))]);
static OBJECT: Shape = Shape(&[("metadata", Map(&METADATA))]);

static POD: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&POD_SPEC))]);
static POD_TEMPLATE_OBJECT: Shape = Shape(&[("metadata", Map(&METADATA)), ("template", Map(&POD))]);
static WORKLOAD: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&WORKLOAD_SPEC))]);
static WORKLOAD_SPEC: Shape = Shape(&[("template", Map(&POD))]);
static CRON_JOB: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&CRON_JOB_SPEC))]);
static CRON_JOB_SPEC: Shape = Shape(&[("jobTemplate", Map(&WORKLOAD))]);
static POD_SPEC: Shape = Shape(&[
    ("containers", Keyed("name", &CONTAINER)),
    ("ephemeralContainers", Keyed("name", &CONTAINER)),
    ("hostAliases", Keyed("ip", &PLAIN)),
    ("imagePullSecrets", Keyed("name", &PLAIN)),
    ("initContainers", Keyed("name", &CONTAINER)),
    ("resourceClaims", Keyed("name", &PLAIN)),
    ("schedulingGates", Keyed("name", &PLAIN)),
    ("topologySpreadConstraints", Keyed("topologyKey", &PLAIN)),
    ("volumes", Keyed("name", &VOLUME)),
]);
static CONTAINER: Shape = Shape(&[
    ("env", Keyed("name", &PLAIN)),
    ("ports", Keyed("containerPort", &PLAIN)),
    ("volumeDevices", Keyed("devicePath", &PLAIN)),
    ("volumeMounts", Keyed("mountPath", &PLAIN)),
]);
static VOLUME: Shape = Shape(&[("ephemeral", Map(&EPHEMERAL))]);
static EPHEMERAL: Shape = Shape(&[("volumeClaimTemplate", Map(&OBJECT))]);

static NODE: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&NODE_SPEC))]);
static NODE_SPEC: Shape = Shape(&[("podCIDRs", Scalars)]);
static SERVICE: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&SERVICE_SPEC))]);
static SERVICE_SPEC: Shape = Shape(&[("ports", Keyed("port", &PLAIN))]);
static SERVICE_ACCOUNT: Shape = Shape(&[("metadata", Map(&METADATA)), ("secrets", Keyed("name", &PLAIN))]);
static DISRUPTION_BUDGET: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&DISRUPTION_SPEC))]);
static DISRUPTION_SPEC: Shape = Shape(&[("selector", Replaced)]);

static WEBHOOKS: Shape = Shape(&[("metadata", Map(&METADATA)), ("webhooks", Keyed("name", &CONDITIONAL))]);
static CONDITIONAL: Shape = Shape(&[("matchConditions", Keyed("name", &PLAIN))]);
static MUTATING_POLICY: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&CONDITIONAL))]);
static VALIDATING_POLICY: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&VALIDATING_SPEC))]);
static VALIDATING_SPEC: Shape =
    Shape(&[("matchConditions", Keyed("name", &PLAIN)), ("variables", Keyed("name", &PLAIN))]);
static CSI_NODE: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&CSI_SPEC))]);
static CSI_SPEC: Shape = Shape(&[("drivers", Keyed("name", &PLAIN))]);
static CLAIM_TEMPLATE: Shape = Shape(&[("metadata", Map(&METADATA)), ("spec", Map(&OBJECT))]);
