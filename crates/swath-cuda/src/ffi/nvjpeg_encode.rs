//! nvJPEG's encoder: tiles of 8-bit samples in device memory into baseline JPEG streams on the host.
//!
//! A stream is whole (its tables are in it), YCbCr where it has three components, and without the JFIF marker that the
//! library writes: libtiff's tiles have none either, and the file says what the components are. Quantisation tables are
//! libjpeg's for the same quality.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex};

use super::library::{Absent, CallError, Library, RawStream, Search};
use super::nvjpeg::{NAMES, Wait, check, lock, version_of};
use super::sys::nvjpeg as sys;

/// What the samples of a tile are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// One sample a pixel.
    Grey,
    /// Red, green and blue beside each other.
    RgbInterleaved(Subsampling),
}

/// Luma samples per chroma sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsampling {
    /// One (4:4:4).
    Full,
    /// Two across (4:2:2).
    Half,
    /// Two across, two down (4:2:0).
    Quarter,
}

impl Source {
    const fn pixel_len(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::RgbInterleaved(_) => 3,
        }
    }

    const fn subsampling(self) -> c_int {
        match self {
            Self::Grey => sys::CSS_GRAY,
            Self::RgbInterleaved(subsampling) => match subsampling {
                Subsampling::Full => sys::CSS_444,
                Subsampling::Half => sys::CSS_422,
                Subsampling::Quarter => sys::CSS_420,
            },
        }
    }
}

/// How to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What the samples are.
    pub source: Source,
    /// 1 to 100, on the scale of IJG's library.
    pub quality: u8,
    /// Whether each tile gets Huffman codes of its own: some 4 per cent smaller, and half as much time again.
    pub optimised: bool,
}

/// One tile to encode.
#[derive(Debug, Clone, Copy)]
pub struct Tile {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Device address of its samples.
    pub samples: u64,
    /// Bytes from row to row of a plane.
    pub pitch: usize,
    /// Bytes that may be read from each plane's address on.
    pub plane_len: usize,
}

/// Why a tile was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The frame header cannot say this size.
    #[error("a JPEG of {width} x {height} pixels cannot be (each 1 to 65500)")]
    Size {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
    /// The planes are too short for the tile.
    #[error("an input plane of {len} bytes is too short for {height} rows {pitch} bytes apart")]
    Room {
        /// Bytes of a plane.
        len: usize,
        /// Bytes from row to row.
        pitch: usize,
        /// Rows.
        height: u32,
    },
    /// The library gave something that is no JPEG stream.
    #[error("nvJPEG gave no JPEG stream")]
    Stream,
    /// The library refused the tile.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a whole batch was not encoded: it says nothing of its tiles.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The library found no memory.
    #[error("{0}")]
    Memory(CallError),
    /// A call failed.
    #[error("{0}")]
    Call(CallError),
    /// The stream could not be waited for.
    #[error("waiting for the stream failed: {0}")]
    Wait(String),
    /// The quality is not 1 to 100.
    #[error("JPEG quality is {0}, not 1 to 100")]
    Quality(u8),
}

impl Failed {
    fn of(error: CallError) -> Self {
        if error.status == i64::from(sys::ALLOCATOR_FAILURE) { Self::Memory(error) } else { Self::Call(error) }
    }
}

/// Tiles under way on a stream before it is waited for: more gain nothing, and a state has some 20 MiB of device memory
/// whatever the tile.
const STATES: usize = 4;

/// libjpeg's limit, a little under what the frame header can say.
const MAX_SIDE: u32 = 65_500;

/// nvJPEG's encoder, loaded, with the states of one CUDA context: some for each stream. [`Self::forget`] gives them
/// back.
#[derive(Debug)]
pub struct JpegEncoder {
    table: sys::EncodeTable,
    /// Made on first use; a failure is not kept, since memory may be short only for a while.
    handle: Mutex<Option<Handle>>,
    lanes: Mutex<HashMap<usize, Arc<Mutex<Lane>>>>,
}

