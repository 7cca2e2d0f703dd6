//! Reads the mounted policy file at the start and after each change.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::fs;
use tokio::time::{MissedTickBehavior, interval};

use crate::decision::maintenance::Policy;
use crate::state::State;

/// Interval of reads. No event reports a change of a mounted file.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// Content of the file; `None` without a file, an error if it cannot be read.
type Content = Result<Option<Vec<u8>>, String>;

/// The last content of the policy file.
pub(super) struct PolicyFile {
    state: Arc<State>,
    content: Content,
}

impl PolicyFile {
    /// Reads the file for the first time.
    pub(super) async fn read(state: Arc<State>) -> Self {
        let content = content(&state).await;
        apply_content(&state, &content);
        Self { state, content }
    }

    /// Re-reads the file until the process shuts down. Requeues Kymas that wait for a window after a change.
    pub(super) async fn follow(mut self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = content(&self.state).await;
            if now != self.content {
                apply_content(&self.state, &now);
                self.state.requeue_awaiting_windows();
                self.content = now;
            }
        }
    }
}

async fn content(state: &State) -> Content {
    match fs::read(&state.args.maintenance_policy).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn apply_content(state: &State, content: &Content) {
    let path = state.args.maintenance_policy.display();
    let policy = match content {
        Ok(Some(bytes)) => {
            Policy::parse(bytes).map_err(|error| format!("maintenance policy {path}: {error}"))
        }
        Ok(None) => Err(format!("there is no maintenance policy {path}")),
        Err(error) => Err(format!("maintenance policy {path} cannot be read: {error}")),
    };
    match (&policy, content) {
        (Ok(_), _) => tracing::info!(%path, "maintenance policy read"),
        (Err(why), Ok(None)) => tracing::info!("{why}"),
        (Err(why), _) => tracing::warn!("{why}"),
    }
    state.metrics.maintenance_policy(policy.is_ok());
    state.set_maintenance(policy);
}
