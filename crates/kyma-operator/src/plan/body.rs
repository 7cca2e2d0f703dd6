//! Composes the body of a component's server-side apply.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kyma_api::component::{DeletionOrder, DeletionReason};
use kyma_api::{
    Adopt, ComponentDependency, DeletionPolicy, Dependency, FreeForm, GroupKind, Kyma, Reason, UpgradeMode,
    annotations, finalizers, labels, names, values,
};
use kyma_targets::TargetRecord;
use serde_json::{Map, Value, json};

use super::{Scope, source};
use crate::decision::resolve::{Install, ModuleProblem};
use crate::hub::component::{ComponentKind, ComponentView, MANUAL_UPGRADE_MODE, TemplateRecord, kind_of};
use crate::hub::config;

const ADOPT_FIELD: &str = "adopt";

/// Composes the body. Fields that kyma-operator decides override those of the module's own spec.
pub(super) fn compose(
    scope: &Scope<'_>,
    install: &Install,
    kind: &ComponentKind,
    view: Option<&ComponentView>,
) -> Result<Value, ModuleProblem> {
    let module = install.release.module.as_str();
    let mut spec = own_spec(install);
    if kind.is_helm() && withheld(install).is_some() {
        spec.remove(ADOPT_FIELD);
    }
    let central = &install.entry.central;
    if kind.is_helm() {
        source::lay_over_component(&mut spec, &central.component);
    } else {
        values::lay_over(&mut spec, &central.own_kind);
    }
    if kind.is_helm() {
        source::complete(&mut spec, || default_source(install))?;
    }
    let crd = scope.kinds.crd(kind);
    let has =
        |field: &str| kind.is_helm() || crd.is_some_and(|crd| has_spec_field(crd, kind.version(), field));
    template_spec(install, scope.target_namespace, &mut spec, has);
    decide(scope, install, kind, &mut spec);
    let mut metadata = json!({
        "name": view.map_or_else(|| names::component_name(&scope.kyma.name, module), |view| view.name.clone()),
        "namespace": scope.kyma.namespace,
        "labels": labels_of(scope, install),
        "finalizers": [finalizers::COMPONENT],
        "ownerReferences": [owner(&scope.kyma.name, scope.uid)],
    });
    let passed_on = match view {
        Some(view) => view.default_resource_passed_on,
        None => scope.default_resources.contains(module),
    };
    let passed_on = passed_on.then(|| (annotations::DEFAULT_RESOURCE_CREATED, "true".to_owned()));
    let is_manual = install.entry.upgrade.mode == UpgradeMode::Manual;
    let mode = is_manual.then(|| (annotations::UPGRADE_MODE, MANUAL_UPGRADE_MODE.to_owned()));
    let template = TemplateRecord::of(&install.version, &install.template).annotation();
    let configs = config::record_annotation(&install.entry.central.configs);
    let records: BTreeMap<&str, String> =
        configs.into_iter().chain(passed_on).chain(mode).chain([template]).collect();
    metadata["annotations"] = json!(records);
    if let Some(view) = view {
        metadata["uid"] = Value::from(view.uid.as_str());
    }
    Ok(json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec }))
}

/// Returns the ownerReference to the Kyma.
pub(crate) fn owner(kyma: &str, uid: &str) -> Value {
    json!({
        "apiVersion": Kyma::api_version(&()),
        "kind": Kyma::kind(&()),
        "name": kyma,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": false,
    })
}

/// Adds a deletion request to the body of a new component. The body names the cluster's recorded identity, so that an
/// unreachable target does not count as one that never existed.
pub(super) fn add_deletion_request(scope: &Scope<'_>, reason: DeletionReason, body: &mut Value) {
    let request = DeletionOrder { reason, kyma_uid: scope.uid.to_owned(), kyma_generation: scope.generation };
    let mut annotations = request.to_annotations();
    annotations.extend(
        scope.identity.map(|known| kyma_targets::record(&TargetRecord::from(known))).unwrap_or_default(),
    );
    if let Some(set) = body["metadata"]["annotations"].as_object() {
        annotations
            .extend(set.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))));
    }
    body["metadata"]["annotations"] = json!(annotations);
    body["spec"]["deletionPolicy"] = json!(DeletionPolicy::Delete);
}

fn own_spec(install: &Install) -> Map<String, Value> {
    let component = install.template.spec.component.as_ref();
    component.and_then(|component| component.spec.clone()).unwrap_or_default()
}

/// Returns a note for the module's status if its author requests what is not permitted: adopting objects of another
/// module. An author may break their own module, never another one.
pub(crate) fn withheld(install: &Install) -> Option<&'static str> {
    let component = install.template.spec.component.as_ref()?;
    let adopt = component.spec.as_ref()?.get(ADOPT_FIELD)?;
    let is_withheld = kind_of(&install.template).is_helm() && *adopt == json!(Adopt::Always);
    is_withheld.then_some("component.spec.adopt: Always is ignored; objects of another owner are not changed")
}

/// Returns a note for the status of a module whose values have no effect: the content of a module without a chart is
/// plain objects.
pub(crate) fn values_without_effect(install: &Install) -> Option<&'static str> {
    let given =
        install.entry.values.as_ref().and_then(Value::as_object).is_some_and(|values| !values.is_empty());
    let central = !install.entry.central.values.is_empty();
    if !kind_of(&install.template).is_helm() || (!given && !central) {
        return None;
    }
    let mut spec = own_spec(install);
    source::lay_over_component(&mut spec, &install.entry.central.component);
    source::complete(&mut spec, || default_source(install)).ok()?;
    let is_chart = spec.get("source")?.get("chart").is_some_and(|chart| !chart.is_null());
    (!is_chart).then_some("values have no effect: the content of this module is not a chart")
}

