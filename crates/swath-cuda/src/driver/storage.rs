//! Reads of a file into a device buffer by cuFile. The host submits all of them before it waits for the first.
//!
//! Batches come first: their reads run side by side, and one call waits for many. Where cuFile has no batches or refuses
//! them, its asynchronous reads are spread over some streams. Where it refuses those too, the caller reads with the
//! blocking call, from several threads.

use std::{cell::UnsafeCell, ops::Range, sync::Arc, time::Duration};

use crate::{
    counters::Meter,
    driver::{
        libraries::cufile::{FileRead, Registered, Request, batch::ReadBatch},
        memory::{
            pool::{DeviceBuffer, Memory, POLL_INTERVAL},
            streams::{Event, Streams},
        },
    },
    error::DeviceError,
};

/// Streams that asynchronous reads are spread over. A stream runs one read after the other, so this is how many run at
/// once; each takes one of cuFile's buffers; by default there are 128.
const READ_STREAMS: usize = 16;
/// How long a thread sleeps before it retries a submission that cuFile refused because it had no room.
const PAUSE: Duration = Duration::from_micros(500);

/// The calls of cuFile that read a file, the best first. Where cuFile refuses one, the next follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum StorageMethod {
    /// Batches of reads.
    #[default]
    Batch,
    /// Asynchronous reads on streams.
    Async,
    /// Blocking reads from several threads.
    Threads,
    /// One blocking read after the other. Only for comparisons: never chosen by default.
    Serial,
}

/// The result of submitting the reads of a batch.
#[derive(Debug)]
pub struct Submission {
    /// The reads in flight; `None` where cuFile accepts only blocking reads.
    pub flight: Option<ReadsInFlight>,
    /// Why a better method was refused, if one was tried.
    pub refused: Option<String>,
}

/// A read that failed or returned too few bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRead {
    /// Number of the read.
    pub part: usize,
    /// The reason.
    pub reason: String,
}

/// The state of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    UnderWay,
    /// Bytes that were read.
    Came(usize),
    Failed(String),
}

/// Reads in flight. Dropping this waits for them: until then storage may write to the buffer.
#[derive(Debug)]
pub struct ReadsInFlight {
    // Declared before the file and the buffer, which must outlive the reads.
    carrier: Carrier,
    parts: Vec<FileRead>,
    groups: Vec<Range<usize>>,
    outcomes: Vec<Outcome>,
    file: Arc<Registered>,
    memory: Arc<Memory>,
    meter: Arc<Meter>,
    buffer: DeviceBuffer,
}

#[derive(Debug)]
enum Carrier {
    Batches(Vec<(Range<usize>, ReadBatch)>),
    Streams(OnStreams),
}

/// Submits all reads, group by group. `groups` lists the reads that are waited for together. No work on the device uses
/// the buffer.
///
/// # Errors
/// When a read leaves the buffer, or the driver fails. A refusal by cuFile is not an error.
pub(crate) fn submit_reads(
    file: &Arc<Registered>,
    first: StorageMethod,
    memory: &Arc<Memory>,
    meter: &Arc<Meter>,
    buffer: &DeviceBuffer,
    parts: Vec<FileRead>,
    groups: Vec<Range<usize>>,
) -> Result<Submission, DeviceError> {
    for part in &parts {
        buffer.address_at(part.at, part.len())?;
    }
    let mut flight = ReadsInFlight {
        carrier: Carrier::Batches(Vec::new()),
        outcomes: vec![Outcome::UnderWay; parts.len()],
        parts,
        groups,
        file: file.clone(),
        memory: memory.clone(),
        meter: meter.clone(),
        buffer: buffer.clone(),
    };
    let mut refusals = Vec::new();
    if first <= StorageMethod::Batch {
        match flight.submit_batches()? {
            None => return Ok(Submission { flight: Some(flight), refused: None }),
            Some(reason) => refusals.push(reason),
        }
    }
    if first <= StorageMethod::Async {
        match flight.submit_on_streams()? {
            None => {
                let refused = (!refusals.is_empty())
                    .then(|| format!("its asynchronous calls were used instead of batches ({})", refusals.join("; ")));
                return Ok(Submission { flight: Some(flight), refused });
            }
            Some(reason) => refusals.push(reason),
        }
    }
    let refused = (!refusals.is_empty()).then(|| {
        format!("blocking calls were used instead of batches and asynchronous ones ({})", refusals.join("; "))
    });
    Ok(Submission { flight: None, refused })
}

