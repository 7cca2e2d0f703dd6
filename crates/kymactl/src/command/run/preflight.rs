//! Checks of `kymactl run --once` and `--remove` before their first write: the cluster must not be another Kyma's
//! hub.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, ListParams},
};
use kyma_api::{Kyma, labels, names::label_selector};
use kyma_controller::{hub_uid, none_if_unserved, target_record};

use crate::error::Error;

/// Objects in the Kyma's namespace.
#[derive(Debug, Default)]
struct NamespaceContents {
    /// All Kymas in the namespace.
    kymas: Vec<Kyma>,
    /// Names of the access Secrets that are labelled for the Kyma.
    secrets: Vec<String>,
    /// uid of the cluster.
    cluster_uid: String,
}

/// Checks that modules of `kyma` may be installed on the cluster itself. Returns the live Kyma of this name.
pub(super) async fn check(
    client: &Client,
    kyma: &Kyma,
    allow_other_kymas: bool,
) -> Result<Option<Kyma>, Error> {
    let namespace = kyma.namespace().unwrap_or_default();
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), &namespace);
    let listed = kymas.list(&ListParams::default()).await;
    let listed = none_if_unserved(client, &ApiResource::erase::<Kyma>(&()), listed).await?;
    let kymas = listed.map(|listed| listed.items).unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let labelled = ListParams::default().labels(&label_selector(labels::KYMA_NAME, &kyma.name_any()));
    let secrets = secrets.list_metadata(&labelled).await?.iter().map(ResourceExt::name_any).collect();
    let present = NamespaceContents { kymas, secrets, cluster_uid: hub_uid(client).await? };
    judge(kyma, &present, allow_other_kymas)?;
    Ok(present.kymas.into_iter().find(|one| one.name_any() == kyma.name_any()))
}

/// Checks that the live Kyma is not being deleted: it would vanish and never become Ready.
pub(super) fn ensure_not_deleting(live: Option<&Kyma>) -> Result<(), Error> {
    let Some(live) = live.filter(|live| live.metadata.deletion_timestamp.is_some()) else { return Ok(()) };
    let name = format!("Kyma {}/{}", live.namespace().unwrap_or_default(), live.name_any());
    Err(Error::input(name, "it is being deleted; finish that with run --remove, then repeat"))
}

