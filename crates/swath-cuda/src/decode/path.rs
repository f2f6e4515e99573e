//! How tiles of each compression are decoded on the device.
//!
//! # Adding a codec
//!
//! 1. Decode it: a kernel gets an entry in `driver/launch/decode.rs`, a library a wrapper in `driver/libraries/` and a function
//!    in `driver/launch/`.
//! 2. Add a variant to [`DecodePath`] and its line to `DecodePath::facts`, which says who decodes and with how much memory.
//! 3. Add an entry to `CODECS`: the compression, the path, the library it needs, and which tiles it declines.
//!
//! A kernel needs nothing more: the engine chooses the path with [`DecodePath::choose`] and treats all paths alike that
//! [upload their streams](DecodePath::uploads_streams). A library's call goes into `decode/group_launch.rs`.

use swath_codec::TileSpec;
use swath_tiff::{Compression, Photometric, SampleType};

use crate::{
    driver::{
        launch::{decode::DecodeKernel, slice::is_worth_sharing},
        libraries::{
            nvjpeg::header::JpegOutput,
            nvjpeg2k::{Jpeg2000Sample, decode::Jpeg2000Components},
        },
    },
    error::DeviceError,
    gpu::Gpu,
};

/// How the bytes of tiles in a file become samples on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodePath {
    /// The stored bytes are uploaded and placed.
    Raw,
    /// The compressed bytes are uploaded, and a kernel decodes them.
    PackBits,
    /// As [`DecodePath::PackBits`].
    Lzw,
    /// As [`DecodePath::PackBits`].
    Deflate,
    /// As [`DecodePath::Deflate`], where the file says how tiles are cut into pieces: kernels decode the pieces side by
    /// side.
    DeflatePieces,
    /// As [`DecodePath::Deflate`], for reads of few tiles: several kernels with scratch for each tile share each tile among
    /// many blocks of threads.
    DeflateShared,
    /// The compressed bytes are uploaded, and several kernels with scratch for each tile decode them.
    Zstd,
    /// As [`DecodePath::Zstd`], for reads of few tiles: many blocks of threads share each tile.
    ZstdShared,
    /// The compressed bytes are uploaded, and nvCOMP decodes them. Only for trusted input.
    Lz4,
    /// The compressed bytes stay on the host, and nvJPEG decodes them into planes on the device.
    Jpeg,
    /// As [`DecodePath::Jpeg`], by nvJPEG2000.
    Jpeg2000,
    /// The CPU decodes tiles into pinned memory.
    Host,
}

/// The decoder that turns the bytes of a tile into samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecodedBy {
    /// No decoder: the stored bytes are placed as they are.
    Copy,
    /// One of our own kernels.
    Kernel(DecodeKernel),
    /// The Deflate kernels for pieces.
    PieceKernels,
    /// nvCOMP, which takes arrays of addresses and lengths.
    Nvcomp,
    /// nvJPEG or nvJPEG2000, which read host memory and write planes.
    ImageLibrary,
    /// The CPU.
    Host,
}

/// What a decode path needs.
#[derive(Debug, Clone, Copy)]
struct PathFacts {
    decoded_by: DecodedBy,
    /// Temporary memory that is set aside for a library, in eighths of the decoded bytes.
    temporary_eighths: u64,
    /// Decoded bytes of the largest tile it takes; `None` for any.
    max_tile_len: Option<usize>,
}

/// An NVIDIA library that decodes tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecodeLibrary {
    Nvcomp,
    NvJpeg,
    NvJpeg2000,
}

impl DecodeLibrary {
    const fn name(self) -> &'static str {
        match self {
            Self::Nvcomp => "nvCOMP",
            Self::NvJpeg => "nvJPEG",
            Self::NvJpeg2000 => "nvJPEG2000",
        }
    }

    /// Checks that the library can be used on this GPU.
    fn find(self, gpu: &Gpu) -> Result<(), DeviceError> {
        match self {
            Self::Nvcomp => gpu.has_nvcomp(),
            Self::NvJpeg => gpu.has_nvjpeg(),
            Self::NvJpeg2000 => gpu.has_nvjpeg2000(),
        }
    }
}

/// How the GPU decodes tiles of one compression.
struct Codec {
    compression: Compression,
    path: DecodePath,
    /// The library it needs; `None` where our own kernels decode.
    library: Option<DecodeLibrary>,
    /// Whether damaged input can hang or crash the decoder, so that only trusted input may reach it.
    needs_trust: bool,
    /// Returns why such a tile is declined, if it is.
    decline: fn(&TileSpec) -> Option<String>,
}

