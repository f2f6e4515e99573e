//! nvJPEG's encoder: tiles of 8-bit samples in device memory become baseline JPEG streams in host memory.
//!
//! A stream is complete (its tables are in it), YCbCr where it has three components, and without the JFIF marker that
//! the library writes: libtiff's tiles have none either, and the file says what the components are. Quantisation tables
//! are libjpeg's for the same quality.

use std::{
    ffi::c_int,
    ptr,
    sync::{Arc, Mutex},
};

use crate::driver::libraries::{
    load::{Absent, CallError, Library, RawStream, Search},
    nvjpeg::{NAMES, check, supported_version},
    session::{EncodeFailure, LazyHandle, OpaqueHandle, Sessions, Wait, lock, tile_or_failure},
    sys::nvjpeg as sys,
};

/// The samples of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JpegSource {
    /// One sample for each pixel.
    Grey,
    /// Red, green and blue side by side.
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

impl JpegSource {
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
pub struct JpegSettings {
    /// Colour model of the samples.
    pub source: JpegSource,
    /// 1 to 100, on the scale of IJG's library.
    pub quality: u8,
    /// Whether each tile gets its own Huffman codes: about 4 per cent smaller, and half as much time again.
    pub optimised: bool,
}

/// One tile to encode.
#[derive(Debug, Clone, Copy)]
pub struct JpegSourceTile {
    /// Columns.
    pub width: u32,
    /// Rows.
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
pub enum JpegEncodeRefusal {
    /// The frame header cannot express this size.
    #[error("a JPEG cannot have {width} x {height} pixels (each 1 to 65500)")]
    Size {
        /// Columns.
        width: u32,
        /// Rows.
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
    /// The library returned something that is not a JPEG stream.
    #[error("nvJPEG returned no JPEG stream")]
    Stream,
    /// The library refused the tile.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Tiles in flight on a stream before the host waits for it: more gain nothing, and a state takes about 20 MiB of
/// device memory whatever the tile.
const STATES: usize = 4;

/// libjpeg's limit, a little less than the frame header can express.
const MAX_SIDE: u32 = 65_500;

/// nvJPEG's loaded encoder, with the states of one CUDA context. [`Self::forget`] frees the states of a stream.
#[derive(Debug)]
pub struct JpegEncoder {
    table: sys::EncodeTable,
    handle: LazyHandle,
    sessions: Sessions<usize, StreamSession>,
}

/// What encoding on one stream keeps from call to call.
#[derive(Debug)]
struct StreamSession {
    states: Vec<OpaqueHandle>,
    params: OpaqueHandle,
    /// The settings that the parameters have.
    set: Option<JpegSettings>,
}

impl JpegEncoder {
    /// Loads nvJPEG and reads its version. Needs no GPU.
    ///
    /// # Errors
    /// The places that were searched, or the unsupported version that was found.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::EncodeTable::load(&library)?;
        supported_version(&library, table.nvjpegGetProperty)?;
        Ok(Self { table, handle: LazyHandle::default(), sessions: Sessions::default() })
    }

    /// Checks that the library can be used on the current context's device.
    ///
    /// # Errors
    /// The library's error.
    pub fn probe(&self) -> Result<(), CallError> {
        self.handle().map(drop)
    }

    /// Encodes tiles on `stream`. Returns one result for each, in their order. All work is done at return.
    ///
    /// Several threads may call this at once, with a stream each, which makes it fast.
    ///
    /// # Errors
    /// A failure that no tile caused: too little memory, or a device that failed.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this encoder. Until return, the tiles' planes are
    /// `plane_len` bytes of device memory that nothing else writes. `wait` keeps the promise of [`Wait`]. A stream
    /// given here is [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn encode(
        &self,
        tiles: &[JpegSourceTile],
        settings: JpegSettings,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Vec<Result<Vec<u8>, JpegEncodeRefusal>>, EncodeFailure> {
        if !(1..=100).contains(&settings.quality) {
            return Err(EncodeFailure::Quality(settings.quality));
        }
        let handle = self.handle().map_err(EncodeFailure::of)?;
        let session = self.session(handle, stream).map_err(EncodeFailure::of)?;
        let mut session = lock(&session);
        self.set(&mut session, settings, stream).map_err(EncodeFailure::of)?;
        let mut results = Vec::with_capacity(tiles.len());
        for group in tiles.chunks(session.states.len().max(1)) {
            let mut encoded = Vec::with_capacity(group.len());
            // SAFETY: the caller keeps this function's contract; this thread holds the session, and waits below, before
            // the bytes go anywhere.
            let outcome = unsafe { self.encode_group(handle, &session, group, settings, stream, &mut encoded) };
            // Even a group that fails may have queued work first, and its states are used again.
            let waited = wait().map_err(EncodeFailure::Wait);
            outcome?;
            waited?;
            results.append(&mut encoded);
        }
        for result in &mut results {
            if let Ok(bytes) = result
                && !strip(bytes)
            {
                *result = Err(JpegEncodeRefusal::Stream);
            }
        }
        Ok(results)
    }

    /// Queues as many tiles as there are states, then asks for all lengths, then for all bytes. The bytes are there
    /// when the stream has passed.
    ///
    /// # Safety
    /// As [`Self::encode`]; the caller holds the session, and waits for the stream before it reads or drops the bytes,
    /// whatever this returns.
    unsafe fn encode_group(
        &self,
        handle: OpaqueHandle,
        session: &StreamSession,
        tiles: &[JpegSourceTile],
        settings: JpegSettings,
        stream: RawStream,
        queued: &mut Vec<Result<Vec<u8>, JpegEncodeRefusal>>,
    ) -> Result<(), EncodeFailure> {
        for (tile, state) in tiles.iter().zip(&session.states) {
            let queue = || {
                // SAFETY: as the caller promises.
                unsafe { self.queue(handle, *state, session.params, tile, settings, stream) }
            };
            let status = match check_tile(tile, settings.source) {
                Ok(()) => tile_or_failure(queue())?,
                Err(refused) => Err(refused),
            };
            queued.push(status.map(|()| Vec::new()));
        }
        for (place, state) in queued.iter_mut().zip(&session.states) {
            if place.is_err() {
                continue;
            }
            let mut len = 0;
            // SAFETY: handle and state are alive and have a tile in flight; `len` is writable for the length of the
            // call, and a null address asks for the length alone.
            let status = unsafe {
                (self.table.nvjpegEncodeRetrieveBitstream)(handle.0, state.0, ptr::null_mut(), &raw mut len, stream)
            };
            *place = tile_or_failure(check("nvjpegEncodeRetrieveBitstream", status))?.map(|()| vec![0; len]);
        }
        for (place, state) in queued.iter_mut().zip(&session.states) {
            let Ok(bytes) = place else { continue };
            let mut len = bytes.len();
            // SAFETY: as above; the bytes are writable for their length, and stay where they are until the caller has
            // waited for the stream.
            let status = unsafe {
                (self.table.nvjpegEncodeRetrieveBitstream)(handle.0, state.0, bytes.as_mut_ptr(), &raw mut len, stream)
            };
            check("nvjpegEncodeRetrieveBitstream", status).map_err(EncodeFailure::of)?;
            bytes.truncate(len);
        }
        Ok(())
    }

    /// # Safety
    /// As [`Self::encode`]; the tile was checked.
    unsafe fn queue(
        &self,
        handle: OpaqueHandle,
        state: OpaqueHandle,
        params: OpaqueHandle,
        tile: &JpegSourceTile,
        settings: JpegSettings,
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
            JpegSource::Grey => None,
            JpegSource::RgbInterleaved(_) => Some(sys::INPUT_RGB_INTERLEAVED),
        };
        match format {
            None => {
                // SAFETY: handle, state and parameters are alive and this thread holds the session; the image lies in its
                // plane, which the caller guarantees until the stream has passed. The image itself is only read here.
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

    /// Frees what encoding on `stream` kept, including device memory.
    ///
    /// # Safety
    /// The CUDA context is current and nothing is being encoded on the stream.
    pub unsafe fn forget(&self, stream: RawStream) {
        self.sessions.remove(|user| *user == stream as usize, |session| self.destroy(session));
    }

    fn set(&self, session: &mut StreamSession, settings: JpegSettings, stream: RawStream) -> Result<(), CallError> {
        if session.set == Some(settings) {
            return Ok(());
        }
        session.set = None;
        let (table, params) = (&self.table, session.params.0);
        // SAFETY: the parameters are alive, this thread holds their session, and no tile is in flight on it. So below.
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
        session.set = Some(settings);
        Ok(())
    }

    fn handle(&self) -> Result<OpaqueHandle, CallError> {
        self.handle.get_or_create(|| {
            let create = self.table.nvjpegCreateEx;
            let mut handle = ptr::null_mut();
            // SAFETY: null allocators mean the library's own; `handle` is writable for the length of the call.
            let status = unsafe { create(sys::BACKEND_DEFAULT, ptr::null(), ptr::null(), 0, &raw mut handle) };
            check("nvjpegCreateEx", status).map(|()| OpaqueHandle(handle))
        })
    }

    fn session(&self, handle: OpaqueHandle, stream: RawStream) -> Result<Arc<Mutex<StreamSession>>, CallError> {
        self.sessions.get_or_create(stream as usize, || self.create_session(handle, stream))
    }

    fn create_session(&self, handle: OpaqueHandle, stream: RawStream) -> Result<StreamSession, CallError> {
        let mut params = ptr::null_mut();
        // SAFETY: the handle is alive; `params` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpegEncoderParamsCreate)(handle.0, &raw mut params, stream) };
        check("nvjpegEncoderParamsCreate", status)?;
        let mut session = StreamSession { states: Vec::with_capacity(STATES), params: OpaqueHandle(params), set: None };
        for _ in 0..STATES {
            let mut state = ptr::null_mut();
            // SAFETY: the handle is alive; `state` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpegEncoderStateCreate)(handle.0, &raw mut state, stream) };
            if let Err(error) = check("nvjpegEncoderStateCreate", status) {
                // Fewer states encode the same bytes.
                if session.states.is_empty() {
                    self.destroy(&session);
                    return Err(error);
                }
                break;
            }
            session.states.push(OpaqueHandle(state));
        }
        Ok(session)
    }

    /// Destroys the objects of a session that was removed.
    fn destroy(&self, session: &StreamSession) {
        for state in &session.states {
            // SAFETY: the object was created by this library and is destroyed once, its session being out of the map; that
            // no queued work uses it is the contract of `forget` and of dropping.
            unsafe { (self.table.nvjpegEncoderStateDestroy)(state.0) };
        }
        // SAFETY: as above.
        unsafe { (self.table.nvjpegEncoderParamsDestroy)(session.params.0) };
    }
}

/// By then nothing is being encoded, as [`JpegEncoder::forget`] requires.
impl Drop for JpegEncoder {
    fn drop(&mut self) {
        self.sessions.remove(|_| true, |session| self.destroy(session));
        if let Some(handle) = self.handle.take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpegDestroy)(handle.0) };
        }
    }
}

fn check_tile(tile: &JpegSourceTile, source: JpegSource) -> Result<(), JpegEncodeRefusal> {
    let JpegSourceTile { width, height, pitch, plane_len: len, .. } = *tile;
    if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
        return Err(JpegEncodeRefusal::Size { width, height });
    }
    let row = width as usize * source.pixel_len();
    let needed = pitch.checked_mul(height as usize);
    let fits = row <= pitch && needed.is_some_and(|needed| needed <= len);
    if fits { Ok(()) } else { Err(JpegEncodeRefusal::Room { len, pitch, height }) }
}

/// Removes application markers and comments from a stream's head. Returns false where the stream is not complete. Every
/// step moves forward, so the stream's length bounds the work.
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

