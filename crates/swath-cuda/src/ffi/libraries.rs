//! NVIDIA's libraries at work on our buffers: lengths are checked here, and what a library uses is kept until it is done.

use std::{collections::VecDeque, sync::OnceLock};

use crate::{
    error::DeviceError,
    ffi::{
        driver::{Context, Handle},
        kernels::Part,
        library::{Absent, CallError, Search},
        memory::DeviceBuffer,
        nvcomp::{BatchPointers, CompressPlan, CompressPointers, Compressing, Nvcomp},
        nvjpeg::{self, Engine, Jpeg},
        nvjpeg_encode::{self, JpegEncoder},
        nvjpeg2k::{self, Jpeg2000, Outline},
        nvjpeg2k_encode::{self, Jpeg2000Encoder},
        streams::{HostBytes, Mark, Streams},
    },
};

pub(crate) use crate::ffi::{
    nvjpeg::Output as Picture,
    nvjpeg_encode::{Settings as JpegSettings, Source as JpegSource, Subsampling},
    nvjpeg2k::{Expected, Sample},
    nvjpeg2k_encode::{Picture as Jpeg2000Picture, Quality as Jpeg2000Quality},
};

impl From<CallError> for DeviceError {
    fn from(error: CallError) -> Self {
        Self::Call {
            call: error.call.to_owned(),
            code: LIBRARY,
            text: format!("{} (status {})", error.text, error.status),
        }
    }
}

/// What addresses of streams and tiles are multiples of.
pub(crate) const ALIGN: usize = 16;

/// The code of a failure that a library told, not the driver.
const LIBRARY: i32 = -1;

/// What nvCOMP works on: arrays in device memory, one element for each tile, and the buffers that their addresses lie in.
pub(crate) struct NvcompBatch<'a> {
    pub(crate) inputs: Part<'a>,
    pub(crate) input_lens: Part<'a>,
    pub(crate) outputs: Part<'a>,
    pub(crate) capacities: Part<'a>,
    pub(crate) output_lens: Part<'a>,
    pub(crate) statuses: Part<'a>,
    pub(crate) compressed: &'a DeviceBuffer,
    pub(crate) decoded: &'a DeviceBuffer,
    pub(crate) temp: &'a DeviceBuffer,
    pub(crate) temp_len: usize,
}

/// Temporary memory that nvCOMP wants for a batch.
pub(crate) fn nvcomp_temp_len(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    count: usize,
    longest: usize,
    total: usize,
) -> Result<usize, DeviceError> {
    let _current = streams.memory().context.enter()?;
    // SAFETY: the context is current and the stream is one of its own.
    Ok(unsafe { nvcomp.temp_len(count, longest, total, streams.raw(stream)) }?)
}

/// Queues a batch.
pub(crate) fn nvcomp_decompress(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    count: usize,
    batch: &NvcompBatch<'_>,
) -> Result<(), DeviceError> {
    let word = size_of::<u64>();
    for (part, size) in [
        (&batch.inputs, word),
        (&batch.input_lens, word),
        (&batch.outputs, word),
        (&batch.capacities, word),
        (&batch.output_lens, word),
        (&batch.statuses, size_of::<u32>()),
    ] {
        if part.len < count * size {
            return Err(DeviceError::Usage("an array for nvCOMP is too short".into()));
        }
        streams.keep(part.buffer);
    }
    let pointers = BatchPointers {
        inputs: batch.inputs.address()?,
        input_lens: batch.input_lens.address()?,
        outputs: batch.outputs.address()?,
        capacities: batch.capacities.address()?,
        output_lens: batch.output_lens.address()?,
        statuses: batch.statuses.address()?,
    };
    for buffer in [batch.compressed, batch.decoded, batch.temp] {
        streams.keep(buffer);
    }
    let temp = batch.temp.part(0, batch.temp_len)?;
    let _current = streams.memory().context.enter()?;
    let wanted = nvcomp.alignments()?;
    if wanted.input.max(wanted.output) > ALIGN {
        return Err(DeviceError::Declined(format!("nvCOMP wants streams aligned to {} bytes", wanted.input)));
    }
    // SAFETY: the arrays are as long as the batch and lie in buffers that are kept until the streams were waited for; so do the
    // addresses in them, which `decode.rs` made from the same layout as the buffers. The caller has called the input trusted.
    unsafe { nvcomp.decompress(&pointers, count, temp, batch.temp_len, streams.raw(stream)) }?;
    Ok(())
}

