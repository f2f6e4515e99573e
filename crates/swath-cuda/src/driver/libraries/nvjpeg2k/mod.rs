//! nvJPEG2000: JPEG 2000 tiles, decoded into device memory and encoded from it.

pub(crate) mod codestream;
pub(crate) mod decode;
pub(crate) mod encode;

use std::ffi::c_int;

use swath_tiff::SampleType;

use crate::driver::libraries::{
    load::{Absent, CallError, Library, Names},
    session::{check_status, version_numbers},
    sys::nvjpeg2k as sys,
};

const NAMES: Names = Names {
    label: "nvJPEG2000",
    files: &["libnvjpeg2k.so.0"],
    wheels: &["nvidia/nvjpeg2k/lib"],
    landmark: c"nvjpeg2kCreateSimple",
};

/// The minor version whose header our tables were checked against. Later ones keep the file's version number, and so
/// the functions.
const OLDEST_MINOR: c_int = 11;

/// The samples of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jpeg2000Sample {
    /// Unsigned, up to 8 bits.
    U8,
    /// Unsigned, up to 16 bits.
    U16,
    /// Signed, up to 16 bits.
    I16,
}

impl Jpeg2000Sample {
    /// Returns the library's type for samples of this type, if it has one.
    pub(crate) fn of(sample: SampleType) -> Option<Self> {
        match sample {
            SampleType::U8 => Some(Self::U8),
            SampleType::U16 => Some(Self::U16),
            SampleType::I16 => Some(Self::I16),
            _ => None,
        }
    }

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

/// Returns `major.minor.patch` of a library whose functions match our tables.
fn supported_version(
    library: &Library,
    get: unsafe extern "C" fn(c_int, *mut c_int) -> sys::Status,
) -> Result<String, Absent> {
    let [major, minor, patch] = version_numbers(NAMES.label, "nvjpeg2kGetProperty", get, &sys::STATUS_NAMES)?;
    let version = format!("{major}.{minor}.{patch}");
    if major != 0 || minor < OLDEST_MINOR {
        return Err(library.wrong_version(version, "0.11 and later 0.x"));
    }
    Ok(version)
}

fn check(call: &'static str, status: sys::Status) -> Result<(), CallError> {
    check_status(call, status, &sys::STATUS_NAMES)
}
