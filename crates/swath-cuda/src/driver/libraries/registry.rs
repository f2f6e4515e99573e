//! The libraries that keep states for our streams. They live and end with the context.

use std::sync::OnceLock;

use crate::{
    driver::{
        context::Context,
        cuda::Handle,
        libraries::{
            load::{Absent, Search},
            nvjpeg::{
                decode::{Engine, JpegDecoder},
                encode::JpegEncoder,
            },
            nvjpeg2k::{decode::Jpeg2000Decoder, encode::Jpeg2000Encoder},
        },
    },
    error::DeviceError,
};

/// The libraries that keep states for each stream. They live and end with the context.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    search: Search,
    jpeg: OnceLock<Result<JpegDecoder, String>>,
    jpeg2000: OnceLock<Result<Jpeg2000Decoder, String>>,
    jpeg_encoder: OnceLock<Result<JpegEncoder, String>>,
    jpeg2000_encoder: OnceLock<Result<Jpeg2000Encoder, String>>,
}

impl Libraries {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, ..Self::default() }
    }

    pub(crate) fn search(&self) -> &Search {
        &self.search
    }

    /// Returns nvJPEG; the first call looks for it.
    pub(crate) fn jpeg(&self, context: &Context) -> Result<&JpegDecoder, DeviceError> {
        loaded(&self.jpeg, || {
            let library = JpegDecoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe(Engine::Host).map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// Returns nvJPEG2000; the first call looks for it.
    pub(crate) fn jpeg2000(&self, context: &Context) -> Result<&Jpeg2000Decoder, DeviceError> {
        loaded(&self.jpeg2000, || {
            let library = Jpeg2000Decoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// Returns nvJPEG's encoder; the first call looks for it.
    pub(crate) fn jpeg_encoder(&self, context: &Context) -> Result<&JpegEncoder, DeviceError> {
        loaded(&self.jpeg_encoder, || {
            let library = JpegEncoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// Returns nvJPEG2000's encoder; the first call looks for it.
    pub(crate) fn jpeg2000_encoder(&self, context: &Context) -> Result<&Jpeg2000Encoder, DeviceError> {
        loaded(&self.jpeg2000_encoder, || {
            let library = Jpeg2000Encoder::load(&self.search).map_err(|absent: Absent| absent.to_string())?;
            let _current = context.enter().map_err(|error| error.to_string())?;
            library.probe().map_err(|error| error.to_string())?;
            Ok(library)
        })
    }

    /// Makes all libraries free what they keep for a stream.
    ///
    /// # Safety
    /// The context is current and the stream has passed all of its work.
    pub(crate) unsafe fn forget(&self, stream: Handle) {
        if let Some(Ok(jpeg)) = self.jpeg.get() {
            // SAFETY: as the caller promises.
            unsafe { jpeg.forget(stream) };
        }
        if let Some(Ok(jpeg2000)) = self.jpeg2000.get() {
            // SAFETY: as the caller promises.
            unsafe { jpeg2000.forget(stream) };
        }
        if let Some(Ok(encoder)) = self.jpeg_encoder.get() {
            // SAFETY: as the caller promises.
            unsafe { encoder.forget(stream) };
        }
        if let Some(Ok(encoder)) = self.jpeg2000_encoder.get() {
            // SAFETY: as the caller promises.
            unsafe { encoder.forget(stream) };
        }
    }
}

/// Returns the library in `slot`, which the first call loads. A reason why it cannot be loaded becomes [`DeviceError::Declined`].
fn loaded<T>(slot: &OnceLock<Result<T, String>>, load: impl FnOnce() -> Result<T, String>) -> Result<&T, DeviceError> {
    slot.get_or_init(load).as_ref().map_err(|reason| DeviceError::Declined(reason.clone()))
}
