//! One exchange with a server, with all its policy: retries, deadline, redirects, guard, budgets, counting.

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

pub(crate) use super::failure::Failure;
use crate::fork::PerProcess;

use super::{
    RemoteFault, RemoteOptions, Traffic,
    body::Pieces,
    failure::Told,
    guard::{self, Guard, Lead, Way, is_public},
    range::{self, Asked, Mismatch, Plan},
    retry::Patience,
    sending::{Outgoing, Progress, within},
    traffic::Meter,
    transport::{Mishap, mishap, transport},
    watch::{Seen, Watcher},
};

/// Pieces of a body below this are gathered.
const SMALL: usize = 16 << 10;

/// Headers that go along to another host; all others may be secrets.
const HARMLESS: [HeaderName; 6] = [ACCEPT, ACCEPT_ENCODING, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE, USER_AGENT];

/// A client; clones share counters and limits.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    guard: Guard,
    meter: Meter,
    /// Bytes that came in, and those that were asked for and are on their way.
    spoken_for: AtomicU64,
    /// Whether a server has answered: one that refuses connections later may be restarting.
    answered: AtomicBool,
    permits: PerProcess<Semaphore>,
    options: RemoteOptions,
}

/// How an exchange differs from the plain one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// Redirects are followed.
    pub(crate) follow: bool,
    /// Who named the address.
    pub(crate) lead: Lead,
    /// The address is that of a metadata service, which answers at once or is not there; guard and proxy are passed by.
    pub(crate) metadata: bool,
}

/// Where an answer came from in the end; among the extensions of a response.
#[derive(Debug, Clone)]
pub(crate) struct Landed {
    pub(crate) url: Url,
    pub(crate) lead: Lead,
}

/// What went wrong in one attempt.
enum Trouble {
    Again {
        why: String,
        after: Option<Duration>,
        kind: Kind,
    },
    /// An answer that makes no sense. Proxies have hiccups, so it is asked for once more, and never a third time.
    Wrong(String),
    Final(Failure),
}

/// What kind of trouble may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The server said so, or the connection broke.
    Plain,
    /// Nothing came or went any more.
    Stall,
    /// The name has no address at the moment, and no server has answered yet: most likely there is no network.
    Nameless,
}

