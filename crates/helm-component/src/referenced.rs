//! Content of the objects in `valuesFrom`, read from the hub again only if a watch reports another revision.

use std::fmt::{self, Debug};
use std::sync::Arc;

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use kyma_api::{HelmComponent, InstalledValues, ValuesFrom, ValuesFromKind};
use kyma_controller::{Failure, Revision, find_object};
use kyma_helm::values::{self, Origin};
use serde::de::DeserializeOwned;

use crate::reader::Reader;
use crate::values::from::{FromLayer, Source, layer};
use crate::values::layers;

/// One layer of values, and the revisions of the objects that it was made from.
#[derive(Clone)]
pub(crate) struct ReferencedValues {
    entries: Vec<ValuesFrom>,
    seen: Vec<Option<Revision>>,
    layer: Result<Arc<FromLayer>, Failure>,
}

impl Debug for ReferencedValues {
    // Values are never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferencedValues").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl ReferencedValues {
    /// Reads the objects of the entries.
    ///
    /// # Errors
    /// If the hub does not answer. Problems with the objects are stored as the layer.
    pub(crate) async fn read(
        hub: &Client,
        component: &HelmComponent,
        entries: &[ValuesFrom],
    ) -> Result<Self, Failure> {
        let namespace = component.metadata.namespace.as_deref().unwrap_or_default();
        let found = sources(hub, namespace, entries).await?;
        let seen = found.iter().map(|source| source.as_ref().map(Source::revision)).collect();
        let layer = layer(entries, &found, &Reader::of(component)).map(Arc::new).map_err(Failure::from);
        Ok(Self { entries: entries.to_vec(), seen, layer })
    }

    /// Reports whether it is still current for these entries, by the revisions in the watches.
    pub(crate) fn holds(&self, entries: &[ValuesFrom], watched: &[Option<Revision>]) -> bool {
        self.entries == entries && self.seen == watched
    }

    /// Returns the layer, or the problem with its objects. Values of the installed revision must not be missing.
    pub(crate) fn layer(&self, installed: &[InstalledValues]) -> Result<Arc<FromLayer>, Failure> {
        let layer = self.layer.clone()?;
        layer.check(installed)?;
        Ok(layer)
    }
}

/// Returns the object of each entry on the hub.
async fn sources(
    hub: &Client,
    namespace: &str,
    entries: &[ValuesFrom],
) -> Result<Vec<Option<Source>>, Failure> {
    let mut found = vec![];
    for entry in entries {
        found.push(match entry.kind {
            ValuesFromKind::ConfigMap => {
                object(hub, namespace, &entry.name).await?.map(|found| Source::ConfigMap(Box::new(found)))
            }
            ValuesFromKind::Secret => {
                object(hub, namespace, &entry.name).await?.map(|found| Source::Secret(Box::new(found)))
            }
        });
    }
    Ok(found)
}

/// Returns every value that a component passes to its chart, with its source, by the current state of the hub.
///
/// # Errors
/// If the hub does not answer, or an object in `valuesFrom` is missing or unsuitable; the message is that of the
/// component's condition.
pub async fn origins(hub: &Client, component: &HelmComponent) -> Result<Vec<Origin>, Failure> {
    let namespace = component.metadata.namespace.as_deref().unwrap_or_default();
    if !crate::effects::is_chart(&component.spec) {
        return Ok(Vec::new());
    }
    let entries = component.spec.values_from.as_deref().unwrap_or_default();
    let found = sources(hub, namespace, entries).await?;
    let reader = Reader::of(component);
    let installed = component.status.as_ref().and_then(|status| status.values_from.as_deref());
    layer(entries, &found, &reader)?.check(installed.unwrap_or_default())?;
    Ok(values::origins(&layers(&component.spec, &found, &reader)?))
}

/// Returns an object of the hub; `None` also for names that no object can have.
pub(crate) async fn object<K>(hub: &Client, namespace: &str, name: &str) -> Result<Option<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    if !kyma_controller::is_object_name(name) {
        return Ok(None);
    }
    let read = find_object(&Api::<K>::namespaced(hub.clone(), namespace), name).await;
    read.map_err(|error| Failure::hub(&format!("read {} {name}", K::kind(&())), &error))
}
