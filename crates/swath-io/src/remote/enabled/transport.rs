//! Connections, which all handles of a process share, so that the next file on a host needs no handshake.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls_platform_verifier::BuilderVerifierExt;

use crate::fork::PerProcess;

use super::{
    failure::{Failure, printable},
    guard::{Connect, Names, OutOfReach, Reach},
    names::AllNames,
};
use crate::fault::RemoteFault;

/// Most clients that are kept. Callers rarely use more than two.
const CLIENTS_KEPT: usize = 16;

/// Most headers of a response. Stores send about thirty.
const HEADERS: usize = 128;

/// The settings of a client. Handles with the same settings share one, and its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    connect: Connect,
    connect_timeout: Duration,
    stall: Duration,
}

static CLIENTS: PerProcess<Mutex<Vec<(ClientKey, reqwest::Client)>>> = PerProcess::new();

/// The client with these settings. Where the system supports it, it ends a connection whose sent bytes are not acknowledged for the
/// time `stall`: nothing else shows whether bytes that the system accepted have arrived.
pub(crate) fn transport(
    connect: Connect,
    connect_timeout: Duration,
    stall: Duration,
) -> Result<reqwest::Client, Failure> {
    let failed = |error: String| Failure::new(RemoteFault::Setup, format!("cannot set up connections: {error}"));
    let mut clients = CLIENTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let key = ClientKey { connect, connect_timeout, stall };
    if let Some((_, client)) = clients.iter().find(|(known, _)| *known == key) {
        return Ok(client.clone());
    }
    let tls = tls().map_err(|error| failed(error.to_string()))?;
    // The client above handles redirects, retries and encodings, since it counts them.
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .http1_max_headers(HEADERS)
        .connect_timeout(connect_timeout)
        .user_agent(concat!("swath/", env!("CARGO_PKG_VERSION")));
    #[cfg(target_os = "linux")]
    {
        builder = builder.tcp_user_timeout(stall);
    }
    if !connect.proxied {
        builder = builder.no_proxy();
    }
    builder = match connect.reach {
        Reach::Any => builder.dns_resolver(AllNames),
        reach => builder.dns_resolver(Names(reach)),
    };
    let client = builder.build().map_err(|error| failed(error.without_url().to_string()))?;
    if clients.len() == CLIENTS_KEPT {
        clients.remove(0);
    }
    clients.push((key, client.clone()));
    Ok(client)
}

fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        || rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    Ok(match builder()?.with_platform_verifier() {
        Ok(builder) => builder.with_no_client_auth(),
        // A machine without certificates can still use http. With https, every server is then untrusted.
        Err(_) => builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    })
}

/// Why an attempt failed, by what to do next.
pub(crate) enum TransportError {
    /// A retry may succeed.
    Transient(String),
    /// No bytes were sent or received for too long.
    Stalled(String),
    /// The name could not be resolved.
    Unresolved(String),
    /// No server listens there. One that has responded before may be restarting; any other failure is permanent.
    NoServer(String),
    /// The response is not HTTP.
    NotHttp(String),
    /// A retry would fail too.
    Permanent(Failure),
}

/// Classifies an error of the transport; `host` is the server.
pub(crate) fn transport_error(error: reqwest::Error, host: &str) -> TransportError {
    let error = error.without_url();
    let (is_dns, is_connect) = (error.is_dns(), error.is_connect());
    let (mut absent, mut stalled) = (false, false);
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    let mut innermost = String::new();
    while let Some(found) = cause {
        if let Some(OutOfReach(reach)) = found.downcast_ref() {
            return TransportError::Permanent(reach.refusal(host));
        }
        if found.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return TransportError::NotHttp(format!("{host} answered with something that is not HTTP: {found}"));
        }
        if let Some(rustls::Error::InvalidCertificate(reason)) = found.downcast_ref::<rustls::Error>() {
            return TransportError::Permanent(Failure::new(
                RemoteFault::Unavailable,
                format!(
                    "the certificate of {host} is not trusted ({reason}); if it is signed by an authority of your own, \
                     name its file in SSL_CERT_FILE"
                ),
            ));
        }
        if is_connect && found.downcast_ref::<rustls::Error>().is_some_and(is_permanent) {
            return TransportError::Permanent(Failure::new(
                RemoteFault::Unavailable,
                format!("no secure connection to {host}: {found}; is it a server for https, and is the port right?"),
            ));
        }
        absent |= is_connect && found.downcast_ref::<io::Error>().is_some_and(is_absent);
        stalled |= found.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        innermost = printable(&found.to_string());
        // `source` of an I/O error skips the error inside it and returns that error's source.
        cause = match found.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => found.source(),
        };
    }
    if is_dns && ["not known", "No address", "nodename"].iter().any(|words| innermost.contains(words)) {
        return TransportError::Permanent(Failure::new(
            RemoteFault::Missing,
            format!("there is no host {host}: {innermost}"),
        ));
    }
    if absent {
        return TransportError::NoServer(format!("no connection to {host}: {innermost}"));
    }
    match (is_dns, is_connect) {
        (true, _) => TransportError::Unresolved(format!("the name {host} could not be resolved: {innermost}")),
        (_, true) => TransportError::Transient(format!("no connection to {host}: {innermost}")),
        _ if stalled => TransportError::Stalled(format!("the connection to {host} stalled: {innermost}")),
        _ => TransportError::Transient(format!("the connection to {host} failed: {innermost}")),
    }
}

/// Whether the system reports that no server listens there. A timeout does not show that.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
    )
}

/// Whether a failed TLS handshake would fail again: one side does not speak TLS, or no version that the other knows. An alert about
/// an internal error of the server may be temporary.
fn is_permanent(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => true,
        rustls::Error::AlertReceived(alert) => *alert != rustls::AlertDescription::InternalError,
        _ => false,
    }
}
