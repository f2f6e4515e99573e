//! Parts of a file that cuFile reads into a buffer: the host submits all of them before it waits for the first.
//!
//! Batches come first: their reads run side by side, and one call waits for many. Where cuFile has no batches or refuses
//! them, its asynchronous reads are spread over some streams. Where it refuses those too, the caller reads with the
//! blocking call, from several threads.

use std::{cell::UnsafeCell, ops::Range, sync::Arc, time::Duration};

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        cufile::{Batch, Registered},
        memory::{DeviceBuffer, Memory, NAP},
        streams::{Mark, Streams},
    },
};

/// Streams that asynchronous reads are spread over. A stream runs one read after the other, so this is how many run at
/// once; each takes one of cuFile's buffers, of which it has 128 by default.
const READ_STREAMS: usize = 16;
/// How long a band waits before it asks again for room that others have.
const PAUSE: Duration = Duration::from_micros(500);

/// Which calls of cuFile read a file, the best first. What cuFile refuses is done by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum StorageWay {
    /// Batches of reads.
    #[default]
    Batch,
    /// Asynchronous reads on streams.
    Async,
    /// Blocking reads from several threads.
    Threads,
    /// One blocking read after the other. Never chosen unless asked for: it is what the others are compared with.
    Serial,
}

/// A part of a file and where it goes in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Place in the buffer.
    pub at: usize,
}

impl FilePart {
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX)
    }
}

/// The result of submitting a band.
#[derive(Debug)]
pub struct Submission {
    /// The reads that are under way; `None` where cuFile takes blocking reads only.
    pub flight: Option<Flight>,
    /// Why a better way was not taken, where one was to be tried.
    pub refused: Option<String>,
}

/// A part that did not come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// Its number.
    pub part: usize,
    /// Why, in words.
    pub reason: String,
}

/// The state of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    UnderWay,
    /// Bytes that came.
    Came(usize),
    Failed(String),
}

/// Reads that are under way. Dropping it waits for them: until then storage may write to the buffer.
#[derive(Debug)]
pub struct Flight {
    // Before what it reads from and writes to, which it keeps until its reads are over.
    carrier: Carrier,
    parts: Vec<FilePart>,
    groups: Vec<Range<usize>>,
    outcomes: Vec<Outcome>,
    file: Arc<Registered>,
    memory: Arc<Memory>,
    meter: Arc<Meter>,
    buffer: DeviceBuffer,
}

#[derive(Debug)]
enum Carrier {
    Batches(Vec<(Range<usize>, Batch)>),
    Streams(OnStreams),
}

