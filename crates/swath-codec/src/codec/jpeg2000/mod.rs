//! JPEG 2000 in each tile (compressions 34712, and 33003 and 33005 of Aperio).

#[cfg(feature = "jpeg2000")]
mod decode;
#[cfg(feature = "jpeg2000-write")]
mod encode;

#[cfg(feature = "jpeg2000")]
pub use decode::Jpeg2000;
#[cfg(feature = "jpeg2000-write")]
pub use encode::encoder;
