//! A remote file as a [`Source`].

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use object_store::{GetOptions, GetRange, ObjectStore, path::Path};

use super::{
    body::ReceivedBody,
    client::Client,
    connector::Tap,
    failure::{Failure, ServerError},
    http::HttpFile,
    range::ContentRange,
    runtime,
    store::Store,
    version::{Version, changed},
    watch::{BodyEvent, Watcher},
};
use crate::fault::RemoteFault;
use crate::remote::{options::RemoteOptions, url::shown};
use crate::traffic::Traffic;
use crate::{
    coalesce::coalesce,
    fork::PerProcess,
    source::{Access, ReadInto, Source, SourceError},
};

/// A longer range is divided into requests of this length, so that a lost connection costs only one of them.
const MOST_REQUESTED: usize = 16 << 20;

/// A remote file. One request brings its first bytes and its size; later reads request ranges.
pub struct RemoteSource {
    name: String,
    client: Client,
    file: Arc<File>,
    version: Arc<Version>,
    head: Bytes,
    in_flight: usize,
}

enum File {
    Http(Box<HttpFile>),
    Object(Box<Object>),
}

/// An object of a store. Every process has its own store, which may be fetching credentials during a fork.
struct Object {
    address: String,
    options: RemoteOptions,
    client: Client,
    opened: PerProcess<(Store, Path)>,
}

impl Object {
    fn open(&self) -> Result<&(Store, Path), Failure> {
        self.opened.get_or_try(|| Store::open(&self.address, &self.options, &self.client))
    }
}

impl RemoteSource {
    /// Opens the file at an address, with one request.
    ///
    /// # Errors
    /// When the address or the settings cannot be used, or the server does not deliver the beginning of the file.
    pub fn open(address: &str, options: &RemoteOptions) -> Result<Self, SourceError> {
        Ok(Self::begin(address, options)?)
    }

    fn begin(address: &str, options: &RemoteOptions) -> Result<Self, Failure> {
        let client = Client::new(options)?;
        let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let file = match scheme.as_deref() {
            Some("http" | "https") => File::Http(Box::new(HttpFile::new(address, options, client.clone())?)),
            _ => {
                let (address, options, client) = (address.to_owned(), options.clone(), client.clone());
                let object = Object { address, options, client, opened: PerProcess::new() };
                object.open()?;
                File::Object(Box::new(object))
            }
        };
        let file = Arc::new(file);
        let prefetch = Access::REMOTE.prefetch.min(options.max_bytes.unwrap_or(u64::MAX));
        if prefetch == 0 {
            return Err(Failure::new(RemoteFault::Budget, "the options allow no bytes to be received"));
        }
        let request = Arc::clone(&file);
        let answer = runtime::wait(async move { request.get(0..prefetch, None, None).await })??;
        let (version, head) = first(answer)?;
        Ok(Self { name: shown(address), client, file, version: Arc::new(version), head, in_flight: options.in_flight })
    }

