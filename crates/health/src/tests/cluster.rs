use super::*;

#[test]
fn storage_and_services() {
    let claim = |phase: &str| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": phase}});
    check(
        "v1",
        "PersistentVolumeClaim",
        &[
            ("bound", Current, claim("Bound")),
            ("pending", InProgress, claim("Pending")),
            ("lost", Failed, claim("Lost")),
        ],
    );
    let balancer = |more: Value| {
        let mut object = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}});
        json_patch::merge(&mut object, &more);
        object
    };
    check(
        "v1",
        "Service",
        &[
            ("cluster IP", Current, json!({"spec": {"type": "ClusterIP"}})),
            ("external name", Current, json!({"spec": {"type": "ExternalName"}})),
            ("no cluster IP", InProgress, balancer(json!({"spec": {"clusterIP": ""}}))),
            ("no address", InProgress, balancer(json!({}))),
            ("external IP", Current, balancer(json!({"spec": {"externalIPs": ["1.2.3.4"]}}))),
            (
                "address",
                Current,
                balancer(json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})),
            ),
        ],
    );
}

#[test]
fn what_the_api_itself_is_made_of() {
    let of = |all: &[(&str, &str, &str)]| json!({"status": {"conditions": conditions(all)}});
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            ("new", InProgress, json!({})),
            ("established", Current, of(&[("NamesAccepted", "True", ""), ("Established", "True", "")])),
            ("installing", InProgress, of(&[("Established", "False", "Installing")])),
            ("names", Failed, of(&[("NamesAccepted", "False", "Conflict"), ("Established", "True", "")])),
            ("other", Failed, of(&[("Established", "False", "NotAccepted")])),
        ],
    );
    check(
        "apiregistration.k8s.io/v1",
        "APIService",
        &[
            ("new", InProgress, json!({})),
            ("down", InProgress, of(&[("Available", "False", "MissingEndpoints")])),
            ("up", Current, of(&[("Available", "True", "")])),
        ],
    );
    check(
        "v1",
        "Namespace",
        &[
            ("active", Current, json!({"status": {"phase": "Active"}})),
            ("terminating", InProgress, json!({"status": {"phase": "Terminating"}})),
        ],
    );
    check(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        &[
            ("new", InProgress, json!({})),
            ("accepted", InProgress, of(&[("Accepted", "True", ""), ("Programmed", "False", "Pending")])),
            ("refused", InProgress, of(&[("Accepted", "False", "InvalidParameters")])),
            (
                "of an older generation",
                InProgress,
                json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 1}]}}),
            ),
            ("programmed", Current, of(&[("Accepted", "True", ""), ("Programmed", "True", "")])),
        ],
    );
}

#[test]
fn webhooks_wait_for_a_ca_that_somebody_injects() {
    let hook = |bundle: &str, annotated: bool| {
        let annotations =
            if annotated { json!({"cert-manager.io/inject-ca-from": "n/c"}) } else { json!({}) };
        json!({"metadata": {"annotations": annotations}, "webhooks": [{"name": "a.x.io", "clientConfig": {"caBundle": bundle}}]})
    };
    check(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        &[
            ("no CA is meant", Current, hook("", false)),
            ("CA to come", InProgress, hook("", true)),
            ("CA there", Current, hook("Q0E=", true)),
            (
                "CA of a Secret to come",
                InProgress,
                json!({"metadata": {"annotations": {"cert-manager.io/inject-ca-from-secret": "n/s"}}, "webhooks": [{"name": "a.x.io", "clientConfig": {}}]}),
            ),
        ],
    );
}

#[test]
fn what_has_no_status_is_there_when_it_exists() {
    for kind in ["ConfigMap", "Secret", "ServiceAccount"] {
        check("v1", kind, &[("any", Current, json!({}))]);
    }
    check("rbac.authorization.k8s.io/v1", "Role", &[("any", Current, json!({}))]);
}

#[test]
fn a_claim_that_no_pod_asked_for_names_its_class() {
    let claim = |class: Value, node: Value| {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"storageClassName": class},
            "metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}, "status": {"phase": "Pending"}});
        assess(&claim, now())
    };
    assert_eq!(claim(json!("late"), json!(null)).storage_class.as_deref(), Some("late"));
    assert_eq!(claim(json!("late"), json!("node-1")).storage_class, None, "one asked for it");
    assert_eq!(claim(json!(null), json!(null)).storage_class, None);
    assert_eq!(claim(json!("late"), json!(null)).status, InProgress);
}

#[test]
fn routes_are_as_each_of_their_parents_says() {
    let route = |parents: Value| json!({"metadata": {"generation": 2}, "spec": {"parentRefs": [{"name": "g"}]}, "status": {"parents": parents}});
    let parent = |accepted: &str, resolved: &str| {
        json!({"conditions": [
            {"type": "Accepted", "status": accepted, "reason": "NoMatchingParent", "observedGeneration": 2},
            {"type": "ResolvedRefs", "status": resolved, "reason": "BackendNotFound", "observedGeneration": 2},
        ]})
    };
    check(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        &[
            ("new", InProgress, json!({"spec": {"parentRefs": [{"name": "g"}]}})),
            ("of nobody", Current, json!({"spec": {}})),
            ("accepted", Current, route(json!([parent("True", "True")]))),
            ("refused by one", InProgress, route(json!([parent("True", "True"), parent("False", "True")]))),
            ("no backend", InProgress, route(json!([parent("True", "False")]))),
            (
                "of an older generation",
                InProgress,
                route(
                    json!([{"conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 1}]}]),
                ),
            ),
        ],
    );
}

#[test]
fn what_is_being_deleted_says_what_it_waits_for() {
    let told = |object: Value| {
        let mut object = object;
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let health = assess(&object, now());
        assert_eq!(health.status, Terminating);
        health.message
    };
    assert_eq!(told(json!({"metadata": {}})), "it is being deleted");
    let many = json!(["a.io/1", "not a word", "b.io/2", "c.io/3", "d.io/4"]);
    assert_eq!(
        told(json!({"metadata": {"finalizers": many}})),
        "it is being deleted, held by a.io/1, b.io/2, c.io/3"
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}, "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Terminating", "conditions": conditions(&[
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain"),
    ])}});
    assert_eq!(
        told(namespace),
        "it is being deleted; NamespaceContentRemaining is True: SomeResourcesRemain; NamespaceFinalizersRemaining is True: \
         SomeFinalizersRemain"
    );
}

#[test]
fn what_holds_for_any_kind_comes_before_any_rule() {
    let fresh = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions(&[("Stalled", "True", "")])}});
    assert_eq!(assess_progress(&fresh), None, "what it says of itself is for rules");
    let stale = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
    assert_eq!(assess_progress(&stale).unwrap().status, InProgress);
    let gone =
        json!({"metadata": {"generation": 2, "deletionTimestamp": "x"}, "status": {"observedGeneration": 1}});
    assert_eq!(assess_progress(&gone).unwrap().status, Terminating);
}
