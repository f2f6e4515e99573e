//! nvJPEG2000's decoder: JPEG 2000 tiles in host memory (bare codestreams or JP2 files) become planes in device memory.
//!
//! A session (a decode state and the parsed stream it works on) stays in use until the device is done with it, and the
//! library cannot tell when. So each CUDA stream of the caller has several sessions, and the caller knows which are
//! free.

use std::{ffi::c_void, path::Path, ptr};

use crate::driver::libraries::{
    load::{Absent, CallError, Library, RawStream, Search},
    nvjpeg2k::{Jpeg2000Sample, NAMES, check, supported_version},
    session::{LazyHandle, OpaqueHandle, SUCCESS, Sessions, lock},
    sys::nvjpeg2k as sys,
};

/// Most tiles inside one codestream: the library keeps memory for each.
const MAX_INNER_TILES: u64 = 1 << 12;

/// The components that the file says each tile has.
#[derive(Debug, Clone, Copy)]
pub struct Jpeg2000Components {
    /// The samples to write. Streams with narrower samples of the same sign are accepted.
    pub sample: Jpeg2000Sample,
    /// Number of components, all of the tile's full size.
    pub components: u32,
}

/// One tile to decode.
#[derive(Debug, Clone, Copy)]
pub struct Jpeg2000Tile<'a> {
    /// A codestream, or a JP2 file around one.
    pub bytes: &'a [u8],
    /// The tile's columns in the file.
    pub width: u32,
    /// The tile's rows in the file.
    pub height: u32,
    /// Device address and pitch in bytes of each component's plane.
    pub planes: &'a [(u64, usize)],
    /// Bytes that may be written from each plane's address on.
    pub plane_len: usize,
}

/// Why a tile was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Jpeg2000Refusal {
    /// The stream's image differs from the file's tile.
    #[error("the stream holds {found}, the file promises {wanted}")]
    Mismatch {
        /// Width x height x components in the stream.
        found: String,
        /// Width x height x components in the file.
        wanted: String,
    },
    /// A component is subsampled, or its samples do not fit the type.
    #[error("component {component} holds {found}, which is not decoded on the device into {wanted:?}")]
    Component {
        /// Number of the component.
        component: u32,
        /// Its size, precision and sign.
        found: String,
        /// The type.
        wanted: Jpeg2000Sample,
    },
    /// The stream contains too many tiles of its own.
    #[error("the stream is cut into {0} tiles of its own")]
    InnerTiles(u64),
    /// The planes are too few, too short or too narrow for the tile.
    #[error("the output planes are too small for the tile")]
    Room,
    /// The library refused it.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The loaded nvJPEG2000 library, with the decode sessions of one CUDA context. Each keeps device memory for the
/// largest tile it has decoded. [`Self::forget`] frees it.
#[derive(Debug)]
pub struct Jpeg2000Decoder {
    library: Library,
    table: sys::Table,
    version: String,
    handle: LazyHandle,
    /// By stream and number.
    sessions: Sessions<(usize, usize), StreamSession>,
}

/// What decoding keeps from tile to tile.
#[derive(Debug)]
struct StreamSession {
    state: OpaqueHandle,
    codestream: OpaqueHandle,
}

impl Jpeg2000Decoder {
    /// Loads nvJPEG2000 and reads its version. Needs no GPU.
    ///
    /// # Errors
    /// The places that were searched, or the unsupported version that was found.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        let table = sys::Table::load(&library)?;
        let version = supported_version(&library, table.nvjpeg2kGetProperty)?;
        Ok(Self { library, table, version, handle: LazyHandle::default(), sessions: Sessions::default() })
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

