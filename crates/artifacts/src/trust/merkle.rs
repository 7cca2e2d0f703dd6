//! Merkle trees of RFC 6962, and the checkpoints in which a log signs their roots.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use super::keys::PublicKey;

type Hash = [u8; 32];

/// Length of the key hint before a signature in a checkpoint, in bytes.
const KEY_HINT_BYTES: usize = 4;
/// Maximum number of signatures of one checkpoint that are verified, since each is compared with the whole text.
/// Witnesses sign after the log.
const MAX_SIGNATURES: usize = 32;

/// Returns the hash of an entry.
pub(super) fn leaf(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Returns the root of the tree of this size with the leaf at this index, by the algorithm of RFC 9162, 2.1.3.2;
/// `None` if the path does not fit.
pub(super) fn root(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if at % 2 == 1 || at == last {
            hash = node(sibling, &hash);
            while at % 2 == 0 && at != 0 {
                at /= 2;
                last /= 2;
            }
        } else {
            hash = node(&hash, sibling);
        }
        at /= 2;
        last /= 2;
    }
    (last == 0).then_some(hash)
}

/// Returns size and root of the tree that a log has signed in a checkpoint.
pub(super) fn checkpoint(note: &str, key: &PublicKey) -> Option<(i64, Hash)> {
    let (text, signatures) = note.split_once("\n\n")?;
    let signed = format!("{text}\n");
    let signatures = signatures.lines().filter_map(|line| {
        let (_, signature) = line.strip_prefix("\u{2014} ")?.rsplit_once(' ')?;
        STANDARD.decode(signature).ok()
    });
    let mut signatures = signatures.take(MAX_SIGNATURES);
    let is_signed = signatures.any(|signature| {
        signature.get(KEY_HINT_BYTES..).is_some_and(|signature| key.has_signed(signed.as_bytes(), signature))
    });
    if !is_signed {
        return None;
    }
    let mut lines = text.lines().skip(1);
    let size = lines.next()?.parse().ok()?;
    let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
    Some((size, root))
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

    use super::*;

    /// Returns the root by the definition of RFC 6962, 2.1.
    fn tree(leaves: &[Hash]) -> Hash {
        if let [one] = leaves {
            return *one;
        }
        let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
        node(&tree(left), &tree(right))
    }

    fn path(leaves: &[Hash], index: usize) -> Vec<Hash> {
        if leaves.len() == 1 {
            return vec![];
        }
        let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
        let (mut below, beside) = if index < left.len() {
            (path(left, index), tree(right))
        } else {
            (path(right, index - left.len()), tree(left))
        };
        below.push(beside);
        below
    }

    #[test]
    fn every_leaf_of_every_tree_leads_to_its_root_and_no_other_does() {
        for size in 1..20_u8 {
            let leaves: Vec<Hash> = (0..size).map(|number| leaf(&[number])).collect();
            for index in 0..leaves.len() {
                let proof = path(&leaves, index);
                let led =
                    |leaf, index: usize, proof: &[Hash]| root(leaf, index as u64, u64::from(size), proof);
                assert_eq!(led(leaves[index], index, &proof), Some(tree(&leaves)), "{index} of {size}");
                assert_ne!(led(leaf(b"another"), index, &proof), Some(tree(&leaves)));
                let longer = [&*proof, &[leaf(b"more")]].concat();
                assert_ne!(led(leaves[index], index, &longer), Some(tree(&leaves)));
            }
            assert_eq!(root(leaves[0], u64::from(size), u64::from(size), &[]), None);
        }
        assert_eq!(root(leaf(b""), 0, u64::MAX, &[[0; 32]; 3]), None);
    }

    #[test]
    fn a_note_counts_only_as_the_log_signed_it() {
        let pair = KeyPair::generate().unwrap();
        let key = PublicKey::from_der(&pair.subject_public_key_info()).unwrap();
        let text = format!("log.example.org\n7\n{}\n", STANDARD.encode([9; 32]));
        let signed =
            |text: &str| STANDARD.encode([&[1, 2, 3, 4], &*pair.sign(text.as_bytes()).unwrap()].concat());
        let note = |text: &str, signature: &str| format!("{text}\n\u{2014} log.example.org {signature}\n");
        assert_eq!(checkpoint(&note(&text, &signed(&text)), &key), Some((7, [9; 32])));
        let larger = text.replace('7', "8");
        assert_eq!(checkpoint(&note(&larger, &signed(&text)), &key), None);
        assert_eq!(checkpoint(&note(&text, "AAAA"), &key), None);
        assert_eq!(checkpoint(&text, &key), None);

        let behind = |others: usize| {
            let others = "\u{2014} witness.example.org AAAA\n".repeat(others);
            checkpoint(&format!("{text}\n{others}\u{2014} log.example.org {}\n", signed(&text)), &key)
        };
        assert_eq!(behind(MAX_SIGNATURES - 1), Some((7, [9; 32])));
        assert_eq!(behind(MAX_SIGNATURES), None);
    }
}
