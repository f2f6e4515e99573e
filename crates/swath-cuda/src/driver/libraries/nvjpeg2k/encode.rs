//! nvJPEG2000's encoder: tiles of samples in device memory become bare codestreams of one tile in host memory.
//!
//! The streams are like those of the host encoder (one layer, the same number of resolutions, the same colour
//! transform), but in blocks of 32 by 32 samples instead of 64. A call returns when its tile is done and takes as long
//! as one block, so smaller blocks take a third of the time, for 1 per cent more bytes. Several streams, each with its
//! own thread, fill the device.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex},
};

use crate::driver::libraries::{
    load::{Absent, CallError, Library, RawStream, Search},
    nvjpeg2k::{Jpeg2000Sample, NAMES, check, supported_version},
    session::{EncodeFailure, LazyHandle, OpaqueHandle, SUCCESS, Sessions, Wait, lock, tile_or_failure},
    sys::nvjpeg2k as sys,
};

/// The samples of all tiles of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jpeg2000Image {
    /// The type of the samples; all their bits are used.
    pub sample: Jpeg2000Sample,
    /// 1 to 4.
    pub components: u32,
    /// Whether the first three components are red, green and blue, to be transformed to luma and chroma.
    pub colours: bool,
    /// Whether the samples of a pixel lie side by side. Otherwise each component is a plane.
    pub interleaved: bool,
}

/// The quality of a tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jpeg2000Quality {
    /// Lossless (the 5/3 transform).
    Lossless,
    /// This peak signal-to-noise ratio in decibels (the 9/7 transform).
    Decibels(f64),
}

impl Jpeg2000Quality {
    /// Returns the quality that the host encoder uses for a quality from 1 to 100 and 8-bit samples with the value
    /// range `range`: 75 is 45 dB.
    ///
    /// Tiles whose range is hardly larger than the noise become lossless, which takes few bytes: the library wrote a
    /// constant tile 15 levels off.
    #[must_use]
    pub fn of(quality: u32, range: u8) -> Self {
        let decibels = 22.5 + 0.3 * f64::from(quality);
        let noise = 255.0 / 10_f64.powf(decibels / 20.0);
        if f64::from(range) < (8.0 * noise).max(16.0) { Self::Lossless } else { Self::Decibels(decibels) }
    }
}

/// One tile to encode.
#[derive(Debug, Clone, Copy)]
pub struct Jpeg2000SourceTile<'a> {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Device address and pitch in bytes of each plane: one where samples are interleaved.
    pub planes: &'a [(u64, usize)],
    /// Bytes that may be read from each plane's address on.
    pub plane_len: usize,
    /// The quality of the tile.
    pub quality: Jpeg2000Quality,
}

/// Why a tile was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Jpeg2000EncodeRefusal {
    /// The planes are too few, too short or too narrow for the tile, or it is empty.
    #[error("the input planes are too small for the tile")]
    Room,
    /// A number of components that the library does not encode.
    #[error("{0} components (nvJPEG2000 encodes 1 to 4, and colours of 3 or 4)")]
    Components(u32),
    /// The library's 9/7 transform is off by 3 parts in 10000 of the distance from the middle of the scale: nothing for
    /// 8 bits, but up to 10 levels for 16 bits.
    #[error("samples of 16 bits with loss (nvJPEG2000 shifts their level)")]
    Loss,
    /// The library returned something that is not a codestream.
    #[error("nvJPEG2000 returned no codestream")]
    Stream,
    /// The library refused the tile.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Samples along a side of a code block.
const BLOCK: u32 = 32;

/// The host encoder's limit.
const MAX_RESOLUTIONS: u32 = 6;

/// nvJPEG2000's loaded encoder, with one session for each stream of a CUDA context. [`Self::forget`] frees the session
/// of a stream.
#[derive(Debug)]
pub struct Jpeg2000Encoder {
    table: sys::EncodeTable,
    encoder: LazyHandle,
    sessions: Sessions<usize, StreamSession>,
}

/// What encoding on one stream keeps from tile to tile.
#[derive(Debug)]
struct StreamSession {
    state: OpaqueHandle,
    params: OpaqueHandle,
    /// What the parameters are set to: samples, columns, rows and quality.
    set: Option<(Jpeg2000Image, u32, u32, Jpeg2000Quality)>,
}