/// A pointer the library owns the meaning of.
#[derive(Debug, Clone, Copy)]
struct Handle(sys::Opaque);

// SAFETY: nvJPEG's library handle is documented as thread safe, and states and parameters as usable from any one thread
// at a time, which the mutex around each `Lane` sees to.
unsafe impl Send for Handle {}
// SAFETY: as above; only the library handle is ever shared.
unsafe impl Sync for Handle {}

/// What encoding on one stream keeps from call to call.
#[derive(Debug)]
struct Lane {
    states: Vec<Handle>,
    params: Handle,
    /// What the parameters are set to.
    set: Option<Settings>,
}

impl JpegEncoder {
    /// Finds nvJPEG and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another major.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::EncodeTable::load(&library)?;
        version_of(&library, table.nvjpegGetProperty)?;
        Ok(Self { table, handle: Mutex::default(), lanes: Mutex::default() })
    }

    /// Whether the library can be used on the current context's device.
    ///
    /// # Errors
    /// What the library said when asked to set itself up.
    pub fn probe(&self) -> Result<(), CallError> {
        self.handle().map(drop)
    }

    /// Encodes tiles on `stream`; one result for each, in their order. All work is done at return.
    ///
    /// May be called from several threads at once, with a stream each: that is what makes it fast.
    ///
    /// # Errors
    /// What is no single tile's fault: memory that there is not, or a device that failed.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this encoder. Until return, the tiles' planes are
    /// `plane_len` bytes of device memory that nothing else writes. `wait` keeps the promise of [`Wait`]. A stream
    /// given here is [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn encode(
        &self,
        tiles: &[Tile],
        settings: Settings,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Vec<Result<Vec<u8>, Refused>>, Failed> {
        if !(1..=100).contains(&settings.quality) {
            return Err(Failed::Quality(settings.quality));
        }
        let handle = self.handle().map_err(Failed::of)?;
        let lane = self.lane(handle, stream).map_err(Failed::of)?;
        let mut lane = lock(&lane);
        self.set(&mut lane, settings, stream).map_err(Failed::of)?;
        let mut results = Vec::with_capacity(tiles.len());
        for group in tiles.chunks(lane.states.len().max(1)) {
            let mut encoded = Vec::with_capacity(group.len());
            // SAFETY: the caller keeps this function's contract; this thread holds the lane, and waits below, before
            // the bytes go anywhere.
            let outcome = unsafe { self.encode_group(handle, &lane, group, settings, stream, &mut encoded) };
            // Even a group that fails may have queued something first, and its states are used again.
            let waited = wait(stream).map_err(Failed::Wait);
            outcome?;
            waited?;
            results.append(&mut encoded);
        }
        for result in &mut results {
            if let Ok(bytes) = result
                && !strip(bytes)
            {
                *result = Err(Refused::Stream);
            }
        }
        Ok(results)
    }

    /// Queues as many tiles as there are states, then asks for all lengths, then for all bytes: the last are there when
    /// the stream has passed.
    ///
    /// # Safety
    /// As [`Self::encode`]; the caller holds the lane, and waits for the stream before it looks at the bytes or lets go
    /// of them, whatever this returns.
    unsafe fn encode_group(
        &self,
        handle: Handle,
        lane: &Lane,
        tiles: &[Tile],
        settings: Settings,
        stream: RawStream,
        queued: &mut Vec<Result<Vec<u8>, Refused>>,
    ) -> Result<(), Failed> {
        for (tile, state) in tiles.iter().zip(&lane.states) {
            let status = match check_tile(tile, settings.source) {
                // SAFETY: as the caller promises.
                Ok(()) => about_tile(unsafe { self.queue(handle, *state, lane.params, tile, settings, stream) })?,
                Err(refused) => Err(refused),
            };
            queued.push(status.map(|()| Vec::new()));
        }
        for (place, state) in queued.iter_mut().zip(&lane.states) {
            if place.is_err() {
                continue;
            }
            let mut len = 0;
            // SAFETY: handle and state are alive and have a tile under way; `len` is writable for the length of the
            // call, and a null address asks for the length alone.
            let status = unsafe {
                (self.table.nvjpegEncodeRetrieveBitstream)(handle.0, state.0, ptr::null_mut(), &raw mut len, stream)
            };
            *place = about_tile(check("nvjpegEncodeRetrieveBitstream", status))?.map(|()| vec![0; len]);
        }
        for (place, state) in queued.iter_mut().zip(&lane.states) {
            let Ok(bytes) = place else { continue };
            let mut len = bytes.len();
            // SAFETY: as above; the bytes are writable for their length, and stay where they are until the caller has
            // waited for the stream.
            let status = unsafe {
                (self.table.nvjpegEncodeRetrieveBitstream)(handle.0, state.0, bytes.as_mut_ptr(), &raw mut len, stream)
            };
            check("nvjpegEncodeRetrieveBitstream", status).map_err(Failed::of)?;
            bytes.truncate(len);
        }
        Ok(())
    }

    /// # Safety
    /// As [`Self::encode`]; the tile was checked.
    unsafe fn queue(
        &self,
        handle: Handle,
        state: Handle,
        params: Handle,
        tile: &Tile,
        settings: Settings,
        stream: RawStream,
    ) -> Result<(), CallError> {
        let mut image = sys::Image { channel: [ptr::null_mut(); sys::MAX_COMPONENT], pitch: [0; sys::MAX_COMPONENT] };
        let slots = image.channel.iter_mut().zip(&mut image.pitch);
        for ((channel, pitch), plane) in slots.zip([tile.samples]) {
            *channel = plane as *mut u8;
            *pitch = tile.pitch;
        }
        let side = |side: u32| c_int::try_from(side).unwrap_or(0);
        let (width, height) = (side(tile.width), side(tile.height));
        let format = match settings.source {
            Source::Grey => None,
            Source::RgbInterleaved(_) => Some(sys::INPUT_RGB_INTERLEAVED),
        };
        match format {
            None => {
                // SAFETY: handle, state and parameters are alive and this thread holds the lane; the image lies in its
                // plane, which the caller vouches for until the stream has passed. The image itself is only read here.
                let status = unsafe {
                    (self.table.nvjpegEncodeYUV)(
                        handle.0,
                        state.0,
                        params.0,
                        &raw const image,
                        sys::CSS_GRAY,
                        width,
                        height,
                        stream,
                    )
                };
                check("nvjpegEncodeYUV", status)
            }
            Some(format) => {
                // SAFETY: as above.
                let status = unsafe {
                    (self.table.nvjpegEncodeImage)(
                        handle.0,
                        state.0,
                        params.0,
                        &raw const image,
                        format,
                        width,
                        height,
                        stream,
                    )
                };
                check("nvjpegEncodeImage", status)
            }
        }
    }

    /// Gives back what encoding on `stream` kept, device memory included.
    ///
    /// # Safety
    /// The CUDA context is current and nothing is being encoded on the stream.
    pub unsafe fn forget(&self, stream: RawStream) {
        if let Some(lane) = lock(&self.lanes).remove(&(stream as usize)) {
            self.destroy(&lock(&lane));
        }
    }

    fn set(&self, lane: &mut Lane, settings: Settings, stream: RawStream) -> Result<(), CallError> {
        if lane.set == Some(settings) {
            return Ok(());
        }
        lane.set = None;
        let (table, params) = (&self.table, lane.params.0);
        // SAFETY: the parameters are alive, this thread holds their lane, and no tile is under way on it. So below.
        let status = unsafe { (table.nvjpegEncoderParamsSetEncoding)(params, sys::ENCODING_BASELINE, stream) };
        check("nvjpegEncoderParamsSetEncoding", status)?;
        // SAFETY: as above.
        let status = unsafe { (table.nvjpegEncoderParamsSetQuality)(params, settings.quality.into(), stream) };
        check("nvjpegEncoderParamsSetQuality", status)?;
        // SAFETY: as above.
        let status =
            unsafe { (table.nvjpegEncoderParamsSetOptimizedHuffman)(params, settings.optimised.into(), stream) };
        check("nvjpegEncoderParamsSetOptimizedHuffman", status)?;
        // SAFETY: as above.
        let status =
            unsafe { (table.nvjpegEncoderParamsSetSamplingFactors)(params, settings.source.subsampling(), stream) };
        check("nvjpegEncoderParamsSetSamplingFactors", status)?;
        lane.set = Some(settings);
        Ok(())
    }

    fn handle(&self) -> Result<Handle, CallError> {
        let mut made = lock(&self.handle);
        if let Some(handle) = *made {
            return Ok(handle);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: null allocators mean the library's own; `handle` is writable for the length of the call.
        let status =
            unsafe { (self.table.nvjpegCreateEx)(sys::BACKEND_DEFAULT, ptr::null(), ptr::null(), 0, &raw mut handle) };
        check("nvjpegCreateEx", status)?;
        *made = Some(Handle(handle));
        Ok(Handle(handle))
    }

    fn lane(&self, handle: Handle, stream: RawStream) -> Result<Arc<Mutex<Lane>>, CallError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&(stream as usize)) {
            return Ok(Arc::clone(lane));
        }
        let mut params = ptr::null_mut();
        // SAFETY: the handle is alive; `params` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegEncoderParamsCreate)(handle.0, &raw mut params, stream) };
        check("nvjpegEncoderParamsCreate", status)?;
        let mut lane = Lane { states: Vec::with_capacity(STATES), params: Handle(params), set: None };
        for _ in 0..STATES {
            let mut state = ptr::null_mut();
            // SAFETY: the handle is alive; `state` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpegEncoderStateCreate)(handle.0, &raw mut state, stream) };
            if let Err(error) = check("nvjpegEncoderStateCreate", status) {
                // Fewer states encode the same.
                if lane.states.is_empty() {
                    self.destroy(&lane);
                    return Err(error);
                }
                break;
            }
            lane.states.push(Handle(state));
        }
        let lane = Arc::new(Mutex::new(lane));
        lanes.insert(stream as usize, Arc::clone(&lane));
        Ok(lane)
    }

    /// Takes a lane that is out of the map apart.
    fn destroy(&self, lane: &Lane) {
        for state in &lane.states {
            // SAFETY: the object was created by this library and is destroyed once, its lane being out of the map; that
            // no queued work uses it is the contract of `forget` and of dropping.
            unsafe { (self.table.nvjpegEncoderStateDestroy)(state.0) };
        }
        // SAFETY: as above.
        unsafe { (self.table.nvjpegEncoderParamsDestroy)(lane.params.0) };
    }
}

