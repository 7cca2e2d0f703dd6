//! Test servers: a server of plain files, and a TCP proxy that can be closed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// An HTTP server of manifests and archives.
pub struct FileServer {
    address: SocketAddr,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl FileServer {
    /// Starts a server without files.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a server without files at this address, for content whose address is stored beyond this process.
    ///
    /// # Errors
    /// Another process has the port.
    pub async fn start_at(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let file_server = Self { address: listener.local_addr()?, files: Arc::default() };
        let files = Arc::clone(&file_server.files);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&files)));
            }
        });
        Ok(file_server)
    }

    /// Returns its `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Adds or replaces a file, and returns its URL.
    pub fn put(&self, name: &str, content: impl Into<String>) -> String {
        let content: String = content.into();
        self.put_bytes(name, content.into_bytes())
    }

    /// Adds or replaces a file of any bytes, and returns its URL.
    pub fn put_bytes(&self, name: &str, content: Vec<u8>) -> String {
        let path = format!("/{name}");
        self.files.lock().insert(path.clone(), content);
        format!("http://{}{path}", self.address)
    }
}

async fn serve(mut stream: TcpStream, files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>) -> Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece).await? {
            0 => return Ok(()),
            length => request.extend_from_slice(&piece[..length]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let found = files.lock().get(path).cloned();
    let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
    let body = found.unwrap_or_default();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    if !request.starts_with("HEAD ") {
        stream.write_all(&body).await?;
    }
    Ok(())
}

/// A TCP proxy with a fixed address: it forwards bytes while open and refuses connections while closed.
pub struct TcpProxy {
    address: SocketAddr,
    upstream: String,
    open: Mutex<Option<AbortHandle>>,
}

impl TcpProxy {
    /// Creates a closed proxy.
    pub fn new(upstream: &str, address: SocketAddr) -> Self {
        Self { address, upstream: upstream.to_owned(), open: Mutex::default() }
    }

    /// Returns its `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the `HOST:PORT` of the upstream server.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Opens the proxy: connections are forwarded from now on.
    ///
    /// # Errors
    /// Another process has the port.
    pub async fn open(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        let upstream = self.upstream.clone();
        let task = tokio::spawn(async move {
            // Dropped with the task, so that closing also cuts open connections.
            let mut passing = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let upstream = upstream.clone();
                passing.spawn(async move {
                    let mut to = TcpStream::connect(upstream).await?;
                    copy_bidirectional(&mut stream, &mut to).await
                });
            }
        });
        *self.open.lock() = Some(task.abort_handle());
        Ok(())
    }

    /// Closes the proxy: refuses connections and cuts open ones.
    pub fn close(&self) {
        if let Some(task) = self.open.lock().take() {
            task.abort();
        }
    }
}