fn judge(kyma: &Kyma, present: &NamespaceContents, allow_other_kymas: bool) -> Result<(), Error> {
    let (name, namespace) = (kyma.name_any(), kyma.namespace().unwrap_or_default());
    let live = present.kymas.iter().find(|one| one.name_any() == name);
    let referenced = [Some(kyma), live]
        .into_iter()
        .flatten()
        .find_map(|kyma| kyma.spec.kubeconfig_secret_ref.as_ref().map(|reference| reference.name.clone()));
    if let Some(secret) = referenced.or_else(|| present.secrets.first().cloned()) {
        let problem = format!(
            "it has access Secret {secret}, so its target is another cluster; --once and --remove work on the cluster \
             of the kubeconfig itself. Use a Kyma without kubeconfigSecretRef and without a labelled Secret"
        );
        return Err(Error::input(format!("Kyma {namespace}/{name}"), problem));
    }
    let recorded = live.and_then(|kyma| target_record(kyma).target_uid);
    if let Some(uid) = recorded.filter(|uid| *uid != present.cluster_uid) {
        let problem = format!(
            "its recorded target is cluster {uid}, and the kubeconfig leads to cluster {}; choose the other \
             kubeconfig, or confirm with kymactl target adopt {name} --local",
            present.cluster_uid
        );
        return Err(Error::input(format!("Kyma {namespace}/{name}"), problem));
    }
    let others: Vec<String> =
        present.kymas.iter().map(ResourceExt::name_any).filter(|other| *other != name).collect();
    if others.is_empty() || allow_other_kymas {
        return Ok(());
    }
    let problem = format!(
        "namespace {namespace} of this cluster has {} other Kymas ({}, …), so it looks like the hub of a fleet; choose \
         another kubeconfig or --hub-namespace, or repeat with --allow-other-kymas",
        others.len(),
        others[0]
    );
    Err(Error::input(format!("Kyma {namespace}/{name}"), problem))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    fn kyma(name: &str, spec: &Value, status: &Value) -> Kyma {
        let mut spec = spec.clone();
        spec["channel"] = "regular".into();
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": name, "namespace": "kcp-system"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn plain(name: &str) -> Kyma {
        kyma(name, &json!({}), &json!({}))
    }

    fn refused(kyma: &Kyma, present: &NamespaceContents, allow: bool) -> Option<String> {
        judge(kyma, present, allow).err().map(|error| error.to_string())
    }

    fn present(kymas: Vec<Kyma>) -> NamespaceContents {
        NamespaceContents { kymas, secrets: vec![], cluster_uid: "here".to_owned() }
    }

    #[tokio::test]
    async fn a_404_of_a_proxy_is_not_a_cluster_without_kymas() {
        let cluster = ScriptedServer::start().await.unwrap();
        cluster.always(RequestMatcher::any(), Answer::html(404, "page not found"));
        let checked = check(&cluster.access().client().unwrap(), &plain("one"), false).await;
        assert!(matches!(checked, Err(Error::Cluster(_))), "{checked:?}");
        let crds = RequestMatcher::path("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        assert_eq!(cluster.count(&crds), 1);
    }

    #[test]
    fn a_bare_cluster_and_one_with_the_same_local_kyma_are_accepted() {
        let one = plain("one");
        assert_eq!(refused(&one, &present(vec![]), false), None);
        let recorded = kyma("one", &json!({}), &json!({"target": {"clusterUid": "here"}}));
        assert_eq!(refused(&one, &present(vec![recorded]), false), None);
    }

    #[test]
    fn a_kyma_that_is_being_deleted_is_not_installed() {
        let mut one = plain("one");
        assert!(ensure_not_deleting(None).is_ok() && ensure_not_deleting(Some(&one)).is_ok());
        one.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        let refused = ensure_not_deleting(Some(&one)).unwrap_err().to_string();
        assert!(refused.starts_with("Kyma kcp-system/one: it is being deleted"), "{refused}");
    }

    #[test]
    fn other_kymas_need_the_flag() {
        let one = plain("one");
        let fleet = present(vec![plain("blue"), plain("one")]);
        let message = refused(&one, &fleet, false).unwrap();
        assert!(
            message.contains("Kyma kcp-system/one") && message.contains("--allow-other-kymas"),
            "{message}"
        );
        assert!(!message.contains("--once"), "--remove has the same check: {message}");
        assert_eq!(refused(&one, &fleet, true), None);
    }

    #[test]
    fn kyma_of_another_cluster_is_refused_regardless_of_the_flag() {
        let reference = json!({"kubeconfigSecretRef": {"name": "blue", "key": "config"}});
        let named = kyma("one", &reference, &json!({}));
        let elsewhere = kyma("one", &json!({}), &json!({"target": {"clusterUid": "there"}}));
        let labelled = NamespaceContents { secrets: vec!["blue".to_owned()], ..present(vec![]) };
        let one = plain("one");
        for allow in [false, true] {
            assert!(refused(&named, &present(vec![]), allow).unwrap().contains("access Secret blue"));
            assert!(
                refused(&one, &present(vec![named.clone()]), allow).unwrap().contains("access Secret blue")
            );
            assert!(refused(&one, &labelled, allow).unwrap().contains("access Secret blue"));
            assert!(refused(&one, &labelled, allow).unwrap().contains("--once and --remove"));
            assert!(
                refused(&one, &present(vec![elsewhere.clone()]), allow).unwrap().contains("cluster there")
            );
        }
    }
}
