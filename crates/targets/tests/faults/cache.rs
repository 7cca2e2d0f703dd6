//! Clients that are cached for each state of a Secret.

use anyhow::Result;
use kyma_targets::{KubeconfigError, SecretKey, TargetError};
use testbed::{RequestMatcher, ScriptedServer};

use crate::{config_map, get, loopback, secret, targets};

#[tokio::test]
async fn the_cache_is_keyed_by_version_and_bounded() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), config_map());
    let targets = targets(loopback());
    let kubeconfig = server.access().kubeconfig();
    for _ in 0..3 {
        get(&targets.from_secret(&secret(kubeconfig.clone(), "1"), "config")?).await?;
    }
    assert_eq!(server.connections(), 1, "the same Secret shares its connection");
    let second = secret(kubeconfig.clone(), "2");
    get(&targets.from_secret(&second, "config")?).await?;
    assert_eq!(server.connections(), 2, "a changed Secret connects afresh");
    let uid = second.metadata.uid.clone().unwrap_or_default();
    let place = SecretKey {
        namespace: second.metadata.namespace.clone().unwrap_or_default(),
        name: second.metadata.name.clone().unwrap_or_default(),
        key: "config".to_owned(),
    };
    assert!(targets.cached_target(&place, &uid, "2").is_some());
    assert!(targets.cached_target(&place, &uid, "1").is_none(), "an older state of the Secret");
    assert!(targets.cached_target(&place, "another", "2").is_none(), "another Secret of that name");
    assert_eq!(targets.len(), 1);
    for number in 0..20 {
        let mut other = secret(kubeconfig.clone(), "1");
        other.metadata.name = Some(format!("access-{number}"));
        targets.from_secret(&other, "config")?;
    }
    assert_eq!(targets.len(), 8);
    Ok(())
}

#[tokio::test]
async fn a_secret_that_became_useless_is_not_served_from_the_cache() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let targets = targets(loopback());
    targets.from_secret(&secret(server.access().kubeconfig(), "1"), "config")?;
    let broken = targets.from_secret(&secret("no kubeconfig".into(), "2"), "config").map(drop);
    assert!(matches!(broken, Err(TargetError::Kubeconfig(KubeconfigError::Syntax { .. }))));
    assert!(targets.is_empty());
    let missing = targets.from_secret(&secret(String::new(), "3"), "other").map(drop);
    assert!(matches!(missing, Err(TargetError::KeyMissing { .. })));
    Ok(())
}
