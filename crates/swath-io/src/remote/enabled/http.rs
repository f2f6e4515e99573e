//! Reads ranges of a file on a plain HTTP server.

use std::{
    ops::Range,
    sync::{PoisonError, RwLock},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE},
};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::fork::PerProcess;

use super::{
    body::ReceivedBody,
    client::{Client, FinalUrl, Route},
    failure::Failure,
    guard::NamedBy,
    version::Version,
    watch::Watcher,
};
use crate::fault::RemoteFault;
use crate::remote::options::RemoteOptions;

/// Headers that callers may not set.
const OURS: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "transfer-encoding",
];

/// A file on a plain HTTP server.
pub(crate) struct HttpFile {
    client: Client,
    url: Url,
    /// The caller's headers and credentials, for the host of `url` only.
    headers: HeaderMap,
    /// The target of redirects, so that they are followed only once.
    moved: PerProcess<RwLock<Option<FinalUrl>>>,
}

impl HttpFile {
    pub(crate) fn new(address: &str, options: &RemoteOptions, client: Client) -> Result<Self, Failure> {
        let setup = |detail: String| Failure::new(RemoteFault::Setup, detail);
        let mut url = Url::parse(address).map_err(|error| setup(format!("the address cannot be used: {error}")))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let parsed = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
            let Some((header, mut value)) = parsed else {
                return Err(setup(format!("header {name:?} has characters that no header may have")));
            };
            if OURS.contains(&header.as_str()) {
                return Err(setup(format!("header {name:?} is set by swath itself")));
            }
            value.set_sensitive(true);
            headers.append(header, value);
        }
        if let Some(value) = basic(&url).filter(|_| !options.anonymous) {
            headers.insert(AUTHORIZATION, value);
        }
        let _ = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        Ok(Self { client, url, headers, moved: PerProcess::new() })
    }

    /// Requests a range of the given version.
    pub(crate) async fn get(
        &self,
        range: Range<u64>,
        version: Option<&Version>,
        watcher: Option<Watcher>,
    ) -> Result<Response<ReceivedBody>, Failure> {
        let moved = self.moved.get().read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(landed) = moved {
            let answer = self.ask(&landed.url, landed.named_by, &range, version, watcher.clone()).await?;
            let status = answer.status();
            let about_range = matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE);
            if !status.is_client_error() || about_range {
                return Ok(answer);
            }
            // The target of a redirect may expire, like a signed address.
        }
        let answer = self.ask(&self.url, NamedBy::Caller, &range, version, watcher).await?;
        if answer.status().is_success()
            && let Some(landed) = answer.extensions().get::<FinalUrl>()
            && landed.url != self.url
        {
            *self.moved.get().write().unwrap_or_else(PoisonError::into_inner) = Some(landed.clone());
        }
        Ok(answer)
    }

    async fn ask(
        &self,
        url: &Url,
        named_by: NamedBy,
        range: &Range<u64>,
        version: Option<&Version>,
        watcher: Option<Watcher>,
    ) -> Result<Response<ReceivedBody>, Failure> {
        let unusable =
            |detail: String| Failure::new(RemoteFault::Setup, format!("the address cannot be used: {detail}"));
        let uri = Uri::try_from(url.as_str()).map_err(|error| unusable(error.to_string()))?;
        let mut request =
            Request::get(uri).header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        if let Some(etag) = version.and_then(Version::strong_etag) {
            request = request.header(IF_MATCH, etag);
        } else if let Some(modified) = version.and_then(Version::only_modified) {
            request = request.header(IF_UNMODIFIED_SINCE, modified);
        }
        let mut request = request.body(Bytes::new()).map_err(|error| unusable(error.to_string()))?;
        if let Some(watcher) = watcher {
            request.extensions_mut().insert(watcher);
        }
        if url.origin() == self.url.origin() {
            request.headers_mut().extend(self.headers.clone());
        }
        self.client.exchange(request, Route { follow: true, named_by, metadata: false }).await
    }
}

/// The header for the user and password of an address.
fn basic(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
