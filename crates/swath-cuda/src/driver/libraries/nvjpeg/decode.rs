//! nvJPEG's decoder: 8-bit JPEG tiles in host memory become samples in device memory.
//!
//! Tiles that the GPU's JPEG engine accepts go to the library in one call. The others go one by one, with the Huffman
//! codes decoded on the host; so do all tiles of a batch that failed, to find the bad one. Where chroma is full size,
//! samples equal libjpeg-turbo's bit for bit; elsewhere a few differ by one level. The host decodes progressive tiles:
//! the library's transform for them is up to 3 levels off.

use std::{
    ffi::c_int,
    path::Path,
    ptr,
    sync::{Arc, Mutex},
};

use crate::driver::libraries::{
    load::{Absent, CallError, Library, RawStream, Search},
    nvjpeg::{
        NAMES, check,
        header::{Frame, JpegOutput, JpegRefusal, JpegTile, check_room, mismatch},
        supported_version,
    },
    session::{LazyHandle, OpaqueHandle, Sessions, Wait, lock},
    sys::nvjpeg as sys,
};

/// What decodes the Huffman codes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The host, and kernels do the rest. Decodes every kind of JPEG, one tile after another.
    Host,
    /// The GPU's JPEG engine, where there is one. Decodes baseline JPEG with one scan.
    Hardware,
}

/// Most tiles, and most samples in them, for one call of the library: a decode state keeps device memory for all of
/// them.
const MAX_BATCH: usize = 512;
const MAX_BATCH_SAMPLES: usize = 1 << 29;

/// States for tiles that are decoded one by one: the most tiles in flight before the host waits for the stream.
const HOST_STATES: usize = 8;

/// The loaded nvJPEG library, with the decode states of one CUDA context.
///
/// Each state belongs to a stream and keeps device memory for the largest batch it has decoded. [`Self::forget`] frees
/// it.
#[derive(Debug)]
pub struct JpegDecoder {
    library: Library,
    table: sys::Table,
    version: String,
    host: LazyHandle,
    hardware: LazyHandle,
    sessions: Sessions<(usize, Engine), StreamSession>,
}

/// What decoding on one stream with one engine keeps from call to call.
#[derive(Debug)]
struct StreamSession {
    states: Vec<OpaqueHandle>,
    /// Number of states with work queued since the last wait for the stream.
    used: usize,
    jpeg: OpaqueHandle,
    /// Batch size and output format that the state is initialised for.
    shape: Option<(usize, c_int)>,
}

impl StreamSession {
    /// Returns a state that no queued work uses. The header does not say whether a state may be used again before the
    /// device is done: progressive tiles decoded that way came out damaged in one run and whole in another.
    fn free_state(&mut self, wait: Wait<'_>) -> Result<OpaqueHandle, JpegRefusal> {
        if self.used >= self.states.len() {
            wait().map_err(JpegRefusal::Wait)?;
            self.used = 0;
        }
        let state =
            self.states.get(self.used).copied().ok_or(JpegRefusal::Wait("no state to decode with".to_owned()))?;
        self.used += 1;
        Ok(state)
    }
}