impl Jpeg2000Encoder {
    /// Loads nvJPEG2000 and reads its version. Needs no GPU.
    ///
    /// # Errors
    /// The places that were searched, or the unsupported version that was found.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::EncodeTable::load(&library)?;
        supported_version(&library, table.nvjpeg2kGetProperty)?;
        Ok(Self { table, encoder: LazyHandle::default(), sessions: Sessions::default() })
    }

    /// Checks that the library can be used on the current context's device.
    ///
    /// # Errors
    /// The library's error.
    pub fn probe(&self) -> Result<(), CallError> {
        let session = self.create_session(self.encoder()?)?;
        self.destroy(&session);
        Ok(())
    }

    /// Encodes one tile on `stream`. All work is done at return.
    ///
    /// Several threads may call this at once, with a stream each.
    ///
    /// # Errors
    /// A failure that is not the tile's fault: too little memory, or a device that failed.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this encoder. Until return, the tile's planes are
    /// `plane_len` bytes of device memory that nothing else writes. `wait` keeps the promise of [`Wait`] for the
    /// stream, which is [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn encode(
        &self,
        kind: Jpeg2000Image,
        tile: &Jpeg2000SourceTile<'_>,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Result<Vec<u8>, Jpeg2000EncodeRefusal>, EncodeFailure> {
        if let Err(refused) = check_tile(tile, kind) {
            return Ok(Err(refused));
        }
        let encoder = self.encoder().map_err(EncodeFailure::of)?;
        let session = self.session(encoder, stream).map_err(EncodeFailure::of)?;
        let mut session = lock(&session);
        if let Err(refused) = tile_or_failure(self.set(&mut session, kind, tile))? {
            return Ok(Err(refused));
        }
        let mut bytes = Vec::new();
        // SAFETY: the caller keeps this function's contract; this thread holds the session, and waits below, before the
        // bytes go anywhere.
        let outcome = unsafe { self.encode_one(encoder, &session, kind, tile, stream, &mut bytes) };
        // Even a failed call may have queued work first, and its state is used again.
        let waited = wait().map_err(EncodeFailure::Wait);
        let outcome = tile_or_failure(outcome)?;
        waited?;
        let is_whole = bytes.starts_with(&[0xFF, 0x4F, 0xFF, 0x51]) && bytes.ends_with(&[0xFF, 0xD9]);
        Ok(outcome.and(if is_whole { Ok(bytes) } else { Err(Jpeg2000EncodeRefusal::Stream) }))
    }

    /// # Safety
    /// As [`Self::encode`]; the caller holds the session, and waits for the stream before it reads or drops the bytes,
    /// whatever this returns.
    unsafe fn encode_one(
        &self,
        encoder: OpaqueHandle,
        session: &StreamSession,
        kind: Jpeg2000Image,
        tile: &Jpeg2000SourceTile<'_>,
        stream: RawStream,
        bytes: &mut Vec<u8>,
    ) -> Result<(), CallError> {
        const RETRIEVE: &str = "nvjpeg2kEncodeRetrieveBitstream";
        let mut planes: Vec<*mut c_void> = tile.planes.iter().map(|&(address, _)| address as *mut c_void).collect();
        let mut pitches: Vec<usize> = tile.planes.iter().map(|&(_, pitch)| pitch).collect();
        let image = sys::Image {
            pixel_data: planes.as_mut_ptr(),
            pitch_in_bytes: pitches.as_mut_ptr(),
            pixel_type: kind.sample.pixel_type(),
            components: kind.components,
        };
        let (table, state) = (&self.table, session.state.0);
        // SAFETY: encoder, state and parameters are alive and this thread holds the session; both arrays hold one element
        // for each plane of the format that the parameters name, and the image lies in its planes (`check_tile`), which
        // the caller guarantees until the stream has passed.
        let status = unsafe { (table.nvjpeg2kEncode)(encoder.0, state, session.params.0, &raw const image, stream) };
        check("nvjpeg2kEncode", status)?;
        let mut len = 0;
        // SAFETY: as above; `len` is writable for the length of the call, and a null address asks for the length alone.
        let status =
            unsafe { (table.nvjpeg2kEncodeRetrieveBitstream)(encoder.0, state, ptr::null_mut(), &raw mut len, stream) };
        check(RETRIEVE, status)?;
        bytes.resize(len, 0);
        // SAFETY: as above; the bytes are writable for their length, and stay where they are until the caller has
        // waited for the stream.
        let status = unsafe {
            (table.nvjpeg2kEncodeRetrieveBitstream)(encoder.0, state, bytes.as_mut_ptr(), &raw mut len, stream)
        };
        check(RETRIEVE, status)?;
        bytes.truncate(len);
        Ok(())
    }

    /// Frees what encoding on `stream` kept, including device memory.
    ///
    /// # Safety
    /// The CUDA context is current and nothing is being encoded on the stream.
    pub unsafe fn forget(&self, stream: RawStream) {
        self.sessions.remove(|user| *user == stream as usize, |session| self.destroy(session));
    }

    fn set(
        &self,
        session: &mut StreamSession,
        kind: Jpeg2000Image,
        tile: &Jpeg2000SourceTile<'_>,
    ) -> Result<(), CallError> {
        let wanted = (kind, tile.width, tile.height, tile.quality);
        if session.set == Some(wanted) {
            return Ok(());
        }
        session.set = None;
        let info = sys::ComponentInfo {
            width: tile.width,
            height: tile.height,
            precision: kind.sample.len() as u8 * 8,
            signed: (kind.sample == Jpeg2000Sample::I16).into(),
        };
        let mut infos = vec![info; kind.components as usize];
        let mut config = sys::EncodeConfig {
            color_space: if kind.components >= 3 { sys::COLOR_SRGB } else { sys::COLOR_GRAY },
            width: tile.width,
            height: tile.height,
            components: kind.components,
            component_info: infos.as_mut_ptr(),
            color_transform: kind.colours.into(),
            resolutions: resolutions(tile.width, tile.height),
            block_width: BLOCK,
            block_height: BLOCK,
            irreversible: (tile.quality != Jpeg2000Quality::Lossless).into(),
            ..sys::EncodeConfig::plain()
        };
        let (table, params) = (&self.table, session.params.0);
        // SAFETY: the parameters are alive, this thread holds their session, and no tile is in flight on it; configuration
        // and components, as many as it says, are valid for the length of the call, which copies them.
        let status = unsafe { (table.nvjpeg2kEncodeParamsSetEncodeConfig)(params, &raw mut config) };
        check("nvjpeg2kEncodeParamsSetEncodeConfig", status)?;
        let format = if kind.interleaved { sys::FORMAT_INTERLEAVED } else { sys::FORMAT_PLANAR };
        // SAFETY: as above.
        let status = unsafe { (table.nvjpeg2kEncodeParamsSetInputFormat)(params, format) };
        check("nvjpeg2kEncodeParamsSetInputFormat", status)?;
        if let Jpeg2000Quality::Decibels(decibels) = tile.quality {
            // SAFETY: as above.
            let status = unsafe { (table.nvjpeg2kEncodeParamsSpecifyQuality)(params, sys::QUALITY_PSNR, decibels) };
            check("nvjpeg2kEncodeParamsSpecifyQuality", status)?;
        }
        session.set = Some(wanted);
        Ok(())
    }

    fn encoder(&self) -> Result<OpaqueHandle, CallError> {
        self.encoder.get_or_create(|| {
            let mut encoder = ptr::null_mut();
            // SAFETY: `encoder` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpeg2kEncoderCreateSimple)(&raw mut encoder) };
            check("nvjpeg2kEncoderCreateSimple", status).map(|()| OpaqueHandle(encoder))
        })
    }

    fn session(&self, encoder: OpaqueHandle, stream: RawStream) -> Result<Arc<Mutex<StreamSession>>, CallError> {
        self.sessions.get_or_create(stream as usize, || self.create_session(encoder))
    }

    fn create_session(&self, encoder: OpaqueHandle) -> Result<StreamSession, CallError> {
        let mut state = ptr::null_mut();
        // SAFETY: the encoder is alive; `state` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kEncodeStateCreate)(encoder.0, &raw mut state) };
        check("nvjpeg2kEncodeStateCreate", status)?;
        let mut params = ptr::null_mut();
        // SAFETY: `params` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kEncodeParamsCreate)(&raw mut params) };
        if status != SUCCESS {
            // SAFETY: the state was created above and nothing else knows of it.
            unsafe { (self.table.nvjpeg2kEncodeStateDestroy)(state) };
        }
        check("nvjpeg2kEncodeParamsCreate", status)?;
        Ok(StreamSession { state: OpaqueHandle(state), params: OpaqueHandle(params), set: None })
    }

    /// Destroys the objects of a session that was removed or never listed.
    fn destroy(&self, session: &StreamSession) {
        // SAFETY: the object was created by this library and is destroyed once, its session being in no map; that no
        // queued work uses it is the contract of `forget` and of dropping.
        unsafe { (self.table.nvjpeg2kEncodeParamsDestroy)(session.params.0) };
        // SAFETY: as above.
        unsafe { (self.table.nvjpeg2kEncodeStateDestroy)(session.state.0) };
    }
}

