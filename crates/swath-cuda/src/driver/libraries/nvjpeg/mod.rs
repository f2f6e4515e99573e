//! nvJPEG: JPEG tiles of 8-bit samples, decoded into device memory and encoded from it.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod header;

use std::ffi::c_int;

use crate::driver::libraries::{
    load::{Absent, CallError, Library, Names},
    session::{check_status, version_numbers},
    sys::nvjpeg as sys,
};

pub(super) const NAMES: Names = Names {
    label: "nvJPEG",
    files: &["libnvjpeg.so.13", "libnvjpeg.so.12"],
    wheels: &["nvidia/cu13/lib", "nvidia/nvjpeg/lib"],
    landmark: c"nvjpegCreateEx",
};

/// Returns `major.minor.patch` of a library whose functions match our tables.
fn supported_version(
    library: &Library,
    get: unsafe extern "C" fn(c_int, *mut c_int) -> sys::Status,
) -> Result<String, Absent> {
    let [major, minor, patch] = version_numbers(NAMES.label, "nvjpegGetProperty", get, &sys::STATUS_NAMES)?;
    let version = format!("{major}.{minor}.{patch}");
    // 12.0 cannot interpolate chroma, so its pixels would differ from the host decoder's.
    if !matches!((major, minor), (12, 1..) | (13, _)) {
        return Err(library.wrong_version(version, "12.1 and later 12, and 13"));
    }
    Ok(version)
}

fn check(call: &'static str, status: sys::Status) -> Result<(), CallError> {
    check_status(call, status, &sys::STATUS_NAMES)
}
