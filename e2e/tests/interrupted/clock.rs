//! A clock that tests can set for the operators only.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Source of a library that is loaded before libc, which Rust asks for the time of day. It adds the seconds that
/// are written in a file. A time namespace of Linux shifts only monotonic clocks, and setting the machine's clock
/// would shift it for every process.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *path = getenv("CLOCK_SHIFT");
    if (result != 0 || id != CLOCK_REALTIME || !path) return result;
    FILE *file = fopen(path, "r");
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    now->tv_sec += seconds;
    return result;
}
"#;

/// The operators' clock.
pub(crate) struct Clock {
    file: PathBuf,
    shim: PathBuf,
}

impl Clock {
    /// Builds the library in this directory, with a clock that is not shifted.
    pub(crate) fn in_directory(directory: &Path) -> Result<Self> {
        let (source, shim) = (directory.join("shift.c"), directory.join("shift.so"));
        std::fs::write(&source, SHIFT)?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(&source).arg("-ldl");
        let output = cc.output().context("cannot start cc, with which Rust links")?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        let clock = Self { file: directory.join("shift"), shim };
        clock.set(0)?;
        Ok(clock)
    }

    /// Returns the environment variables that make operators use this clock.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![("LD_PRELOAD".to_owned(), text(&self.shim)), ("CLOCK_SHIFT".to_owned(), text(&self.file))]
    }

    /// Sets the clock to this many seconds from now.
    pub(crate) fn set(&self, seconds: i64) -> io::Result<()> {
        // Replaces the file in one step, since an operator may read it at any time.
        let next = self.file.with_extension("next");
        std::fs::write(&next, seconds.to_string())?;
        std::fs::rename(next, &self.file)
    }
}