    /// Checks that the library can be used on the current context's device.
    ///
    /// # Errors
    /// The library's error.
    pub fn probe(&self) -> Result<(), CallError> {
        // The library handle alone can be created even without a driver.
        let state = self.create_state(self.handle()?)?;
        // SAFETY: the state was created just now and nothing else knows of it.
        unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(state.0) };
        Ok(())
    }

    /// Queues one tile on `stream`, in session `number`, which is created on first use.
    ///
    /// Several threads may call this at once, with a stream each.
    ///
    /// # Errors
    /// When the stream differs from the file's tile, or the library refuses it.
    ///
    /// # Safety
    /// The CUDA context is current and always the same one for this `Jpeg2000Decoder`. Until the stream has passed this work,
    /// the tile's bytes stay as they are and its planes are `plane_len` bytes of device memory that nothing else
    /// touches. The stream has passed whatever was queued in this session before. A stream given here is synchronised and
    /// [forgotten](Self::forget) before it is destroyed.
    pub unsafe fn decode(
        &self,
        tile: &Jpeg2000Tile<'_>,
        expected: Jpeg2000Components,
        stream: RawStream,
        number: usize,
    ) -> Result<(), Jpeg2000Refusal> {
        check_room(tile, expected)?;
        let handle = self.handle()?;
        let session = self.sessions.get_or_create((stream as usize, number), || self.create_session(handle))?;
        let session = lock(&session);
        // SAFETY: handle and codestream are alive, this thread holds the mutex of the latter, no queued work uses it,
        // and the bytes are readable for their length.
        let status = unsafe {
            let (data, len) = (tile.bytes.as_ptr(), tile.bytes.len());
            (self.table.nvjpeg2kStreamParse)(handle.0, data, len, 0, 0, session.codestream.0)
        };
        check("nvjpeg2kStreamParse", status)?;
        self.inspect(session.codestream, tile, expected)?;
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
        // the caller guarantees those and the bytes until the stream has passed. Null parameters ask for the whole
        // image in planes.
        let status = unsafe {
            (self.table.nvjpeg2kDecodeImage)(
                handle.0,
                session.state.0,
                session.codestream.0,
                ptr::null_mut(),
                &raw mut image,
                stream,
            )
        };
        check("nvjpeg2kDecodeImage", status)?;
        Ok(())
    }

    /// Frees what decoding on `stream` kept, including device memory.
    ///
    /// # Safety
    /// The CUDA context is current and the stream has passed all work queued by [`Self::decode`].
    pub unsafe fn forget(&self, stream: RawStream) {
        self.sessions.remove(|(user, _)| *user == stream as usize, |session| self.destroy(session));
    }

    /// Checks everything about a parsed stream that its headers tell.
    fn inspect(
        &self,
        codestream: OpaqueHandle,
        tile: &Jpeg2000Tile<'_>,
        expected: Jpeg2000Components,
    ) -> Result<(), Jpeg2000Refusal> {
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

    fn handle(&self) -> Result<OpaqueHandle, CallError> {
        self.handle.get_or_create(|| {
            let mut handle = ptr::null_mut();
            // SAFETY: `handle` is writable for the length of the call.
            let status = unsafe { (self.table.nvjpeg2kCreateSimple)(&raw mut handle) };
            check("nvjpeg2kCreateSimple", status).map(|()| OpaqueHandle(handle))
        })
    }

    fn create_session(&self, handle: OpaqueHandle) -> Result<StreamSession, CallError> {
        let state = self.create_state(handle)?;
        let mut codestream = ptr::null_mut();
        // SAFETY: `codestream` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kStreamCreate)(&raw mut codestream) };
        if status != SUCCESS {
            // SAFETY: the state was created above and nothing else knows of it.
            unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(state.0) };
        }
        check("nvjpeg2kStreamCreate", status)?;
        Ok(StreamSession { state, codestream: OpaqueHandle(codestream) })
    }

    fn create_state(&self, handle: OpaqueHandle) -> Result<OpaqueHandle, CallError> {
        let mut state = ptr::null_mut();
        // SAFETY: the handle is alive; `state` is writable for the length of the call.
        let status = unsafe { (self.table.nvjpeg2kDecodeStateCreate)(handle.0, &raw mut state) };
        check("nvjpeg2kDecodeStateCreate", status).map(|()| OpaqueHandle(state))
    }

    /// Destroys the objects of a session that was removed.
    fn destroy(&self, session: &StreamSession) {
        // SAFETY: the object was created by this library and is destroyed once, its session being out of the map; that no
        // queued work uses it is the contract of `forget` and of dropping.
        unsafe { (self.table.nvjpeg2kStreamDestroy)(session.codestream.0) };
        // SAFETY: as above.
        unsafe { (self.table.nvjpeg2kDecodeStateDestroy)(session.state.0) };
    }
}

/// By then the streams given to [`Jpeg2000Decoder::decode`] have passed its work, as [`Jpeg2000Decoder::forget`]
/// requires for each.
impl Drop for Jpeg2000Decoder {
    fn drop(&mut self) {
        self.sessions.remove(|_| true, |session| self.destroy(session));
        if let Some(handle) = self.handle.take() {
            // SAFETY: created by this library, destroyed once, and all states made from it are gone.
            unsafe { (self.table.nvjpeg2kDestroy)(handle.0) };
        }
    }
}

