//! Connections: shared by all handles of a process, so that the next file on a host costs no handshake.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls_platform_verifier::BuilderVerifierExt;

use crate::fork::PerProcess;

use super::{
    RemoteFault,
    failure::{Failure, printable},
    guard::{Names, OutOfReach, Reach, Way},
    names::AllNames,
};

/// Kinds of connections that are kept; callers rarely use more than two.
const KINDS: usize = 16;

/// Headers of one answer; stores send some thirty.
const HEADERS: usize = 128;

type Kind = (Way, Duration, Duration);

static CLIENTS: PerProcess<Mutex<Vec<(Kind, reqwest::Client)>>> = PerProcess::new();

/// The connections of one kind. Of bytes that the other side's system does not take for as long as `stall` says, ours gives up
/// the connection, where it can: nothing else tells what became of bytes that were handed over.
pub(crate) fn transport(way: Way, connect_timeout: Duration, stall: Duration) -> Result<reqwest::Client, Failure> {
    let failed = |error: String| Failure::new(RemoteFault::Setup, format!("cannot set up connections: {error}"));
    let mut clients = CLIENTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let kind = (way, connect_timeout, stall);
    if let Some((_, client)) = clients.iter().find(|(known, _)| *known == kind) {
        return Ok(client.clone());
    }
    let tls = tls().map_err(|error| failed(error.to_string()))?;
    // Redirects, retries and decoding are decided where they are counted: not here.
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
    if !way.proxied {
        builder = builder.no_proxy();
    }
    builder = match way.reach {
        Reach::Any => builder.dns_resolver(AllNames),
        reach => builder.dns_resolver(Names(reach)),
    };
    let client = builder.build().map_err(|error| failed(error.without_url().to_string()))?;
    if clients.len() == KINDS {
        clients.remove(0);
    }
    clients.push((kind, client.clone()));
    Ok(client)
}

fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        || rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    Ok(match builder()?.with_platform_verifier() {
        Ok(builder) => builder.with_no_client_auth(),
        // A machine without certificates can still ask over http; https then says that nobody vouches for the server.
        Err(_) => builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    })
}

/// What a failed attempt means.
pub(crate) enum Mishap {
    /// The same request may do better next time.
    Transient(String),
    /// Neither side's system took or gave anything for too long.
    Stalled(String),
    /// The name could not be resolved.
    Nameless(String),
    /// There is no server to talk to. One that has answered before may be starting again; any other will not come.
    Absent(String),
    /// The answer cannot be read as HTTP.
    Garbled(String),
    /// It will fail again.
    Lasting(Failure),
}

/// What an error of the transport means; `host` is whom we asked.
pub(crate) fn mishap(error: reqwest::Error, host: &str) -> Mishap {
    let error = error.without_url();
    let (is_dns, is_connect) = (error.is_dns(), error.is_connect());
    let (mut absent, mut stalled) = (false, false);
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    let mut innermost = String::new();
    while let Some(found) = cause {
        if let Some(OutOfReach(reach)) = found.downcast_ref() {
            return Mishap::Lasting(reach.refusal(host));
        }
        if found.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return Mishap::Garbled(format!("{host} answered with something that is not HTTP: {found}"));
        }
        if let Some(rustls::Error::InvalidCertificate(reason)) = found.downcast_ref::<rustls::Error>() {
            return Mishap::Lasting(Failure::new(
                RemoteFault::Unavailable,
                format!(
                    "the certificate of {host} is not trusted ({reason}); if it is signed by an authority of your own, \
                     name its file in SSL_CERT_FILE"
                ),
            ));
        }
        if is_connect && found.downcast_ref::<rustls::Error>().is_some_and(will_not_agree) {
            return Mishap::Lasting(Failure::new(
                RemoteFault::Unavailable,
                format!("no secure connection to {host}: {found}; is it a server for https, and is the port right?"),
            ));
        }
        absent |= is_connect && found.downcast_ref::<io::Error>().is_some_and(is_absent);
        stalled |= found.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        innermost = printable(&found.to_string());
        // An I/O error hides the error inside it from `source`, which gives the source of that one.
        cause = match found.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => found.source(),
        };
    }
    if is_dns && ["not known", "No address", "nodename"].iter().any(|words| innermost.contains(words)) {
        return Mishap::Lasting(Failure::new(RemoteFault::Missing, format!("there is no host {host}: {innermost}")));
    }
    if absent {
        return Mishap::Absent(format!("no connection to {host}: {innermost}"));
    }
    match (is_dns, is_connect) {
        (true, _) => Mishap::Nameless(format!("the name {host} could not be resolved: {innermost}")),
        (_, true) => Mishap::Transient(format!("no connection to {host}: {innermost}")),
        _ if stalled => Mishap::Stalled(format!("the connection to {host} stalled: {innermost}")),
        _ => Mishap::Transient(format!("the connection to {host} failed: {innermost}")),
    }
}

/// Whether the system reports at once that no server listens there. A timeout does not tell.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
    )
}

/// Whether two sides that failed to agree on a secure connection will fail again: one of them does not speak TLS, or not one
/// that the other knows. An alert about an error inside the server may pass.
fn will_not_agree(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => true,
        rustls::Error::AlertReceived(alert) => *alert != rustls::AlertDescription::InternalError,
        _ => false,
    }
}