impl From<Failure> for Trouble {
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
            spoken_for: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            permits: PerProcess::new(),
            options: options.clone(),
        })))
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.0.meter.read()
    }

    /// Refuses an address that may not be asked, before anything is sent.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Failure> {
        self.0.guard.check(url, Lead::Caller).map(|_| ())
    }

    /// One exchange: the last answer, whatever its status below 500.
    pub(crate) async fn exchange(&self, request: Request<Bytes>, route: Route) -> Result<Response<Pieces>, Failure> {
        let inner = &*self.0;
        let (mut parts, body) = request.into_parts();
        let mut url = Url::parse(&parts.uri.to_string())
            .map_err(|error| Failure::new(RemoteFault::Setup, format!("the address cannot be used: {error}")))?;
        let mut lead = route.lead;
        let mut way = if route.metadata { Way::METADATA } else { inner.guard.check(&url, lead)? };
        // A range of an encoded file is of no use to anybody.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let permits = inner.permits.get_or(|| Semaphore::new(inner.options.in_flight));
        let _permit = permits.acquire().await.map_err(|_| closed())?;
        let mut patience = match route.metadata {
            true => Patience::new(METADATA_DEADLINE, 1),
            false => Patience::new(inner.options.deadline, inner.options.retries),
        };
        let (mut hops, mut wrong_before, mut last) = (0, false, None::<String>);
        loop {
            patience.progress.begin();
            let attempt = self.attempt(&parts, &url, &body, way, &patience.progress);
            let trouble = match within(|| patience.until(), attempt).await {
                None => return Err(patience.timed_out(last.as_deref())),
                Some(Ok((mut response, peer))) => {
                    let Some(next) = redirect(&parts.method, &url, &response).filter(|_| route.follow) else {
                        response.extensions_mut().insert(Landed { url, lead });
                        return Ok(response);
                    };
                    hops += 1;
                    let public = peer.is_none_or(|peer| is_public(peer.ip())) || guard::is_hidden(&url, way);
                    lead = if public || lead == Lead::Public { Lead::Public } else { Lead::Private };
                    let next = next.and_then(|next| check_hop(&url, next, hops, inner.options.redirects))?;
                    way = inner.guard.check(&next, lead).map_err(astray)?;
                    if next.origin() != url.origin() {
                        parts.headers = harmless(&parts.headers);
                    }
                    url = next;
                    continue;
                }
                Some(Err(trouble)) => trouble,
            };
            let (why, after, wrong, kind) = match trouble {
                Trouble::Final(failure) => return Err(failure),
                Trouble::Again { why, after, kind } => (why, after, false, kind),
                Trouble::Wrong(why) if wrong_before => return Err(Failure::new(RemoteFault::Protocol, why)),
                Trouble::Wrong(why) => (why, None, true, Kind::Plain),
            };
            wrong_before |= wrong;
            match kind {
                Kind::Plain => patience.progress.forget(),
                Kind::Stall => {}
                Kind::Nameless => patience.shorten(),
            }
            let pause = patience.again(&why, after).map_err(|failure| match wrong {
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
        way: Way,
        progress: &Progress,
    ) -> Result<(Response<Pieces>, Option<SocketAddr>), Trouble> {
        let inner = &*self.0;
        let asked = Asked::of(&parts.headers);
        let mut spending = Spending::begin(inner, asked.map_or(0, Asked::len))?;
        inner.count_request(body.len() as u64, &parts.method)?;
        let host = &host(url);
        let mut request = reqwest::Request::new(parts.method.clone(), url.clone());
        *request.headers_mut() = parts.headers.clone();
        if parts.method != Method::GET && parts.method != Method::HEAD {
            *request.body_mut() = Some(reqwest::Body::wrap(Outgoing::new(body, progress)));
        }
        let stall = inner.options.stall_timeout;
        let transport = transport(way, inner.options.connect_timeout, stall.min(inner.options.deadline))?;
        let mut response = match within(|| progress.stalls_at(stall), transport.execute(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                let answered = inner.answered.load(Ordering::Relaxed);
                return Err(match mishap(error, host) {
                    Mishap::Absent(why) if answered => again(why),
                    Mishap::Nameless(why) if !answered => Trouble::Again { why, after: None, kind: Kind::Nameless },
                    mishap => trouble(mishap),
                });
            }
            None if body.is_empty() => return Err(stalled(format!("no answer from {host} for {stall:?}"))),
            None => return Err(stalled(format!("{host} took nothing, and answered nothing, for {stall:?}"))),
        };
        inner.answered.store(true, Ordering::Relaxed);
        let (status, headers, peer) = (response.status(), response.headers().clone(), response.remote_addr());
        let plan = range::plan(status, &headers, asked).map_err(|mismatch| match mismatch {
            Mismatch::Wrong(what) => Trouble::Wrong(format!("{host} {what}")),
            Mismatch::Ignored => Trouble::Final(Failure::new(
                RemoteFault::Protocol,
                format!("{host} ignores byte ranges and sends the whole file; download the file first"),
            )),
        })?;
        // Where the length is not stated, an answer that is too long shows only when it is there: nobody sees it before.
        let stated = response.content_length().is_some() && response.content_length() == plan.exact;
        let watcher = parts.extensions.get::<Watcher>().filter(|_| status.is_success() && stated);
        if let Some(watcher) = watcher {
            watcher.show(Seen::Head(status, headers.clone()));
        }
        let body = match collect(&mut response, plan, stall, &mut spending, host, watcher).await {
            Ok(body) => body,
            // What is told of an error is worth having as far as it came.
            Err(Trouble::Again { .. } | Trouble::Wrong(_)) if plan.cut => Pieces::default(),
            Err(trouble) => return Err(trouble),
        };
        let (body, told) = told(parts, url, status, &headers, body);
        if let Some(told) = &told
            && (is_transient(status) || status.is_success())
        {
            let why = format!("the server answered {status}{}", told.words());
            return Err(Trouble::Again { why, after: retry_after(&headers), kind: Kind::Plain });
        }
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        if let Some(told) = told {
            answer.extensions_mut().insert(told);
        }
        Ok((answer, peer))
    }
}

/// Longest time that a metadata service may take: on a machine that has none, nobody answers.
const METADATA_DEADLINE: Duration = Duration::from_secs(3);

impl Inner {
    fn count_request(&self, sent: u64, method: &Method) -> Result<(), Failure> {
        // What was begun may always be taken back.
        let most = self.options.max_requests.filter(|_| method != Method::DELETE).unwrap_or(u64::MAX);
        let count = |requests: u64| (requests < most).then_some(requests + 1);
        if self.meter.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_err() {
            let detail = format!("this takes more than the {most} requests that are allowed");
            return Err(Failure::new(RemoteFault::Budget, detail));
        }
        self.meter.sent.fetch_add(sent, Ordering::Relaxed);
        Ok(())
    }
}

/// The bytes of one attempt, spoken for before they are asked for, so that many at once keep to the budget too.
struct Spending<'a> {
    inner: &'a Inner,
    /// Whether a range of a file was asked for.
    ranged: bool,
    reserved: u64,
    taken: u64,
}

impl<'a> Spending<'a> {
    fn begin(inner: &'a Inner, reserved: u64) -> Result<Self, Failure> {
        let most = inner.options.max_bytes.unwrap_or(u64::MAX);
        let reserve = |spoken_for: u64| spoken_for.checked_add(reserved).filter(|all| *all <= most);
        match inner.spoken_for.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve) {
            // Only files are budgeted: what was begun may always be ended.
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
            let before = self.inner.spoken_for.fetch_add(beyond, Ordering::Relaxed);
            let most = self.inner.options.max_bytes.unwrap_or(u64::MAX);
            // Answers that are no part of a file are short, and an upload must not end on them.
            if before.saturating_add(beyond) > most && self.ranged {
                return Err(over(most));
            }
        }
        Ok(())
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.inner.spoken_for.fetch_sub(self.reserved.saturating_sub(self.taken), Ordering::Relaxed);
    }
}