/// By then nothing is being encoded, as [`Jpeg2000Encoder::forget`] requires.
impl Drop for Jpeg2000Encoder {
    fn drop(&mut self) {
        self.sessions.remove(|_| true, |session| self.destroy(session));
        if let Some(encoder) = self.encoder.take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpeg2kEncoderDestroy)(encoder.0) };
        }
    }
}

/// Returns as many resolutions as the host encoder writes: the shorter side limits the halvings.
fn resolutions(width: u32, height: u32) -> u32 {
    (width.min(height).checked_ilog2().unwrap_or(0) + 1).min(MAX_RESOLUTIONS)
}

fn check_tile(tile: &Jpeg2000SourceTile<'_>, kind: Jpeg2000Image) -> Result<(), Jpeg2000EncodeRefusal> {
    let Jpeg2000Image { sample, components, colours, interleaved } = kind;
    if !(1..=4).contains(&components) || (colours && components < 3) {
        return Err(Jpeg2000EncodeRefusal::Components(components));
    }
    if sample != Jpeg2000Sample::U8 && tile.quality != Jpeg2000Quality::Lossless {
        return Err(Jpeg2000EncodeRefusal::Loss);
    }
    let (planes, side_by_side) = if interleaved { (1, components as usize) } else { (components as usize, 1) };
    let fits = |&(_, pitch): &(u64, usize)| {
        let row = (tile.width as usize).checked_mul(sample.len() * side_by_side);
        let needed = pitch.checked_mul(tile.height as usize);
        row.is_some_and(|row| row <= pitch) && needed.is_some_and(|needed| needed <= tile.plane_len)
    };
    let is_there = tile.width > 0 && tile.height > 0 && tile.planes.len() == planes;
    if is_there && tile.planes.iter().all(fits) { Ok(()) } else { Err(Jpeg2000EncodeRefusal::Room) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Jpeg2000Image =
        Jpeg2000Image { sample: Jpeg2000Sample::U16, components: 3, colours: true, interleaved: false };
    const PLANES: [(u64, usize); 3] = [(256, 128); 3];

    fn tile() -> Jpeg2000SourceTile<'static> {
        Jpeg2000SourceTile {
            width: 64,
            height: 32,
            planes: &PLANES,
            plane_len: 128 * 32,
            quality: Jpeg2000Quality::Lossless,
        }
    }

    #[test]
    fn planes_too_short_too_narrow_or_too_few_are_refused() {
        assert_eq!(check_tile(&tile(), PICTURE), Ok(()));
        for bad in [
            Jpeg2000SourceTile { plane_len: 128 * 32 - 1, ..tile() },
            Jpeg2000SourceTile { width: 65, ..tile() },
            Jpeg2000SourceTile { width: 0, ..tile() },
            Jpeg2000SourceTile { height: 0, ..tile() },
            Jpeg2000SourceTile { planes: &PLANES[..2], ..tile() },
            Jpeg2000SourceTile { planes: &[(0, usize::MAX); 3], plane_len: usize::MAX, ..tile() },
        ] {
            assert_eq!(check_tile(&bad, PICTURE), Err(Jpeg2000EncodeRefusal::Room));
        }
        let pixels = Jpeg2000Image { interleaved: true, ..PICTURE };
        assert_eq!(check_tile(&tile(), pixels), Err(Jpeg2000EncodeRefusal::Room));
        let one = Jpeg2000SourceTile { planes: &PLANES[..1], width: 21, ..tile() };
        assert_eq!(check_tile(&one, pixels), Ok(()));
        assert_eq!(check_tile(&Jpeg2000SourceTile { width: 22, ..one }, pixels), Err(Jpeg2000EncodeRefusal::Room));
    }

    #[test]
    fn components_that_the_library_does_not_take_are_refused() {
        for (components, colours) in [(0, false), (5, false), (2, true), (u32::MAX, false)] {
            let picture = Jpeg2000Image { components, colours, ..PICTURE };
            assert_eq!(check_tile(&tile(), picture), Err(Jpeg2000EncodeRefusal::Components(components)));
        }
    }

    #[test]
    fn a_quality_means_the_same_as_in_the_host_encoder() {
        assert_eq!(Jpeg2000Quality::of(75, 200), Jpeg2000Quality::Decibels(45.0));
        assert_eq!(Jpeg2000Quality::of(75, 15), Jpeg2000Quality::Lossless);
        assert_eq!(Jpeg2000Quality::of(1, 0), Jpeg2000Quality::Lossless);
        assert_eq!(Jpeg2000Quality::of(1, 100), Jpeg2000Quality::Lossless);
        assert!(matches!(Jpeg2000Quality::of(1, 255), Jpeg2000Quality::Decibels(_)));
    }

    #[test]
    fn loss_is_for_bytes_alone() {
        let lossy = Jpeg2000SourceTile { quality: Jpeg2000Quality::Decibels(45.0), ..tile() };
        assert_eq!(check_tile(&lossy, PICTURE), Err(Jpeg2000EncodeRefusal::Loss));
        assert_eq!(check_tile(&lossy, Jpeg2000Image { sample: Jpeg2000Sample::U8, ..PICTURE }), Ok(()));
    }

    #[test]
    fn halvings_end_where_the_shorter_side_does() {
        assert_eq!([(1, 1), (3, 5), (32, 512), (512, 512)].map(|(w, h)| resolutions(w, h)), [1, 2, 6, 6]);
    }
}