/// Reads one part of a file and waits for it.
///
/// # Errors
/// When the read leaves the buffer, or returns too few bytes.
pub(crate) fn read_blocking(
    file: &Registered,
    memory: &Memory,
    meter: &Meter,
    to: &DeviceBuffer,
    part: &FileRead,
) -> Result<(), DeviceError> {
    let len = part.len();
    to.address_at(part.at, len)?;
    let _current = memory.context.enter()?;
    let mut done = 0;
    while done < len {
        meter.storage_reads(1);
        meter.storage_wait();
        // SAFETY: the context is current; the part was checked to lie in the buffer, which is one allocation and alive;
        // the caller gives each part to one reader, before any kernel that reads it is launched.
        let read = unsafe { file.read(to.address(), part.at + done, len - done, part.range.start + done as u64) }?;
        if read == 0 {
            return Err(DeviceError::Declined(SHORT.to_owned()));
        }
        done += read.min(len - done);
    }
    if file.len().is_none_or(|found| found < part.range.end) {
        return Err(DeviceError::Declined(SHORT.to_owned()));
    }
    meter.storage_bytes(len as u64);
    Ok(())
}

/// The reason given for short reads.
const SHORT: &str = "cuFile read fewer bytes than requested";

impl ReadsInFlight {
    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Waits for a group and returns the reads that failed or returned too few bytes. cuFile no longer writes to their places, so
    /// the caller can read them again at once.
    ///
    /// # Errors
    /// When the driver failed, or cuFile does not report the state of its reads.
    pub fn wait(&mut self, group: usize) -> Result<Vec<FailedRead>, DeviceError> {
        let members = self.groups.get(group).cloned().unwrap_or_default();
        if members.is_empty() {
            return Ok(Vec::new());
        }
        self.meter.storage_wait();
        let memory = self.memory.clone();
        let _current = memory.context.enter()?;
        match &mut self.carrier {
            Carrier::Batches(batches) => {
                for (range, batch) in batches.iter_mut().filter(|(range, _)| members.contains(&range.start)) {
                    finish_batch(batch, range, &mut self.outcomes)?;
                }
            }
            Carrier::Streams(streams) => streams.finish_group(group, members.clone(), &mut self.outcomes)?,
        }
        // The file may have been truncated meanwhile: bytes past its end are not the file's, whatever cuFile reports.
        let file_len = self.file.len().unwrap_or(0);
        let mut missed = Vec::new();
        for number in members {
            let (Some(part), Some(outcome)) = (self.parts.get(number), self.outcomes.get(number)) else { continue };
            let reason = match outcome {
                Outcome::Came(len) if *len == part.len() && part.range.end <= file_len => {
                    self.meter.storage_bytes(*len as u64);
                    continue;
                }
                Outcome::Came(_) | Outcome::UnderWay => SHORT.to_owned(),
                Outcome::Failed(reason) => reason.clone(),
            };
            missed.push(FailedRead { part: number, reason });
        }
        Ok(missed)
    }

    /// Submits all reads in batches. Returns the reason where cuFile refuses the first batch.
    fn submit_batches(&mut self) -> Result<Option<String>, DeviceError> {
        let mut batches = Vec::new();
        let result = self.start_batches(&mut batches);
        // Even after an error: dropping the reads waits for the batches that were started.
        self.carrier = Carrier::Batches(batches);
        result
    }

