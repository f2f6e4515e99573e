//! JPEG streams (ITU-T T.81), both ways. This module knows neither TIFF nor tiles; [`codec::jpeg`](crate::codec::jpeg) applies it to
//! them.

#![forbid(unsafe_code)]

mod dct;
pub mod decode;
pub mod encode;
mod transpose;
mod zigzag;

pub use decode::{
    Checked, Color, Component, Damage, Decoded, Fault, Header, JpegError, MAX_SCANS, Options, Process, Tables,
};