impl Codec {
    const fn kernel(compression: Compression, path: DecodePath) -> Self {
        Self { compression, path, library: None, needs_trust: false, decline: decline_packed_chroma }
    }

    const fn library(
        compression: Compression,
        path: DecodePath,
        library: DecodeLibrary,
        decline: fn(&TileSpec) -> Option<String>,
    ) -> Self {
        Self { compression, path, library: Some(library), needs_trust: false, decline }
    }
}

/// Every compression that the GPU decodes.
static CODECS: [Codec; 8] = [
    Codec::kernel(Compression::None, DecodePath::Raw),
    Codec::kernel(Compression::PackBits, DecodePath::PackBits),
    Codec::kernel(Compression::Lzw, DecodePath::Lzw),
    Codec::kernel(Compression::Deflate, DecodePath::Deflate),
    Codec::kernel(Compression::Zstd, DecodePath::Zstd),
    Codec {
        needs_trust: true,
        ..Codec::library(Compression::Lz4, DecodePath::Lz4, DecodeLibrary::Nvcomp, decline_lz4)
    },
    Codec::library(Compression::Jpeg, DecodePath::Jpeg, DecodeLibrary::NvJpeg, decline_jpeg),
    Codec::library(Compression::Jpeg2000, DecodePath::Jpeg2000, DecodeLibrary::NvJpeg2000, decline_jpeg2000),
];

/// Aperio's number for JPEG 2000 that holds YCbCr outside of the codestream's own transform.
const APERIO_YCBCR: u16 = 33003;
/// Least columns for which nvJPEG and the CPU smooth chroma alike: libjpeg does not smooth narrower tiles.
const LEAST_COLUMNS: u32 = 5;
/// Most components that nvJPEG2000 reads: it refused a stream of five, as its documentation says.
const MOST_COMPONENTS: u16 = 4;
/// Decoded bytes of the largest tile that the kernels for Zstd take.
const MOST_ZSTD_TILE: usize = 1 << 30;

fn decline_packed_chroma(spec: &TileSpec) -> Option<String> {
    spec.packed_subsampling.map(|_| "subsampled YCbCr without JPEG is not decoded on the GPU".to_owned())
}

fn decline_lz4(spec: &TileSpec) -> Option<String> {
    decline_packed_chroma(spec).or_else(|| spec.bits_reversed.then(|| not_decoded(spec)))
}

fn decline_jpeg(spec: &TileSpec) -> Option<String> {
    let what = if let Some(what) = odd_image(spec) {
        what
    } else if (spec.bits, spec.sample) != (8, SampleType::U8) {
        format!("JPEG of {} bits", spec.bits)
    } else if !matches!(spec.samples, 1 | 3) {
        format!("JPEG of {} samples", spec.samples)
    } else if spec.samples == 3 && spec.width < LEAST_COLUMNS {
        format!("JPEG of {} columns", spec.width)
    } else {
        return None;
    };
    Some(format!("{what} is not decoded on the GPU"))
}

fn decline_jpeg2000(spec: &TileSpec) -> Option<String> {
    let what = if let Some(what) = odd_image(spec) {
        what
    } else if spec.compression_code == APERIO_YCBCR {
        "JPEG 2000 with Aperio's YCbCr".to_owned()
    } else if !(1..=MOST_COMPONENTS).contains(&spec.samples) {
        format!("JPEG 2000 of {} samples", spec.samples)
    } else if jpeg2000_components(spec).is_none() {
        format!("JPEG 2000 of {} samples", spec.sample)
    } else {
        return None;
    };
    Some(format!("{what} is not decoded on the GPU"))
}

/// Names what no image library takes of a tile, if it has such a thing.
fn odd_image(spec: &TileSpec) -> Option<String> {
    (spec.bits_reversed || spec.packed_subsampling.is_some())
        .then(|| format!("{} with reversed bits or packed chroma", spec.compression))
}

fn not_decoded(spec: &TileSpec) -> String {
    format!("{} is not decoded on the GPU", spec.compression)
}

