//! Kinds that define APIs, and custom resources.

use anyhow::Result;
use kube::api::{Api, DeleteParams, DynamicObject};
use kyma_health::HealthStatus::{Current, Failed, InProgress};
use serde_json::{Value, json};
use testbed::until;

use super::{Bare, EVENT_TIMEOUT, assess, conditions, row};

#[tokio::test]
async fn crds_and_api_services_report_when_they_are_served() -> Result<()> {
    let bare = Bare::start().await?;
    let services: Api<DynamicObject> =
        bare.api(&json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"})).await?;
    assert_eq!(assess(&serde_json::to_value(services.get("v1.apps").await?)?).status, Current);
    let group = format!("{}.example.org", bare.namespace);
    let absent = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"name": "none", "namespace": bare.namespace, "port": 443}}});
    bare.create(&absent).await?;
    let found = until("its availability is told", EVENT_TIMEOUT, || async {
        let found = assess(&serde_json::to_value(services.get(&format!("v1.{group}")).await?)?);
        Ok((found.message != "it does not report yet that it is available").then_some(found))
    });
    let found = found.await?;
    assert_eq!((found.status, found.message.as_str()), (InProgress, "Available is False: ServiceNotFound"));
    services.delete(&format!("v1.{group}"), &DeleteParams::default()).await?;

    let annotation = json!({"cert-manager.io/inject-ca-from": "here/certificate"});
    let mut hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"generateName": "row-", "annotations": annotation},
        "webhooks": [{"name": "a.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [],
            "clientConfig": {"service": {"name": "none", "namespace": "none"}}}]});
    bare.check(row("a CA is to come", &hook, json!(null), InProgress)).await?;
    hook["metadata"]["annotations"] = json!({});
    bare.check(row("none is meant", &hook, json!(null), Current)).await?;
    Ok(())
}

#[tokio::test]
async fn custom_resources_are_as_their_conditions_say() -> Result<()> {
    let bare = Bare::start().await?;
    let word = bare.namespace.replace('-', "");
    crd(&bare, "gateway.networking.k8s.io", "Gateway", "gateways").await?;
    crd(&bare, "gateway.networking.k8s.io", "HTTPRoute", "httproutes").await?;
    crd(&bare, &format!("{word}.example.org"), "Thing", "things").await?;
    let of = |group: &str, kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"generateName": "row-"}});
    let gateway = of("gateway.networking.k8s.io", "Gateway");
    let mut route = of("gateway.networking.k8s.io", "HTTPRoute");
    route["spec"] = json!({"parentRefs": [{"name": "g"}]});
    let thing = of(&format!("{word}.example.org"), "Thing");
    let said = |all: &[(&str, &str, &str)]| json!({"observedGeneration": 1, "conditions": conditions(all)});
    let parents = |all: &[(&str, &str, &str)]| json!({"parents": [{"conditions": conditions(all)}]});
    bare.check_all(vec![
        row("a new Gateway", &gateway, json!(null), InProgress),
        row(
            "not programmed",
            &gateway,
            said(&[("Accepted", "True", ""), ("Programmed", "False", "Pending")]),
            InProgress,
        ),
        row("programmed", &gateway, said(&[("Accepted", "True", ""), ("Programmed", "True", "")]), Current),
        row("a new route", &route, json!(null), InProgress),
        row("accepted", &route, parents(&[("Accepted", "True", ""), ("ResolvedRefs", "True", "")]), Current),
        row("not accepted", &route, parents(&[("Accepted", "False", "NoMatchingParent")]), InProgress)
            .saying("Accepted is False: NoMatchingParent"),
        row(
            "a Service that is not there",
            &route,
            parents(&[("Accepted", "True", ""), ("ResolvedRefs", "False", "BackendNotFound")]),
            InProgress,
        )
        .saying("ResolvedRefs is False: BackendNotFound"),
        row("nothing said", &thing, json!(null), Current),
        row("ready", &thing, said(&[("Ready", "True", "")]), Current),
        row("not ready", &thing, said(&[("Ready", "False", "Asked")]), InProgress)
            .saying("Ready is False: Asked"),
        row("not known", &thing, said(&[("Ready", "Unknown", "Asked")]), InProgress)
            .saying("Ready is Unknown: Asked"),
        row("reconciling", &thing, said(&[("Reconciling", "True", ""), ("Ready", "True", "")]), InProgress),
        row("stalled", &thing, said(&[("Stalled", "True", ""), ("Ready", "False", "")]), Failed),
        row("behind", &thing, json!({"observedGeneration": 7}), InProgress),
    ])
    .await
}

/// While the first CRD has the name, the API server does not serve the second one.
#[tokio::test]
async fn of_two_crds_of_one_kind_in_one_group_the_second_one_fails() -> Result<()> {
    let bare = Bare::start().await?;
    let group = format!("{}.example.org", bare.namespace);
    crd(&bare, &group, "Thing", "things").await?;
    let mut second = definition(&group, "Thing", "others");
    for (name, value) in [("singular", "other"), ("listKind", "OtherList")] {
        second["spec"]["names"][name] = value.into();
    }
    bare.create(&second).await?;
    let crds = bare.api(&second).await?;
    let found = until("its names are looked at", EVENT_TIMEOUT, || async {
        let found = assess(&serde_json::to_value(crds.get(&format!("others.{group}")).await?)?);
        Ok((found.status != InProgress).then_some(found))
    })
    .await?;
    assert_eq!((found.status, found.message.as_str()), (Failed, "NamesAccepted is False: KindConflict"));
    Ok(())
}

/// Returns the CRD of a kind that accepts any fields.
fn definition(group: &str, kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// Creates such a CRD, and waits until it is established.
async fn crd(bare: &Bare, group: &str, kind: &str, plural: &str) -> Result<()> {
    let crd = definition(group, kind, plural);
    bare.create(&crd).await?;
    let crds = bare.api(&crd).await?;
    until(&format!("{plural}.{group} is established"), EVENT_TIMEOUT, || async {
        let live = serde_json::to_value(crds.get(&format!("{plural}.{group}")).await?)?;
        Ok(assess(&live).is_current().then_some(()))
    })
    .await
}
