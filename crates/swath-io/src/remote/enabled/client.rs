//! Sends a request and receives its response, with the whole policy: retries, deadline, redirects, guard, budgets, counting.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, IF_MATCH, IF_UNMODIFIED_SINCE, LOCATION, RANGE, RETRY_AFTER, USER_AGENT},
    request::Parts,
};
use percent_encoding::percent_decode_str;
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use url::Url;

use crate::fork::PerProcess;

use super::{
    body::ReceivedBody,
    failure::{Failure, ServerError},
    guard::{self, Connect, Guard, NamedBy, is_public},
    range::{self, BodyLimits, Mismatch, RequestedRange},
    retry::RetryBudget,
    sending::{Outgoing, Progress, within},
    transport::{TransportError, transport, transport_error},
    watch::{BodyEvent, Watcher},
};
use crate::fault::RemoteFault;
use crate::remote::options::RemoteOptions;
use crate::traffic::Meter;
use crate::traffic::Traffic;

/// Shorter frames of a body are joined.
const SMALL: usize = 16 << 10;

/// Headers that are also sent to another host after a redirect. All others may be secrets.
const HARMLESS: [HeaderName; 6] = [ACCEPT, ACCEPT_ENCODING, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE, USER_AGENT];

/// A client; clones share counters and limits.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    guard: Guard,
    meter: Meter,
    /// Bytes received, and bytes requested but not yet received.
    reserved_bytes: AtomicU64,
    /// Whether a server has responded. One that refuses connections later may be restarting.
    answered: AtomicBool,
    permits: PerProcess<Semaphore>,
    options: RemoteOptions,
}

/// How to send a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// Whether redirects are followed.
    pub(crate) follow: bool,
    /// The origin of the address.
    pub(crate) named_by: NamedBy,
    /// Whether the address is that of a metadata service, which responds at once or does not exist. Guard and proxy are bypassed.
    pub(crate) metadata: bool,
}

/// The address that finally responded; an extension of the response.
#[derive(Debug, Clone)]
pub(crate) struct FinalUrl {
    pub(crate) url: Url,
    pub(crate) named_by: NamedBy,
}

/// Why one attempt failed.
enum AttemptError {
    Again {
        why: String,
        after: Option<Duration>,
        kind: Transient,
    },
    /// A response that contradicts the request. Proxies do that occasionally, so the request is retried once.
    Wrong(String),
    Final(Failure),
}

/// Kinds of temporary failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transient {
    /// The server reported it, or the connection broke.
    Plain,
    /// No byte was sent or received for too long.
    Stall,
    /// The name cannot be resolved at the moment, and no server has responded yet: most likely there is no network.
    Unresolved,
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("options", &self.0.options).field("meter", &self.0.meter).finish()
    }
}

impl Client {
    pub(crate) fn new(options: &RemoteOptions) -> Result<Self, Failure> {
        Ok(Self(Arc::new(Inner {
            guard: Guard::new(options)?,
            meter: Meter::default(),
            reserved_bytes: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            permits: PerProcess::new(),
            options: options.clone(),
        })))
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.0.meter.read()
    }

