//! The whole body with which a component is applied.

use kube::Resource;
use kyma_api::component::{DeletionOrder, DeletionReason};
use kyma_api::{
    Adopt, ComponentDependency, DeletionPolicy, Dependency, FreeForm, GroupKind, Kyma, Reason, finalizers,
    labels, names, values,
};
use kyma_targets::Recorded;
use serde_json::{Map, Value, json};

use super::Scope;
use crate::component::{ComponentKind, ComponentView, kind_of};
use crate::resolve::{Because, Install};

const ADOPT: &str = "adopt";

/// The module's own spec first, then what kyma-operator decides, which wins.
pub(super) fn compose(
    scope: &Scope<'_>,
    install: &Install,
    kind: &ComponentKind,
    view: Option<&ComponentView>,
) -> Result<Value, Because> {
    let module = install.release.module.as_str();
    let mut spec = own_spec(install);
    if kind.is_helm() && withheld(install).is_some() {
        spec.remove(ADOPT);
    }
    values::lay_over(&mut spec, &install.wish.central.component);
    if kind.is_helm() {
        helm_spec(install, scope.target_namespace, &mut spec)?;
    }
    decide(scope, install, kind, &mut spec);
    let mut metadata = json!({
        "name": view.map_or_else(|| names::component_name(&scope.kyma.name, module), |view| view.name.clone()),
        "namespace": scope.kyma.namespace,
        "labels": labels_of(scope, install),
        "finalizers": [finalizers::COMPONENT],
        "ownerReferences": [owner(&scope.kyma.name, scope.uid)],
    });
    if let Some(view) = view {
        metadata["uid"] = Value::from(view.uid.as_str());
    }
    Ok(json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec }))
}

/// What makes a component the Kyma's.
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

/// Turns the body into that of a component born with the order to remove its module. It knows which cluster it was, so
/// that a target which cannot be reached now does not count as one that there never was.
pub(super) fn order(scope: &Scope<'_>, reason: DeletionReason, body: &mut Value) {
    let order = DeletionOrder { reason, kyma_uid: scope.uid.to_owned(), kyma_generation: scope.generation };
    let mut annotations = order.to_annotations();
    annotations
        .extend(scope.identity.map(|known| kyma_targets::record(&Recorded::from(known))).unwrap_or_default());
    body["metadata"]["annotations"] = json!(annotations);
    body["spec"]["deletionPolicy"] = json!(DeletionPolicy::Delete);
}

fn own_spec(install: &Install) -> Map<String, Value> {
    let component = install.template.spec.component.as_ref();
    component.and_then(|component| component.spec.clone()).unwrap_or_default()
}

/// What a module's author wishes for and does not get, for the status of the module: taking over what belongs to
/// another module. An author may break the own module, never another one.
pub(crate) fn withheld(install: &Install) -> Option<&'static str> {
    let component = install.template.spec.component.as_ref()?;
    let adopt = component.spec.as_ref()?.get(ADOPT)?;
    let is_withheld = kind_of(&install.template).is_helm() && *adopt == json!(Adopt::Always);
    is_withheld
        .then_some("component.spec.adopt: Always is not passed on, objects of another owner are left alone")
}

/// What a template of the base kind says outside of `component.spec`.
fn helm_spec(
    install: &Install,
    target_namespace: &str,
    spec: &mut Map<String, Value>,
) -> Result<(), Because> {
    let template = &install.template.spec;
    if !spec.contains_key("source") {
        spec.insert("source".to_owned(), source(install)?);
    }
    let mut default = |name: &str, value: Value| {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            spec.entry(name.to_owned()).or_insert(value);
        }
    };
    default("resource", json!(default_resource(install, target_namespace)));
    default("manager", json!(template.manager));
    let mut managed = template.managed_resources.clone().unwrap_or_default();
    for associated in template.associated_resources.iter().flatten() {
        // Objects block in every served version, whichever the author happened to name.
        let kind =
            GroupKind { group: associated.group.clone(), version: None, kind: associated.kind.clone() };
        if !managed.contains(&kind) {
            managed.push(kind);
        }
    }
    default("managedResources", json!(managed));
    Ok(())
}

/// The default CR of a template; in the target namespace unless it names another or is cluster-scoped.
pub(crate) fn default_resource(install: &Install, target_namespace: &str) -> Option<FreeForm> {
    let mut resource = install.template.spec.data.clone()?;
    let metadata = resource.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    if install.template.cluster_scoped {
        metadata.remove("namespace");
    } else if metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty) {
        metadata.insert("namespace".to_owned(), Value::from(target_namespace));
    }
    Some(resource)
}

fn source(install: &Install) -> Result<Value, Because> {
    if let Some(chart) = &install.template.spec.chart {
        return Ok(json!({ "chart": chart }));
    }
    let Some(component) = install.release.ocm_component.as_deref() else {
        let message = format!(
            "module {} names no content: set ocmComponentName in its ModuleReleaseMeta or chart in its ModuleTemplate",
            install.release.module
        );
        return Err(Because::error(Reason::SourceMissing, message));
    };
    Ok(json!({ "ocm": { "component": component, "version": install.version } }))
}

/// Fields of the contract: the Kyma's, whatever the module's spec says.
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
    let wish = &install.wish;
    set("userValues", json!(wish.values));
    set("overrides", json!(Some(&wish.central.values).filter(|values| !values.is_empty())));
    set("resourcePolicy", json!(wish.policy));
    set("deletionPolicy", json!(DeletionPolicy::Orphan));
    let depends_on = install.template.spec.depends_on.iter().flatten();
    let depends_on: Vec<Dependency> = depends_on.map(|one| resolved(scope, kind, one)).collect();
    set("dependsOn", json!(Some(depends_on).filter(|list| !list.is_empty())));
}

/// A component finds other modules of its Kyma by their labels, among objects of the base kind and its own. One of
/// another kind is named to it.
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
    if let Some(controller) = install.wish.controller.as_deref() {
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
