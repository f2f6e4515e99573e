//! Looks up host names on separate threads, since the system's function blocks.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    thread,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::oneshot;

use crate::fork::starting;

/// The addresses of a host. If the system gives no thread, the runtime's own lookup would panic or wait for ever; this one blocks
/// the other requests until the system responds.
pub(super) async fn lookup(name: &str) -> io::Result<Vec<SocketAddr>> {
    let (send, found) = oneshot::channel();
    let host = name.to_owned();
    // Sending fails if the request has timed out.
    let work = move || drop(send.send(addresses(&host)));
    if starting(|| thread::Builder::new().name("swath-names".into()).spawn(work)).is_err() {
        return addresses(name);
    }
    found.await.unwrap_or_else(|_| Err(io::Error::other(format!("the lookup of {name} ended without a result"))))
}

fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// A resolver that returns all addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllNames;

impl Resolve for AllNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = lookup(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
