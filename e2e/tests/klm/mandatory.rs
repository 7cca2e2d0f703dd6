//! Rewrites a recorded situation as Kyma Lifecycle Manager (KLM) would have left it with a mandatory module: no
//! Kyma lists the module, its Manifest has the mandatory label and no channel, and the catalogue on targets lacks
//! it. The recording of a Kyma that is being deleted contains such a module and is the model.

use kyma_api::{finalizers, labels};
use serde_json::{Value, json};

/// A mandatory module and the version that every Kyma gets.
pub(crate) struct MandatoryModule {
    pub(crate) module: &'static str,
    pub(crate) version: String,
}

impl MandatoryModule {
    /// Returns a recorded object of the hub or target as KLM would have left it, or `None` if KLM would not have
    /// created it.
    pub(crate) fn remake(&self, mut object: Value, is_on_target: bool) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_its = object["metadata"]["labels"][labels::MODULE_NAME] == self.module;
        match object["kind"].as_str().unwrap_or_default() {
            "Manifest" if is_its => return Some(manifest(object)),
            "Kyma" => self.take_out(&mut object),
            "ModuleReleaseMeta" if name == self.module => {
                let spec = object["spec"].as_object_mut()?;
                spec.remove("channels");
                spec.insert("mandatory".to_owned(), json!({ "version": self.version }));
                object["metadata"]["finalizers"] = json!([finalizers::MANDATORY_MODULE]);
                object["metadata"]["managedFields"] = Value::Null;
                return (!is_on_target).then_some(object);
            }
            "ModuleTemplate" if object["spec"]["moduleName"] == self.module && is_on_target => return None,
            _ => {}
        }
        Some(object)
    }

    fn take_out(&self, kyma: &mut Value) {
        for part in ["spec", "status"] {
            if let Some(modules) = kyma[part]["modules"].as_array_mut() {
                modules.retain(|module| module["name"] != self.module);
            }
        }
        let key = format!("k:{}", json!({ "name": self.module }));
        without(&mut kyma["metadata"]["managedFields"], &key);
    }
}

fn manifest(mut manifest: Value) -> Value {
    let fields = manifest["metadata"]["managedFields"].to_string();
    let named = |name: &str| format!("f:{name}");
    let fields = fields.replace(&named(labels::CHANNEL), &named(labels::MANDATORY_MODULE));
    manifest["metadata"]["managedFields"] = serde_json::from_str(&fields).unwrap();
    let set = manifest["metadata"]["labels"].as_object_mut().unwrap();
    set.remove(labels::CHANNEL);
    set.insert(labels::MANDATORY_MODULE.to_owned(), json!("true"));
    manifest
}

fn without(fields: &mut Value, key: &str) {
    match fields {
        Value::Object(fields) => {
            fields.remove(key);
            fields.values_mut().for_each(|below| without(below, key));
        }
        Value::Array(fields) => fields.iter_mut().for_each(|below| without(below, key)),
        _ => {}
    }
}