/// Nothing is being encoded by then, as [`JpegEncoder::forget`] asks.
impl Drop for JpegEncoder {
    fn drop(&mut self) {
        for lane in std::mem::take(&mut *lock(&self.lanes)).into_values() {
            self.destroy(&lock(&lane));
        }
        if let Some(handle) = lock(&self.handle).take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpegDestroy)(handle.0) };
        }
    }
}

/// What a call says of one tile, apart from what it says of the device.
fn about_tile(result: Result<(), CallError>) -> Result<Result<(), Refused>, Failed> {
    match result {
        Ok(()) => Ok(Ok(())),
        Err(error) if sys::PICTURE_STATUSES.iter().any(|status| i64::from(*status) == error.status) => {
            Ok(Err(error.into()))
        }
        Err(error) => Err(Failed::of(error)),
    }
}

fn check_tile(tile: &Tile, source: Source) -> Result<(), Refused> {
    let Tile { width, height, pitch, plane_len: len, .. } = *tile;
    if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
        return Err(Refused::Size { width, height });
    }
    let row = width as usize * source.pixel_len();
    let needed = pitch.checked_mul(height as usize);
    let fits = row <= pitch && needed.is_some_and(|needed| needed <= len);
    if fits { Ok(()) } else { Err(Refused::Room { len, pitch, height }) }
}