    fn read(&self, reads: &mut [ReadInto<'_>], stop: Option<&(dyn Fn() -> bool + Sync)>) -> Result<(), SourceError> {
        let size = self.version.size;
        for read in reads.iter() {
            let len = read.buffer.len() as u64;
            if read.offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(SourceError::BeyondEnd { offset: read.offset, len, size });
            }
        }
        let mut missing: Vec<(u64, &mut [u8])> = Vec::new();
        for read in reads {
            let (offset, rest) = self.fill_from_head(read.offset, read.buffer);
            let starts = (offset..).step_by(MOST_REQUESTED);
            missing.extend(starts.zip(rest.chunks_mut(MOST_REQUESTED)));
        }
        let ranges: Vec<Range<u64>> = missing.iter().map(|(at, buffer)| *at..at + buffer.len() as u64).collect();
        // Neighbouring ranges come in one response, which is copied to their buffers.
        let merged = coalesce(&ranges, self.access().merge);
        let gets = merged.iter().map(|read| self.get(read.range.clone(), None));
        runtime::each(gets, stop, |number, body| {
            let body = body?;
            let Some(read) = merged.get(number) else { return Err(changed()) };
            for member in &read.members {
                let Some((at, buffer)) = missing.get_mut(*member) else { continue };
                if !body.copy_to((*at - read.range.start) as usize, buffer) {
                    return Err(changed());
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Requests a range of the version that was opened.
    fn get(
        &self,
        range: Range<u64>,
        watcher: Option<Watcher>,
    ) -> impl Future<Output = Result<ReceivedBody, Failure>> + Send + use<> {
        let (file, version) = (Arc::clone(&self.file), Arc::clone(&self.version));
        async move { later(file.get(range, Some(&version), watcher).await?, &version) }
    }

    /// Whether the response that begins belongs to the version that was opened.
    fn belongs(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let total = ContentRange::of(headers).and_then(|range| range.total);
        status == StatusCode::PARTIAL_CONTENT && self.version.check(headers, total).is_ok()
    }

    /// Copies the bytes that the first request brought; returns the unfilled rest and its offset.
    fn fill_from_head<'a>(&self, offset: u64, buffer: &'a mut [u8]) -> (u64, &'a mut [u8]) {
        let known = usize::try_from(offset).ok().and_then(|offset| self.head.get(offset..)).unwrap_or_default();
        let (front, rest) = buffer.split_at_mut(known.len().min(buffer.len()));
        if let Some(known) = known.get(..front.len()) {
            front.copy_from_slice(known);
        }
        (offset + front.len() as u64, rest)
    }
}

impl File {
    /// Requests a range of the given version.
    async fn get(
        &self,
        range: Range<u64>,
        version: Option<&Version>,
        watcher: Option<Watcher>,
    ) -> Result<Response<ReceivedBody>, Failure> {
        let answer = match self {
            Self::Http(file) => file.get(range, version, watcher).await?,
            Self::Object(object) => {
                let (store, path) = object.open()?;
                let tap = Tap::default();
                let mut options = GetOptions::new()
                    .with_range(Some(GetRange::Bounded(range)))
                    .with_if_match(version.and_then(Version::strong_etag));
                options.extensions.insert(tap.clone());
                if let Some(watcher) = watcher {
                    options.extensions.insert(watcher);
                }
                let end = match store {
                    Store::S3(store) => store.get_opts(path, options).await,
                    Store::Gcs(store) => store.get_opts(path, options).await,
                    Store::Azure(store) => store.get_opts(path, options).await,
                };
                match (tap.take(), end) {
                    (Some(answer), _) => answer?,
                    (None, Err(error)) => return Err(Failure::of_store(&error)),
                    (None, Ok(_)) => {
                        return Err(Failure::new(RemoteFault::Protocol, "no request was sent to the store"));
                    }
                }
            }
        };
        match answer.status() {
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(answer),
            status if status.is_success() => Ok(answer),
            status => Err(Failure::of_status(status, answer.extensions().get::<ServerError>())),
        }
    }
}

fn contradicted() -> Failure {
    let detail = "the server answered the same request with different bytes; read it again, or download the file first";
    Failure::new(RemoteFault::Protocol, detail)
}

/// The version and the first bytes, from the first response.
fn first(answer: Response<ReceivedBody>) -> Result<(Version, Bytes), Failure> {
    let range = ContentRange::of(answer.headers());
    let size = match answer.status() {
        StatusCode::OK => Some(answer.body().len()),
        // There is no first byte, so the file is empty. Some servers do not state that.
        StatusCode::RANGE_NOT_SATISFIABLE => range.map_or(Some(0), |range| range.total),
        _ => range.and_then(|range| range.total),
    };
    let Some(size) = size else {
        let detail = "the server does not state the file's size (Content-Range); download the file first";
        return Err(Failure::new(RemoteFault::Protocol, detail));
    };
    let version = Version::of(answer.headers(), size);
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return match size {
            0 => Ok((version, Bytes::new())),
            _ => Err(Failure::new(RemoteFault::Protocol, "the server refuses the first bytes of the file")),
        };
    }
    Ok((version, answer.into_body().into_bytes()))
}

/// The bytes of a later response.
fn later(answer: Response<ReceivedBody>, version: &Version) -> Result<ReceivedBody, Failure> {
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return Err(changed());
    }
    let total = match answer.status() {
        StatusCode::OK => Some(answer.body().len()),
        _ => ContentRange::of(answer.headers()).and_then(|range| range.total),
    };
    version.check(answer.headers(), total)?;
    Ok(answer.into_body())
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSource")
            .field("name", &self.name)
            .field("size", &self.version.size)
            .finish_non_exhaustive()
    }
}

impl Source for RemoteSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.version.size)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        self.read(reads, None)
    }

    fn read_many_unless(
        &self,
        reads: &mut [ReadInto<'_>],
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), SourceError> {
        self.read(reads, Some(stop))
    }

    fn read_streamed(
        &self,
        offset: u64,
        buffer: &mut [u8],
        stop: &(dyn Fn() -> bool + Sync),
        arrived: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SourceError> {
        let len = buffer.len() as u64;
        let within = offset.checked_add(len).is_some_and(|end| end <= self.version.size);
        let (at, rest) = if within { self.fill_from_head(offset, buffer) } else { (offset, &mut *buffer) };
        if !within || rest.is_empty() || rest.len() > MOST_REQUESTED {
            self.read(&mut [ReadInto { offset, buffer: &mut *buffer }], Some(stop))?;
            arrived(buffer);
            return Ok(());
        }
        let known = (at - offset) as usize;
        let (watcher, seen) = Watcher::new();
        let get = self.get(at..offset + len, Some(watcher));
        // The caller has seen the bytes up to `shown` and may have used them: a retry must deliver the same bytes.
        let (mut filled, mut shown, mut belongs, mut same) = (known, known, false, true);
        let body = runtime::watched(get, &seen, stop, |seen| match seen {
            BodyEvent::Head(status, headers) => (filled, belongs) = (known, self.belongs(status, &headers)),
            BodyEvent::Frame(frame) if belongs => {
                let end = filled + frame.len();
                let (old, new) = frame.split_at(frame.len().min(shown.saturating_sub(filled)));
                same &= buffer.get(filled..filled + old.len()) == Some(old);
                if let Some(target) = buffer.get_mut(filled + old.len()..end).filter(|_| same) {
                    target.copy_from_slice(new);
                    (filled, shown) = (end, shown.max(end));
                    arrived(buffer.get(..filled).unwrap_or_default());
                }
            }
            BodyEvent::Frame(_) => {}
        })??;
        if !same {
            return Err(contradicted().into());
        }
        // Bytes that could not be shown while they arrived are complete and checked now.
        if filled < buffer.len() {
            let mut whole = vec![0; buffer.len() - known];
            let before = buffer.get(known..shown).unwrap_or_default();
            if !body.copy_to(0, &mut whole) || !whole.starts_with(before) {
                return Err(contradicted().into());
            }
            buffer.get_mut(known..).unwrap_or_default().copy_from_slice(&whole);
        }
        Ok(())
    }

    fn version(&self) -> Option<String> {
        Some(self.version.mark())
    }

    fn access(&self) -> Access {
        Access { in_flight: self.in_flight.max(2), ..Access::REMOTE }
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.client.traffic())
    }
}