    /// Rejects an address that is not allowed, before anything is sent.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Failure> {
        self.0.guard.check(url, NamedBy::Caller).map(|_| ())
    }

    /// Sends a request, and returns the final response, which has a status below 500.
    pub(crate) async fn exchange(
        &self,
        request: Request<Bytes>,
        route: Route,
    ) -> Result<Response<ReceivedBody>, Failure> {
        let inner = &*self.0;
        let (mut parts, body) = request.into_parts();
        let mut url = Url::parse(&parts.uri.to_string())
            .map_err(|error| Failure::new(RemoteFault::Setup, format!("the address cannot be used: {error}")))?;
        let mut named_by = route.named_by;
        let mut connect = if route.metadata { Connect::METADATA } else { inner.guard.check(&url, named_by)? };
        // A range of an encoded file is useless.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let permits = inner.permits.get_or(|| Semaphore::new(inner.options.in_flight));
        let _permit = permits.acquire().await.map_err(|_| closed())?;
        let mut budget = match route.metadata {
            true => RetryBudget::new(METADATA_DEADLINE, 1),
            false => RetryBudget::new(inner.options.deadline, inner.options.retries),
        };
        let (mut hops, mut wrong_before, mut last) = (0, false, None::<String>);
        loop {
            budget.progress.begin();
            let attempt = self.attempt(&parts, &url, &body, connect, &budget.progress);
            let error = match within(|| budget.until(), attempt).await {
                None => return Err(budget.timed_out(last.as_deref())),
                Some(Ok((mut response, peer))) => {
                    let Some(next) = redirect(&parts.method, &url, &response).filter(|_| route.follow) else {
                        response.extensions_mut().insert(FinalUrl { url, named_by });
                        return Ok(response);
                    };
                    hops += 1;
                    let public = peer.is_none_or(|peer| is_public(peer.ip())) || guard::is_hidden(&url, connect);
                    named_by = if public || named_by == NamedBy::Public { NamedBy::Public } else { NamedBy::Private };
                    let next = next.and_then(|next| check_hop(&url, next, hops, inner.options.redirects))?;
                    connect = inner.guard.check(&next, named_by).map_err(forbidden_redirect)?;
                    if next.origin() != url.origin() {
                        parts.headers = harmless(&parts.headers);
                    }
                    url = next;
                    continue;
                }
                Some(Err(error)) => error,
            };
            let (why, after, wrong, kind) = match error {
                AttemptError::Final(failure) => return Err(failure),
                AttemptError::Again { why, after, kind } => (why, after, false, kind),
                AttemptError::Wrong(why) if wrong_before => return Err(Failure::new(RemoteFault::Protocol, why)),
                AttemptError::Wrong(why) => (why, None, true, Transient::Plain),
            };
            wrong_before |= wrong;
            match kind {
                Transient::Plain => budget.progress.forget(),
                Transient::Stall => {}
                Transient::Unresolved => budget.shorten(),
            }
            let pause = budget.again(&why, after).map_err(|failure| match wrong {
                true => Failure::new(RemoteFault::Protocol, why.clone()),
                false => failure,
            })?;
            last = Some(why);
            sleep(pause).await;
            inner.meter.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn attempt(
        &self,
        parts: &Parts,
        url: &Url,
        body: &Bytes,
        connect: Connect,
        progress: &Progress,
    ) -> Result<(Response<ReceivedBody>, Option<SocketAddr>), AttemptError> {
        let inner = &*self.0;
        let asked = RequestedRange::of(&parts.headers);
        let mut reservation = Reservation::begin(inner, asked.map_or(0, RequestedRange::len))?;
        inner.count_request(body.len() as u64, &parts.method)?;
        let host = &host(url);
        let mut request = reqwest::Request::new(parts.method.clone(), url.clone());
        *request.headers_mut() = parts.headers.clone();
        if parts.method != Method::GET && parts.method != Method::HEAD {
            *request.body_mut() = Some(reqwest::Body::wrap(Outgoing::new(body, progress)));
        }
        let stall = inner.options.stall_timeout;
        let transport = transport(connect, inner.options.connect_timeout, stall.min(inner.options.deadline))?;
        let mut response = match within(|| progress.stalls_at(stall), transport.execute(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                let answered = inner.answered.load(Ordering::Relaxed);
                return Err(match transport_error(error, host) {
                    TransportError::NoServer(why) if answered => again(why),
                    TransportError::Unresolved(why) if !answered => {
                        AttemptError::Again { why, after: None, kind: Transient::Unresolved }
                    }
                    transport_error => attempt_error(transport_error),
                });
            }
            None if body.is_empty() => return Err(stalled(format!("no answer from {host} for {stall:?}"))),
            None => return Err(stalled(format!("{host} received no bytes and sent no answer for {stall:?}"))),
        };
        inner.answered.store(true, Ordering::Relaxed);
        let (status, headers, peer) = (response.status(), response.headers().clone(), response.remote_addr());
        let limits = range::body_limits(status, &headers, asked).map_err(|mismatch| match mismatch {
            Mismatch::Wrong(what) => AttemptError::Wrong(format!("{host} {what}")),
            Mismatch::Ignored => AttemptError::Final(Failure::new(
                RemoteFault::Protocol,
                format!("{host} ignores byte ranges and sends the whole file; download the file first"),
            )),
        })?;
        // Without a stated length, a response that is too long is noticed only at its end, so its frames are not shown before.
        let stated = response.content_length().is_some() && response.content_length() == limits.exact;
        let watcher = parts.extensions.get::<Watcher>().filter(|_| status.is_success() && stated);
        if let Some(watcher) = watcher {
            watcher.show(BodyEvent::Head(status, headers.clone()));
        }
        let body = match collect(&mut response, limits, stall, &mut reservation, host, watcher).await {
            Ok(body) => body,
            // The text of an error is useful even if it is incomplete.
            Err(AttemptError::Again { .. } | AttemptError::Wrong(_)) if limits.cut => ReceivedBody::default(),
            Err(error) => return Err(error),
        };
        let (body, server_error) = server_error_of(parts, url, status, &headers, body);
        if let Some(server_error) = &server_error
            && (is_transient(status) || status.is_success())
        {
            let why = format!("the server answered {status}{}", server_error.words());
            return Err(AttemptError::Again { why, after: retry_after(&headers), kind: Transient::Plain });
        }
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        if let Some(server_error) = server_error {
            answer.extensions_mut().insert(server_error);
        }
        Ok((answer, peer))
    }
}

/// Longest time for a metadata service. On a machine without one, nothing responds.
const METADATA_DEADLINE: Duration = Duration::from_secs(3);

impl Inner {
    fn count_request(&self, sent: u64, method: &Method) -> Result<(), Failure> {
        // Deleting an unfinished upload is always allowed.
        let most = self.options.max_requests.filter(|_| method != Method::DELETE).unwrap_or(u64::MAX);
        let count = |requests: u64| (requests < most).then_some(requests + 1);
        if self.meter.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_err() {
            let detail = format!("this needs more than the {most} allowed requests");
            return Err(Failure::new(RemoteFault::Budget, detail));
        }
        self.meter.sent.fetch_add(sent, Ordering::Relaxed);
        Ok(())
    }
}

/// The bytes of one attempt, reserved before they are requested, so that concurrent requests keep to the budget too.
struct Reservation<'a> {
    inner: &'a Inner,
    /// Whether a range of a file was requested.
    ranged: bool,
    reserved: u64,
    taken: u64,
}

