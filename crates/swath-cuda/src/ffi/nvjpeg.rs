//! nvJPEG: tiles of 8-bit JPEG, given as host bytes, into device memory.
//!
//! Tiles of a batch that the GPU's JPEG engine takes go to the library in one call; the rest (and every tile of a batch
//! that failed, so that the bad one answers for itself) go one by one with the Huffman codes decoded on the host. Where
//! chroma is full size, samples are libjpeg-turbo's bit for bit; where it is not, a few come out one level off.
//! Progressive tiles are left to the host decoder: the library's transform for them is up to 3 levels off.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::library::{Absent, CallError, Library, Names, RawStream, Search};
use super::sys::nvjpeg as sys;

pub(super) const NAMES: Names = Names {
    label: "nvJPEG",
    files: &["libnvjpeg.so.13", "libnvjpeg.so.12"],
    wheels: &["nvidia/cu13/lib", "nvidia/nvjpeg/lib"],
    landmark: c"nvjpegCreateEx",
};

/// Which part of the machine decodes a batch's Huffman codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The host; kernels do the rest. Every kind of JPEG, one tile after another.
    Host,
    /// The GPU's JPEG engine, where it has one: baseline, one scan.
    Hardware,
}

/// What to write for a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// One component as it is stored.
    Grey,
    /// Three components stored as YCbCr, converted to RGB in three planes.
    RgbPlanar,
    /// Three components of equal size as they are stored, in three planes; no conversion whatever the markers say.
    StoredPlanar,
}

impl Output {
    const fn components(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::RgbPlanar | Self::StoredPlanar => 3,
        }
    }

    const fn format(self) -> c_int {
        match self {
            Self::Grey => sys::OUTPUT_Y,
            Self::RgbPlanar => sys::OUTPUT_RGB,
            Self::StoredPlanar => sys::OUTPUT_UNCHANGED,
        }
    }
}

/// One tile to decode.
#[derive(Debug, Clone, Copy)]
pub struct Tile<'a> {
    /// A whole JPEG stream: tables joined in.
    pub bytes: &'a [u8],
    /// The width the file promises, in pixels.
    pub width: u32,
    /// The height the file promises, in pixels.
    pub height: u32,
    /// Device addresses of as many planes as the output has.
    pub planes: [u64; 3],
    /// Bytes from row to row of a plane.
    pub pitch: usize,
    /// Bytes that may be written from each plane's address on.
    pub plane_len: usize,
}