    fn start_batches(&mut self, batches: &mut Vec<(Range<usize>, ReadBatch)>) -> Result<Option<String>, DeviceError> {
        let most = self.file.most_in_batch();
        let _current = self.memory.context.enter()?;
        let all = self.groups.iter().flat_map(|group| {
            let end = group.end;
            group.clone().step_by(most).map(move |start| start..start.saturating_add(most).min(end))
        });
        for range in all {
            let parts = self.parts.get(range.clone()).unwrap_or_default();
            let start = || {
                // SAFETY: the context is current; all parts were checked to lie in the buffer, which is one allocation. The
                // flight keeps it and the file until the batch is over, or forever.
                unsafe { ReadBatch::start(&self.file, self.buffer.address(), parts) }
            };
            let mut started = start();
            // cuFile may only have too many batches in flight: wait for ours, one by one.
            for (range, batch) in batches.iter_mut() {
                if started.is_ok() {
                    break;
                }
                if batch.pending() > 0 {
                    finish_batch(batch, range, &mut self.outcomes)?;
                    started = start();
                }
            }
            // Batches of other reads count too, and other threads wait for those.
            while started.is_err() && self.file.batches_under_way() > 0 {
                std::thread::sleep(PAUSE);
                started = start();
            }
            match started {
                Ok(batch) => {
                    self.meter.storage_reads(range.len() as u64);
                    batches.push((range, batch));
                }
                Err(error) if batches.is_empty() => return Ok(Some(error.to_string())),
                Err(error) => {
                    for outcome in self.outcomes.get_mut(range).unwrap_or_default() {
                        *outcome = Outcome::Failed(error.to_string());
                    }
                }
            }
        }
        Ok(None)
    }

    /// Submits all reads on streams. Returns the reason where cuFile refuses the first read.
    fn submit_on_streams(&mut self) -> Result<Option<String>, DeviceError> {
        if !self.file.has_async() {
            return Ok(Some("it has no asynchronous calls".to_owned()));
        }
        let count = READ_STREAMS.min(self.parts.len()).max(1);
        let streams = Streams::new(self.memory.clone(), self.meter.clone(), count)?;
        // Its `Drop` waits for all submitted reads, whatever happens below.
        let mut on_streams = OnStreams {
            registered: Vec::new(),
            file: self.file.clone(),
            requests: self.parts.iter().map(AsyncRead::new).collect::<Option<_>>().unwrap_or_default(),
            events: Vec::new(),
            streams,
        };
        if on_streams.requests.len() != self.parts.len() {
            return Ok(Some("an offset beyond 2^63".to_owned()));
        }
        let _current = self.memory.context.enter()?;
        for stream in 0..count {
            // SAFETY: the context is current and the stream is alive until `OnStreams` takes it off cuFile's list.
            if unsafe { self.file.register_stream(on_streams.streams.raw(stream)) } {
                on_streams.registered.push(stream);
            }
        }
        on_streams.streams.keep(&self.buffer);
        let mut accepted = false;
        for group in &self.groups {
            for number in group.clone() {
                let Some(request) = on_streams.requests.get(number) else { continue };
                // SAFETY: the context is current; the part was checked to lie in the buffer, which the streams keep until
                // they were waited for; so does `OnStreams` keep the request.
                let submitted = unsafe {
                    self.file.read_async(self.buffer.address(), request.0.get(), on_streams.streams.raw(number % count))
                };
                match submitted {
                    Ok(()) => {
                        accepted = true;
                        self.meter.storage_reads(1);
                    }
                    Err(error) if !accepted => return Ok(Some(error.to_string())),
                    Err(error) => {
                        if let Some(outcome) = self.outcomes.get_mut(number) {
                            *outcome = Outcome::Failed(error.to_string());
                        }
                    }
                }
            }
            on_streams
                .events
                .push((0..count).map(|stream| on_streams.streams.record(stream)).collect::<Result<_, _>>()?);
        }
        self.carrier = Carrier::Streams(on_streams);
        Ok(None)
    }
}

