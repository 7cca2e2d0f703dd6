//! SHA-256 digests, by which content is identified.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:<64 lower-case hex>`.
///
/// Other algorithms are refused when they are parsed: OCI allows sha512, but no registry or tool for modules uses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Returns the digest of a complete hash.
    pub(crate) fn finished(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// Returns the 64 hex digits without the algorithm.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Returns the 32 bytes.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses `sha256:<64 hex digits>`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("sha256:").and_then(Self::from_hex)
    }

    /// Parses 64 hex digits without algorithm, as in Helm repository indexes and OCM descriptors.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.to_ascii_lowercase(), &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a sha256 digest"))
    }
}

/// Shortens untrusted text for a message, and removes control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_prints_as_it_parses() {
        let digest = Digest::of(b"hello");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert_eq!(
            digest.to_string(),
            "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
    }

    #[test]
    fn other_algorithms_and_short_digests_are_refused() {
        for text in ["sha512:00", "sha256:00", "", "sha256:", "latest", "sha256:../../etc/passwd"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