/// What nvCOMP compresses: arrays in device memory, one element for each chunk, and the buffers that their addresses
/// lie in.
pub(crate) struct NvcompCompressBatch<'a> {
    /// Addresses of the chunks, 8 bytes each; so are the next three.
    pub(crate) inputs: Part<'a>,
    pub(crate) input_lens: Part<'a>,
    /// Addresses of room for [`CompressPlan::max_output_len`] bytes each.
    pub(crate) outputs: Part<'a>,
    pub(crate) output_lens: Part<'a>,
    /// 4 bytes each.
    pub(crate) statuses: Part<'a>,
    pub(crate) source: &'a DeviceBuffer,
    pub(crate) compressed: &'a DeviceBuffer,
    pub(crate) temp: &'a DeviceBuffer,
    pub(crate) temp_len: usize,
}

/// What nvCOMP needs to compress `count` chunks, none longer than `longest`, `total` bytes together.
pub(crate) fn nvcomp_compress_plan(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: Compressing,
    count: usize,
    longest: usize,
    total: usize,
) -> Result<CompressPlan, DeviceError> {
    let _current = streams.memory().context.enter()?;
    // SAFETY: the context is current and the stream is one of its own.
    let plan = unsafe { nvcomp.compress_plan(codec, count, longest, total, streams.raw(stream)) }?;
    let wanted = plan.alignments.input.max(plan.alignments.output);
    if wanted > ALIGN {
        return Err(DeviceError::Declined(format!("nvCOMP wants chunks aligned to {wanted} bytes")));
    }
    Ok(plan)
}

/// Queues the compression of a batch of chunks, none longer than `longest`. The chunks and the room for their streams
/// begin at multiples of [`ALIGN`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn nvcomp_compress(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: Compressing,
    count: usize,
    longest: usize,
    batch: &NvcompCompressBatch<'_>,
) -> Result<(), DeviceError> {
    if count == 0 {
        return Ok(());
    }
    let word = size_of::<u64>();
    for (part, size) in [
        (&batch.inputs, word),
        (&batch.input_lens, word),
        (&batch.outputs, word),
        (&batch.output_lens, word),
        (&batch.statuses, size_of::<u32>()),
    ] {
        if count.checked_mul(size).is_none_or(|len| part.len < len) {
            return Err(DeviceError::Usage("an array for nvCOMP is too short".into()));
        }
        streams.keep(part.buffer);
    }
    let pointers = CompressPointers {
        inputs: batch.inputs.address()?,
        input_lens: batch.input_lens.address()?,
        outputs: batch.outputs.address()?,
        output_lens: batch.output_lens.address()?,
        statuses: batch.statuses.address()?,
    };
    for buffer in [batch.source, batch.compressed, batch.temp] {
        streams.keep(buffer);
    }
    let temp = batch.temp.part(0, batch.temp_len)?;
    let _current = streams.memory().context.enter()?;
    // SAFETY: the arrays are as long as the batch and lie in buffers that are kept until the streams were waited for;
    // so do the addresses in them, which the caller made from the lengths of the plan.
    unsafe { nvcomp.compress(codec, &pointers, count, longest, temp, batch.temp_len, streams.raw(stream)) }?;
    Ok(())
}

/// The libraries that keep something for each stream: they live and end with the context.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    search: Search,
    jpeg: OnceLock<Result<Jpeg, String>>,
    jpeg2000: OnceLock<Result<Jpeg2000, String>>,
    jpeg_encoder: OnceLock<Result<JpegEncoder, String>>,
    jpeg2000_encoder: OnceLock<Result<Jpeg2000Encoder, String>>,
}

