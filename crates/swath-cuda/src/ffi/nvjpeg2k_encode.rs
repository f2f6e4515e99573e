//! nvJPEG2000's encoder: tiles of samples in device memory into bare code streams of one tile on the host.
//!
//! They are of the kind that the host encoder writes (one layer, as many halvings, colours transformed where it does),
//! but in blocks of 32 by 32 samples instead of 64: a call returns when its tile is done, and takes as long as one
//! block does, so that smaller blocks take a third of the time, for 1 per cent more bytes. Several streams, each with a
//! thread of its own, are what fills the device.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use super::library::{Absent, CallError, Library, RawStream, Search};
use super::nvjpeg2k::{NAMES, Sample, check, lock, version_of};
use super::sys::nvjpeg2k as sys;

/// What all tiles of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picture {
    /// Every bit of a sample counts.
    pub sample: Sample,
    /// 1 to 4.
    pub components: u32,
    /// Whether the first three are red, green and blue, to be transformed into luma and chroma.
    pub colours: bool,
    /// Whether the samples of a pixel lie beside each other; else each component has a plane.
    pub interleaved: bool,
}

/// How much of a tile is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quality {
    /// Everything (the 5/3 transform).
    Lossless,
    /// So much that the ratio of the largest possible sample to the noise is this, in decibels (the 9/7 transform).
    Decibels(f64),
}

impl Quality {
    /// What the host encoder makes of a quality from 1 to 100 for a tile of bytes whose values are `range` apart: 75 is
    /// 45 dB.
    ///
    /// Tiles that hardly differ by more than the noise are kept as they are, which takes little: the library wrote a
    /// constant one 15 levels off.
    #[must_use]
    pub fn of(quality: u32, range: u8) -> Self {
        let decibels = 22.5 + 0.3 * f64::from(quality);
        let noise = 255.0 / 10_f64.powf(decibels / 20.0);
        if f64::from(range) < (8.0 * noise).max(16.0) { Self::Lossless } else { Self::Decibels(decibels) }
    }
}

/// One tile to encode.
#[derive(Debug, Clone, Copy)]
pub struct Tile<'a> {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Device address and pitch in bytes of each plane: one where samples are interleaved.
    pub planes: &'a [(u64, usize)],
    /// Bytes that may be read from each plane's address on.
    pub plane_len: usize,
    /// How much of it is kept.
    pub quality: Quality,
}

/// Why a tile was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The planes are too few, too short or too narrow for the tile, or it is empty.
    #[error("the input planes are too small for the tile")]
    Room,
    /// Not as many components as the library takes.
    #[error("{0} components (nvJPEG2000 encodes 1 to 4, and colours of 3 or 4)")]
    Components(u32),
    /// The library's 9/7 transform is off by 3 parts in 10000 of the distance from the middle of the scale: nothing for
    /// bytes, but up to 10 levels for 16 bits.
    #[error("samples of 16 bits with loss (nvJPEG2000 shifts their level)")]
    Loss,
    /// The library gave something that is no code stream.
    #[error("nvJPEG2000 gave no code stream")]
    Stream,
    /// The library refused the tile.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why encoding failed in a way that says nothing of the tile.
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
}

impl Failed {
    fn of(error: CallError) -> Self {
        if error.status == i64::from(sys::ALLOCATOR_FAILURE) { Self::Memory(error) } else { Self::Call(error) }
    }
}

/// Samples along a side of a block that is coded on its own.
const BLOCK: u32 = 32;

/// The host encoder's most.
const MAX_RESOLUTIONS: u32 = 6;

/// nvJPEG2000's encoder, loaded, with the states of one CUDA context: one for each stream. [`Self::forget`] gives it
/// back.
#[derive(Debug)]
pub struct Jpeg2000Encoder {
    table: sys::EncodeTable,
    /// Made on first use; a failure is not kept, since memory may be short only for a while.
    encoder: Mutex<Option<Handle>>,
    lanes: Mutex<HashMap<usize, Arc<Mutex<Lane>>>>,
}

/// A pointer the library owns the meaning of.
#[derive(Debug, Clone, Copy)]
struct Handle(sys::Opaque);

// SAFETY: the encoder handle is documented as thread safe; states and parameters are used by one thread at a time,
// which the mutex around each `Lane` sees to.
unsafe impl Send for Handle {}
// SAFETY: as above; only the encoder handle is ever shared.
unsafe impl Sync for Handle {}

