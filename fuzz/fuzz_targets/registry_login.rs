//! `WWW-Authenticate` of registries, and pull secrets: only realms that the settings allow are called, a credential
//! covers only its own host, and no message contains it.
//!
//! The input is the header, a line with the host asked, and the pull secret.
#![no_main]

use std::collections::BTreeMap;

use kyma_artifacts::fuzzing::{challenge, covers, may_follow};
use kyma_artifacts::{Credentials, WELL_KNOWN_HOSTS};
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

/// Marker in the secrets of the seeds.
const PLANTED: &str = "Hush4Hush";

/// Returns the keys of a pull secret, whose other content may not be text.
#[derive(Default, Deserialize)]
struct Secret {
    #[serde(default)]
    auths: BTreeMap<String, IgnoredAny>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let (header, host) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    check_challenge(header);
    if let (Ok(host), Some(secret)) = (std::str::from_utf8(host), parts.next()) {
        check_secret(host, secret);
    }
});

fn check_challenge(header: &[u8]) {
    let origin = Url::parse("https://registry.example/").expect("a constant");
    let Some(realm) = challenge(header).and_then(|(realm, _)| Url::parse(&realm).ok()) else { return };
    if may_follow(&origin, &realm) {
        assert_eq!(realm.scheme(), "https");
        assert!(realm.username().is_empty() && realm.password().is_none());
        let host = realm.host_str().unwrap_or_default();
        let listed = WELL_KNOWN_HOSTS.iter().any(|known| host.ends_with(known.trim_start_matches('*')));
        assert!(realm.port().is_none() && (host == "registry.example" || listed), "{realm}");
    }
}

fn check_secret(host: &str, secret: &[u8]) {
    let keys: Vec<String> =
        serde_json::from_slice::<Secret>(secret).unwrap_or_default().auths.into_keys().collect();
    match Credentials::from_docker_config(secret) {
        Err(error) => assert!(!format!("{error} {error:?}").contains(PLANTED)),
        Ok(credentials) => {
            let shown = format!("{credentials:?}").to_lowercase();
            let in_key = keys.iter().any(|key| key.to_lowercase().contains(&PLANTED.to_lowercase()));
            assert!(in_key || !shown.contains(&PLANTED.to_lowercase()), "{shown}");
            assert!(
                !covers(&credentials, host, "path") || keys.iter().any(|key| may_name(key, host)),
                "{host}"
            );
        }
    }
}

/// Returns whether a key of a pull secret can match a host at all, by its last label or as a pattern.
fn may_name(key: &str, host: &str) -> bool {
    let is_hub = |text: &str| text.to_ascii_lowercase().contains("docker.io");
    let label =
        |text: &str| text.split(':').next().and_then(|host| host.rsplit('.').next().map(str::to_owned));
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let named = key.split('/').next().unwrap_or_default().to_ascii_lowercase();
    named.contains('*')
        || label(&named) == label(&host.to_ascii_lowercase())
        || (is_hub(&named) && is_hub(host))
}