/// Why a tile was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Its header is not a JPEG's.
    #[error("not a JPEG stream: {0}")]
    Header(&'static str),
    /// A JPEG, but of a kind this path leaves to the host decoder.
    #[error("not decoded on the device: {0}")]
    Kind(&'static str),
    /// The stream holds another image than the file promises.
    #[error("the stream holds {found}, the file promises {wanted}")]
    Mismatch {
        /// Width x height x components in the stream.
        found: String,
        /// Width x height x components in the file.
        wanted: String,
    },
    /// The planes are too short for the tile.
    #[error("an output plane of {len} bytes is too short for {height} rows {pitch} bytes apart")]
    Room {
        /// Bytes of a plane.
        len: usize,
        /// Bytes from row to row.
        pitch: usize,
        /// Rows.
        height: u32,
    },
    /// The stream could not be waited for.
    #[error("waiting for the stream failed: {0}")]
    Wait(String),
    /// The library refused it.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// How many tiles, and samples in them, at most go to the library in one call: a decode state keeps device memory for
/// all of them.
const MAX_BATCH: usize = 512;
const MAX_BATCH_SAMPLES: usize = 1 << 29;

/// States for tiles decoded one by one: so many are under way before the stream is waited for.
const HOST_STATES: usize = 8;

/// nvJPEG, loaded, with the decode states of one CUDA context.
///
/// States belong to a stream, since work on their buffers is ordered by it and by nothing else; each keeps device
/// memory for the largest batch it has met. [`Self::forget`] gives it back.
#[derive(Debug)]
pub struct Jpeg {
    library: Library,
    table: sys::Table,
    version: String,
    /// Made on first use; a failure is not kept, since memory may be short only for a while.
    handles: Mutex<HashMap<Engine, Handle>>,
    lanes: Mutex<Lanes>,
}

/// By stream and engine.
type Lanes = HashMap<(usize, Engine), Arc<Mutex<Lane>>>;

/// A pointer the library owns the meaning of.
#[derive(Debug, Clone, Copy)]
struct Handle(sys::Opaque);

// SAFETY: nvJPEG's library handle is documented as thread safe, and state and stream handles as usable from any one
// thread at a time, which the mutex around each `Lane` sees to.
unsafe impl Send for Handle {}
// SAFETY: as above; only the library handle is ever shared.
unsafe impl Sync for Handle {}

/// What decoding on one stream with one engine keeps from call to call.
#[derive(Debug)]
struct Lane {
    states: Vec<Handle>,
    /// How many of the states have had work queued since the stream was last waited for.
    used: usize,
    jpeg: Handle,
    /// Batch size and output format that the state is set up for.
    shape: Option<(usize, c_int)>,
}

/// Synchronises a stream: `Ok` only when it has passed everything queued on it.
pub type Wait<'a> = &'a dyn Fn(RawStream) -> Result<(), String>;

impl Lane {
    /// A state that no queued work uses. The header does not say whether a state may be used again before the device is
    /// done; progressive tiles decoded so on one state came out damaged in one run and whole in another.
    fn free_state(&mut self, stream: RawStream, wait: Wait<'_>) -> Result<Handle, Refused> {
        if self.used >= self.states.len() {
            wait(stream).map_err(Refused::Wait)?;
            self.used = 0;
        }
        let state = self.states.get(self.used).copied().ok_or(Refused::Wait("no state to decode with".to_owned()))?;
        self.used += 1;
        Ok(state)
    }
}

impl Jpeg {
    /// Finds nvJPEG and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another major.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        let version = version_of(&library, table.nvjpegGetProperty)?;
        Ok(Self { library, table, version, handles: Mutex::default(), lanes: Mutex::default() })
    }

    /// `major.minor.patch`.
    #[must_use]
    pub fn version(&self) -> String {
        self.version.clone()
    }

    /// The file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Whether `engine` can be used on the current context's device.
    ///
    /// # Errors
    /// What the library said when asked to set it up.
    pub fn probe(&self, engine: Engine) -> Result<(), CallError> {
        self.handle(engine).map(drop)
    }

    /// Decodes tiles on `stream`; one result for each, in their order. `wait` is called when a decode state comes round
    /// again: before a batch that follows another, and every few tiles of those decoded one by one. The last work is
    /// still under way at return. `Ok` means that nvJPEG accepted a tile's stream. nvJPEG returns samples of damaged
    /// streams without an error, so the host must check streams before it calls this.
    ///
    /// An engine the device lacks (see [`Self::probe`]) is replaced by [`Engine::Host`]. May be called from several
    /// threads at once, with a stream each; for [`Engine::Host`] that is what makes it fast.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this `Jpeg`. Until the stream has passed this work, the
    /// tiles' bytes stay as they are and their planes are `plane_len` bytes of device memory that nothing else touches.
    /// `wait` keeps the promise of [`Wait`]. A stream given here is synchronised and [forgotten](Self::forget) before
    /// it is destroyed.
    #[must_use]
    pub unsafe fn decode(
        &self,
        engine: Engine,
        tiles: &[Tile<'_>],
        output: Output,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Vec<Result<(), Refused>> {
        let mut results: Vec<Result<(), Refused>> = Vec::with_capacity(tiles.len());
        let mut batched: Vec<usize> = Vec::new();
        let mut single: Vec<usize> = Vec::new();
        for (index, tile) in tiles.iter().enumerate() {
            let checked = self.inspect(tile, output);
            match &checked {
                Ok(frame) if engine != Engine::Host && frame.is_baseline() => batched.push(index),
                Ok(_) => single.push(index),
                Err(_) => {}
            }
            results.push(checked.map(drop));
        }
        for chunk in batched.chunks(batch_len(tiles, output)) {
            // SAFETY: the caller keeps this function's contract.
            match unsafe { self.decode_batch(engine, tiles, chunk, output, stream, wait) } {
                Ok(left) => single.extend(left),
                // One bad tile fails the whole call, which does not say which it was.
                Err(_) => single.extend(chunk),
            }
        }
        for index in single {
            let (Some(tile), Some(result)) = (tiles.get(index), results.get_mut(index)) else { continue };
            // SAFETY: the caller keeps this function's contract.
            *result = unsafe { self.decode_one(tile, output, stream, wait) };
        }
        results
    }

    /// Gives back what decoding on `stream` kept, device memory included.
    ///
    /// # Safety
    /// The CUDA context is current and the stream has passed all work queued by [`Self::decode`].
    pub unsafe fn forget(&self, stream: RawStream) {
        let mut lanes = lock(&self.lanes);
        for engine in [Engine::Host, Engine::Hardware] {
            if let Some(lane) = lanes.remove(&(stream as usize, engine)) {
                self.destroy(&lock(&lane));
            }
        }
    }

    /// Everything that can be said against a tile before its coded data is looked at.
    fn inspect(&self, tile: &Tile<'_>, output: Output) -> Result<Frame, Refused> {
        let frame = Frame::parse(tile.bytes)?;
        frame.check(tile, output)?;
        check_room(tile)?;
        let handle = self.handle(Engine::Host)?;
        let (mut components, mut subsampling) = (0, 0);
        let (mut widths, mut heights) = ([0; sys::MAX_COMPONENT], [0; sys::MAX_COMPONENT]);
        // SAFETY: the bytes are readable for their length, and the four outputs writable, for the length of the call;
        // both arrays hold the four numbers the header asks for.
        let status = unsafe {
            (self.table.nvjpegGetImageInfo)(
                handle.0,
                tile.bytes.as_ptr(),
                tile.bytes.len(),
                &raw mut components,
                &raw mut subsampling,
                widths.as_mut_ptr(),
                heights.as_mut_ptr(),
            )
        };
        check("nvjpegGetImageInfo", status)?;
        // The library's own view decides what it will write, so it is compared too, not only ours.
        let found = (i64::from(widths[0]), i64::from(heights[0]), i64::from(components));
        let wanted = (i64::from(tile.width), i64::from(tile.height), output.components() as i64);
        if found != wanted {
            return Err(mismatch(found, wanted));
        }
        if output == Output::StoredPlanar && subsampling != sys::CSS_444 {
            return Err(Refused::Kind("stored components of different sizes"));
        }
        Ok(frame)
    }

    /// Queues a batch in one call. Gives the tiles the engine does not take.
    ///
    /// # Safety
    /// As [`Self::decode`]; the tiles at `chosen` were inspected.
    unsafe fn decode_batch(
        &self,
        engine: Engine,
        tiles: &[Tile<'_>],
        chosen: &[usize],
        output: Output,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Vec<usize>, Refused> {
        let handle = self.handle(engine)?;
        let lane = self.lane(engine, stream)?;
        let mut lane = lock(&lane);
        let mut left = Vec::new();
        let (mut data, mut lens, mut images) = (Vec::new(), Vec::new(), Vec::new());
        for &index in chosen {
            let Some(tile) = tiles.get(index) else { continue };
            if self.engine_takes(handle, lane.jpeg, tile) {
                data.push(tile.bytes.as_ptr());
                lens.push(tile.bytes.len());
                images.push(image(tile, output));
            } else {
                left.push(index);
            }
        }
        if data.is_empty() {
            return Ok(left);
        }
        let state = lane.free_state(stream, wait)?;
        let shape = (data.len(), output.format());
        if lane.shape != Some(shape) {
            lane.shape = None;
            let count = c_int::try_from(data.len()).unwrap_or(c_int::MAX);
            // SAFETY: handle and state are alive, and this thread holds the state's mutex.
            let status =
                unsafe { (self.table.nvjpegDecodeBatchedInitialize)(handle.0, state.0, count, 1, output.format()) };
            check("nvjpegDecodeBatchedInitialize", status)?;
            lane.shape = Some(shape);
        }
        // SAFETY: the three arrays have the batch's length, which the state is set up for; inspection made sure that
        // each image fits its planes, and the caller vouches for those and for the bytes until the stream has passed.
        let status = unsafe {
            (self.table.nvjpegDecodeBatched)(
                handle.0,
                state.0,
                data.as_ptr(),
                lens.as_ptr(),
                images.as_mut_ptr(),
                stream,
            )
        };
        if status != sys::SUCCESS {
            // A failed batch leaves the state to be set up again.
            lane.shape = None;
        }
        check("nvjpegDecodeBatched", status)?;
        Ok(left)
    }

    fn engine_takes(&self, handle: Handle, jpeg: Handle, tile: &Tile<'_>) -> bool {
        // SAFETY: handle and stream object are alive, this thread holds the mutex of the latter, and the bytes are
        // readable for their length.
        let parsed = unsafe {
            (self.table.nvjpegJpegStreamParseHeader)(handle.0, tile.bytes.as_ptr(), tile.bytes.len(), jpeg.0)
        };
        if parsed != sys::SUCCESS {
            return false;
        }
        let mut unsupported = 1;
        // SAFETY: as above; `unsupported` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegDecodeBatchedSupported)(handle.0, jpeg.0, &raw mut unsupported) };
        status == sys::SUCCESS && unsupported == 0
    }

    /// Queues one tile.
    ///
    /// # Safety
    /// As [`Self::decode`]; the tile was inspected.
    unsafe fn decode_one(
        &self,
        tile: &Tile<'_>,
        output: Output,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<(), Refused> {
        let handle = self.handle(Engine::Host)?;
        let lane = self.lane(Engine::Host, stream)?;
        let mut lane = lock(&lane);
        let state = lane.free_state(stream, wait)?;
        let mut image = image(tile, output);
        // SAFETY: handle and state are alive and this thread holds the state's mutex; inspection made sure that the
        // image fits its planes, and the caller vouches for those and for the bytes until the stream has passed.
        let status = unsafe {
            (self.table.nvjpegDecode)(
                handle.0,
                state.0,
                tile.bytes.as_ptr(),
                tile.bytes.len(),
                output.format(),
                &raw mut image,
                stream,
            )
        };
        check("nvjpegDecode", status)?;
        Ok(())
    }

    fn handle(&self, engine: Engine) -> Result<Handle, CallError> {
        let mut handles = lock(&self.handles);
        if let Some(handle) = handles.get(&engine) {
            return Ok(*handle);
        }
        let (backend, flags) = match engine {
            // Interpolated chroma is what libjpeg writes, and so what the host decoder gives.
            Engine::Host => (sys::BACKEND_HYBRID, sys::FLAG_INTERPOLATE_CHROMA),
            Engine::Hardware => (sys::BACKEND_HARDWARE, sys::FLAG_INTERPOLATE_CHROMA),
        };
        let handle = self.create(backend, flags)?;
        handles.insert(engine, handle);
        Ok(handle)
    }

    fn create(&self, backend: c_int, flags: c_uint) -> Result<Handle, CallError> {
        let mut handle = ptr::null_mut();
        // SAFETY: null allocators mean the library's own; `handle` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegCreateEx)(backend, ptr::null(), ptr::null(), flags, &raw mut handle) };
        check("nvjpegCreateEx", status).map(|()| Handle(handle))
    }

    fn lane(&self, engine: Engine, stream: RawStream) -> Result<Arc<Mutex<Lane>>, CallError> {
        let handle = self.handle(engine)?;
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&(stream as usize, engine)) {
            return Ok(Arc::clone(lane));
        }
        let mut jpeg = ptr::null_mut();
        // SAFETY: the handle is alive; `jpeg` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegJpegStreamCreate)(handle.0, &raw mut jpeg) };
        check("nvjpegJpegStreamCreate", status)?;
        let mut lane = Lane { states: Vec::new(), used: 0, jpeg: Handle(jpeg), shape: None };
        let wanted = match engine {
            Engine::Host => HOST_STATES,
            Engine::Hardware => 1,
        };
        for _ in 0..wanted {
            let mut state = ptr::null_mut();
            // SAFETY: the handle is alive; `state` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpegJpegStateCreate)(handle.0, &raw mut state) };
            if let Err(error) = check("nvjpegJpegStateCreate", status) {
                self.destroy(&lane);
                return Err(error);
            }
            lane.states.push(Handle(state));
        }
        let lane = Arc::new(Mutex::new(lane));
        lanes.insert((stream as usize, engine), Arc::clone(&lane));
        Ok(lane)
    }

    /// Takes a lane that is out of the map apart.
    fn destroy(&self, lane: &Lane) {
        // SAFETY: the object was created by this library and is destroyed once, its lane being out of the map.
        unsafe { (self.table.nvjpegJpegStreamDestroy)(lane.jpeg.0) };
        for state in &lane.states {
            // SAFETY: as above; that no queued work uses the state is the contract of `forget` and of dropping.
            unsafe { (self.table.nvjpegJpegStateDestroy)(state.0) };
        }
    }
}

/// The streams given to [`Jpeg::decode`] must have passed its work by then, as [`Jpeg::forget`] asks for each.
impl Drop for Jpeg {
    fn drop(&mut self) {
        for (_, lane) in std::mem::take(&mut *lock(&self.lanes)) {
            self.destroy(&lock(&lane));
        }
        for (_, handle) in std::mem::take(&mut *lock(&self.handles)) {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpegDestroy)(handle.0) };
        }
    }
}

/// `major.minor.patch` of a library whose functions are those that we know.
pub(super) fn version_of(
    library: &Library,
    get: unsafe extern "C" fn(c_int, *mut c_int) -> sys::Status,
) -> Result<String, Absent> {
    let mut numbers: [c_int; 3] = [0; 3];
    for (kind, number) in (0..).zip(&mut numbers) {
        // SAFETY: `number` is writable for the length of the call.
        let status = unsafe { get(kind, number) };
        check("nvjpegGetProperty", status).map_err(|error| Absent::Silent { label: NAMES.label, error })?;
    }
    let [major, minor, patch] = numbers;
    let version = format!("{major}.{minor}.{patch}");
    // 12.0 cannot interpolate chroma, so its pixels would differ from the host decoder's.
    if !matches!((major, minor), (12, 1..) | (13, _)) {
        return Err(library.wrong_version(version, "12.1 and later 12, and 13"));
    }
    Ok(version)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing between lock and unlock leaves a lane half changed, so a panic elsewhere need not end all decoding.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn check(call: &'static str, status: sys::Status) -> Result<(), CallError> {
    if status == sys::SUCCESS {
        return Ok(());
    }
    let text = usize::try_from(status).ok().and_then(|index| sys::STATUS_NAMES.get(index)).unwrap_or(&"unknown status");
    Err(CallError { call, status: status.into(), text: (*text).to_owned() })
}

fn image(tile: &Tile<'_>, output: Output) -> sys::Image {
    let mut image = sys::Image { channel: [ptr::null_mut(); sys::MAX_COMPONENT], pitch: [0; sys::MAX_COMPONENT] };
    let slots = image.channel.iter_mut().zip(&mut image.pitch);
    for ((channel, pitch), &plane) in slots.zip(tile.planes.iter().take(output.components())) {
        *channel = plane as *mut u8;
        *pitch = tile.pitch;
    }
    image
}

/// How many of these tiles may go into one call.
fn batch_len(tiles: &[Tile<'_>], output: Output) -> usize {
    let samples = |tile: &Tile<'_>| (tile.width as usize).saturating_mul(tile.height as usize);
    let largest = tiles.iter().map(samples).max().unwrap_or_default().saturating_mul(output.components());
    (MAX_BATCH_SAMPLES / largest.max(1)).clamp(1, MAX_BATCH)
}

fn check_room(tile: &Tile<'_>) -> Result<(), Refused> {
    let needed = tile.pitch.checked_mul(tile.height as usize);
    let fits = tile.width as usize <= tile.pitch && needed.is_some_and(|needed| needed <= tile.plane_len);
    if fits {
        return Ok(());
    }
    Err(Refused::Room { len: tile.plane_len, pitch: tile.pitch, height: tile.height })
}

/// Whether a stream ends in an end-of-image marker, bytes that only pad it aside.
fn ends_in_marker(bytes: &[u8]) -> bool {
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..len).is_some_and(|bytes| bytes.ends_with(&[0xFF, 0xD9]))
}

fn mismatch(found: (i64, i64, i64), wanted: (i64, i64, i64)) -> Refused {
    let words = |(width, height, components)| format!("{width} x {height} x {components}");
    Refused::Mismatch { found: words(found), wanted: words(wanted) }
}

/// What a stream's markers say up to its first scan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    /// The start-of-frame marker: which kind of JPEG.
    process: u8,
    precision: u8,
    width: u16,
    height: u16,
    /// Identifier and sampling factors (4 bits each way) of each component.
    components: Vec<(u8, u8)>,
    has_jfif: bool,
    /// The colour transform an Adobe marker names.
    adobe_transform: Option<u8>,
}

impl Frame {
    /// Walks the markers. Every step moves forward, so the work is bounded by the stream's length.
    fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let mut rest = bytes.strip_prefix(&[0xFF, 0xD8]).ok_or(Refused::Header("no start of image"))?;
        let (mut has_jfif, mut adobe_transform) = (false, None);
        let mut frame: Option<Self> = None;
        loop {
            let [0xFF, marker, after @ ..] = rest else { return Err(Refused::Header("a marker is missing")) };
            // Any number of fill bytes may stand in front of a marker.
            if *marker == 0xFF {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let &[high, low, ..] = after else { return Err(Refused::Header("it ends in a marker")) };
            let len = usize::from(u16::from_be_bytes([high, low]));
            let body = after.get(2..len).ok_or(Refused::Header("a marker segment is longer than the stream"))?;
            match (*marker, body) {
                (0xDA, _) => {
                    let mut frame = frame.ok_or(Refused::Header("a scan without a frame"))?;
                    frame.has_jfif = has_jfif;
                    frame.adobe_transform = adobe_transform;
                    return Ok(frame);
                }
                (0xE0, [b'J', b'F', b'I', b'F', 0, ..]) => has_jfif = true,
                (0xEE, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) => {
                    adobe_transform = Some(*transform);
                }
                // C4, C8 and CC share the range of frame markers without being any.
                (0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF, body) => {
                    if frame.is_some() {
                        return Err(Refused::Header("two frames"));
                    }
                    frame = Some(Self::parse_frame(*marker, body)?);
                }
                _ => {}
            }
            rest = after.get(len..).unwrap_or_default();
        }
    }

    fn parse_frame(process: u8, body: &[u8]) -> Result<Self, Refused> {
        let &[precision, h1, h0, w1, w0, count, ref listed @ ..] = body else {
            return Err(Refused::Header("the frame is cut short"));
        };
        let components: Vec<(u8, u8)> =
            listed.chunks_exact(3).take(usize::from(count)).map(|entry| (entry[0], entry[1])).collect();
        if components.len() != usize::from(count) {
            return Err(Refused::Header("the frame is cut short"));
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        Ok(Self { process, precision, width, height, components, has_jfif: false, adobe_transform: None })
    }

    const fn is_baseline(&self) -> bool {
        self.process == 0xC0
    }

    /// Whether a decoder that goes by the markers would take the components for RGB and leave them unconverted.
    fn looks_like_rgb(&self) -> bool {
        if self.has_jfif {
            return false;
        }
        match self.adobe_transform {
            Some(transform) => transform == 0,
            None => self.components.iter().map(|&(id, _)| id).eq(*b"RGB"),
        }
    }

    fn check(&self, tile: &Tile<'_>, output: Output) -> Result<(), Refused> {
        // The library has another transform for progressive streams, whose samples are further from the host decoder's.
        if !matches!(self.process, 0xC0 | 0xC1) {
            return Err(Refused::Kind("neither baseline nor extended sequential"));
        }
        if self.precision != 8 {
            return Err(Refused::Kind("samples of other than 8 bits"));
        }
        let found = (self.width.into(), self.height.into(), self.components.len() as i64);
        let wanted = (tile.width.into(), tile.height.into(), output.components() as i64);
        if found != wanted {
            return Err(mismatch(found, wanted));
        }
        let samplings = || self.components.iter().map(|&(_, sampling)| sampling);
        if samplings().any(|sampling| !(1..=4).contains(&(sampling >> 4)) || !(1..=4).contains(&(sampling & 15))) {
            return Err(Refused::Header("a sampling factor out of range"));
        }
        match output {
            // A TIFF's photometric interpretation overrules the markers; nvJPEG goes by the markers.
            Output::RgbPlanar if self.looks_like_rgb() => {
                Err(Refused::Kind("the file says YCbCr, the stream's markers say RGB"))
            }
            Output::StoredPlanar if samplings().any(|sampling| sampling != self.components[0].1) => {
                Err(Refused::Kind("stored components of different sizes"))
            }
            // Where chroma is coarser than that the host decoder repeats it, and nvJPEG does otherwise.
            Output::RgbPlanar if !self.has_common_subsampling() => {
                Err(Refused::Kind("chroma subsampled in an unusual way"))
            }
            // A stream that was cut off is the host decoder's to word: nvJPEG fills the rest with grey.
            _ if !ends_in_marker(tile.bytes) => Err(Refused::Kind("no end of image")),
            _ => Ok(()),
        }
    }

    /// Whether luma is full size and both chromas are full or half of it each way.
    fn has_common_subsampling(&self) -> bool {
        let [(_, luma), (_, blue), (_, red)] = *self.components.as_slice() else { return false };
        let halves = |full: u8, part: u8| full == part || full == part * 2;
        blue == red && halves(luma >> 4, blue >> 4) && halves(luma & 15, blue & 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream's markers up to the scan: `middle` goes between start of image and frame.
    fn stream(middle: &[u8], process: u8, precision: u8, size: (u16, u16), components: &[(u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        bytes.extend(middle);
        bytes.extend([0xFF, process, 0, 8 + 3 * components.len() as u8, precision]);
        bytes.extend(size.1.to_be_bytes());
        bytes.extend(size.0.to_be_bytes());
        bytes.push(components.len() as u8);
        for &(id, sampling) in components {
            bytes.extend([id, sampling, 0]);
        }
        bytes.extend([0xFF, 0xDA, 0, 2, 0xFF, 0xD9]);
        bytes
    }

    fn tile(bytes: &[u8]) -> Tile<'_> {
        Tile { bytes, width: 64, height: 32, planes: [0; 3], pitch: 192, plane_len: 192 * 32 }
    }

    const YCC: [(u8, u8); 3] = [(1, 0x22), (2, 0x11), (3, 0x11)];
    const FULL: [(u8, u8); 3] = [(0, 0x11), (1, 0x11), (2, 0x11)];

    fn verdict(bytes: &[u8], output: Output) -> Result<(), Refused> {
        Frame::parse(bytes)?.check(&tile(bytes), output)
    }

    #[test]
    fn takes_what_the_file_promises() {
        assert_eq!(verdict(&stream(&[], 0xC0, 8, (64, 32), &YCC), Output::RgbPlanar), Ok(()));
        assert_eq!(verdict(&stream(&[], 0xC1, 8, (64, 32), &[(1, 0x11)]), Output::Grey), Ok(()));
        assert_eq!(verdict(&stream(&[0xFF, 0xFF], 0xC0, 8, (64, 32), &FULL), Output::StoredPlanar), Ok(()));
    }

    #[test]
    fn declines_a_stream_of_another_size_or_component_count() {
        for (size, components) in [((65, 32), &YCC[..]), ((64, 33), &YCC), ((64, 32), &YCC[..1])] {
            let bytes = stream(&[], 0xC0, 8, size, components);
            assert!(matches!(verdict(&bytes, Output::RgbPlanar), Err(Refused::Mismatch { .. })));
        }
    }

    #[test]
    fn declines_streams_that_are_cut_off_and_chroma_that_is_coarser_than_half() {
        let whole = stream(&[], 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&whole[..whole.len() - 1], Output::RgbPlanar), Err(Refused::Kind(_))));
        assert_eq!(verdict(&[&whole[..], &[0, 0]].concat(), Output::RgbPlanar), Ok(()));
        for luma in [0x41, 0x44, 0x12, 0x22, 0x21, 0x11] {
            let bytes = stream(&[], 0xC0, 8, (64, 32), &[(1, luma), (2, 0x11), (3, 0x11)]);
            assert_eq!(verdict(&bytes, Output::RgbPlanar).is_ok(), luma >> 4 <= 2 && luma & 15 <= 2, "{luma:x}");
        }
    }

    #[test]
    fn declines_twelve_bits_progressive_lossless_and_arithmetic_coding() {
        for (process, precision) in [(0xC1, 12), (0xC2, 8), (0xC3, 8), (0xC9, 8)] {
            let bytes = stream(&[], process, precision, (64, 32), &YCC);
            assert!(matches!(verdict(&bytes, Output::RgbPlanar), Err(Refused::Kind(_))));
        }
    }

    #[test]
    fn declines_conversion_where_the_markers_would_prevent_it() {
        let adobe = [0xFF, 0xEE, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0];
        let bytes = stream(&adobe, 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&bytes, Output::RgbPlanar), Err(Refused::Kind(_))));
        let named = [(b'R', 0x11), (b'G', 0x11), (b'B', 0x11)];
        let bytes = stream(&[], 0xC0, 8, (64, 32), &named);
        assert!(matches!(verdict(&bytes, Output::RgbPlanar), Err(Refused::Kind(_))));
        assert_eq!(verdict(&bytes, Output::StoredPlanar), Ok(()));
    }

    #[test]
    fn declines_stored_components_of_different_sizes() {
        let bytes = stream(&[], 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&bytes, Output::StoredPlanar), Err(Refused::Kind(_))));
    }

    #[test]
    fn every_cut_of_a_header_is_an_error_and_never_a_panic() {
        let bytes = stream(&[0xFF, 0xE0, 0, 7, b'J', b'F', b'I', b'F', 0], 0xC0, 8, (64, 32), &YCC);
        for len in 0..bytes.len() - 2 {
            assert!(Frame::parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Frame::parse(&[0xFF, 0xD8, 0xFF, 0xC0, 0, 0, 0, 0]).is_err());
        assert!(Frame::parse(&[0xFF, 0xD8, 0xFF, 0xC0, 0, 1, 0, 0]).is_err());
    }

    #[test]
    fn batches_shrink_as_tiles_grow_and_never_to_nothing() {
        let len = |side| batch_len(&[Tile { width: side, height: side, ..tile(&[]) }], Output::RgbPlanar);
        assert_eq!(len(16), MAX_BATCH);
        assert!(len(4096) < MAX_BATCH && (len(4096) * 3) << 24 <= MAX_BATCH_SAMPLES);
        assert_eq!(len(u32::MAX), 1);
        assert_eq!(batch_len(&[], Output::Grey), MAX_BATCH);
    }

    #[test]
    fn a_plane_too_short_by_one_byte_or_a_pitch_below_the_row_is_refused() {
        let room = |pitch, plane_len| check_room(&Tile { pitch, plane_len, ..tile(&[]) });
        assert_eq!(room(64, 64 * 32), Ok(()));
        assert!(room(64, 64 * 32 - 1).is_err());
        assert!(room(63, 64 * 32).is_err());
        assert!(room(usize::MAX, usize::MAX).is_err());
    }
}
