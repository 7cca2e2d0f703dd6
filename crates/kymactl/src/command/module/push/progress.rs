//! Progress bars of a push; hidden if standard error is not a terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kyma_artifacts::Progress;
use parking_lot::Mutex;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// One line per blob.
pub(super) struct Bars {
    lines: MultiProgress,
    current: Mutex<Option<ProgressBar>>,
}

impl Bars {
    pub(super) fn new() -> Self {
        Self { lines: MultiProgress::new(), current: Mutex::new(None) }
    }

    /// Leaves the bars on the screen.
    pub(super) fn finish(&self) {
        if let Some(bar) = self.take() {
            bar.finish();
        }
    }

    fn take(&self) -> Option<ProgressBar> {
        self.current.lock().take()
    }
}

impl Progress for Bars {
    fn sending(&self, name: &str, bytes: u64) {
        let bar = self.lines.add(ProgressBar::new(bytes));
        // If the constant template were invalid, indicatif's default style would be used.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg:<16} {bar:24} {bytes}/{total_bytes}")
        {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        bar.enable_steady_tick(PROGRESS_INTERVAL);
        *self.current.lock() = Some(bar);
    }

    fn sent(&self, name: &str, bytes: u64, existed: bool) {
        let Some(bar) = self.take() else { return };
        bar.set_position(bytes);
        let note = if existed { " (there already)" } else { "" };
        bar.finish_with_message(format!("{name}{note}"));
    }
}