fn over(most: u64) -> Failure {
    Failure::new(RemoteFault::Budget, format!("this takes more than the {most} bytes that are allowed to come in"))
}

fn closed() -> Failure {
    Failure::new(RemoteFault::Cancelled, "the client is closed")
}

fn again(why: String) -> Trouble {
    Trouble::Again { why, after: None, kind: Kind::Plain }
}

fn stalled(why: String) -> Trouble {
    Trouble::Again { why, after: None, kind: Kind::Stall }
}

fn trouble(mishap: Mishap) -> Trouble {
    match mishap {
        Mishap::Transient(why) | Mishap::Nameless(why) => again(why),
        Mishap::Stalled(why) => stalled(why),
        Mishap::Garbled(why) => Trouble::Wrong(why),
        Mishap::Absent(why) => {
            let detail = format!("{why}; is the server running, and is the address right?");
            Trouble::Final(Failure::new(RemoteFault::Unavailable, detail))
        }
        Mishap::Lasting(failure) => Trouble::Final(failure),
    }
}

async fn collect(
    response: &mut reqwest::Response,
    plan: Plan,
    stall: Duration,
    spending: &mut Spending<'_>,
    host: &str,
    watcher: Option<&Watcher>,
) -> Result<Pieces, Trouble> {
    let mut body = Pieces::default();
    let mut got = 0;
    let mut put = |piece: Bytes| {
        if let Some(watcher) = watcher {
            watcher.show(Seen::Piece(piece.clone()));
        }
        body.push(piece);
    };
    // A server that sends single bytes must not cost more memory than they take.
    let mut small = BytesMut::new();
    loop {
        let piece = match timeout(stall, response.chunk()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(trouble(mishap(error, host))),
            Err(_) => return Err(stalled(format!("{host} sent nothing for {stall:?}"))),
        };
        spending.take(piece.len() as u64)?;
        got += piece.len() as u64;
        if got > plan.most && !plan.cut {
            return Err(Trouble::Wrong(format!("{host} sent more than the {} bytes that were asked for", plan.most)));
        }
        if piece.len() < SMALL {
            small.extend_from_slice(&piece);
            if small.len() >= 4 * SMALL {
                put(small.split().freeze());
            }
        } else {
            if !small.is_empty() {
                put(small.split().freeze());
            }
            put(piece);
        }
        if got > plan.most {
            break;
        }
    }
    if !small.is_empty() {
        put(small.freeze());
    }
    match plan.exact {
        Some(exact) if got < exact => Err(again(format!("{host} ended its answer after {got} of {exact} bytes"))),
        _ => Ok(body),
    }
}

