//! nvJPEG2000: tiles of JPEG 2000, given as host bytes (bare codestreams or JP2 boxes), into planes of device memory.
//!
//! A decode state and the parsed stream it works on, a lane, stay in use until the device is done with them, and the
//! library offers no way to ask. So each CUDA stream of the caller has several, and the caller knows which are free.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::library::{Absent, CallError, Library, Names, RawStream, Search};
use super::sys::nvjpeg2k as sys;

/// What is known of a codestream from its main header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// It was stored with loss: decoders may differ in the last bit.
    pub has_loss: bool,
    /// It goes on to its end marker, part by part.
    pub is_whole: bool,
}

pub(super) const NAMES: Names = Names {
    label: "nvJPEG2000",
    files: &["libnvjpeg2k.so.0"],
    wheels: &["nvidia/nvjpeg2k/lib"],
    landmark: c"nvjpeg2kCreateSimple",
};

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
    pub(super) const fn len(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::I16 => 2,
        }
    }

    pub(super) const fn pixel_type(self) -> c_int {
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
    /// The library refused it.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// nvJPEG2000, loaded, with the decode states of one CUDA context: several for each stream, each keeping device memory
/// for the largest tile it has met. [`Self::forget`] gives it back.
#[derive(Debug)]
pub struct Jpeg2000 {
    library: Library,
    table: sys::Table,
    version: String,
    /// Made on first use; a failure is not kept, since memory may be short only for a while.
    handle: Mutex<Option<Handle>>,
    lanes: Mutex<Lanes>,
}

/// By stream and number.
type Lanes = HashMap<(usize, usize), Arc<Mutex<Lane>>>;

/// A pointer the library owns the meaning of.
#[derive(Debug, Clone, Copy)]
struct Handle(sys::Opaque);

// SAFETY: the library handle is documented as thread safe; states and codestreams are used by one thread at a time,
// which the mutex around each `Lane` sees to.
unsafe impl Send for Handle {}
// SAFETY: as above; only the library handle is ever shared.
unsafe impl Sync for Handle {}

/// What decoding keeps from tile to tile.
#[derive(Debug)]
struct Lane {
    state: Handle,
    codestream: Handle,
}

impl Jpeg2000 {
    /// Finds nvJPEG2000 and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another version than those we know.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        let version = version_of(&library, table.nvjpeg2kGetProperty)?;
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

    /// Queues one tile on `stream`, in the lane of that number, which is made where there is none yet.
    ///
    /// May be called from several threads at once, with a stream each.
    ///
    /// # Errors
    /// When the stream is not what the file promises, or the library refuses it.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this `Jpeg2000`. Until the stream has passed this work,
    /// the tile's bytes stay as they are and its planes are `plane_len` bytes of device memory that nothing else
    /// touches. The stream has passed whatever was queued in this lane before. A stream given here is synchronised and
    /// [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn decode(
        &self,
        tile: &Tile<'_>,
        expected: Expected,
        stream: RawStream,
        lane: usize,
    ) -> Result<(), Refused> {
        check_room(tile, expected)?;
        let handle = self.handle()?;
        let lane = self.lane(handle, stream, lane)?;
        let lane = lock(&lane);
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

    /// Gives back what decoding on `stream` kept, device memory included.
    ///
    /// # Safety
    /// The CUDA context is current and the stream has passed all work queued by [`Self::decode`].
    pub unsafe fn forget(&self, stream: RawStream) {
        lock(&self.lanes).retain(|(user, _), lane| {
            let stays = *user != stream as usize;
            if !stays {
                self.destroy(&lock(lane));
            }
            stays
        });
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

    fn lane(&self, handle: Handle, stream: RawStream, number: usize) -> Result<Arc<Mutex<Lane>>, CallError> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(&(stream as usize, number)) {
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
        let lane = Arc::new(Mutex::new(Lane { state, codestream: Handle(codestream) }));
        lanes.insert((stream as usize, number), Arc::clone(&lane));
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
        for lane in std::mem::take(&mut *lock(&self.lanes)).into_values() {
            self.destroy(&lock(&lane));
        }
        if let Some(handle) = lock(&self.handle).take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpeg2kDestroy)(handle.0) };
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
        check("nvjpeg2kGetProperty", status).map_err(|error| Absent::Silent { label: NAMES.label, error })?;
    }
    let [major, minor, patch] = numbers;
    let version = format!("{major}.{minor}.{patch}");
    if major != 0 || minor < OLDEST_MINOR {
        return Err(library.wrong_version(version, "0.11 and later 0.x"));
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

impl Outline {
    /// Walks the markers of a codestream, which a JP2 file may be around. Every step moves forward, so the work is
    /// bounded by the stream's length.
    pub fn of(bytes: &[u8]) -> Self {
        const START: [u8; 4] = [0xFF, 0x4F, 0xFF, 0x51];
        let none = Self { has_loss: false, is_whole: false };
        let Some(start) = bytes.windows(START.len()).position(|window| window == START) else { return none };
        let stream = bytes.get(start..).unwrap_or_default();
        let word = |at: usize| stream.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
        let (mut at, mut has_loss) = (2_usize, false);
        let long = |at: usize| u64::from(word(at)) << 16 | u64::from(word(at + 2));
        // SIZ: far corner of the image at 8, size of tiles at 24, where their grid begins at 32.
        let across = |axis: usize| long(8 + axis).saturating_sub(long(32 + axis)).div_ceil(long(24 + axis).max(1));
        let tiles = across(0).saturating_mul(across(4));
        loop {
            let len = usize::from(word(at + 2)).max(2);
            match word(at) {
                // SOT: where the part ends, from its first byte on; 0 is up to the end of the stream.
                0xFF90 => {
                    let part = long(at + 6) as usize;
                    match part {
                        _ if u64::from(word(at + 4)) >= tiles => return Self { has_loss, is_whole: false },
                        0 => return Self { has_loss, is_whole: stream.ends_with(&[0xFF, 0xD9]) },
                        1..14 => return Self { has_loss, is_whole: false },
                        _ => at = at.saturating_add(part),
                    }
                    continue;
                }
                0xFFD9 => return Self { has_loss, is_whole: true },
                // COD and COC end in the code blocks' shape and style, the transform, and sizes of precincts if any.
                0xFF52 => has_loss |= stream.get(at + 13) == Some(&0),
                0xFF53 => has_loss = true,
                0xFF4F..=0xFF6F => {}
                _ => return Self { has_loss, is_whole: false },
            }
            at = at.saturating_add(2 + len);
        }
    }
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
    fn an_outline_tells_loss_and_a_stream_that_was_cut_off() {
        let mut stream = vec![0xFF, 0x4F, 0xFF, 0x51, 0, 41, 0, 0];
        for number in [64_u32, 32, 0, 0, 64, 32, 0, 0] {
            stream.extend(number.to_be_bytes());
        }
        stream.extend([0, 1, 7, 1, 1]);
        stream.extend([0xFF, 0x52, 0, 12, 0, 0, 0, 1, 0, 5, 4, 4, 0, 1]);
        let transform = stream.len() - 1;
        stream.extend([0xFF, 0x90, 0, 10, 0, 0, 0, 0, 0, 16, 0, 1, 0xFF, 0x93, 7, 7, 0xFF, 0xD9]);
        assert_eq!(Outline::of(&stream), Outline { has_loss: false, is_whole: true });
        assert_eq!(Outline::of(&[&b"boxes around it"[..], &stream].concat()), Outline::of(&stream));
        for len in 0..stream.len() {
            assert!(!Outline::of(&stream[..len]).is_whole, "{len}");
        }
        let mut elsewhere = stream.clone();
        elsewhere[transform + 6] = 1;
        assert!(!Outline::of(&elsewhere).is_whole, "a part of a tile that there is not");
        stream[transform] = 0;
        assert!(Outline::of(&stream).has_loss);
    }

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
