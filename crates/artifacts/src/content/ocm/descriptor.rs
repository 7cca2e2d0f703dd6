//! The component descriptor, schema v2, reduced to the fields that modules need.

use serde::Deserialize;

use crate::error::ArtifactError;
use crate::storage::digest::{Digest, printable};

/// An image of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Name of the resource.
    pub name: String,
    /// Version of the resource.
    pub version: String,
    /// The image reference.
    pub reference: String,
}

/// A component descriptor.
#[derive(Debug, Deserialize)]
pub(crate) struct Descriptor {
    meta: Meta,
    pub(crate) component: Component,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    schema_version: String,
}

/// The component in a descriptor.
#[derive(Debug, Deserialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) resources: Vec<Resource>,
}

/// One resource of a component.
#[derive(Debug, Deserialize)]
pub(crate) struct Resource {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) access: Access,
    pub(crate) digest: Option<ResourceDigest>,
}

/// Location of a resource. The fields of the other access types are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Access {
    #[serde(rename = "type")]
    kind: String,
    local_reference: Option<String>,
    /// Reference of a `localOciBlob`.
    digest: Option<String>,
    image_reference: Option<String>,
}

/// The digest of a resource's content.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceDigest {
    hash_algorithm: String,
    normalisation_algorithm: String,
    value: String,
}

impl Descriptor {
    /// Parses a descriptor, and checks that it has the requested name and version.
    pub(crate) fn parse(what: &str, yaml: &[u8], name: &str, version: &str) -> Result<Self, ArtifactError> {
        let unreadable = |error: serde_saphyr::Error| {
            let line = error.location().map(|at| format!(" (line {})", at.line())).unwrap_or_default();
            ArtifactError::invalid(what, format!("the component descriptor is not of schema v2{line}"))
        };
        let descriptor: Self = serde_saphyr::from_slice(yaml).map_err(unreadable)?;
        if descriptor.meta.schema_version != "v2" {
            let schema = printable(&descriptor.meta.schema_version);
            return Err(ArtifactError::invalid(
                what,
                format!("component descriptor schema {schema} is not known"),
            ));
        }
        let found = &descriptor.component;
        if found.name != name || found.version != version {
            let found = printable(&format!("{}:{}", found.name, found.version));
            return Err(ArtifactError::invalid(what, format!("the component descriptor is of {found}")));
        }
        Ok(descriptor)
    }

    /// Returns the resource of this name, if there is one.
    pub(crate) fn resource(&self, name: &str) -> Option<&Resource> {
        self.component.resources.iter().find(|resource| resource.name == name)
    }

    /// Returns all images with a reference.
    pub(crate) fn images(&self) -> Vec<Image> {
        let image = |resource: &Resource| {
            let is_image = matches!(unversioned(&resource.access.kind), "ociArtifact" | "ociRegistry")
                && matches!(unversioned(&resource.kind), "ociArtifact" | "ociImage");
            let reference = resource.access.image_reference.clone().filter(|_| is_image)?;
            Some(Image { name: resource.name.clone(), version: resource.version.clone(), reference })
        };
        self.component.resources.iter().filter_map(image).collect()
    }
}

impl Resource {
    /// Returns the digest of the local blob with the resource.
    pub(crate) fn blob(&self, what: &str) -> Result<Digest, ArtifactError> {
        let invalid =
            |problem: String| ArtifactError::invalid(format!("{what}: {}", printable(&self.name)), problem);
        let reference = match unversioned(&self.access.kind) {
            "localBlob" => self.access.local_reference.as_deref(),
            "localOciBlob" => self.access.digest.as_deref(),
            other => {
                return Err(invalid(format!("access {} is not a local blob", printable(other))));
            }
        };
        let blob: Digest = reference
            .and_then(|reference| reference.parse().ok())
            .ok_or_else(|| invalid("its access has no sha256 digest".to_owned()))?;
        if self.digest.as_ref().is_some_and(|digest| digest.contradicts(blob)) {
            return Err(invalid("its digest and its access differ".to_owned()));
        }
        Ok(blob)
    }
}

impl ResourceDigest {
    fn contradicts(&self, blob: Digest) -> bool {
        self.hash_algorithm.eq_ignore_ascii_case("SHA-256")
            && self.normalisation_algorithm == "genericBlobDigest/v1"
            && Digest::from_hex(&self.value) != Some(blob)
    }
}

/// Returns a type without its version: OCM allows one on every type, as in `localBlob/v1`.
fn unversioned(kind: &str) -> &str {
    kind.split('/').next().unwrap_or(kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(resources: &str) -> Descriptor {
        let yaml = format!(
            "meta: {{schemaVersion: v2}}\ncomponent:\n  name: n\n  version: v\n  resources: [{resources}]\n"
        );
        Descriptor::parse("test", yaml.as_bytes(), "n", "v").unwrap()
    }

    #[test]
    fn local_blobs_are_found_under_both_names_and_any_version() {
        let blob = Digest::of(b"x");
        for access in [
            format!("{{type: localBlob, localReference: '{blob}'}}"),
            format!("{{type: localBlob/v1, localReference: '{blob}', mediaType: a}}"),
            format!("{{type: localOciBlob, digest: '{blob}'}}"),
        ] {
            let descriptor = parsed(&format!("{{name: r, type: t, access: {access}}}"));
            assert_eq!(descriptor.resource("r").unwrap().blob("test").unwrap(), blob);
        }
    }

    #[test]
    fn a_digest_that_contradicts_the_access_is_refused() {
        let blob = Digest::of(b"x");
        let digest = |of: &[u8]| {
            let value = Digest::of(of).hex();
            format!(
                "{{hashAlgorithm: SHA-256, normalisationAlgorithm: genericBlobDigest/v1, value: {value}}}"
            )
        };
        let resource = |digest: String| {
            parsed(&format!(
                "{{name: r, type: t, access: {{type: localBlob, localReference: '{blob}'}}, digest: {digest}}}"
            ))
        };
        assert!(resource(digest(b"x")).resource("r").unwrap().blob("test").is_ok());
        assert!(resource(digest(b"y")).resource("r").unwrap().blob("test").is_err());
    }

    #[test]
    fn images_are_the_references_of_oci_artifacts() {
        let descriptor = parsed(
            "{name: i, version: 1.0.0, type: ociArtifact, access: {type: ociArtifact, imageReference: r.io/i:1}}, \
             {name: t, type: PlainText, access: {type: ociArtifact, imageReference: r.io/t:1}}",
        );
        let images = descriptor.images();
        assert_eq!(images.iter().map(|image| image.reference.as_str()).collect::<Vec<_>>(), ["r.io/i:1"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Descriptor::parse("test", &bytes, "n", "v");
        }
    }
}