/// Takes the markers of applications and comments out of a stream's head; false where it is not a whole stream. Every
/// step moves forward, so the work is bounded by the stream's length.
fn strip(bytes: &mut Vec<u8>) -> bool {
    if !bytes.starts_with(&[0xFF, 0xD8]) || !bytes.ends_with(&[0xFF, 0xD9]) {
        return false;
    }
    let mut at = 2;
    loop {
        let Some(&[0xFF, marker, high, low]) = bytes.get(at..at + 4) else { return false };
        let end = at + 2 + usize::from(u16::from_be_bytes([high, low])).max(2);
        if end > bytes.len() {
            return false;
        }
        match marker {
            0xE0..=0xEF | 0xFE => drop(bytes.drain(at..end)),
            0xDA => return true,
            _ => at = end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> Tile {
        Tile { width: 64, height: 32, samples: 256, pitch: 192, plane_len: 192 * 32 }
    }

    const RGB: Source = Source::RgbInterleaved(Subsampling::Quarter);

    #[test]
    fn tiles_too_large_or_with_too_little_room_are_refused() {
        assert_eq!(check_tile(&tile(), RGB), Ok(()));
        assert!(matches!(check_tile(&Tile { width: 65, ..tile() }, RGB), Err(Refused::Room { .. })));
        assert_eq!(check_tile(&Tile { width: 65, ..tile() }, Source::Grey), Ok(()));
        assert!(matches!(check_tile(&Tile { plane_len: 192 * 32 - 1, ..tile() }, RGB), Err(Refused::Room { .. })));
        for side in [0, 65_501, u32::MAX] {
            assert!(matches!(check_tile(&Tile { width: side, ..tile() }, RGB), Err(Refused::Size { .. })));
            assert!(matches!(check_tile(&Tile { height: side, ..tile() }, RGB), Err(Refused::Size { .. })));
        }
        let endless = Tile { pitch: usize::MAX, plane_len: usize::MAX, ..tile() };
        assert!(matches!(check_tile(&endless, RGB), Err(Refused::Room { .. })));
    }

    #[test]
    fn markers_of_applications_are_taken_out_and_the_rest_stays() {
        let head = [0xFF, 0xD8];
        let jfif = [&[0xFF, 0xE0, 0, 7][..], b"JFIF\0"].concat();
        let comment = [0xFF, 0xFE, 0, 3, 1];
        let table = [0xFF, 0xDB, 0, 4, 1, 2];
        // The scan holds what looks like a marker of an application.
        let scan = [0xFF, 0xDA, 0, 3, 0, 5, 0xFF, 0xE0, 0, 2, 0xFF, 0xD9];
        let mut stream = [&head[..], &jfif, &table, &comment, &scan].concat();
        assert!(strip(&mut stream));
        assert_eq!(stream, [&head[..], &table, &scan].concat());
        let whole = stream.clone();
        assert!(strip(&mut stream));
        assert_eq!(stream, whole);
        for len in 0..whole.len() {
            assert!(!strip(&mut whole[..len].to_vec()), "{len}");
        }
        assert!(!strip(&mut vec![0xFF, 0xD8, 0xFF, 0xDB, 0xFF, 0xFF, 0xFF, 0xD9]));
    }

    #[test]
    fn a_status_of_the_device_is_not_a_tiles() {
        let error = |status: i64| CallError { call: "nvjpegEncodeImage", status, text: String::new() };
        assert!(matches!(about_tile(Err(error(4))), Ok(Err(Refused::Call(_)))));
        assert!(matches!(about_tile(Err(error(6))), Err(Failed::Call(_))));
        assert!(matches!(about_tile(Err(error(5))), Err(Failed::Memory(_))));
        assert!(matches!(about_tile(Ok(())), Ok(Ok(()))));
    }
}
