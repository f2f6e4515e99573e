//! nvJPEG2000: tiles of JPEG 2000, given as host bytes (bare codestreams or JP2 boxes), into planes of device memory.
//!
//! A decode state and the parsed stream it works on stay in use until the device is done with them, and the library
//! offers no way to ask. So each CUDA stream of the caller has its own pair, tiles take the streams in turn, and only a
//! stream that comes round again is waited for: with n streams, n tiles are under way.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::library::{Absent, CallError, Library, Names, RawStream, Search};
use super::sys::nvjpeg2k as sys;

const NAMES: Names = Names { label: "nvJPEG2000", files: &["libnvjpeg2k.so.0"], wheels: &["nvidia/nvjpeg2k/lib"] };

/// The version whose header our table was checked against; later ones keep the file's version number and so the
/// functions.
const OLDEST_MINOR: c_int = 11;

/// More tiles inside one codestream than this are refused: the library keeps memory for each.
const MAX_INNER_TILES: u64 = 1 << 12;

/// The samples of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Unsigned, up to 8 bits.
    U8,
    /// Unsigned, up to 16 bits.
    U16,
    /// Signed, up to 16 bits.
    I16,
}

impl Sample {
    const fn len(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::I16 => 2,
        }
    }

    const fn pixel_type(self) -> c_int {
        match self {
            Self::U8 => sys::UINT8,
            Self::U16 => sys::UINT16,
            Self::I16 => sys::INT16,
        }
    }

    const fn holds(self, precision: u8, signed: bool) -> bool {
        match self {
            Self::U8 => precision >= 1 && precision <= 8 && !signed,
            Self::U16 => precision >= 1 && precision <= 16 && !signed,
            Self::I16 => precision >= 1 && precision <= 16 && signed,
        }
    }
}

/// What the file promises of each tile.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The samples to write; a stream of narrower ones of the same sign is taken.
    pub sample: Sample,
    /// Components, all of the tile's full size.
    pub components: u32,
}

/// One tile to decode.
#[derive(Debug, Clone, Copy)]
pub struct Tile<'a> {
    /// A codestream, or a JP2 file around one.
    pub bytes: &'a [u8],
    /// The width the file promises, in pixels.
    pub width: u32,
    /// The height the file promises, in pixels.
    pub height: u32,
    /// Device address and pitch in bytes of each component's plane.
    pub planes: &'a [(u64, usize)],
    /// Bytes that may be written from each plane's address on.
    pub plane_len: usize,
}

/// Why a tile was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The stream holds another image than the file promises.
    #[error("the stream holds {found}, the file promises {wanted}")]
    Mismatch {
        /// Width x height x components in the stream.
        found: String,
        /// Width x height x components in the file.
        wanted: String,
    },
    /// A component is subsampled, or its samples do not fit those asked for.
    #[error("component {component} holds {found}, which is not decoded on the device into {wanted:?}")]
    Component {
        /// Which.
        component: u32,
        /// Its size, precision and sign.
        found: String,
        /// The samples asked for.
        wanted: Sample,
    },
    /// The stream is cut into too many tiles of its own.
    #[error("the stream is cut into {0} tiles of its own")]
    InnerTiles(u64),
    /// The planes are too few, too short or too narrow for the tile.
    #[error("the output planes are too small for the tile")]
    Room,
    /// The stream could not be waited for.
    #[error("waiting for the stream failed: {0}")]
    Wait(String),
    /// No CUDA stream was given to decode on.
    #[error("no stream to decode on")]
    NoStream,
    /// The library refused it.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// nvJPEG2000, loaded, with the decode states of one CUDA context: one for each stream, each keeping device memory for
/// the largest tile it has met. [`Self::forget`] gives it back.
#[derive(Debug)]
pub struct Jpeg2000 {
    library: Library,
    table: sys::Table,
    version: String,
    /// Made on first use; a failure is not kept, since memory may be short only for a while.
    handle: Mutex<Option<Handle>>,
    lanes: Mutex<HashMap<usize, Arc<Mutex<Lane>>>>,
}

/// A pointer the library owns the meaning of.
#[derive(Debug, Clone, Copy)]
struct Handle(sys::Opaque);

// SAFETY: the library handle is documented as thread safe; states and codestreams are used by one thread at a time,
// which the mutex around each `Lane` sees to.
unsafe impl Send for Handle {}
// SAFETY: as above; only the library handle is ever shared.
unsafe impl Sync for Handle {}