fn codec_for(spec: &TileSpec) -> Result<&'static Codec, DeviceError> {
    let found = CODECS.iter().find(|codec| codec.compression == spec.compression);
    let declined = match found {
        Some(codec) => (codec.decline)(spec),
        None => Some(decline_packed_chroma(spec).unwrap_or_else(|| not_decoded(spec))),
    };
    match (found, declined) {
        (Some(codec), None) => Ok(codec),
        (_, reason) => Err(DeviceError::Declined(reason.unwrap_or_else(|| not_decoded(spec)))),
    }
}

impl DecodePath {
    /// Returns the path for tiles of this spec, as if every library were there.
    ///
    /// # Errors
    /// [`DeviceError::Declined`] with the reason when the GPU does not decode such tiles.
    pub fn for_spec(spec: &TileSpec) -> Result<Self, DeviceError> {
        codec_for(spec).map(|codec| codec.path)
    }

    /// Returns the path for tiles of this spec on this GPU. `trust_input` allows decoders that damaged input can hang or crash.
    ///
    /// # Errors
    /// [`DeviceError::Declined`] with the reason when the GPU does not decode such tiles, the library for them is missing, or
    /// their decoder needs trusted input.
    pub fn choose(spec: &TileSpec, gpu: &Gpu, trust_input: bool) -> Result<Self, DeviceError> {
        let codec = codec_for(spec)?;
        if codec.needs_trust && !trust_input {
            return Err(DeviceError::Declined(format!(
                "{} unless its input is trusted (trust_input): NVIDIA's decoder can hang on damaged streams",
                not_decoded(spec)
            )));
        }
        if let Some(library) = codec.library {
            library.find(gpu).map_err(|absent| {
                DeviceError::Declined(format!("{} without {} ({absent})", not_decoded(spec), library.name()))
            })?;
        }
        Ok(codec.path)
    }

    /// Returns the path that is faster for a read of this many tiles, the largest of `largest` decoded bytes, if there is
    /// one. It takes more memory.
    pub fn for_few(self, gpu: &Gpu, tiles: usize, largest: usize) -> Option<Self> {
        let few = is_worth_sharing(gpu.facts().multiprocessors, tiles, largest);
        match self {
            Self::Deflate if few => Some(Self::DeflateShared),
            Self::Zstd if few => Some(Self::ZstdShared),
            _ => None,
        }
    }

    fn facts(self) -> PathFacts {
        let by = |decoded_by| PathFacts { decoded_by, temporary_eighths: 0, max_tile_len: None };
        match self {
            Self::Raw => by(DecodedBy::Copy),
            Self::PackBits => by(DecodedBy::Kernel(DecodeKernel::PackBits)),
            Self::Lzw => by(DecodedBy::Kernel(DecodeKernel::Lzw)),
            Self::Deflate => by(DecodedBy::Kernel(DecodeKernel::Inflate)),
            Self::DeflatePieces => by(DecodedBy::PieceKernels),
            Self::DeflateShared => by(DecodedBy::Kernel(DecodeKernel::InflateShared)),
            Self::Zstd => PathFacts { max_tile_len: Some(MOST_ZSTD_TILE), ..by(DecodedBy::Kernel(DecodeKernel::Zstd)) },
            Self::ZstdShared => {
                PathFacts { max_tile_len: Some(MOST_ZSTD_TILE), ..by(DecodedBy::Kernel(DecodeKernel::ZstdShared)) }
            }
            Self::Lz4 => PathFacts { temporary_eighths: 2, ..by(DecodedBy::Nvcomp) },
            // Coefficients of 16 bits, and components before they are scaled to full size.
            Self::Jpeg => PathFacts { temporary_eighths: 32, ..by(DecodedBy::ImageLibrary) },
            // Coefficients of 32 bits, twice, for samples of one byte or two.
            Self::Jpeg2000 => PathFacts { temporary_eighths: 64, ..by(DecodedBy::ImageLibrary) },
            Self::Host => by(DecodedBy::Host),
        }
    }

    /// Decoded bytes of the largest tile that the path takes; `None` for any.
    pub fn max_tile_len(self) -> Option<usize> {
        self.facts().max_tile_len
    }

    /// Whether a kernel or a library leaves a status for each tile.
    pub(crate) fn has_statuses(self) -> bool {
        !matches!(self.facts().decoded_by, DecodedBy::Copy | DecodedBy::Host)
    }

    /// Whether a library reads the compressed bytes from host memory and leaves planes on the device.
    pub fn decodes_from_host(self) -> bool {
        self.facts().decoded_by == DecodedBy::ImageLibrary
    }

