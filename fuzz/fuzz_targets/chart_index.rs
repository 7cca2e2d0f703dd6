//! `index.yaml` of a chart repository: it leads only to hosts that the settings allow, and no message contains its
//! text.
#![no_main]

use bytes::Bytes;
use kyma_artifacts::fuzzing::locate;
use kyma_artifacts::{ArtifactError, WELL_KNOWN_HOSTS};
use libfuzzer_sys::fuzz_target;
use url::Url;

const NAME: &str = "demo";
const VERSION: &str = "1.0.0";
const HOST: &str = "charts.example";
/// Marker in addresses and digests of the seeds.
const PLANTED: &str = "Hush4Hush";

fuzz_target!(|bytes: &[u8]| {
    let base = Url::parse("https://charts.example/stable/").expect("a constant");
    match locate(&Bytes::copy_from_slice(bytes), &base, NAME, VERSION) {
        Ok((url, _)) => {
            assert_eq!(url.scheme(), "https");
            assert!(url.username().is_empty() && url.password().is_none());
            let host = url.host_str().unwrap_or_default();
            let port = url.port().is_none();
            assert!(port && (host == HOST || is_well_known(host)), "{url}");
        }
        // The message names the host and nothing else.
        Err(ArtifactError::RedirectNotAllowed { host, .. }) => {
            assert!(!host.contains(['/', '@', '?', '#']) && !host.contains(char::is_control), "{host:?}");
        }
        Err(error) => assert!(!error.to_string().contains(PLANTED), "{error}"),
    }
});

fn is_well_known(host: &str) -> bool {
    WELL_KNOWN_HOSTS.iter().any(|known| match known.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => host == *known,
    })
}
