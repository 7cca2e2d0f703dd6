//! Files of Kubernetes objects, read as kubectl reads them.

use std::{
    borrow::Cow,
    io::{self, Read as _},
    path::Path,
};

use kyma_targets::decode_text;

use crate::error::Error;

/// Name of standard input in place of a file.
const STANDARD_INPUT: &str = "-";

/// Returns the text of a file, or of standard input for `-`.
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Checks that at most one of these files is standard input: it can be read only once.
///
/// # Errors
/// If `-` is there more than once.
pub(crate) fn check_one_standard_input<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
    let count = paths.into_iter().filter(|path| *path == Path::new(STANDARD_INPUT)).count();
    if count < 2 {
        return Ok(());
    }
    let problem = format!(
        "`-` is given {count} times, but it can be read only once; save all but one to files and name them"
    );
    Err(Error::input("standard input", problem))
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    if path == Path::new(STANDARD_INPUT) {
        io::stdin().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(path)?;
    }
    let text = decode_text(&bytes).map(Cow::into_owned);
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is neither UTF-8 nor UTF-16"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_is_accepted_only_once() {
        let check = |paths: &[&str]| check_one_standard_input(paths.iter().map(Path::new));
        assert!(check(&["a", "a", "-"]).is_ok());
        let error = check(&["-", "a", "-"]).unwrap_err().to_string();
        assert!(error.contains("`-` is given 2 times"), "{error}");
    }

    #[test]
    fn encodings_that_kubectl_reads_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        let utf_16: Vec<u8> = "\u{feff}a: \u{e4}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, expected) in [
            ("a: \u{e4}".as_bytes(), Some("a: \u{e4}")),
            (utf_16.as_slice(), Some("a: \u{e4}")),
            ([0xff].as_slice(), None),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_text(&path).ok().as_deref(), expected);
        }
    }
}