    fn tile() -> JpegSourceTile {
        JpegSourceTile { width: 64, height: 32, samples: 256, pitch: 192, plane_len: 192 * 32 }
    }

    const RGB: JpegSource = JpegSource::RgbInterleaved(Subsampling::Quarter);

    #[test]
    fn tiles_too_large_or_with_too_little_room_are_refused() {
        assert_eq!(check_tile(&tile(), RGB), Ok(()));
        assert!(matches!(
            check_tile(&JpegSourceTile { width: 65, ..tile() }, RGB),
            Err(JpegEncodeRefusal::Room { .. })
        ));
        assert_eq!(check_tile(&JpegSourceTile { width: 65, ..tile() }, JpegSource::Grey), Ok(()));
        assert!(matches!(
            check_tile(&JpegSourceTile { plane_len: 192 * 32 - 1, ..tile() }, RGB),
            Err(JpegEncodeRefusal::Room { .. })
        ));
        for side in [0, 65_501, u32::MAX] {
            assert!(matches!(
                check_tile(&JpegSourceTile { width: side, ..tile() }, RGB),
                Err(JpegEncodeRefusal::Size { .. })
            ));
            assert!(matches!(
                check_tile(&JpegSourceTile { height: side, ..tile() }, RGB),
                Err(JpegEncodeRefusal::Size { .. })
            ));
        }
        let endless = JpegSourceTile { pitch: usize::MAX, plane_len: usize::MAX, ..tile() };
        assert!(matches!(check_tile(&endless, RGB), Err(JpegEncodeRefusal::Room { .. })));
    }

    #[test]
    fn application_markers_are_removed_and_the_rest_stays() {
        let head = [0xFF, 0xD8];
        let jfif = [&[0xFF, 0xE0, 0, 7][..], b"JFIF\0"].concat();
        let comment = [0xFF, 0xFE, 0, 3, 1];
        let table = [0xFF, 0xDB, 0, 4, 1, 2];
        // The scan contains bytes that look like an application marker.
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
    fn a_device_status_is_not_a_refused_tile() {
        let error = |status: i64| CallError { call: "nvjpegEncodeImage", status, text: String::new() };
        assert!(matches!(tile_or_failure(Err(error(4))), Ok(Err(JpegEncodeRefusal::Call(_)))));
        assert!(matches!(tile_or_failure::<JpegEncodeRefusal>(Err(error(6))), Err(EncodeFailure::Call(_))));
        assert!(matches!(tile_or_failure::<JpegEncodeRefusal>(Err(error(5))), Err(EncodeFailure::Memory(_))));
        assert!(matches!(tile_or_failure::<JpegEncodeRefusal>(Ok(())), Ok(Ok(()))));
    }
}