/// Returns whether the schema of a component kind has this field in `spec`. The hub refuses unknown fields.
fn has_spec_field(crd: &CustomResourceDefinition, version: &str, field: &str) -> bool {
    let version = crd.spec.versions.iter().find(|served| served.name == version);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec"));
    spec.and_then(|spec| spec.properties.as_ref()).is_some_and(|fields| fields.contains_key(field))
}

/// Returns fields of a template outside of `component.spec` that the component kind supports.
fn template_spec(
    install: &Install,
    target_namespace: &str,
    spec: &mut Map<String, Value>,
    has: impl Fn(&str) -> bool,
) {
    let template = &install.template.spec;
    let mut default = |name: &str, value: Value| {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty && has(name) {
            spec.entry(name.to_owned()).or_insert(value);
        }
    };
    default("resource", json!(default_resource(install, target_namespace)));
    default("manager", json!(template.manager));
    let mut managed = template.managed_resources.clone().unwrap_or_default();
    for associated in template.associated_resources.iter().flatten() {
        // Custom resources in any served version block, whichever version the author named.
        let kind =
            GroupKind { group: associated.group.clone(), version: None, kind: associated.kind.clone() };
        if !managed.contains(&kind) {
            managed.push(kind);
        }
    }
    default("managedResources", json!(managed));
}

/// Returns the default CR of a template. It gets the target namespace unless it names another or is cluster-scoped.
fn default_resource(install: &Install, target_namespace: &str) -> Option<FreeForm> {
    let mut resource = install.template.spec.data.clone()?;
    let metadata = resource.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    if install.template.cluster_scoped {
        metadata.remove("namespace");
    } else if metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty) {
        metadata.insert("namespace".to_owned(), Value::from(target_namespace));
    }
    Some(resource)
}

fn default_source(install: &Install) -> Result<Value, ModuleProblem> {
    if let Some(chart) = &install.template.spec.chart {
        return Ok(json!({ "chart": chart }));
    }
    let Some(component) = install.release.ocm_component.as_deref() else {
        let message = format!(
            "module {} names no content: set ocmComponentName in its ModuleReleaseMeta or chart in its ModuleTemplate",
            install.release.module
        );
        return Err(ModuleProblem::error(Reason::SourceMissing, message));
    };
    Ok(json!({ "ocm": { "component": component, "version": install.version } }))
}

/// Sets the fields of the contract, which override the module's spec.
fn decide(scope: &Scope<'_>, install: &Install, kind: &ComponentKind, spec: &mut Map<String, Value>) {
    for field in
        ["target", "module", "userValues", "overrides", "dependsOn", "resourcePolicy", "deletionPolicy"]
    {
        spec.remove(field);
    }
    let module = install.release.module.as_str();
    let mut set = |field: &str, value: Value| {
        if !value.is_null() {
            spec.insert(field.to_owned(), value);
        }
    };
    let mut named = json!({ "name": module, "version": install.version });
    if let Some(channel) = &install.channel {
        named["channel"] = Value::from(channel.as_str());
    }
    set("module", named);
    set("target", json!(scope.target));
    let entry = &install.entry;
    set("userValues", json!(entry.values));
    set("overrides", json!(Some(&entry.central.values).filter(|values| !values.is_empty())));
    set("resourcePolicy", json!(entry.policy));
    set("deletionPolicy", json!(DeletionPolicy::Orphan));
    let depends_on = install.template.spec.depends_on.iter().flatten();
    let depends_on: Vec<Dependency> = depends_on.map(|one| resolved(scope, kind, one)).collect();
    set("dependsOn", json!(Some(depends_on).filter(|list| !list.is_empty())));
}

/// Returns the dependency, by its component's name if that is of another kind: a reconciler finds only components of
/// its own and the base kind by their labels.
fn resolved(scope: &Scope<'_>, kind: &ComponentKind, dependency: &Dependency) -> Dependency {
    let view = dependency.module.as_ref().and_then(|module| scope.installed.get(module));
    let own = |view: &&ComponentView| view.kind.group() == kind.group() && view.kind.kind == kind.kind;
    let Some(view) = view.filter(|view| !view.kind.is_helm() && !own(view)) else {
        return dependency.clone();
    };
    let component = ComponentDependency {
        api_version: Some(view.kind.api_version.clone()),
        kind: Some(view.kind.kind.clone()),
        name: view.name.clone(),
    };
    Dependency { module: None, component: Some(component), ..dependency.clone() }
}

fn labels_of(scope: &Scope<'_>, install: &Install) -> Value {
    let mut set = Map::new();
    let mut label = |name: &str, value: String| set.insert(name.to_owned(), Value::from(value));
    label(labels::KYMA_NAME, names::label_value(&scope.kyma.name));
    label(labels::MODULE_NAME, names::label_value(&install.release.module));
    label(labels::SHARD, scope.shard.to_string());
    label(labels::MANAGED_BY, labels::MANAGED_BY_LIFECYCLE_MANAGER.to_owned());
    if let Some(controller) = install.entry.controller.as_deref() {
        label(labels::CONTROLLER_NAME, names::label_value(controller));
    }
    if let Some(channel) = &install.channel {
        label(labels::CHANNEL, names::label_value(channel));
    }
    if install.mandatory {
        label(labels::MANDATORY_MODULE, "true".to_owned());
    }
    Value::Object(set)
}
