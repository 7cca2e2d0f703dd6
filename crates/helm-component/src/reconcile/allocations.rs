//! Resolves conflicts about values that an API server allocates once, such as a node port: an object that this
//! revision drops may hold the value that a new object needs.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use kyma_api::Reason;
use kyma_controller::Failure;
use kyma_object_set::apply::{ApplyReport, Refusal};
use kyma_object_set::prune::PrunePlan;
use kyma_object_set::{Identity, Object, ObjectSet, remove};
use serde_json::Value;

use super::calls::failure;
use crate::pass::Pass;
use crate::plan::Observed;

impl Pass<'_> {
    /// Deletes dropped Services whose allocated values refused objects need, through the delete gate, and applies the
    /// refused objects again. All other dropped objects are pruned after a complete apply.
    pub(super) async fn send_over_the_dropped(
        &mut self,
        set: &ObjectSet,
        seen: &Observed,
        applied: ApplyReport,
    ) -> Result<ApplyReport, Failure> {
        let refused: BTreeSet<Identity> = applied
            .errors()
            .filter(|(_, refusal)| matches!(refusal, Refusal::Call(error) if error.is_already_allocated()))
            .map(|(identity, _)| identity.clone())
            .collect();
        if refused.is_empty() || self.context.is_dry_run() {
            return Ok(applied);
        }
        let refused: Vec<&Object> =
            set.objects().iter().filter(|object| refused.contains(&object.identity())).collect();
        let holders = self.dropped_holders(&refused, seen, &applied).await?;
        if holders.is_empty() {
            return Ok(applied);
        }
        // The inventory must name the applied objects even if the deletion fails.
        self.state.recorded.inventory = applied.inventory.clone();
        let plan = PrunePlan { delete: holders, ..PrunePlan::default() };
        let inventory = applied.inventory.clone();
        let pruned =
            remove::prune(&self.cluster, &plan, &inventory, &self.ownership, &self.shared.protection);
        let removal = pruned.boxed().await.map_err(|error| failure(&error))?;
        self.record_removal(&inventory, &removal)?;
        if removal.gone.is_empty() {
            return Ok(applied);
        }
        let gone: Vec<String> = removal.gone.iter().map(ToString::to_string).collect();
        let note = format!(
            "deleted before the apply, because the new revision needs its port or address: {}",
            gone.join(", ")
        );
        self.context.events.normal(&*self.context.resource, Reason::Progressing, "Apply", &note);
        let inventory = self.state.recorded.inventory.clone();
        self.send(set, &inventory, &self.observed(seen), &|_| true).await
    }

    /// Returns Services of the inventory that the content lacks and that hold a value of a refused object.
    async fn dropped_holders(
        &self,
        refused: &[&Object],
        seen: &Observed,
        applied: &ApplyReport,
    ) -> Result<Vec<Identity>, Failure> {
        let Some(loaded) = &self.state.loaded else { return Ok(vec![]) };
        let wanted: BTreeSet<Identity> = loaded.prepared.objects.iter().map(Object::identity).collect();
        let new_owners = self.new_owners();
        let is_dropped = |identity: &Identity| {
            identity.is("", "Service")
                && !wanted.contains(identity)
                && !new_owners.contains_key(identity)
                && !seen.stays(identity)
        };
        let dropped = applied.inventory.iter().map(|(identity, _)| identity).filter(|one| is_dropped(one));
        let mut holders = Vec::new();
        for identity in dropped {
            let Some(mapping) = self.kinds.preferred(&identity.group_kind()) else { continue };
            let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
            let live = api.get_opt(&identity.name).await;
            let live = live.map_err(|error| Failure::target("read a Service", &error))?;
            let Some(live) = live else { continue };
            let body = |object: &Object| Value::Object(object.body().clone());
            if refused.iter().any(|object| shares_allocation(&body(object), &live.data)) {
                holders.push(identity.clone());
            }
        }
        Ok(holders)
    }
}

/// Returns whether two Services share a value that the API server allocates once.
fn shares_allocation(wanted: &Value, held: &Value) -> bool {
    !allocations(wanted).is_disjoint(&allocations(held))
}

/// Returns the node ports and cluster IPs of a Service.
fn allocations(service: &Value) -> BTreeSet<String> {
    let spec = &service["spec"];
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let ports = list("ports").filter_map(|port| port["nodePort"].as_i64());
    let ports = ports.chain(spec["healthCheckNodePort"].as_i64()).filter(|port| *port > 0);
    let addresses = list("clusterIPs").chain(spec.get("clusterIP")).filter_map(Value::as_str);
    let addresses = addresses.filter(|address| !address.is_empty() && *address != "None");
    ports.map(|port| port.to_string()).chain(addresses.map(ToOwned::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_share_ports_and_addresses() {
        let of = |spec: Value| json!({"spec": spec});
        let held = of(json!({"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"],
            "ports": [{"port": 80, "nodePort": 30425}], "healthCheckNodePort": 30500}));
        for wanted in [
            json!({"ports": [{"port": 81, "nodePort": 30425}]}),
            json!({"ports": [{"port": 81}], "clusterIP": "10.0.0.5"}),
            json!({"clusterIPs": ["fd00::5"]}),
            json!({"healthCheckNodePort": 30500}),
        ] {
            assert!(shares_allocation(&of(wanted.clone()), &held), "{wanted}");
        }
        let headless = of(json!({"clusterIP": "None", "ports": [{"port": 80, "nodePort": 0}]}));
        assert!(!shares_allocation(&headless, &headless));
        assert!(!shares_allocation(&of(json!({"ports": [{"port": 80, "nodePort": 30426}]})), &held));
    }
}