fn check_room(tile: &Jpeg2000Tile<'_>, expected: Jpeg2000Components) -> Result<(), Jpeg2000Refusal> {
    let row = (tile.width as usize).checked_mul(expected.sample.len()).ok_or(Jpeg2000Refusal::Room)?;
    let fits = |&(_, pitch): &(u64, usize)| {
        let needed = pitch.checked_mul(tile.height as usize);
        row <= pitch && needed.is_some_and(|needed| needed <= tile.plane_len)
    };
    let is_enough = u32::try_from(tile.planes.len()).is_ok_and(|count| count == expected.components);
    if is_enough && tile.planes.iter().all(fits) { Ok(()) } else { Err(Jpeg2000Refusal::Room) }
}

fn check_image(
    info: &sys::ImageInfo,
    tile: &Jpeg2000Tile<'_>,
    expected: Jpeg2000Components,
) -> Result<(), Jpeg2000Refusal> {
    let found = (info.width, info.height, info.components);
    let wanted = (tile.width, tile.height, expected.components);
    if found != wanted {
        let words = |(width, height, components)| format!("{width} x {height} x {components}");
        return Err(Jpeg2000Refusal::Mismatch { found: words(found), wanted: words(wanted) });
    }
    let inner = u64::from(info.tiles_across) * u64::from(info.tiles_down);
    if inner > MAX_INNER_TILES { Err(Jpeg2000Refusal::InnerTiles(inner)) } else { Ok(()) }
}

fn check_component(
    info: &sys::ComponentInfo,
    component: u32,
    tile: &Jpeg2000Tile<'_>,
    expected: Jpeg2000Components,
) -> Result<(), Jpeg2000Refusal> {
    let is_whole = (info.width, info.height) == (tile.width, tile.height);
    let is_signed = info.signed != 0;
    if is_whole && expected.sample.holds(info.precision, is_signed) {
        return Ok(());
    }
    let sign = if is_signed { "signed" } else { "unsigned" };
    let found = format!("{} x {} {sign} samples of {} bits", info.width, info.height, info.precision);
    Err(Jpeg2000Refusal::Component { component, found, wanted: expected.sample })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANES: [(u64, usize); 1] = [(256, 128)];

    fn tile() -> Jpeg2000Tile<'static> {
        Jpeg2000Tile { bytes: &[], width: 64, height: 32, planes: &PLANES, plane_len: 128 * 32 }
    }

    const EXPECTED: Jpeg2000Components = Jpeg2000Components { sample: Jpeg2000Sample::U16, components: 1 };

    #[test]
    fn planes_too_short_too_narrow_or_too_few_are_refused() {
        assert_eq!(check_room(&tile(), EXPECTED), Ok(()));
        assert_eq!(
            check_room(&Jpeg2000Tile { plane_len: 128 * 32 - 1, ..tile() }, EXPECTED),
            Err(Jpeg2000Refusal::Room)
        );
        assert_eq!(check_room(&Jpeg2000Tile { width: 65, ..tile() }, EXPECTED), Err(Jpeg2000Refusal::Room));
        assert_eq!(check_room(&tile(), Jpeg2000Components { components: 3, ..EXPECTED }), Err(Jpeg2000Refusal::Room));
        let endless = Jpeg2000Tile { planes: &[(0, usize::MAX)], plane_len: usize::MAX, ..tile() };
        assert_eq!(check_room(&endless, EXPECTED), Err(Jpeg2000Refusal::Room));
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
            assert!(matches!(check_image(&other, &tile(), EXPECTED), Err(Jpeg2000Refusal::Mismatch { .. })));
        }
        let cut = sys::ImageInfo { tiles_across: u32::MAX, tiles_down: u32::MAX, ..info };
        assert!(matches!(check_image(&cut, &tile(), EXPECTED), Err(Jpeg2000Refusal::InnerTiles(_))));
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
            assert!(matches!(check_component(&other, 0, &tile(), EXPECTED), Err(Jpeg2000Refusal::Component { .. })));
        }
        let bytes = Jpeg2000Components { sample: Jpeg2000Sample::U8, components: 1 };
        assert!(check_component(&info, 0, &tile(), bytes).is_err());
        let signed = Jpeg2000Components { sample: Jpeg2000Sample::I16, components: 1 };
        assert!(check_component(&sys::ComponentInfo { signed: 1, precision: 16, ..info }, 0, &tile(), signed).is_ok());
    }
}
