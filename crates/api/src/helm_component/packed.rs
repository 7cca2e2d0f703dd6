//! The record of a component's objects where it is too large to stand in a status as it is.

use std::io::{self, Read as _, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use thiserror::Error;

use super::InventoryGroup;

/// Bytes of a packed record that is read at most: etcd takes less for a whole object.
const PACKED: usize = 2 << 20;
/// Bytes of a record without its compression at most.
const PLAIN: u64 = 16 << 20;

/// Why a packed record cannot be read. Nothing of it is in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PackedError {
    /// Larger than a record may be, packed or unpacked.
    #[error("status.packedObjects is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Its text is not base64.
    #[error("status.packedObjects is not base64")]
    Base64,
    /// It is not what gzip makes, or not all of it.
    #[error("status.packedObjects cannot be decompressed")]
    Gzip,
    /// It is not the JSON of groups.
    #[error("status.packedObjects is not a list of objects in JSON (line {line}, column {column})")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

impl InventoryGroup {
    /// The groups as `status.packedObjects` holds them: JSON, compressed by gzip, in base64, as Helm stores its releases.
    /// The same groups give the same text.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    pub fn pack(groups: &[Self]) -> io::Result<String> {
        // Without name and time: the header is the same each time.
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&serde_json::to_vec(groups)?)?;
        Ok(BASE64_STANDARD.encode(gzip.finish()?))
    }

    /// Reads what [`pack`](Self::pack) wrote.
    ///
    /// # Errors
    /// Somebody changed it, or it claims to be larger than any record gets.
    pub fn unpack(text: &str) -> Result<Vec<Self>, PackedError> {
        if text.len() > PACKED {
            return Err(PackedError::TooLarge { limit: PACKED as u64 });
        }
        let packed = BASE64_STANDARD.decode(text).map_err(|_| PackedError::Base64)?;
        let mut plain = Vec::new();
        let read = GzDecoder::new(packed.as_slice()).take(PLAIN + 1).read_to_end(&mut plain);
        read.map_err(|_| PackedError::Gzip)?;
        if plain.len() as u64 > PLAIN {
            return Err(PackedError::TooLarge { limit: PLAIN });
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

    /// As many ConfigMaps of one namespace, with uids and hashes in which there is no order.
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
    fn what_somebody_changed_is_refused_and_says_why() {
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
            (&"A".repeat(PACKED + 4), "is larger than 2097152 bytes"),
        ];
        for (text, expected) in rows {
            let error = InventoryGroup::unpack(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("status.packedObjects {expected}")), "{error}");
        }
        assert_eq!(InventoryGroup::unpack(&gzip(b"[]")), Ok(vec![]));
    }

    #[test]
    fn what_would_unpack_to_more_than_any_record_is_not_unpacked() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let spaces = vec![b' '; 1 << 20];
        (0..64).for_each(|_| gzip.write_all(&spaces).unwrap());
        let packed = BASE64_STANDARD.encode(gzip.finish().unwrap());
        assert!(packed.len() < 100_000, "{}", packed.len());
        assert_eq!(InventoryGroup::unpack(&packed), Err(PackedError::TooLarge { limit: PLAIN }));
    }
}
