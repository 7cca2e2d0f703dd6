//! A web server of files for the tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use parking_lot::Mutex;
use tokio::net::TcpListener;

type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The server. It runs on a thread of its own, since each test has its own runtime.
pub(crate) struct FileServer {
    address: String,
    files: Files,
}

impl FileServer {
    pub(crate) fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let file_server = Self { address: listener.local_addr()?.to_string(), files: Files::default() };
        let routes = Router::new().fallback(serve_file).with_state(Arc::clone(&file_server.files));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async { axum::serve(TcpListener::from_std(listener)?, routes).await })
        });
        Ok(file_server)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Adds or replaces a file, and returns its URL.
    pub(crate) fn put(&self, path: &str, content: impl Into<Vec<u8>>) -> String {
        let mut files = self.files.lock();
        files.insert(format!("/{path}"), content.into());
        format!("http://{}/{path}", self.address)
    }
}

async fn serve_file(State(files): State<Files>, uri: Uri) -> Result<Vec<u8>, StatusCode> {
    let files = files.lock();
    files.get(uri.path()).cloned().ok_or(StatusCode::NOT_FOUND)
}
