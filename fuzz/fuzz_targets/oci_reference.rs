//! References to artifacts, bases of registries and digests: a parsed one prints as its input, and a URL made of it
//! has its host and path.
#![no_main]

use kyma_artifacts::{Digest, OciReference, RegistryBase, Repository};
use libfuzzer_sys::fuzz_target;
use url::Url;

const COMPONENT: &str = "kyma-project.io/module/keda";

fuzz_target!(|text: &str| {
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text.to_ascii_lowercase());
    }
    match text.parse::<OciReference>() {
        Ok(reference) => check(&reference),
        Err(error) => check_text(&error.to_string()),
    }
    match text.parse::<RegistryBase>() {
        Ok(base) => {
            assert_eq!(base.to_string().parse::<RegistryBase>().expect("a base parses again"), base);
            let repository = base.component(COMPONENT).expect("a base takes a component");
            check_repository(&repository);
            assert!(repository.path().ends_with(COMPONENT));
            assert!(repository.to_string().starts_with(&base.to_string()));
        }
        Err(error) => check_text(&error.to_string()),
    }
});

fn check(reference: &OciReference) {
    let again: OciReference = reference.to_string().parse().expect("a reference parses again");
    assert_eq!(again, *reference);
    assert!(reference.tag().is_some() || reference.digest().is_some());
    check_repository(reference.repository());
    let repository = reference.repository();
    let locator = match (reference.digest(), reference.tag()) {
        (Some(digest), _) => digest.to_string(),
        (None, tag) => tag.unwrap_or_default().to_owned(),
    };
    let path = format!("/v2/{}/manifests/{locator}", repository.path());
    let url = Url::parse(&format!("https://{}{path}", repository.host())).expect("a URL");
    assert_eq!(url.path(), path);
    assert!(url.query().is_none() && url.fragment().is_none());
}

fn check_repository(repository: &Repository) {
    let url = Url::parse(&format!("https://{repository}")).expect("a URL");
    assert!(url.username().is_empty() && url.password().is_none());
    assert_eq!(url.path(), format!("/{}", repository.path()));
    let host = url.host_str().expect("a host");
    let named = repository.host().to_ascii_lowercase();
    // An IPv6 address has colons within its brackets.
    let port = named.rfind(':').filter(|colon| !named[*colon..].contains(']'));
    assert_eq!(&named[..port.unwrap_or(named.len())], host, "{repository}");
}

fn check_text(text: &str) {
    assert!(!text.contains(char::is_control) && text.chars().count() <= 400, "{text:?}");
}