impl Drop for ReadsInFlight {
    fn drop(&mut self) {
        let Carrier::Batches(batches) = &mut self.carrier else { return };
        // Even where the device is lost: only cuFile knows when its reads end.
        let _current = self.memory.context.enter();
        let ended = batches.iter_mut().map(|(range, batch)| finish_batch(batch, range, &mut self.outcomes));
        if ended.filter(Result::is_err).count() > 0 {
            self.abandon();
        }
    }
}

impl ReadsInFlight {
    /// cuFile may still be reading: leak the buffer and the file, so that nothing else gets their memory.
    fn abandon(&self) {
        std::mem::forget((self.buffer.clone(), self.file.clone()));
    }
}

/// Waits for a batch and records the outcome of its reads.
fn finish_batch(batch: &mut ReadBatch, range: &Range<usize>, outcomes: &mut [Outcome]) -> Result<(), DeviceError> {
    let outcomes = outcomes.get_mut(range.clone()).unwrap_or_default();
    batch.finish(POLL_INTERVAL, |number, answer| {
        if let Some(outcome) = outcomes.get_mut(number) {
            *outcome = match answer {
                Ok(len) => Outcome::Came(len),
                Err(error) => Outcome::Failed(error.to_string()),
            };
        }
    })?;
    Ok(())
}

/// Reads that run on streams of their own.
struct OnStreams {
    // Declared first: dropping the streams waits for them, and cuFile writes to the requests until then.
    streams: Streams,
    /// Streams that are registered with cuFile.
    registered: Vec<usize>,
    file: Arc<Registered>,
    requests: Box<[AsyncRead]>,
    /// For each group, the events after its reads.
    events: Vec<Vec<Event>>,
}

impl std::fmt::Debug for OnStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnStreams").field("reads", &self.requests.len()).finish_non_exhaustive()
    }
}

impl OnStreams {
    fn finish_group(&self, group: usize, members: Range<usize>, outcomes: &mut [Outcome]) -> Result<(), DeviceError> {
        for event in self.events.get(group).into_iter().flatten() {
            event.poll()?;
        }
        for number in members {
            let (Some(request), Some(outcome)) = (self.requests.get(number), outcomes.get_mut(number)) else {
                continue;
            };
            if *outcome == Outcome::UnderWay {
                // SAFETY: the streams have passed the event after this read, so cuFile no longer writes to it.
                let answer = unsafe { request.0.get().read_volatile() }.read;
                *outcome = match Registered::answer("cuFileReadAsync", answer, None) {
                    Ok(len) => Outcome::Came(len),
                    Err(error) => Outcome::Failed(error.to_string()),
                };
            }
        }
        Ok(())
    }
}

impl Drop for OnStreams {
    fn drop(&mut self) {
        let _current = self.streams.memory().context.enter();
        for stream in &self.registered {
            // A failure means that the context is broken and runs nothing any more.
            let _ = self.streams.record(*stream).and_then(|event| event.poll());
            // SAFETY: the context is current, or lost; the stream is alive, registered and has nothing left to do.
            unsafe { self.file.forget_stream(self.streams.raw(*stream)) };
        }
    }
}

/// The request and the result of an asynchronous read. cuFile reads and writes it when the read runs.
#[repr(transparent)]
struct AsyncRead(UnsafeCell<Request>);

impl AsyncRead {
    fn new(part: &FileRead) -> Option<Self> {
        let file_offset = i64::try_from(part.range.start).ok()?;
        let address_offset = i64::try_from(part.at).ok()?;
        // If cuFile never sets the result, the read counts as empty.
        Some(Self(UnsafeCell::new(Request { len: part.len(), file_offset, address_offset, read: 0 })))
    }
}
