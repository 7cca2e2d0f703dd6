//! Downloads of official builds, verified by their published checksums.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::tools::Download;

/// Downloads files. After the first timeout of a host it is not tried again, which saves time without network.
#[derive(Default)]
pub(crate) struct Downloads {
    unreachable: BTreeSet<String>,
}

impl Downloads {
    /// Downloads the program to `program`, using the directory `scratch`. Returns `Ok(false)` if the host is
    /// unreachable or breaks the connection.
    pub(crate) fn fetch(&mut self, download: &Download, scratch: &Path, program: &Path) -> Result<bool> {
        let host = host(&download.url).to_owned();
        if self.unreachable.contains(&host) {
            return Ok(false);
        }
        let sums = scratch.join("checksum");
        if !curl(&download.checksum_url, &sums, 10)? {
            self.unreachable.insert(host);
            return Ok(false);
        }
        let file = scratch.join("file");
        if !curl(&download.url, &file, 600)? {
            self.unreachable.insert(host);
            return Ok(false);
        }
        let name = download.url.rsplit('/').next().unwrap_or_default();
        let wanted = checksum(&fs::read_to_string(&sums)?, name)
            .with_context(|| format!("{} has no SHA-256 of {name}", download.checksum_url))?;
        let found = hex::encode(Sha256::digest(fs::read(&file)?));
        ensure!(found == wanted, "{} has SHA-256 {found}, but {wanted} is published", download.url);
        match &download.member {
            Some(member) => unpack(&file, member, scratch, program)?,
            None => fs::rename(&file, program)?,
        }
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
        Ok(true)
    }
}

fn host(url: &str) -> &str {
    url.split('/').nth(2).unwrap_or_default()
}

/// Returns the SHA-256 of `name`, from a file with only the sum, or with lines `SUM  NAME` of sha256sum.
fn checksum(text: &str, name: &str) -> Option<String> {
    let is_sum = |word: &str| word.len() == 64 && word.chars().all(|letter| letter.is_ascii_hexdigit());
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let sum = words.next().filter(|word| is_sum(word))?;
        let of = words.next().map(|word| word.trim_start_matches('*'));
        (of.is_none() || of == Some(name)).then(|| sum.to_ascii_lowercase())
    })
}

/// Returns `false` without the file, the network or curl.
fn curl(url: &str, file: &Path, seconds: u32) -> Result<bool> {
    let seconds = seconds.to_string();
    let started = Command::new("curl")
        .args([
            "--fail",
            "--silent",
            "--location",
            "--connect-timeout",
            "3",
            "--max-time",
            &seconds,
            "--output",
        ])
        .arg(file)
        .arg(url)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot run curl"),
    }
}

fn unpack(archive: &Path, member: &str, scratch: &Path, program: &Path) -> Result<()> {
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch).arg(member).status();
    if !status.context("cannot run tar")?.success() {
        bail!("{} holds no {member}", archive.display());
    }
    fs::rename(scratch.join(member), program).context("cannot move the unpacked program")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn checksums_are_found_in_each_published_form() {
        assert_eq!(checksum(SUM, "kube-apiserver").as_deref(), Some(SUM));
        let sums = format!("{}  other.tar.gz\n{SUM}  it.tar.gz\n", "0".repeat(64));
        assert_eq!(checksum(&sums, "it.tar.gz").as_deref(), Some(SUM));
        assert_eq!(checksum(&sums, "third.tar.gz"), None);
        assert_eq!(checksum("<html>not found</html>", "it"), None);
    }

    /// A directory instead of a server, since curl also reads `file://`.
    fn served(content: &str, sum: &str) -> (std::path::PathBuf, Download) {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("xtask-download-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("program"), content).unwrap();
        fs::write(directory.join("program.sha256"), sum).unwrap();
        let url = format!("file://{}/program", directory.display());
        (directory, Download { checksum_url: format!("{url}.sha256"), url, member: None })
    }

    #[test]
    fn files_are_taken_only_with_the_published_checksum() {
        let (directory, download) = served("hello", SUM);
        let program = directory.join("got");
        assert!(Downloads::default().fetch(&download, &directory, &program).unwrap());
        assert_eq!(fs::read_to_string(&program).unwrap(), "hello");
        fs::remove_dir_all(directory).unwrap();

        let (directory, download) = served("hullo", SUM);
        let program = directory.join("got");
        let error = Downloads::default().fetch(&download, &directory, &program).unwrap_err();
        assert!(error.to_string().contains("is published"), "{error}");
        assert!(!program.exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_host_that_does_not_answer_is_asked_once() {
        let download = Download {
            url: "https://127.0.0.1:1/program".to_owned(),
            checksum_url: "https://127.0.0.1:1/program.sha256".to_owned(),
            member: None,
        };
        let mut downloads = Downloads::default();
        assert!(!downloads.fetch(&download, Path::new("/nowhere"), Path::new("/nowhere/x")).unwrap());
        assert!(downloads.unreachable.contains("127.0.0.1:1"));
    }
}