/// What encoding on one stream keeps from tile to tile.
#[derive(Debug)]
struct Lane {
    state: Handle,
    params: Handle,
    /// What the parameters are set to: what the tiles are, their size and how much is kept.
    set: Option<(Picture, u32, u32, Quality)>,
}

/// Synchronises a stream: `Ok` only when it has passed everything queued on it.
pub type Wait<'a> = &'a dyn Fn() -> Result<(), String>;

impl Jpeg2000Encoder {
    /// Finds nvJPEG2000 and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another version than those we know.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::EncodeTable::load(&library)?;
        version_of(&library, table.nvjpeg2kGetProperty)?;
        Ok(Self { table, encoder: Mutex::default(), lanes: Mutex::default() })
    }

    /// Whether the library can be used on the current context's device.
    ///
    /// # Errors
    /// What the library said when asked to set itself up.
    pub fn probe(&self) -> Result<(), CallError> {
        let lane = self.create_lane(self.encoder()?)?;
        self.destroy(&lane);
        Ok(())
    }

    /// Encodes one tile on `stream`. All work is done at return.
    ///
    /// May be called from several threads at once, with a stream each.
    ///
    /// # Errors
    /// What is not the tile's fault: memory that there is not, or a device that failed.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this encoder. Until return, the tile's planes are
    /// `plane_len` bytes of device memory that nothing else writes. `wait` keeps the promise of [`Wait`] for the
    /// stream, which is [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn encode(
        &self,
        picture: Picture,
        tile: &Tile<'_>,
        stream: RawStream,
        wait: Wait<'_>,
    ) -> Result<Result<Vec<u8>, Refused>, Failed> {
        if let Err(refused) = check_tile(tile, picture) {
            return Ok(Err(refused));
        }
        let encoder = self.encoder().map_err(Failed::of)?;
        let lane = self.lane(encoder, stream).map_err(Failed::of)?;
        let mut lane = lock(&lane);
        if let Err(refused) = about_tile(self.set(&mut lane, picture, tile))? {
            return Ok(Err(refused));
        }
        let mut bytes = Vec::new();
        // SAFETY: the caller keeps this function's contract; this thread holds the lane, and waits below, before the
        // bytes go anywhere.
        let outcome = unsafe { self.encode_one(encoder, &lane, picture, tile, stream, &mut bytes) };
        // Even a call that fails may have queued something first, and its state is used again.
        let waited = wait().map_err(Failed::Wait);
        let outcome = about_tile(outcome)?;
        waited?;
        let is_whole = bytes.starts_with(&[0xFF, 0x4F, 0xFF, 0x51]) && bytes.ends_with(&[0xFF, 0xD9]);
        Ok(outcome.and(if is_whole { Ok(bytes) } else { Err(Refused::Stream) }))
    }

    /// # Safety
    /// As [`Self::encode`]; the caller holds the lane, and waits for the stream before it looks at the bytes or lets go
    /// of them, whatever this returns.
    unsafe fn encode_one(
        &self,
        encoder: Handle,
        lane: &Lane,
        picture: Picture,
        tile: &Tile<'_>,
        stream: RawStream,
        bytes: &mut Vec<u8>,
    ) -> Result<(), CallError> {
        const RETRIEVE: &str = "nvjpeg2kEncodeRetrieveBitstream";
        let mut planes: Vec<*mut c_void> = tile.planes.iter().map(|&(address, _)| address as *mut c_void).collect();
        let mut pitches: Vec<usize> = tile.planes.iter().map(|&(_, pitch)| pitch).collect();
        let image = sys::Image {
            pixel_data: planes.as_mut_ptr(),
            pitch_in_bytes: pitches.as_mut_ptr(),
            pixel_type: picture.sample.pixel_type(),
            components: picture.components,
        };
        let (table, state) = (&self.table, lane.state.0);
        // SAFETY: encoder, state and parameters are alive and this thread holds the lane; both arrays hold one element
        // for each plane of the format that the parameters name, and the image lies in its planes (`check_tile`), which
        // the caller vouches for until the stream has passed.
        let status = unsafe { (table.nvjpeg2kEncode)(encoder.0, state, lane.params.0, &raw const image, stream) };
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

    /// Gives back what encoding on `stream` kept, device memory included.
    ///
    /// # Safety
    /// The CUDA context is current and nothing is being encoded on the stream.
    pub unsafe fn forget(&self, stream: RawStream) {
        if let Some(lane) = lock(&self.lanes).remove(&(stream as usize)) {
            self.destroy(&lock(&lane));
        }
    }

    fn set(&self, lane: &mut Lane, picture: Picture, tile: &Tile<'_>) -> Result<(), CallError> {
        let wanted = (picture, tile.width, tile.height, tile.quality);
        if lane.set == Some(wanted) {
            return Ok(());
        }
        lane.set = None;
        let info = sys::ComponentInfo {
            width: tile.width,
            height: tile.height,
            precision: picture.sample.len() as u8 * 8,
            signed: (picture.sample == Sample::I16).into(),
        };
        let mut infos = vec![info; picture.components as usize];
        let mut config = sys::EncodeConfig {
            color_space: if picture.components >= 3 { sys::COLOR_SRGB } else { sys::COLOR_GRAY },
            width: tile.width,
            height: tile.height,
            components: picture.components,
            component_info: infos.as_mut_ptr(),
            color_transform: picture.colours.into(),
            resolutions: resolutions(tile.width, tile.height),
            block_width: BLOCK,
            block_height: BLOCK,
            irreversible: (tile.quality != Quality::Lossless).into(),
            ..sys::EncodeConfig::plain()
        };
        let (table, params) = (&self.table, lane.params.0);
        // SAFETY: the parameters are alive, this thread holds their lane, and no tile is under way on it; configuration
        // and components, as many as it says, are valid for the length of the call, which copies them.
        let status = unsafe { (table.nvjpeg2kEncodeParamsSetEncodeConfig)(params, &raw mut config) };
        check("nvjpeg2kEncodeParamsSetEncodeConfig", status)?;
        let format = if picture.interleaved { sys::FORMAT_INTERLEAVED } else { sys::FORMAT_PLANAR };
        // SAFETY: as above.
        let status = unsafe { (table.nvjpeg2kEncodeParamsSetInputFormat)(params, format) };
        check("nvjpeg2kEncodeParamsSetInputFormat", status)?;
        if let Quality::Decibels(decibels) = tile.quality {
            // SAFETY: as above.
            let status = unsafe { (table.nvjpeg2kEncodeParamsSpecifyQuality)(params, sys::QUALITY_PSNR, decibels) };
            check("nvjpeg2kEncodeParamsSpecifyQuality", status)?;
        }
        lane.set = Some(wanted);
        Ok(())
    }

    fn encoder(&self) -> Result<Handle, CallError> {
        let mut made = lock(&self.encoder);
        if let Some(encoder) = *made {
            return Ok(encoder);
        }
        let mut encoder = ptr::null_mut();
        // SAFETY: `encoder` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kEncoderCreateSimple)(&raw mut encoder) };
        check("nvjpeg2kEncoderCreateSimple", status)?;
        *made = Some(Handle(encoder));
        Ok(Handle(encoder))
    }

    fn lane(&self, encoder: Handle, stream: RawStream) -> Result<Arc<Mutex<Lane>>, CallError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&(stream as usize)) {
            return Ok(Arc::clone(lane));
        }
        let lane = Arc::new(Mutex::new(self.create_lane(encoder)?));
        lanes.insert(stream as usize, Arc::clone(&lane));
        Ok(lane)
    }

    fn create_lane(&self, encoder: Handle) -> Result<Lane, CallError> {
        let mut state = ptr::null_mut();
        // SAFETY: the encoder is alive; `state` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kEncodeStateCreate)(encoder.0, &raw mut state) };
        check("nvjpeg2kEncodeStateCreate", status)?;
        let mut params = ptr::null_mut();
        // SAFETY: `params` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kEncodeParamsCreate)(&raw mut params) };
        if status != sys::SUCCESS {
            // SAFETY: the state was created above and nothing else knows of it.
            unsafe { (self.table.nvjpeg2kEncodeStateDestroy)(state) };
        }
        check("nvjpeg2kEncodeParamsCreate", status)?;
        Ok(Lane { state: Handle(state), params: Handle(params), set: None })
    }

    /// Takes a lane that is in no map apart.
    fn destroy(&self, lane: &Lane) {
        // SAFETY: the object was created by this library and is destroyed once, its lane being in no map; that no
        // queued work uses it is the contract of `forget` and of dropping.
        unsafe { (self.table.nvjpeg2kEncodeParamsDestroy)(lane.params.0) };
        // SAFETY: as above.
        unsafe { (self.table.nvjpeg2kEncodeStateDestroy)(lane.state.0) };
    }
}