    /// Whether tiles are decoded in pieces.
    pub(crate) fn has_pieces(self) -> bool {
        self.facts().decoded_by == DecodedBy::PieceKernels
    }

    /// Whether the tables of a batch hold the arrays of addresses and lengths that nvCOMP takes.
    pub(crate) fn has_chunks(self) -> bool {
        self.facts().decoded_by == DecodedBy::Nvcomp
    }

    /// Whether the kernels need scratch for each tile.
    pub(crate) fn has_tile_scratch(self) -> bool {
        self.tile_scratch(0) > 0
    }

    /// Bytes of scratch for each tile of a read whose largest tile has `largest` decoded bytes.
    pub(crate) fn tile_scratch(self, largest: usize) -> usize {
        self.kernel().map_or(0, |kernel| kernel.tile_scratch_len(largest))
    }

    /// Temporary memory that is set aside for a library, in eighths of the decoded bytes.
    pub(crate) fn temporary_eighths(self) -> u64 {
        self.facts().temporary_eighths
    }

    /// Whether the bytes of tiles are uploaded as the file stores them.
    pub fn uploads_streams(self) -> bool {
        !matches!(self.facts().decoded_by, DecodedBy::Host | DecodedBy::ImageLibrary)
    }

    /// Whether decoded bytes need a buffer of their own.
    pub(crate) fn decodes_apart(self) -> bool {
        self.facts().decoded_by != DecodedBy::Copy
    }

    pub(crate) fn kernel(self) -> Option<DecodeKernel> {
        match self.facts().decoded_by {
            DecodedBy::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }
}

/// Returns how nvJPEG writes tiles of this spec: the samples that the CPU decoder gives, in planes.
pub(crate) fn jpeg_output(spec: &TileSpec) -> JpegOutput {
    match (spec.samples, spec.photometric) {
        (1, _) => JpegOutput::Grey,
        (_, Some(Photometric::YCbCr)) => JpegOutput::RgbPlanar,
        _ => JpegOutput::StoredPlanar,
    }
}

/// Returns the components that nvJPEG2000 writes for tiles of this spec, if it can.
pub(crate) fn jpeg2000_components(spec: &TileSpec) -> Option<Jpeg2000Components> {
    let sample = Jpeg2000Sample::of(spec.sample)?;
    Some(Jpeg2000Components { sample, components: spec.samples.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::test_spec::spec;

    #[test]
    fn pictures_that_libraries_do_not_read_are_declined_with_a_reason() {
        let (jpeg, jpeg2000) = (Compression::Jpeg, Compression::Jpeg2000);
        let path = |spec: &TileSpec| DecodePath::for_spec(spec).map_err(|error| error.to_string());
        for samples in [1, 3] {
            assert_eq!(path(&spec(jpeg, SampleType::U8, samples)), Ok(DecodePath::Jpeg));
        }
        for sample in [SampleType::U8, SampleType::U16, SampleType::I16] {
            assert_eq!(path(&spec(jpeg2000, sample, 4)), Ok(DecodePath::Jpeg2000));
        }
        for declined in [
            spec(jpeg, SampleType::U8, 4),
            spec(jpeg, SampleType::U16, 1),
            TileSpec { width: 4, ..spec(jpeg, SampleType::U8, 3) },
            TileSpec { bits_reversed: true, ..spec(jpeg, SampleType::U8, 1) },
            spec(jpeg2000, SampleType::U8, 5),
            spec(jpeg2000, SampleType::I8, 1),
            spec(jpeg2000, SampleType::U32, 1),
            TileSpec { compression_code: APERIO_YCBCR, ..spec(jpeg2000, SampleType::U8, 3) },
            spec(Compression::WebP, SampleType::U8, 3),
        ] {
            let reason = path(&declined).err().unwrap_or_default();
            assert!(reason.contains("is not decoded on the GPU"), "{reason}");
        }
    }

    #[test]
    fn colour_equals_the_cpus() {
        let of = |samples, photometric| {
            jpeg_output(&TileSpec { photometric, ..spec(Compression::Jpeg, SampleType::U8, samples) })
        };
        assert_eq!(of(1, Some(Photometric::YCbCr)), JpegOutput::Grey);
        assert_eq!(of(3, Some(Photometric::YCbCr)), JpegOutput::RgbPlanar);
        assert_eq!(of(3, Some(Photometric::Rgb)), JpegOutput::StoredPlanar);
        assert_eq!(of(3, None), JpegOutput::StoredPlanar);
    }
}
