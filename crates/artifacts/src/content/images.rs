//! Rewrites image references to the registry to which a component was transferred.

use oci_spec::distribution::Reference;

use crate::content::ocm::Image;
use crate::storage::digest::printable;

/// The images of a component, to which those of its manifest are rewritten.
///
/// A component that was transferred to another registry names its images there, while its manifest still names the
/// original ones. As in KLM, two references are the same image if name and tag are equal, whatever registry and path;
/// without a tag, if name and digest are. Of several such images, one of the same digest is chosen, then the one with
/// the longest common path, read from its end, then the first.
#[derive(Clone, Debug, Default)]
pub struct LocalisedImages {
    images: Vec<(Reference, String)>,
    unreadable: Vec<String>,
}

impl LocalisedImages {
    /// Reads the references of a component's images.
    pub fn new(images: &[Image]) -> Self {
        let mut read = Self::default();
        for image in images {
            match image.reference.parse() {
                Ok(reference) => read.images.push((reference, image.reference.clone())),
                Err(_) => read.unreadable.push(printable(&image.name)),
            }
        }
        read
    }

    /// Returns the names of images with an invalid reference.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Returns the reference that replaces a container's `image`; `None` if the component has no such image.
    pub fn for_image(&self, image: &str) -> Option<&str> {
        let wanted: Reference = image.parse().ok()?;
        let same = self.images.iter().filter(|(one, _)| is_same(one, &wanted));
        // `max_by_key` returns the last of equal items.
        let best = same.rev().max_by_key(|(one, _)| {
            (one.digest().is_some() && one.digest() == wanted.digest(), shared_end(one, &wanted))
        });
        best.map(|(_, reference)| reference.as_str())
    }

    /// Returns the reference that replaces the value of an environment variable. The whole value must be a reference,
    /// with a registry or path and with a tag or digest: `redis:6379` is an address.
    pub fn for_value(&self, value: &str) -> Option<&str> {
        let (_, name) = value.rsplit_once('/')?;
        self.for_image(value).filter(|_| name.contains([':', '@']))
    }
}

/// Returns the tag of an image reference; `None` without a tag, or for an invalid reference.
pub fn image_tag(image: &str) -> Option<String> {
    let reference: Reference = image.parse().ok()?;
    // Without a tag and digest the reference reads as `latest`.
    reference
        .tag()
        .filter(|tag| image.ends_with(&format!(":{tag}")) || image.contains('@'))
        .map(str::to_owned)
}

fn is_same(one: &Reference, other: &Reference) -> bool {
    let is_same_version = match (one.tag(), other.tag()) {
        (Some(tag), Some(other)) => tag == other,
        _ => one.digest().is_some() && one.digest() == other.digest(),
    };
    is_same_version && parts(one).next() == parts(other).next()
}

/// Returns the number of equal parts, from the name towards the registry.
fn shared_end(one: &Reference, other: &Reference) -> usize {
    parts(one).zip(parts(other)).take_while(|(part, other)| part == other).count()
}