impl JpegDecoder {
    /// Loads nvJPEG and reads its version. Needs no GPU.
    ///
    /// # Errors
    /// The places that were searched, or the unsupported version that was found.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        let version = supported_version(&library, table.nvjpegGetProperty)?;
        Ok(Self {
            library,
            table,
            version,
            host: LazyHandle::default(),
            hardware: LazyHandle::default(),
            sessions: Sessions::default(),
        })
    }

    /// Returns `major.minor.patch`.
    #[must_use]
    pub fn version(&self) -> String {
        self.version.clone()
    }

    /// Returns the file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Checks that `engine` can be used on the current context's device.
    ///
    /// # Errors
    /// The library's error.
    pub fn probe(&self, engine: Engine) -> Result<(), CallError> {
        self.handle(engine).map(drop)
    }

    /// Decodes tiles on `stream`. Returns one result for each, in their order. Calls `wait` before a decode state is
    /// used again: before every batch but the first, and every few tiles of those decoded one by one. The last work may
    /// still be in flight at return. `Ok` means that nvJPEG accepted a tile's stream: it returns samples of damaged
    /// streams without an error, so the host must check streams before it calls this.
    ///
    /// [`Engine::Host`] replaces an engine that the device lacks (see [`Self::probe`]). Several threads may call this
    /// at once, with a stream each, which makes [`Engine::Host`] fast.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this `JpegDecoder`. Until the stream has passed this work, the
    /// tiles' bytes stay as they are and their planes are `plane_len` bytes of device memory that nothing else touches.
    /// `wait` keeps the promise of [`Wait`]. A stream given here is synchronised and [forgotten](Self::forget) before
    /// it is destroyed.
    #[must_use]
    pub unsafe fn decode(
        &self,
        engine: Engine,
        tiles: &[JpegTile<'_>],
        output: JpegOutput,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Vec<Result<(), JpegRefusal>> {
        let mut results: Vec<Result<(), JpegRefusal>> = Vec::with_capacity(tiles.len());
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
                // One bad tile fails the whole call, which does not report which one it was.
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

    /// Frees what decoding on `stream` kept, including device memory.
    ///
    /// # Safety
    /// The CUDA context is current and the stream has passed all work queued by [`Self::decode`].
    pub unsafe fn forget(&self, stream: RawStream) {
        self.sessions.remove(|(user, _)| *user == stream as usize, |session| self.destroy(session));
    }

    /// Checks everything about a tile that its headers tell.
    fn inspect(&self, tile: &JpegTile<'_>, output: JpegOutput) -> Result<Frame, JpegRefusal> {
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
        // The library's own view decides what it writes, so it is checked as well as ours.
        let found = (i64::from(widths[0]), i64::from(heights[0]), i64::from(components));
        let wanted = (i64::from(tile.width), i64::from(tile.height), output.components() as i64);
        if found != wanted {
            return Err(mismatch(found, wanted));
        }
        if output == JpegOutput::StoredPlanar && subsampling != sys::CSS_444 {
            return Err(JpegRefusal::Kind("stored components of different sizes"));
        }
        Ok(frame)
    }

    /// Queues a batch in one call. Returns the tiles that the engine does not accept.
    ///
    /// # Safety
    /// As [`Self::decode`]; the tiles at `chosen` were inspected.
    unsafe fn decode_batch(
        &self,
        engine: Engine,
        tiles: &[JpegTile<'_>],
        chosen: &[usize],
        output: JpegOutput,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Vec<usize>, JpegRefusal> {
        let handle = self.handle(engine)?;
        let session = self.session(engine, stream)?;
        let mut session = lock(&session);
        let mut left = Vec::new();
        let (mut data, mut lens, mut images) = (Vec::new(), Vec::new(), Vec::new());
        for &index in chosen {
            let Some(tile) = tiles.get(index) else { continue };
            if self.engine_takes(handle, session.jpeg, tile) {
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
        let state = session.free_state(wait)?;
        let shape = (data.len(), output.format());
        if session.shape != Some(shape) {
            session.shape = None;
            let count = c_int::try_from(data.len()).unwrap_or(c_int::MAX);
            // SAFETY: handle and state are alive, and this thread holds the state's mutex.
            let status =
                unsafe { (self.table.nvjpegDecodeBatchedInitialize)(handle.0, state.0, count, 1, output.format()) };
            check("nvjpegDecodeBatchedInitialize", status)?;
            session.shape = Some(shape);
        }
        // SAFETY: the three arrays have the batch's length, which the state is set up for; inspection made sure that
        // each image fits its planes, and the caller guarantees those and the bytes until the stream has passed.
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
            // A failed batch leaves the state uninitialised.
            session.shape = None;
        }
        check("nvjpegDecodeBatched", status)?;
        Ok(left)
    }

    fn engine_takes(&self, handle: OpaqueHandle, jpeg: OpaqueHandle, tile: &JpegTile<'_>) -> bool {
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
        tile: &JpegTile<'_>,
        output: JpegOutput,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<(), JpegRefusal> {
        let handle = self.handle(Engine::Host)?;
        let session = self.session(Engine::Host, stream)?;
        let mut session = lock(&session);
        let state = session.free_state(wait)?;
        let mut image = image(tile, output);
        // SAFETY: handle and state are alive and this thread holds the state's mutex; inspection made sure that the
        // image fits its planes, and the caller guarantees those and the bytes until the stream has passed.
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

    fn handle(&self, engine: Engine) -> Result<OpaqueHandle, CallError> {
        let (slot, backend) = match engine {
            Engine::Host => (&self.host, sys::BACKEND_HYBRID),
            Engine::Hardware => (&self.hardware, sys::BACKEND_HARDWARE),
        };
        slot.get_or_create(|| {
            // Interpolated chroma is what libjpeg writes, and so what the host decoder gives.
            let flags = sys::FLAG_INTERPOLATE_CHROMA;
            let mut handle = ptr::null_mut();
            // SAFETY: null allocators mean the library's own; `handle` is writable for the length of the call.
            let status =
                unsafe { (self.table.nvjpegCreateEx)(backend, ptr::null(), ptr::null(), flags, &raw mut handle) };
            check("nvjpegCreateEx", status).map(|()| OpaqueHandle(handle))
        })
    }

    fn session(&self, engine: Engine, stream: RawStream) -> Result<Arc<Mutex<StreamSession>>, CallError> {
        let handle = self.handle(engine)?;
        self.sessions.get_or_create((stream as usize, engine), || self.create_session(engine, handle))
    }

    fn create_session(&self, engine: Engine, handle: OpaqueHandle) -> Result<StreamSession, CallError> {
        let mut jpeg = ptr::null_mut();
        // SAFETY: the handle is alive; `jpeg` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegJpegStreamCreate)(handle.0, &raw mut jpeg) };
        check("nvjpegJpegStreamCreate", status)?;
        let mut session = StreamSession { states: Vec::new(), used: 0, jpeg: OpaqueHandle(jpeg), shape: None };
        let wanted = match engine {
            Engine::Host => HOST_STATES,
            Engine::Hardware => 1,
        };
        for _ in 0..wanted {
            let mut state = ptr::null_mut();
            // SAFETY: the handle is alive; `state` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpegJpegStateCreate)(handle.0, &raw mut state) };
            if let Err(error) = check("nvjpegJpegStateCreate", status) {
                self.destroy(&session);
                return Err(error);
            }
            session.states.push(OpaqueHandle(state));
        }
        Ok(session)
    }

    /// Destroys the objects of a session that was removed.
    fn destroy(&self, session: &StreamSession) {
        // SAFETY: the object was created by this library and is destroyed once, its session being out of the map.
        unsafe { (self.table.nvjpegJpegStreamDestroy)(session.jpeg.0) };
        for state in &session.states {
            // SAFETY: as above; that no queued work uses the state is the contract of `forget` and of dropping.
            unsafe { (self.table.nvjpegJpegStateDestroy)(state.0) };
        }
    }
}

/// By then the streams given to [`JpegDecoder::decode`] have passed its work, as [`JpegDecoder::forget`] requires for
/// each.
impl Drop for JpegDecoder {
    fn drop(&mut self) {
        self.sessions.remove(|_| true, |session| self.destroy(session));
        for handle in [&self.host, &self.hardware].into_iter().filter_map(LazyHandle::take) {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpegDestroy)(handle.0) };
        }
    }
}

fn image(tile: &JpegTile<'_>, output: JpegOutput) -> sys::Image {
    let mut image = sys::Image { channel: [ptr::null_mut(); sys::MAX_COMPONENT], pitch: [0; sys::MAX_COMPONENT] };
    let slots = image.channel.iter_mut().zip(&mut image.pitch);
    for ((channel, pitch), &plane) in slots.zip(tile.planes.iter().take(output.components())) {
        *channel = plane as *mut u8;
        *pitch = tile.pitch;
    }
    image
}

/// Returns how many of these tiles fit into one call.
fn batch_len(tiles: &[JpegTile<'_>], output: JpegOutput) -> usize {
    let samples = |tile: &JpegTile<'_>| (tile.width as usize).saturating_mul(tile.height as usize);
    let largest = tiles.iter().map(samples).max().unwrap_or_default().saturating_mul(output.components());
    (MAX_BATCH_SAMPLES / largest.max(1)).clamp(1, MAX_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILE: JpegTile<'_> =
        JpegTile { bytes: &[], width: 64, height: 32, planes: [0; 3], pitch: 192, plane_len: 192 * 32 };

    #[test]
    fn batches_shrink_as_tiles_grow_and_never_to_nothing() {
        let len = |side| batch_len(&[JpegTile { width: side, height: side, ..TILE }], JpegOutput::RgbPlanar);
        assert_eq!(len(16), MAX_BATCH);
        assert!(len(4096) < MAX_BATCH && (len(4096) * 3) << 24 <= MAX_BATCH_SAMPLES);
        assert_eq!(len(u32::MAX), 1);
        assert_eq!(batch_len(&[], JpegOutput::Grey), MAX_BATCH);
    }
}
