//! Kinds and versions that the target does not serve.

use super::*;

#[test]
fn missing_kinds_include_those_of_recorded_objects() {
    let virtual_service = id("networking.istio.io", "VirtualService", "v");
    let widget = id("example.org", "Widget", "w");
    let mut seen = running(vec![object(virtual_service), object(crd()), object(widget.clone())]);
    seen.objects[0].served = false;
    seen.objects[2].served = false;
    let missing = |seen: &Observed| seen.missing().into_iter().collect::<Vec<_>>();
    assert_eq!(missing(&seen), ["VirtualService.networking.istio.io"], "the other one returns with its CRD");
    assert_eq!(missing(&Observed { operation: Operation::Remove, ..seen.clone() }), Vec::<String>::new());
    seen.inventory.remove(&widget);
    assert_eq!(missing(&seen), ["VirtualService.networking.istio.io", "Widget.example.org"]);
}

#[test]
fn a_version_that_is_not_served_is_named() {
    let mut seen = running(vec![object(id("batch", "CronJob", "c"))]);
    seen.content = Content::Loaded;
    let gone = Some("v1beta1".to_owned());
    seen.objects[0] = ObjectState { served: false, lacks_version: gone, ..seen.objects[0].clone() };
    let named = "CronJob.batch in version v1beta1".to_owned();
    assert_eq!(next(&seen), Step::Stop(StopReason::MissingKinds(vec![named.clone()])));
    assert_eq!(seen.missing(), [named].into());
}