fn parts(reference: &Reference) -> impl Iterator<Item = &str> {
    reference.repository().rsplit('/').chain([reference.registry()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn images(references: &[&str]) -> LocalisedImages {
        let image = |reference: &&str| Image {
            name: "image".to_owned(),
            version: "1".to_owned(),
            reference: (*reference).to_owned(),
        };
        LocalisedImages::new(&references.iter().map(image).collect::<Vec<_>>())
    }

    #[test]
    fn only_a_tag_that_is_written_is_one() {
        let rows = [
            ("keda:1.0.0", Some("1.0.0")),
            ("old.io:5000/keda:1", Some("1")),
            (&format!("old.io/keda:1@{A}"), Some("1")),
            (&format!("old.io/keda@{A}"), None),
            ("old.io:5000/keda", None),
            ("old.io/keda:latest", Some("latest")),
            ("KEDA:1", None),
        ];
        for (image, tag) in rows {
            assert_eq!(image_tag(image).as_deref(), tag, "{image}");
        }
    }

    #[test]
    fn e40_an_image_is_found_by_name_and_tag_whatever_its_registry() {
        let (tagged, both, pinned) =
            (&format!("new.io/keda@{A}"), &format!("new.io/keda:1@{A}"), &format!("old.io/keda@{A}"));
        let rows: [(&str, &[&str], Option<&str>); 16] = [
            ("old.io/keda:1", &["new.io/keda:1"], Some("new.io/keda:1")),
            ("old.io/some/path/keda:1", &["new.io:5000/keda:1"], Some("new.io:5000/keda:1")),
            ("localhost:5000/keda:1", &["new.io/a/b/keda:1"], Some("new.io/a/b/keda:1")),
            ("keda:1", &["new.io/keda:1"], Some("new.io/keda:1")),
            ("library/keda", &["new.io/keda:latest"], Some("new.io/keda:latest")),
            // Another name or tag is another image, and so is a part of a name.
            ("old.io/keda:1", &["new.io/keda:2"], None),
            ("old.io/keda:1", &["new.io/my-keda:1"], None),
            ("old.io/keda:1.1", &["new.io/keda:1"], None),
            ("old.io:1/keda", &["new.io/keda:1"], None),
            ("old.io/Keda:1", &["new.io/keda:1"], None),
            // The component's reference is used unchanged, with or without a digest.
            ("old.io/keda:1", &[both], Some(both)),
            (&format!("old.io/keda:1@{B}"), &["new.io/keda:1"], Some("new.io/keda:1")),
            (&format!("old.io/keda:1@{B}"), &[both], Some(both)),
            // Without a tag, the digest identifies the image.
            (pinned, &[tagged], Some(tagged)),
            (pinned, &[both], Some(both)),
            (&format!("old.io/keda@{B}"), &[tagged], None),
        ];
        for (image, known, expected) in rows {
            assert_eq!(images(known).for_image(image), expected, "{image} among {known:?}");
        }
    }

    #[test]
    fn e40_nearest_of_images_with_same_name_and_tag_is_chosen() {
        let known = ["a.io/prod/keda:1", "b.io/fips/keda:1", "c.io/mirror/fips/keda:1"];
        let rows = [
            ("old.io/prod/keda:1", "a.io/prod/keda:1"),
            ("old.io/fips/keda:1", "b.io/fips/keda:1"),
            ("old.io/mirror/fips/keda:1", "c.io/mirror/fips/keda:1"),
            ("b.io/fips/keda:1", "b.io/fips/keda:1"),
            ("old.io/other/keda:1", "a.io/prod/keda:1"),
        ];
        for (image, expected) in rows {
            assert_eq!(images(&known).for_image(image), Some(expected), "{image}");
        }
        let (one, other) = (format!("a.io/x/keda:1@{A}"), format!("a.io/y/keda:1@{B}"));
        assert_eq!(images(&[&one, &other]).for_image(&format!("old.io/x/keda:1@{B}")), Some(other.as_str()));
    }

    #[test]
    fn e40_a_value_has_to_be_a_whole_reference() {
        let known = images(&["new.io/keda:1", "new.io/redis:6379", "new.io/top:latest"]);
        assert_eq!(known.for_value("old.io/keda:1"), Some("new.io/keda:1"));
        for value in [
            "",
            "keda:1",
            "redis:6379",
            "/opt/top",
            "some/top",
            "--image=old.io/keda:1",
            "old.io/keda:1,old.io/other:1",
            "old.io/keda:1 ",
            "https://old.io/keda:1",
            "tcp://redis:6379",
        ] {
            assert_eq!(known.for_value(value), None, "{value:?}");
        }
    }

    #[test]
    fn e40_a_reference_that_is_none_is_named() {
        let known = images(&["no reference", "new.io/keda:1"]);
        assert_eq!(known.unreadable(), ["image"]);
        assert_eq!(known.for_image("old.io/keda:1"), Some("new.io/keda:1"));
    }
}
