//! Compressed form of an inventory that is too large for the status.

use std::io::{self, Read as _, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use thiserror::Error;

use super::inventory_group::InventoryGroup;

/// Maximum size of a packed inventory in bytes: etcd accepts less for a whole object.
const MAX_PACKED_BYTES: usize = 2 << 20;
/// Maximum size of an unpacked inventory in bytes.
const MAX_UNPACKED_BYTES: u64 = 16 << 20;

/// Reason why a packed inventory cannot be read. Messages contain nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PackedError {
    /// Too large, packed or unpacked.
    #[error("status.packedObjects is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Not base64.
    #[error("status.packedObjects is not base64")]
    Base64,
    /// Not gzip, or incomplete.
    #[error("status.packedObjects cannot be decompressed")]
    Gzip,
    /// Not the JSON of an inventory.
    #[error("status.packedObjects is not a list of objects in JSON (line {line}, column {column})")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

impl InventoryGroup {
    /// Returns `status.packedObjects`: JSON, compressed by gzip, in base64, as Helm stores releases. Equal groups
    /// give equal text.
    ///
    /// # Errors
    /// None in practice: writing to memory does not fail.
    pub fn pack(groups: &[Self]) -> io::Result<String> {
        // No name and time, so that the header is constant.
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&serde_json::to_vec(groups)?)?;
        Ok(BASE64_STANDARD.encode(gzip.finish()?))
    }

    /// Reads the result of [`pack`](Self::pack).
    ///
    /// # Errors
    /// If the text was changed, or its unpacked size exceeds the limit.
    pub fn unpack(text: &str) -> Result<Vec<Self>, PackedError> {
        if text.len() > MAX_PACKED_BYTES {
            return Err(PackedError::TooLarge { limit: MAX_PACKED_BYTES as u64 });
        }
        let packed = BASE64_STANDARD.decode(text).map_err(|_| PackedError::Base64)?;
        let mut plain = Vec::new();
        let read = GzDecoder::new(packed.as_slice()).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut plain);
        read.map_err(|_| PackedError::Gzip)?;
        if plain.len() as u64 > MAX_UNPACKED_BYTES {
            return Err(PackedError::TooLarge { limit: MAX_UNPACKED_BYTES });
        }
        serde_json::from_slice(&plain)
            .map_err(|error| PackedError::Json { line: error.line(), column: error.column() })
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::InventoryItem;

    /// Returns this many ConfigMaps of one namespace, with random uids and hashes.
    fn groups(objects: usize) -> Vec<InventoryGroup> {
        let item = |number: usize| {
            let chance = hex::encode(Sha256::digest(number.to_le_bytes()));
            let uid = [&chance[..8], &chance[8..12], &chance[12..16], &chance[16..20], &chance[20..32]];
            InventoryItem {
                name: format!("settings-of-tenant-{number:04}"),
                uid: uid.join("-"),
                hash: chance[32..48].to_owned(),
                fingerprint: chance[48..].to_owned(),
                ..InventoryItem::default()
            }
        };
        vec![InventoryGroup {
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("tenants".to_owned()),
            items: (0..objects).map(item).collect(),
            ..InventoryGroup::default()
        }]
    }

    #[test]
    fn five_thousand_objects_take_less_than_70_bytes_each() {
        let groups = groups(5_000);
        let plain = serde_json::to_vec(&groups).unwrap().len();
        let packed = InventoryGroup::pack(&groups).unwrap();
        println!("of each object: {} bytes plain, {} packed", plain / 5_000, packed.len() / 5_000);
        assert!(plain > 480 << 10, "{plain}");
        assert!(packed.len() < 70 * 5_000, "{}", packed.len());
        assert_eq!(InventoryGroup::pack(&groups).unwrap(), packed, "the same bytes");
        assert_eq!(InventoryGroup::unpack(&packed).unwrap(), groups);
    }

    #[test]
    fn changed_text_is_refused_with_its_reason() {
        let packed = InventoryGroup::pack(&groups(3)).unwrap();
        let gzip = |plain: &[u8]| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(plain).unwrap();
            BASE64_STANDARD.encode(gzip.finish().unwrap())
        };
        let mut bytes = BASE64_STANDARD.decode(&packed).unwrap();
        let checksum = bytes.len() - 8;
        bytes[checksum] ^= 1;
        let rows = [
            ("", "cannot be decompressed"),
            ("not base64!", "is not base64"),
            (&packed[..packed.len() - 4], "cannot be decompressed"),
            (&BASE64_STANDARD.encode(&bytes), "cannot be decompressed"),
            (&BASE64_STANDARD.encode("[]"), "cannot be decompressed"),
            (&gzip(b"{}"), "is not a list of objects in JSON (line 1, "),
            (&gzip(b"[\n{\"kind\": 1}]"), "is not a list of objects in JSON (line 2, "),
            (&"A".repeat(MAX_PACKED_BYTES + 4), "is larger than 2097152 bytes"),
        ];
        for (text, expected) in rows {
            let error = InventoryGroup::unpack(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("status.packedObjects {expected}")), "{error}");
        }
        assert_eq!(InventoryGroup::unpack(&gzip(b"[]")), Ok(vec![]));
    }

    #[test]
    fn text_that_unpacks_beyond_the_limit_is_refused() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let spaces = vec![b' '; 1 << 20];
        (0..64).for_each(|_| gzip.write_all(&spaces).unwrap());
        let packed = BASE64_STANDARD.encode(gzip.finish().unwrap());
        assert!(packed.len() < 100_000, "{}", packed.len());
        assert_eq!(InventoryGroup::unpack(&packed), Err(PackedError::TooLarge { limit: MAX_UNPACKED_BYTES }));
    }
}