impl<'a> Reservation<'a> {
    fn begin(inner: &'a Inner, reserved: u64) -> Result<Self, Failure> {
        let most = inner.options.max_bytes.unwrap_or(u64::MAX);
        let reserve = |reserved_bytes: u64| reserved_bytes.checked_add(reserved).filter(|all| *all <= most);
        match inner.reserved_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve) {
            // Only ranges of files count against the budget: an upload that has begun may always be finished.
            Err(_) if reserved == 0 => Ok(Self { inner, ranged: false, reserved, taken: 0 }),
            Ok(_) => Ok(Self { inner, ranged: reserved > 0, reserved, taken: 0 }),
            Err(_) => Err(over(most)),
        }
    }

    fn take(&mut self, len: u64) -> Result<(), Failure> {
        self.taken += len;
        self.inner.meter.received.fetch_add(len, Ordering::Relaxed);
        let beyond = self.taken.saturating_sub(self.reserved);
        if beyond > 0 {
            self.reserved += beyond;
            let before = self.inner.reserved_bytes.fetch_add(beyond, Ordering::Relaxed);
            let most = self.inner.options.max_bytes.unwrap_or(u64::MAX);
            // Other responses are short, and must not make an upload fail.
            if before.saturating_add(beyond) > most && self.ranged {
                return Err(over(most));
            }
        }
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.inner.reserved_bytes.fetch_sub(self.reserved.saturating_sub(self.taken), Ordering::Relaxed);
    }
}

fn over(most: u64) -> Failure {
    Failure::new(RemoteFault::Budget, format!("this needs more than the {most} bytes that may be received"))
}

fn closed() -> Failure {
    Failure::new(RemoteFault::Cancelled, "the client is closed")
}

fn again(why: String) -> AttemptError {
    AttemptError::Again { why, after: None, kind: Transient::Plain }
}

fn stalled(why: String) -> AttemptError {
    AttemptError::Again { why, after: None, kind: Transient::Stall }
}

fn attempt_error(transport_error: TransportError) -> AttemptError {
    match transport_error {
        TransportError::Transient(why) | TransportError::Unresolved(why) => again(why),
        TransportError::Stalled(why) => stalled(why),
        TransportError::NotHttp(why) => AttemptError::Wrong(why),
        TransportError::NoServer(why) => {
            let detail = format!("{why}; is the server running, and is the address right?");
            AttemptError::Final(Failure::new(RemoteFault::Unavailable, detail))
        }
        TransportError::Permanent(failure) => AttemptError::Final(failure),
    }
}