fn is_transient(status: StatusCode) -> bool {
    let hopeless = matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED);
    (status.is_server_error() && !hopeless)
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

/// What a server says of an error. S3 sends some with a status of 200, once it has begun to answer.
fn told(parts: &Parts, url: &Url, status: StatusCode, headers: &HeaderMap, body: Pieces) -> (Pieces, Option<Told>) {
    if status.is_success() && parts.method != Method::POST {
        return (body, None);
    }
    let body = body.into_bytes();
    let private = parts.headers.iter().filter(|(name, _)| !HARMLESS.contains(name));
    let sent = url.query().into_iter().chain(private.filter_map(|(_, value)| value.to_str().ok()));
    let secrets: Vec<String> = sent.flat_map(spellings).collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let told = Told::of(headers, &body, &secrets);
    let in_disguise = told.code.as_deref().is_some_and(|code| matches!(code, "InternalError" | "SlowDown"));
    let told = (!status.is_success() || in_disguise).then_some(told);
    (body.into(), told)
}

/// A secret as it was sent, and as whoever got it reads it.
fn spellings(sent: &str) -> Vec<String> {
    let decoded = percent_decode_str(sent).decode_utf8_lossy().into_owned();
    let basic = sent.strip_prefix("Basic ").and_then(|pair| BASE64_STANDARD.decode(pair).ok());
    let basic = basic.map(|pair| String::from_utf8_lossy(&pair).into_owned());
    [sent.to_owned(), decoded].into_iter().chain(basic).collect()
}

/// Seconds that the server asks to be left alone. A date is not read: the pause is then our own.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Host and port for messages.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Where a redirect leads.
fn redirect(method: &Method, url: &Url, response: &Response<Pieces>) -> Option<Result<Url, Failure>> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location =
        response.headers().get(LOCATION).filter(|_| moved && matches!(*method, Method::GET | Method::HEAD))?;
    let next = std::str::from_utf8(location.as_bytes()).ok().and_then(|location| url.join(location).ok());
    Some(
        next.ok_or_else(|| Failure::new(RemoteFault::Protocol, "the server redirects to something that is no address")),
    )
}

fn check_hop(from: &Url, mut next: Url, hops: u32, most: u32) -> Result<Url, Failure> {
    if hops > most {
        return Err(Failure::new(RemoteFault::Forbidden, format!("the server redirects more than {most} times")));
    }
    if from.scheme() == "https" && next.scheme() == "http" {
        let detail = format!("{} redirects from https to http, where anybody could change the bytes", host(from));
        return Err(Failure::new(RemoteFault::Forbidden, detail));
    }
    // Whoever redirects may not choose whom we say we are. Addresses that cannot carry a user have none to take away.
    let _ = (next.set_username(""), next.set_password(None));
    next.set_fragment(None);
    Ok(next)
}

fn astray(failure: Failure) -> Failure {
    Failure::new(failure.fault, format!("the server redirects to where it may not: {}", failure.detail))
}

fn harmless(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(name, _)| HARMLESS.contains(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}