impl Libraries {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, ..Self::default() }
    }

    pub(crate) fn search(&self) -> &Search {
        &self.search
    }

    /// nvJPEG, looked for when first asked for.
    pub(crate) fn jpeg(&self, context: &Context) -> Result<&Jpeg, DeviceError> {
        found(&self.jpeg, || {
            let library = Jpeg::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe(Engine::Host).map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// nvJPEG2000, looked for when first asked for.
    pub(crate) fn jpeg2000(&self, context: &Context) -> Result<&Jpeg2000, DeviceError> {
        found(&self.jpeg2000, || {
            let library = Jpeg2000::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// nvJPEG's encoder, looked for when first asked for.
    pub(crate) fn jpeg_encoder(&self, context: &Context) -> Result<&JpegEncoder, DeviceError> {
        found(&self.jpeg_encoder, || {
            let library = JpegEncoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// nvJPEG2000's encoder, looked for when first asked for.
    pub(crate) fn jpeg2000_encoder(&self, context: &Context) -> Result<&Jpeg2000Encoder, DeviceError> {
        found(&self.jpeg2000_encoder, || {
            let library = Jpeg2000Encoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// Has all of them give up what they keep for a stream.
    ///
    /// # Safety
    /// The context is current and the stream has passed all of its work.
    pub(crate) unsafe fn forget(&self, stream: Handle) {
        if let Some(Ok(jpeg)) = self.jpeg.get() {
            // SAFETY: as the caller promises.
            unsafe { jpeg.forget(stream) };
        }
        if let Some(Ok(jpeg2000)) = self.jpeg2000.get() {
            // SAFETY: as the caller promises.
            unsafe { jpeg2000.forget(stream) };
        }
        if let Some(Ok(encoder)) = self.jpeg_encoder.get() {
            // SAFETY: as the caller promises.
            unsafe { encoder.forget(stream) };
        }
        if let Some(Ok(encoder)) = self.jpeg2000_encoder.get() {
            // SAFETY: as the caller promises.
            unsafe { encoder.forget(stream) };
        }
    }
}

fn found<T>(slot: &OnceLock<Result<T, String>>, look: impl FnOnce() -> Result<T, String>) -> Result<&T, DeviceError> {
    slot.get_or_init(look).as_ref().map_err(|reason| DeviceError::Declined(reason.clone()))
}

/// One tile for a library that takes host bytes: `planes` of them, side by side on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Where the first plane begins in the decoded buffer.
    pub(crate) at: usize,
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Bytes from plane to plane.
    pub(crate) plane_len: usize,
}

impl Planes {
    /// Addresses of `count` planes, which all lie in the buffer.
    fn addresses(&self, decoded: &DeviceBuffer, count: usize) -> Result<Vec<u64>, DeviceError> {
        let each = |plane: usize| decoded.part(self.at + plane * self.plane_len, self.plane_len);
        (0..count).map(each).collect()
    }
}

/// Whether the GPU has an engine of its own for JPEG, which takes whole batches; else the host does a part of each
/// tile.
pub(crate) fn has_jpeg_engine(streams: &Streams) -> Result<bool, DeviceError> {
    let context = &streams.memory().context;
    let jpeg = streams.memory().libraries.jpeg(context)?;
    let _current = context.enter()?;
    Ok(jpeg.probe(Engine::Hardware).is_ok())
}

/// What a library said of tiles, each with its place in their order.
type Said<T> = Vec<(usize, T)>;

/// Deals tiles out to streams, each served by a thread of its own: much of the libraries' work is the host's.
fn deal<T: Send, L: Send>(
    streams: &Streams,
    over: std::ops::Range<usize>,
    lanes: &mut [L],
    tiles: usize,
    serve: impl Fn(usize, usize, &mut L) -> Result<Said<T>, DeviceError> + Sync,
) -> Result<Said<T>, DeviceError> {
    let context = &streams.memory().context;
    let serve = |first: usize, stream: usize, lane: &mut L| {
        let _current = context.enter()?;
        serve(first, stream, lane)
    };
    let turns = over.zip(lanes).enumerate().take(tiles);
    let parts: Vec<Result<Said<T>, DeviceError>> = std::thread::scope(|scope| {
        let serve = &serve;
        let workers: Vec<_> = turns
            .map(|(first, (stream, lane))| {
                std::thread::Builder::new().spawn_scoped(scope, move || serve(first, stream, lane))
            })
            .collect();
        let failed = |why: &str| Err(DeviceError::Usage(format!("a thread for a library {why}")));
        workers
            .into_iter()
            .map(|worker| match worker {
                Ok(worker) => worker.join().unwrap_or_else(|_| failed("failed")),
                Err(error) => failed(&format!("could not be started: {error}")),
            })
            .collect()
    });
    let mut said = Vec::with_capacity(tiles);
    for part in parts {
        said.extend(part?);
    }
    Ok(said)
}

/// Waits until a stream has passed all it was given, so that a library's state is free.
fn pass(streams: &Streams, stream: usize) -> Result<(), String> {
    streams.meter().library_wait();
    streams.mark(stream).and_then(|mark| mark.poll()).map_err(|error| error.to_string())
}

/// Has nvJPEG decode tiles on the streams; tells what it said against each. The bytes are held until the streams have
/// passed.
pub(crate) fn jpeg_decode(
    streams: &Streams,
    over: std::ops::Range<usize>,
    picture: Picture,
    decoded: &DeviceBuffer,
    tiles: &[Planes],
    bytes: &HostBytes,
) -> Result<Vec<Result<(), String>>, DeviceError> {
    let jpeg = streams.memory().libraries.jpeg(&streams.memory().context)?;
    let engine = if has_jpeg_engine(streams)? { Engine::Hardware } else { Engine::Host };
    let count = if picture == Picture::Grey { 1 } else { 3 };
    let turns = over.len().max(1);
    streams.hold(bytes);
    streams.keep(decoded);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let (mut said, mut list, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (tile, bytes)) in tiles.iter().zip(&**bytes).enumerate().skip(first).step_by(turns) {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(reason) => {
                    said.push((number, Err(reason.clone())));
                    continue;
                }
            };
            let mut planes = [0; 3];
            for (plane, address) in planes.iter_mut().zip(tile.addresses(decoded, count)?) {
                *plane = address;
            }
            let Planes { width, height, pitch, plane_len, .. } = *tile;
            list.push(nvjpeg::Tile { bytes, width, height, planes, pitch, plane_len });
            numbers.push(number);
        }
        let wait = |_| pass(streams, stream);
        // SAFETY: the context is current and its own; the bytes are held and the buffer is kept until the streams were
        // waited for, and the planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before
        // they are destroyed.
        let results = unsafe { jpeg.decode(engine, &list, picture, streams.raw(stream), &wait) };
        let results = results.into_iter().map(|result| result.map_err(|refused| refused.to_string()));
        said.extend(numbers.into_iter().zip(results));
        Ok(said)
    };
    let said = deal(streams, over, &mut vec![(); turns], tiles.len(), serve)?;
    Ok(in_order(said, tiles.len()))
}

/// Reason used when the library gave none.
const NOT_REACHED: &str = "not reached";

/// Lanes of nvJPEG2000, states of a decoder that one tile at a time uses, that one read has: those of each stream.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Vec<StreamLanes>);

/// The lanes of one stream: busy ones with the mark behind their work, the oldest first, and free ones.
#[derive(Debug, Default)]
struct StreamLanes {
    busy: VecDeque<(usize, Mark)>,
    free: Vec<usize>,
}

impl StreamLanes {
    /// A lane that is free; at most `most` are used. Where all are busy, one wait frees all of them: a stream passes marks in
    /// their order, and the other streams keep the device at work meanwhile.
    fn take(&mut self, most: usize, streams: &Streams) -> Result<usize, DeviceError> {
        if let Some(lane) = self.free.pop() {
            return Ok(lane);
        }
        if self.busy.len() < most.max(1) {
            return Ok(self.busy.len());
        }
        if let Some((_, newest)) = self.busy.back() {
            streams.meter().library_wait();
            newest.poll()?;
        }
        self.free.extend(self.busy.drain(..).map(|(lane, _)| lane));
        self.free.pop().ok_or_else(|| DeviceError::Usage("no lane of nvJPEG2000 is free".into()))
    }
}

/// Has nvJPEG2000 decode tiles on several streams, `lanes_each` under way on each; tells what it said against each
/// tile, and whether any was stored with loss. The bytes are held until the streams have passed.
#[allow(clippy::too_many_arguments)]
pub(crate) fn jpeg2000_decode(
    streams: &Streams,
    over: std::ops::Range<usize>,
    lanes: &mut Lanes,
    lanes_each: usize,
    expected: Expected,
    decoded: &DeviceBuffer,
    tiles: &[Planes],
    bytes: &HostBytes,
) -> Result<(Vec<Result<(), String>>, bool), DeviceError> {
    let library = streams.memory().libraries.jpeg2000(&streams.memory().context)?;
    let count = over.len().max(1);
    // Never fewer than before: a lane that is forgotten while it has work would be taken for a new one.
    lanes.0.resize_with(count.max(lanes.0.len()), StreamLanes::default);
    streams.hold(bytes);
    streams.keep(decoded);
    let serve = |first: usize, stream: usize, lanes: &mut StreamLanes| {
        let mut said = Vec::new();
        for (number, (tile, bytes)) in tiles.iter().zip(&**bytes).enumerate().skip(first).step_by(count) {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(reason) => {
                    said.push((number, (Err(reason.clone()), false)));
                    continue;
                }
            };
            let outline = Outline::of(bytes);
            if !outline.is_whole {
                said.push((number, (Err("the codestream is cut off".to_owned()), false)));
                continue;
            }
            let lane = lanes.take(lanes_each, streams)?;
            let planes: Vec<(u64, usize)> = tile
                .addresses(decoded, expected.components as usize)?
                .into_iter()
                .map(|address| (address, tile.pitch))
                .collect();
            let Planes { width, height, plane_len, .. } = *tile;
            let tile = nvjpeg2k::Tile { bytes, width, height, planes: &planes, plane_len };
            // SAFETY: the context is current and its own; the bytes are held and the buffer is kept until the streams
            // were waited for, and the planes lie in it; the lane is new to this read or was waited for, and a stream
            // that comes from the pool has passed all that earlier reads gave it. Streams are forgotten before they are
            // destroyed.
            let result = unsafe { library.decode(&tile, expected, streams.raw(stream), lane) };
            // Even a call that fails may have queued something first.
            lanes.busy.push_back((lane, streams.mark(stream)?));
            said.push((number, (result.map_err(|refused| refused.to_string()), outline.has_loss)));
        }
        Ok(said)
    };
    let said = deal(streams, over, &mut lanes.0, tiles.len(), serve)?;
    let mut results = vec![Err(NOT_REACHED.to_owned()); tiles.len()];
    let mut has_loss = false;
    for (number, (result, loss)) in said {
        has_loss |= loss;
        if let Some(place) = results.get_mut(number) {
            *place = result;
        }
    }
    Ok((results, has_loss))
}

/// The streams of tiles, in their order, or why there is none for one of them.
pub(crate) type Encoded = Vec<Result<Vec<u8>, String>>;

impl From<nvjpeg_encode::Failed> for DeviceError {
    fn from(failed: nvjpeg_encode::Failed) -> Self {
        use nvjpeg_encode::Failed;
        match failed {
            Failed::Memory(error) => no_memory(error),
            Failed::Call(error) => error.into(),
            Failed::Wait(text) => waited_in_vain(text),
            other => Self::Usage(other.to_string()),
        }
    }
}

impl From<nvjpeg2k_encode::Failed> for DeviceError {
    fn from(failed: nvjpeg2k_encode::Failed) -> Self {
        use nvjpeg2k_encode::Failed;
        match failed {
            Failed::Memory(error) => no_memory(error),
            Failed::Call(error) => error.into(),
            Failed::Wait(text) => waited_in_vain(text),
        }
    }
}

fn waited_in_vain(text: String) -> DeviceError {
    DeviceError::Call { call: "waiting for a library".to_owned(), code: LIBRARY, text }
}

/// A library's failure to allocate, told as the driver tells its own: less at once might succeed.
fn no_memory(error: CallError) -> DeviceError {
    const OUT_OF_MEMORY: i32 = 2;
    match error.into() {
        DeviceError::Call { call, text, .. } => DeviceError::Call { call, code: OUT_OF_MEMORY, text },
        other => other,
    }
}

/// The results in the order of the tiles; a tile without a result gets [`NOT_REACHED`].
fn in_order<T: Clone>(said: Said<Result<T, String>>, tiles: usize) -> Vec<Result<T, String>> {
    let mut results = vec![Err(NOT_REACHED.to_owned()); tiles];
    for (number, result) in said {
        if let Some(place) = results.get_mut(number) {
            *place = result;
        }
    }
    results
}

/// Has nvJPEG encode tiles on the streams, after all that each of them was given; they are waited for. Samples that lie
/// beside each other are one plane.
pub(crate) fn jpeg_encode(
    streams: &Streams,
    over: std::ops::Range<usize>,
    settings: JpegSettings,
    source: &DeviceBuffer,
    tiles: &[Planes],
) -> Result<Encoded, DeviceError> {
    let encoder = streams.memory().libraries.jpeg_encoder(&streams.memory().context)?;
    let turns = over.len().max(1);
    streams.keep(source);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let mut list = Vec::with_capacity(tiles.len().div_ceil(turns));
        for tile in tiles.iter().skip(first).step_by(turns) {
            let Planes { width, height, pitch, plane_len, .. } = *tile;
            let samples = source.part(tile.at, plane_len)?;
            list.push(nvjpeg_encode::Tile { width, height, samples, pitch, plane_len });
        }
        let wait = |_| pass(streams, stream);
        // SAFETY: the context is current and its own; the buffer is kept until the streams were waited for, and the
        // planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before they are destroyed.
        let results = unsafe { encoder.encode(&list, settings, streams.raw(stream), &wait) }?;
        let results = results.into_iter().map(|result| result.map_err(|refused| refused.to_string()));
        Ok((first..).step_by(turns).zip(results).collect())
    };
    let said = deal(streams, over, &mut vec![(); turns], tiles.len(), serve)?;
    Ok(in_order(said, tiles.len()))
}

/// Has nvJPEG2000 encode tiles on the streams, after all that each of them was given; they are waited for. There is one
/// quality for each tile.
pub(crate) fn jpeg2000_encode(
    streams: &Streams,
    over: std::ops::Range<usize>,
    picture: Jpeg2000Picture,
    source: &DeviceBuffer,
    tiles: &[Planes],
    qualities: &[Jpeg2000Quality],
) -> Result<Encoded, DeviceError> {
    if qualities.len() != tiles.len() {
        return Err(DeviceError::Usage("there is not one quality for each tile".into()));
    }
    let encoder = streams.memory().libraries.jpeg2000_encoder(&streams.memory().context)?;
    let turns = over.len().max(1);
    let count = if picture.interleaved { 1 } else { picture.components as usize };
    streams.keep(source);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let mut said = Vec::with_capacity(tiles.len().div_ceil(turns));
        let wait = || pass(streams, stream);
        for (number, (tile, quality)) in tiles.iter().zip(qualities).enumerate().skip(first).step_by(turns) {
            let addresses = tile.addresses(source, count)?;
            let planes: Vec<(u64, usize)> = addresses.into_iter().map(|address| (address, tile.pitch)).collect();
            let Planes { width, height, plane_len, .. } = *tile;
            let tile = nvjpeg2k_encode::Tile { width, height, planes: &planes, plane_len, quality: *quality };
            // SAFETY: the context is current and its own; the buffer is kept until the streams were waited for, and the
            // planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before they are
            // destroyed.
            let result = unsafe { encoder.encode(picture, &tile, streams.raw(stream), &wait) }?;
            said.push((number, result.map_err(|refused| refused.to_string())));
        }
        Ok(said)
    };
    let said = deal(streams, over, &mut vec![(); turns], tiles.len(), serve)?;
    Ok(in_order(said, tiles.len()))
}