async fn collect(
    response: &mut reqwest::Response,
    limits: BodyLimits,
    stall: Duration,
    reservation: &mut Reservation<'_>,
    host: &str,
    watcher: Option<&Watcher>,
) -> Result<ReceivedBody, AttemptError> {
    let mut body = ReceivedBody::default();
    let mut got = 0;
    let mut put = |frame: Bytes| {
        if let Some(watcher) = watcher {
            watcher.show(BodyEvent::Frame(frame.clone()));
        }
        body.push(frame);
    };
    // Join short frames: a server that sends single bytes must not cost more memory than they take.
    let mut small = BytesMut::new();
    loop {
        let frame = match timeout(stall, response.chunk()).await {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(attempt_error(transport_error(error, host))),
            Err(_) => return Err(stalled(format!("{host} sent nothing for {stall:?}"))),
        };
        reservation.take(frame.len() as u64)?;
        got += frame.len() as u64;
        if got > limits.most && !limits.cut {
            return Err(AttemptError::Wrong(format!(
                "{host} sent more than the {} bytes that were requested",
                limits.most
            )));
        }
        if frame.len() < SMALL {
            small.extend_from_slice(&frame);
            if small.len() >= 4 * SMALL {
                put(small.split().freeze());
            }
        } else {
            if !small.is_empty() {
                put(small.split().freeze());
            }
            put(frame);
        }
        if got > limits.most {
            break;
        }
    }
    if !small.is_empty() {
        put(small.freeze());
    }
    match limits.exact {
        Some(exact) if got < exact => Err(again(format!("{host} ended its answer after {got} of {exact} bytes"))),
        _ => Ok(body),
    }
}

fn is_transient(status: StatusCode) -> bool {
    let permanent = matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED);
    (status.is_server_error() && !permanent)
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

/// The error that a response describes. S3 sends some errors with status 200, if they occur after it began to respond.
fn server_error_of(
    parts: &Parts,
    url: &Url,
    status: StatusCode,
    headers: &HeaderMap,
    body: ReceivedBody,
) -> (ReceivedBody, Option<ServerError>) {
    if status.is_success() && parts.method != Method::POST {
        return (body, None);
    }
    let body = body.into_bytes();
    let private = parts.headers.iter().filter(|(name, _)| !HARMLESS.contains(name));
    let sent = url.query().into_iter().chain(private.filter_map(|(_, value)| value.to_str().ok()));
    let secrets: Vec<String> = sent.flat_map(spellings).collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let server_error = ServerError::of(headers, &body, &secrets);
    let despite_success = server_error.code.as_deref().is_some_and(|code| matches!(code, "InternalError" | "SlowDown"));
    let server_error = (!status.is_success() || despite_success).then_some(server_error);
    (body.into(), server_error)
}

/// A secret as it was sent, and as the receiver decodes it.
fn spellings(sent: &str) -> Vec<String> {
    let decoded = percent_decode_str(sent).decode_utf8_lossy().into_owned();
    let basic = sent.strip_prefix("Basic ").and_then(|pair| BASE64_STANDARD.decode(pair).ok());
    let basic = basic.map(|pair| String::from_utf8_lossy(&pair).into_owned());
    [sent.to_owned(), decoded].into_iter().chain(basic).collect()
}

/// The pause that the server asks for, in seconds. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Host and port for messages.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The target of a redirect.
fn redirect(method: &Method, url: &Url, response: &Response<ReceivedBody>) -> Option<Result<Url, Failure>> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location =
        response.headers().get(LOCATION).filter(|_| moved && matches!(*method, Method::GET | Method::HEAD))?;
    let next = std::str::from_utf8(location.as_bytes()).ok().and_then(|location| url.join(location).ok());
    Some(next.ok_or_else(|| Failure::new(RemoteFault::Protocol, "the server redirects to an invalid address")))
}

fn check_hop(from: &Url, mut next: Url, hops: u32, most: u32) -> Result<Url, Failure> {
    if hops > most {
        return Err(Failure::new(RemoteFault::Forbidden, format!("the server redirects more than {most} times")));
    }
    if from.scheme() == "https" && next.scheme() == "http" {
        let detail =
            format!("{} redirects from https to http, where the bytes could be changed on the way", host(from));
        return Err(Failure::new(RemoteFault::Forbidden, detail));
    }
    // A redirect must not choose the credentials we send. Addresses that cannot carry a user ignore this.
    let _ = (next.set_username(""), next.set_password(None));
    next.set_fragment(None);
    Ok(next)
}

fn forbidden_redirect(failure: Failure) -> Failure {
    Failure::new(failure.fault, format!("the server redirects to a forbidden address: {}", failure.detail))
}

fn harmless(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(name, _)| HARMLESS.contains(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}