/// What decoding on one stream keeps from tile to tile.
#[derive(Debug)]
struct Lane {
    state: Handle,
    codestream: Handle,
    /// Work that uses the two above was queued and not yet waited for.
    is_busy: bool,
}

impl Jpeg2000 {
    /// Finds nvJPEG2000 and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another version than those we know.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        let mut numbers: [c_int; 3] = [0; 3];
        for (kind, number) in (0..).zip(&mut numbers) {
            // SAFETY: `number` is writable for the length of the call.
            let status = unsafe { (table.nvjpeg2kGetProperty)(kind, number) };
            check("nvjpeg2kGetProperty", status).map_err(|error| Absent::Silent { label: NAMES.label, error })?;
        }
        let [major, minor, patch] = numbers;
        let version = format!("{major}.{minor}.{patch}");
        if major != 0 || minor < OLDEST_MINOR {
            return Err(library.wrong_version(version, "0.11 and later 0.x"));
        }
        Ok(Self { library, table, version, handle: Mutex::default(), lanes: Mutex::default() })
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

    /// Whether the library can be used on the current context's device.
    ///
    /// # Errors
    /// What the library said when asked to set itself up.
    pub fn probe(&self) -> Result<(), CallError> {
        // The library handle alone is given out even where there is no driver.
        let state = self.create_state(self.handle()?)?;
        // SAFETY: the state was created just now and nothing else knows of it.
        unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(state.0) };
        Ok(())
    }

    /// Decodes tiles on `streams` in turn; one result for each, in their order. `wait` synchronises a stream and is
    /// called before a stream takes its next tile; the last tile of each is still under way at return.
    ///
    /// May be called from several threads at once, with streams of their own each.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this `Jpeg2000`. Until the streams have passed this
    /// work, the tiles' bytes stay as they are and their planes are `plane_len` bytes of device memory that nothing
    /// else touches. `wait` returns `Ok` only when the stream has passed everything queued on it. A stream given here
    /// is synchronised and [forgotten](Self::forget) before it is destroyed.
    #[must_use]
    pub unsafe fn decode(
        &self,
        tiles: &[Tile<'_>],
        expected: Expected,
        streams: &[RawStream],
        wait: &dyn Fn(RawStream) -> Result<(), String>,
    ) -> Vec<Result<(), Refused>> {
        let mut turns = streams.iter().copied().cycle();
        tiles
            .iter()
            .map(|tile| {
                let stream = turns.next().ok_or(Refused::NoStream)?;
                // SAFETY: the caller keeps this function's contract.
                unsafe { self.decode_one(tile, expected, stream, wait) }
            })
            .collect()
    }

    /// Gives back what decoding on `stream` kept, device memory included.
    ///
    /// # Safety
    /// The CUDA context is current and the stream has passed all work queued by [`Self::decode`].
    pub unsafe fn forget(&self, stream: RawStream) {
        let lane = lock(&self.lanes).remove(&(stream as usize));
        if let Some(lane) = lane {
            self.destroy(&lock(&lane));
        }
    }

    /// Queues one tile.
    ///
    /// # Safety
    /// As [`Self::decode`].
    unsafe fn decode_one(
        &self,
        tile: &Tile<'_>,
        expected: Expected,
        stream: RawStream,
        wait: &dyn Fn(RawStream) -> Result<(), String>,
    ) -> Result<(), Refused> {
        check_room(tile, expected)?;
        let handle = self.handle()?;
        let lane = self.lane(handle, stream)?;
        let mut lane = lock(&lane);
        if lane.is_busy {
            wait(stream).map_err(Refused::Wait)?;
            lane.is_busy = false;
        }
        // SAFETY: handle and codestream are alive, this thread holds the mutex of the latter, no queued work uses it,
        // and the bytes are readable for their length.
        let status = unsafe {
            let (data, len) = (tile.bytes.as_ptr(), tile.bytes.len());
            (self.table.nvjpeg2kStreamParse)(handle.0, data, len, 0, 0, lane.codestream.0)
        };
        check("nvjpeg2kStreamParse", status)?;
        self.inspect(lane.codestream, tile, expected)?;
        let mut planes: Vec<*mut c_void> = tile.planes.iter().map(|&(address, _)| address as *mut c_void).collect();
        let mut pitches: Vec<usize> = tile.planes.iter().map(|&(_, pitch)| pitch).collect();
        let mut image = sys::Image {
            pixel_data: planes.as_mut_ptr(),
            pitch_in_bytes: pitches.as_mut_ptr(),
            pixel_type: expected.sample.pixel_type(),
            components: expected.components,
        };
        // Even a call that fails may have queued something first.
        lane.is_busy = true;
        // SAFETY: handle, state and codestream are alive and this thread holds the mutex of the last two; both arrays
        // hold one element for each component (`check_room`), inspection made sure that the image fits the planes, and
        // the caller vouches for those and for the bytes until the stream has passed. Null parameters ask for the whole
        // image in planes.
        let status = unsafe {
            (self.table.nvjpeg2kDecodeImage)(
                handle.0,
                lane.state.0,
                lane.codestream.0,
                ptr::null_mut(),
                &raw mut image,
                stream,
            )
        };
        check("nvjpeg2kDecodeImage", status)?;
        Ok(())
    }

    /// Everything that can be said against a parsed stream before its coded data is looked at.
    fn inspect(&self, codestream: Handle, tile: &Tile<'_>, expected: Expected) -> Result<(), Refused> {
        let mut info = sys::ImageInfo::default();
        // SAFETY: the codestream is alive and parsed; `info` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kStreamGetImageInfo)(codestream.0, &raw mut info) };
        check("nvjpeg2kStreamGetImageInfo", status)?;
        check_image(&info, tile, expected)?;
        for component in 0..expected.components {
            let mut info = sys::ComponentInfo::default();
            // SAFETY: as above; the stream has this component, by the check before.
            let status =
                unsafe { (self.table.nvjpeg2kStreamGetImageComponentInfo)(codestream.0, &raw mut info, component) };
            check("nvjpeg2kStreamGetImageComponentInfo", status)?;
            check_component(&info, component, tile, expected)?;
        }
        Ok(())
    }

    fn handle(&self) -> Result<Handle, CallError> {
        let mut made = lock(&self.handle);
        if let Some(handle) = *made {
            return Ok(handle);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kCreateSimple)(&raw mut handle) };
        check("nvjpeg2kCreateSimple", status)?;
        *made = Some(Handle(handle));
        Ok(Handle(handle))
    }

    fn lane(&self, handle: Handle, stream: RawStream) -> Result<Arc<Mutex<Lane>>, CallError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&(stream as usize)) {
            return Ok(Arc::clone(lane));
        }
        let state = self.create_state(handle)?;
        let mut codestream = ptr::null_mut();
        // SAFETY: `codestream` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kStreamCreate)(&raw mut codestream) };
        if status != sys::SUCCESS {
            // SAFETY: the state was created above and nothing else knows of it.
            unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(state.0) };
        }
        check("nvjpeg2kStreamCreate", status)?;
        let lane = Lane { state, codestream: Handle(codestream), is_busy: false };
        let lane = Arc::new(Mutex::new(lane));
        lanes.insert(stream as usize, Arc::clone(&lane));
        Ok(lane)
    }

    fn create_state(&self, handle: Handle) -> Result<Handle, CallError> {
        let mut state = ptr::null_mut();
        // SAFETY: the handle is alive; `state` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kDecodeStateCreate)(handle.0, &raw mut state) };
        check("nvjpeg2kDecodeStateCreate", status).map(|()| Handle(state))
    }

    /// Takes a lane that is out of the map apart.
    fn destroy(&self, lane: &Lane) {
        // SAFETY: the object was created by this library and is destroyed once, its lane being out of the map; that no
        // queued work uses it is the contract of `forget` and of dropping.
        unsafe { (self.table.nvjpeg2kStreamDestroy)(lane.codestream.0) };
        // SAFETY: as above.
        unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(lane.state.0) };
    }
}

