//! The server under a script.

use std::io;
use std::net::TcpStream as BlockingStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Behaviour, Body};
use super::interceptor::InterceptedRequest;
use super::request::ReceivedRequest;
use super::script::Script;

/// Accepts connections until the task is aborted, which closes them too: they are tasks of its set.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    let mut ignored = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        script.connections.fetch_add(1, Ordering::Relaxed);
        if script.unresponsive.load(Ordering::Relaxed) {
            ignored.push(stream);
            continue;
        }
        let (tls, script) = (tls.clone(), Arc::clone(&script));
        // A client that disconnects is no failure.
        connections.spawn(async move { connection(stream, tls, script).await.ok() });
        while connections.try_join_next().is_some() {}
    }
}

/// A second handle to the connection's socket, which can reset it.
struct ConnectionReset(Mutex<Option<TcpStream>>);

impl ConnectionReset {
    fn of(stream: &TcpStream) -> io::Result<Self> {
        let socket = BlockingStream::from(stream.as_fd().try_clone_to_owned()?);
        Ok(Self(Mutex::new(Some(TcpStream::from_std(socket)?))))
    }

    /// Makes the connection end with RST instead of FIN once it is closed.
    fn trigger(&self) -> io::Result<()> {
        match self.0.lock().take() {
            Some(socket) => socket.set_zero_linger(),
            None => Ok(()),
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, script: Arc<Script>) -> Result<()> {
    stream.set_nodelay(true)?;
    let reset = Arc::new(ConnectionReset::of(&stream)?);
    let stream = TokioIo::new(tls.accept(stream).await?);
    let service = service_fn(|request| respond(request, Arc::clone(&script), Arc::clone(&reset)));
    hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await?;
    Ok(())
}

async fn respond(
    request: Request<Incoming>,
    script: Arc<Script>,
    reset: Arc<ConnectionReset>,
) -> Result<Response<Body>, io::Error> {
    let seen = ReceivedRequest::of(&request);
    if let (Some(interceptor), Some(upstream)) = (&script.interceptor, &script.upstream) {
        return interceptor.pass(InterceptedRequest::whole(seen, request, upstream).await?).await;
    }
    let request = request.map(|body| body.map_err(io::Error::other).boxed_unsync());
    let answer = script.answer_to(&seen).map(|answer| answer.behaviour);
    match (answer, &script.upstream) {
        (Some(Behaviour::Respond(respond)), _) => Ok(respond.response()),
        (Some(Behaviour::Silence), _) => std::future::pending().await,
        (Some(Behaviour::Reset), _) => {
            reset.trigger()?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        (Some(Behaviour::Forward(delay)), Some(upstream)) => {
            tokio::time::sleep(delay).await;
            upstream.forward(request).await
        }
        (None, Some(upstream)) => upstream.forward(request).await,
        (None | Some(Behaviour::Forward(_)), None) => Ok(not_found(&seen)),
    }
}

fn not_found(request: &ReceivedRequest) -> Response<Body> {
    let message = format!("the script says nothing about {} {}", request.method, request.path);
    let answer = match object_in(&request.path) {
        Some((group, plural, name)) => Answer::not_found(group, plural, name),
        None => Answer::failure(404, "NotFound", &message),
    };
    match answer.behaviour {
        Behaviour::Respond(respond) => respond.response(),
        _ => Response::default(),
    }
}

/// Returns API group, resource and name in the path of an object; `None` for the path of a list, and others.
fn object_in(path: &str) -> Option<(&str, &str, &str)> {
    let (group, rest) = if let Some(rest) = path.strip_prefix("/api/v1/") {
        ("", rest)
    } else {
        let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
        (group, rest.split_once('/')?.1)
    };
    let mut segments = rest.split('/');
    let (mut plural, mut name) = (segments.next()?, segments.next()?);
    if plural == "namespaces"
        && let Some(resource) = segments.next()
    {
        (plural, name) = (resource, segments.next()?);
    }
    Some((group, plural, name)).filter(|_| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::object_in;

    #[test]
    fn the_path_of_an_object_names_it() {
        let rows = [
            ("/api/v1/namespaces/n/secrets/a", Some(("", "secrets", "a"))),
            ("/api/v1/namespaces/n", Some(("", "namespaces", "n"))),
            ("/api/v1/namespaces/n/secrets", None),
            ("/api/v1/nodes", None),
            ("/apis/apps/v1/namespaces/n/deployments/a/scale", Some(("apps", "deployments", "a"))),
            ("/apis/x.io/v1/things/a", Some(("x.io", "things", "a"))),
            ("/apis/x.io/v1/namespaces/n/things/a/status", Some(("x.io", "things", "a"))),
            ("/apis/x.io/v1", None),
            ("/version", None),
        ];
        for (path, expected) in rows {
            assert_eq!(object_in(path), expected, "{path}");
        }
    }
}