/// Nothing is being encoded by then, as [`Jpeg2000Encoder::forget`] asks.
impl Drop for Jpeg2000Encoder {
    fn drop(&mut self) {
        for lane in std::mem::take(&mut *lock(&self.lanes)).into_values() {
            self.destroy(&lock(&lane));
        }
        if let Some(encoder) = lock(&self.encoder).take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpeg2kEncoderDestroy)(encoder.0) };
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

/// As many as the host encoder writes: no more halvings than the shorter side has.
fn resolutions(width: u32, height: u32) -> u32 {
    (width.min(height).checked_ilog2().unwrap_or(0) + 1).min(MAX_RESOLUTIONS)
}

fn check_tile(tile: &Tile<'_>, picture: Picture) -> Result<(), Refused> {
    let Picture { sample, components, colours, interleaved } = picture;
    if !(1..=4).contains(&components) || (colours && components < 3) {
        return Err(Refused::Components(components));
    }
    if sample != Sample::U8 && tile.quality != Quality::Lossless {
        return Err(Refused::Loss);
    }
    let (planes, side_by_side) = if interleaved { (1, components as usize) } else { (components as usize, 1) };
    let fits = |&(_, pitch): &(u64, usize)| {
        let row = (tile.width as usize).checked_mul(sample.len() * side_by_side);
        let needed = pitch.checked_mul(tile.height as usize);
        row.is_some_and(|row| row <= pitch) && needed.is_some_and(|needed| needed <= tile.plane_len)
    };
    let is_there = tile.width > 0 && tile.height > 0 && tile.planes.len() == planes;
    if is_there && tile.planes.iter().all(fits) { Ok(()) } else { Err(Refused::Room) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Picture = Picture { sample: Sample::U16, components: 3, colours: true, interleaved: false };
    const PLANES: [(u64, usize); 3] = [(256, 128); 3];

    fn tile() -> Tile<'static> {
        Tile { width: 64, height: 32, planes: &PLANES, plane_len: 128 * 32, quality: Quality::Lossless }
    }

    #[test]
    fn planes_too_short_too_narrow_or_too_few_are_refused() {
        assert_eq!(check_tile(&tile(), PICTURE), Ok(()));
        for bad in [
            Tile { plane_len: 128 * 32 - 1, ..tile() },
            Tile { width: 65, ..tile() },
            Tile { width: 0, ..tile() },
            Tile { height: 0, ..tile() },
            Tile { planes: &PLANES[..2], ..tile() },
            Tile { planes: &[(0, usize::MAX); 3], plane_len: usize::MAX, ..tile() },
        ] {
            assert_eq!(check_tile(&bad, PICTURE), Err(Refused::Room));
        }
        let pixels = Picture { interleaved: true, ..PICTURE };
        assert_eq!(check_tile(&tile(), pixels), Err(Refused::Room));
        let one = Tile { planes: &PLANES[..1], width: 21, ..tile() };
        assert_eq!(check_tile(&one, pixels), Ok(()));
        assert_eq!(check_tile(&Tile { width: 22, ..one }, pixels), Err(Refused::Room));
    }

    #[test]
    fn components_that_the_library_does_not_take_are_refused() {
        for (components, colours) in [(0, false), (5, false), (2, true), (u32::MAX, false)] {
            let picture = Picture { components, colours, ..PICTURE };
            assert_eq!(check_tile(&tile(), picture), Err(Refused::Components(components)));
        }
    }

    #[test]
    fn a_quality_is_what_the_host_encoder_makes_of_it_where_there_is_something_to_lose() {
        assert_eq!(Quality::of(75, 200), Quality::Decibels(45.0));
        assert_eq!(Quality::of(75, 15), Quality::Lossless);
        assert_eq!(Quality::of(1, 0), Quality::Lossless);
        assert_eq!(Quality::of(1, 100), Quality::Lossless);
        assert!(matches!(Quality::of(1, 255), Quality::Decibels(_)));
    }

    #[test]
    fn loss_is_for_bytes_alone() {
        let lossy = Tile { quality: Quality::Decibels(45.0), ..tile() };
        assert_eq!(check_tile(&lossy, PICTURE), Err(Refused::Loss));
        assert_eq!(check_tile(&lossy, Picture { sample: Sample::U8, ..PICTURE }), Ok(()));
    }

    #[test]
    fn halvings_end_where_the_shorter_side_does() {
        assert_eq!([(1, 1), (3, 5), (32, 512), (512, 512)].map(|(w, h)| resolutions(w, h)), [1, 2, 6, 6]);
    }
}