/// The streams given to [`Jpeg2000::decode`] must have passed its work by then, as [`Jpeg2000::forget`] asks for each.
impl Drop for Jpeg2000 {
    fn drop(&mut self) {
        for (_, lane) in std::mem::take(&mut *lock(&self.lanes)) {
            self.destroy(&lock(&lane));
        }
        if let Some(handle) = lock(&self.handle).take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpeg2kDestroy)(handle.0) };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing between lock and unlock leaves a lane half changed, so a panic elsewhere need not end all decoding.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(call: &'static str, status: sys::Status) -> Result<(), CallError> {
    if status == sys::SUCCESS {
        return Ok(());
    }
    let text = usize::try_from(status).ok().and_then(|index| sys::STATUS_NAMES.get(index)).unwrap_or(&"unknown status");
    Err(CallError { call, status: status.into(), text: (*text).to_owned() })
}

fn check_room(tile: &Tile<'_>, expected: Expected) -> Result<(), Refused> {
    let row = (tile.width as usize).checked_mul(expected.sample.len()).ok_or(Refused::Room)?;
    let fits = |&(_, pitch): &(u64, usize)| {
        let needed = pitch.checked_mul(tile.height as usize);
        row <= pitch && needed.is_some_and(|needed| needed <= tile.plane_len)
    };
    let is_enough = u32::try_from(tile.planes.len()).is_ok_and(|count| count == expected.components);
    if is_enough && tile.planes.iter().all(fits) { Ok(()) } else { Err(Refused::Room) }
}