/// Submits all parts, group by group; `groups` says which parts belong together. The buffer is free: nothing on the device
/// works on it.
///
/// # Errors
/// When a part leaves the buffer, or the driver fails. What cuFile refuses is no error.
pub(crate) fn submit(
    file: &Arc<Registered>,
    first: StorageWay,
    memory: &Arc<Memory>,
    meter: &Arc<Meter>,
    buffer: &DeviceBuffer,
    parts: Vec<FilePart>,
    groups: Vec<Range<usize>>,
) -> Result<Submission, DeviceError> {
    for part in &parts {
        buffer.part(part.at, part.len())?;
    }
    let mut flight = Flight {
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
    if first <= StorageWay::Batch {
        match flight.submit_batches()? {
            None => return Ok(Submission { flight: Some(flight), refused: None }),
            Some(reason) => refusals.push(reason),
        }
    }
    if first <= StorageWay::Async {
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

/// Reads one part and waits for it.
///
/// # Errors
/// When it leaves the buffer or did not come whole.
pub(crate) fn read(
    file: &Registered,
    memory: &Memory,
    meter: &Meter,
    to: &DeviceBuffer,
    part: &FilePart,
) -> Result<(), DeviceError> {
    let len = part.len();
    to.part(part.at, len)?;
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
const SHORT: &str = "cuFile read less than was asked for";

impl Flight {
    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Waits for a group; returns the parts that did not come whole. cuFile no longer writes to them, so the caller can read
    /// them again at once.
    ///
    /// # Errors
    /// When the driver failed, or cuFile does not report the state of its reads.
    pub fn wait(&mut self, group: usize) -> Result<Vec<Missed>, DeviceError> {
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
                    settle(batch, range, &mut self.outcomes)?;
                }
            }
            Carrier::Streams(streams) => streams.settle(group, members.clone(), &mut self.outcomes)?,
        }
        // The file may have been cut short meanwhile: bytes past its end are not the file's, whatever cuFile reports.
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
            missed.push(Missed { part: number, reason });
        }
        Ok(missed)
    }

    /// Submits everything in batches; gives the reason where cuFile refuses the first one.
    fn submit_batches(&mut self) -> Result<Option<String>, DeviceError> {
        let mut batches = Vec::new();
        let result = self.start_batches(&mut batches);
        // Also after an error: dropping the flight waits for the batches that were started.
        self.carrier = Carrier::Batches(batches);
        result
    }

    fn start_batches(&mut self, batches: &mut Vec<(Range<usize>, Batch)>) -> Result<Option<String>, DeviceError> {
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
                unsafe { Batch::start(&self.file, self.buffer.address(), parts) }
            };
            let mut started = start();
            // cuFile may only have too many batches under way: wait for ours, one by one.
            for (range, batch) in batches.iter_mut() {
                if started.is_ok() {
                    break;
                }
                if batch.left() > 0 {
                    settle(batch, range, &mut self.outcomes)?;
                    started = start();
                }
            }
            // The batches of other bands and reads count too, and other threads wait for those.
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

    /// Submits everything on streams; gives the reason where cuFile refuses the first read.
    fn submit_on_streams(&mut self) -> Result<Option<String>, DeviceError> {
        if !self.file.has_async() {
            return Ok(Some("it has no asynchronous calls".to_owned()));
        }
        let count = READ_STREAMS.min(self.parts.len()).max(1);
        let streams = Streams::new(self.memory.clone(), self.meter.clone(), count)?;
        // Its `Drop` waits for what was submitted, however this ends.
        let mut on = OnStreams {
            registered: Vec::new(),
            file: self.file.clone(),
            slots: self.parts.iter().map(Slot::new).collect::<Option<_>>().unwrap_or_default(),
            marks: Vec::new(),
            streams,
        };
        if on.slots.len() != self.parts.len() {
            return Ok(Some("an offset beyond 2^63".to_owned()));
        }
        let _current = self.memory.context.enter()?;
        for stream in 0..count {
            // SAFETY: the context is current and the stream is alive until `OnStreams` takes it off cuFile's list.
            if unsafe { self.file.register_stream(on.streams.raw(stream)) } {
                on.registered.push(stream);
            }
        }
        on.streams.keep(&self.buffer);
        let mut accepted = false;
        for group in &self.groups {
            for number in group.clone() {
                let Some(slot) = on.slots.get(number) else { continue };
                // SAFETY: the context is current; the part was checked to lie in the buffer, which the streams keep until
                // they were waited for; so does `OnStreams` keep the slot.
                let submitted = unsafe {
                    self.file.read_async(self.buffer.address(), slot.0.get(), on.streams.raw(number % count))
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
            on.marks.push((0..count).map(|stream| on.streams.mark(stream)).collect::<Result<_, _>>()?);
        }
        self.carrier = Carrier::Streams(on);
        Ok(None)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Carrier::Batches(batches) = &mut self.carrier else { return };
        // Also where the device is lost: only cuFile knows when its reads end.
        let _current = self.memory.context.enter();
        let settled = batches.iter_mut().map(|(range, batch)| settle(batch, range, &mut self.outcomes));
        if settled.filter(Result::is_err).count() > 0 {
            self.abandon();
        }
    }
}

impl Flight {
    /// cuFile may still be reading: leak the buffer and the file, so that nothing else gets their memory.
    fn abandon(&self) {
        std::mem::forget((self.buffer.clone(), self.file.clone()));
    }
}

/// Waits for a batch and notes the state of its parts.
fn settle(batch: &mut Batch, range: &Range<usize>, outcomes: &mut [Outcome]) -> Result<(), DeviceError> {
    let outcomes = outcomes.get_mut(range.clone()).unwrap_or_default();
    batch.finish(NAP, |number, answer| {
        if let Some(outcome) = outcomes.get_mut(number) {
            *outcome = match answer {
                Ok(len) => Outcome::Came(len),
                Err(error) => Outcome::Failed(error.to_string()),
            };
        }
    })?;
    Ok(())
}

/// Reads on streams of their own.
struct OnStreams {
    // First: dropping the streams waits for them, and slots are written until then.
    streams: Streams,
    /// Streams that cuFile keeps resources for.
    registered: Vec<usize>,
    file: Arc<Registered>,
    slots: Box<[Slot]>,
    /// For each group, the ends of its reads.
    marks: Vec<Vec<Mark>>,
}

impl std::fmt::Debug for OnStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnStreams").field("reads", &self.slots.len()).finish_non_exhaustive()
    }
}

impl OnStreams {
    fn settle(&self, group: usize, members: Range<usize>, outcomes: &mut [Outcome]) -> Result<(), DeviceError> {
        for mark in self.marks.get(group).into_iter().flatten() {
            mark.poll()?;
        }
        for number in members {
            let (Some(slot), Some(outcome)) = (self.slots.get(number), outcomes.get_mut(number)) else { continue };
            if *outcome == Outcome::UnderWay {
                // SAFETY: the streams have passed the mark behind this read, so cuFile no longer writes to it.
                let answer = unsafe { slot.0.get().read_volatile() }.read;
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
            let _ = self.streams.mark(*stream).and_then(|mark| mark.poll());
            // SAFETY: the context is current, or lost; the stream is alive, registered and has nothing left to do.
            unsafe { self.file.forget_stream(self.streams.raw(*stream)) };
        }
    }
}

/// The request and the result of an asynchronous read. cuFile reads and writes it when the read runs.
#[repr(transparent)]
struct Slot(UnsafeCell<Request>);

/// The request of an asynchronous read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) len: usize,
    pub(crate) file_offset: i64,
    pub(crate) address_offset: i64,
    /// Bytes that came, or an error as a negative number.
    pub(crate) read: isize,
}

impl Slot {
    fn new(part: &FilePart) -> Option<Self> {
        let file_offset = i64::try_from(part.range.start).ok()?;
        let address_offset = i64::try_from(part.at).ok()?;
        // If cuFile never sets the result, the read counts as empty.
        Some(Self(UnsafeCell::new(Request { len: part.len(), file_offset, address_offset, read: 0 })))
    }
}
