//! The policy file, as it is mounted: read at the start, and again whenever it changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::fs;
use tokio::time::{MissedTickBehavior, interval};

use crate::maintenance::Policy;
use crate::state::State;

/// Nothing tells that a mounted file changed.
const EVERY: Duration = Duration::from_secs(5);

/// What the file holds; none where there is no file, an error where it cannot be read.
type Content = Result<Option<Vec<u8>>, String>;

/// The policy as the file has it by now.
pub(super) struct PolicyFile {
    state: Arc<State>,
    content: Content,
}

impl PolicyFile {
    /// Reads it for the first time.
    pub(super) async fn read(state: Arc<State>) -> Self {
        let content = content(&state).await;
        take(&state, &content);
        Self { state, content }
    }

    /// Reads it again for as long as the process runs; Kymas that wait for a window hear of a change.
    pub(super) async fn follow(mut self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = content(&self.state).await;
            if now != self.content {
                take(&self.state, &now);
                self.state.wake_awaiting_windows();
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

fn take(state: &State, content: &Content) {
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
