//! A kubeconfig from an access Secret: an accepted one is safe to use and survives serialization, and no message
//! contains its secrets.
#![no_main]

use kyma_targets::fuzzing::{Parts, parts};
use kyma_targets::{AccessPolicy, Kubeconfig};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Marker of secrets in the seeds and the dictionary.
const PLANTED: &str = "Hush4Hush";
/// The documented limits.
const LARGEST: usize = 256 * 1024;
const LONGEST_TOKEN: usize = 16 * 1024;

fuzz_target!(|bytes: &[u8]| {
    for allow_proxy in [false, true] {
        let policy = AccessPolicy { allow_proxy, ..AccessPolicy::default() };
        match Kubeconfig::parse(bytes, &policy) {
            Err(error) => assert!(!format!("{error} {error:?}").contains(PLANTED), "{error:?}"),
            Ok(read) => {
                assert!(bytes.len() <= LARGEST);
                let parts = parts(&read);
                check(&parts, allow_proxy);
                if !parts.server.contains(PLANTED) {
                    assert!(!format!("{read:?}").contains(PLANTED));
                }
                let again = Kubeconfig::parse(&written(&parts), &policy);
                assert_eq!(kyma_targets::fuzzing::parts(&again.expect("what was read can be read")), parts);
            }
        }
    }
});

fn check(parts: &Parts, allow_proxy: bool) {
    let server = url::Url::parse(&parts.server).expect("the server is a URL");
    assert_eq!(server.scheme(), "https");
    assert!(server.host_str().is_some_and(|host| !host.is_empty()));
    assert!(server.username().is_empty() && server.password().is_none());
    assert!(server.query().is_none() && server.fragment().is_none());
    assert!(allow_proxy || parts.proxy.is_none());
    assert!(parts.proxy.as_ref().is_none_or(|proxy| proxy.starts_with("http://") && !proxy.contains('@')));
    assert!(parts.token.is_some() || parts.identity.is_some());
    let sendable =
        |token: &String| token.len() <= LONGEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    assert!(parts.token.as_ref().is_none_or(sendable));
}

fn written(parts: &Parts) -> Vec<u8> {
    let mut user = json!({ "token": parts.token });
    if let Some((certificate, key)) = &parts.identity {
        user["client-certificate-data"] = base64(certificate).into();
        user["client-key-data"] = base64(key).into();
    }
    let cluster = json!({
        "server": parts.server,
        "certificate-authority-data": base64(&parts.authorities),
        "tls-server-name": parts.server_name,
        "proxy-url": parts.proxy,
    });
    let whole = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{ "name": "c", "cluster": cluster }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u", "namespace": parts.namespace } }],
        "users": [{ "name": "u", "user": user }],
    });
    whole.to_string().into_bytes()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