fn check_image(info: &sys::ImageInfo, tile: &Tile<'_>, expected: Expected) -> Result<(), Refused> {
    let found = (info.width, info.height, info.components);
    let wanted = (tile.width, tile.height, expected.components);
    if found != wanted {
        let words = |(width, height, components)| format!("{width} x {height} x {components}");
        return Err(Refused::Mismatch { found: words(found), wanted: words(wanted) });
    }
    let inner = u64::from(info.tiles_across) * u64::from(info.tiles_down);
    if inner > MAX_INNER_TILES { Err(Refused::InnerTiles(inner)) } else { Ok(()) }
}

fn check_component(
    info: &sys::ComponentInfo,
    component: u32,
    tile: &Tile<'_>,
    expected: Expected,
) -> Result<(), Refused> {
    let is_whole = (info.width, info.height) == (tile.width, tile.height);
    let is_signed = info.signed != 0;
    if is_whole && expected.sample.holds(info.precision, is_signed) {
        return Ok(());
    }
    let sign = if is_signed { "signed" } else { "unsigned" };
    let found = format!("{} x {} {sign} samples of {} bits", info.width, info.height, info.precision);
    Err(Refused::Component { component, found, wanted: expected.sample })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANES: [(u64, usize); 1] = [(256, 128)];

    fn tile() -> Tile<'static> {
        Tile { bytes: &[], width: 64, height: 32, planes: &PLANES, plane_len: 128 * 32 }
    }

    const EXPECTED: Expected = Expected { sample: Sample::U16, components: 1 };

    #[test]
    fn planes_too_short_too_narrow_or_too_few_are_refused() {
        assert_eq!(check_room(&tile(), EXPECTED), Ok(()));
        assert_eq!(check_room(&Tile { plane_len: 128 * 32 - 1, ..tile() }, EXPECTED), Err(Refused::Room));
        assert_eq!(check_room(&Tile { width: 65, ..tile() }, EXPECTED), Err(Refused::Room));
        assert_eq!(check_room(&tile(), Expected { components: 3, ..EXPECTED }), Err(Refused::Room));
        let endless = Tile { planes: &[(0, usize::MAX)], plane_len: usize::MAX, ..tile() };
        assert_eq!(check_room(&endless, EXPECTED), Err(Refused::Room));
    }

    #[test]
    fn another_size_or_component_count_is_refused() {
        let info = sys::ImageInfo {
            width: 64,
            height: 32,
            tiles_across: 1,
            tiles_down: 1,
            components: 1,
            ..Default::default()
        };
        assert_eq!(check_image(&info, &tile(), EXPECTED), Ok(()));
        for other in [
            sys::ImageInfo { width: 63, ..info },
            sys::ImageInfo { height: 33, ..info },
            sys::ImageInfo { components: 2, ..info },
        ] {
            assert!(matches!(check_image(&other, &tile(), EXPECTED), Err(Refused::Mismatch { .. })));
        }
        let cut = sys::ImageInfo { tiles_across: u32::MAX, tiles_down: u32::MAX, ..info };
        assert!(matches!(check_image(&cut, &tile(), EXPECTED), Err(Refused::InnerTiles(_))));
    }

    #[test]
    fn subsampled_wider_or_otherwise_signed_components_are_refused() {
        let info = sys::ComponentInfo { width: 64, height: 32, precision: 12, signed: 0 };
        assert_eq!(check_component(&info, 0, &tile(), EXPECTED), Ok(()));
        for other in [
            sys::ComponentInfo { width: 32, ..info },
            sys::ComponentInfo { precision: 17, ..info },
            sys::ComponentInfo { precision: 0, ..info },
            sys::ComponentInfo { signed: 1, ..info },
        ] {
            assert!(matches!(check_component(&other, 0, &tile(), EXPECTED), Err(Refused::Component { .. })));
        }
        let bytes = Expected { sample: Sample::U8, components: 1 };
        assert!(check_component(&info, 0, &tile(), bytes).is_err());
        let signed = Expected { sample: Sample::I16, components: 1 };
        assert!(check_component(&sys::ComponentInfo { signed: 1, precision: 16, ..info }, 0, &tile(), signed).is_ok());
    }
}
