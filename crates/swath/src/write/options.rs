//! The options of a write.

use std::{num::NonZeroU32, sync::Arc};

use swath_codec::{
    Registry,
    encode::{LercWrap, Settings},
};
use swath_io::RemoteOptions;
use swath_raster::shrink::Resampling;
use swath_tiff::{
    Compression, Photometric, SampleType,
    structure::{ByteOrder, Planar, Predictor, emit::Field},
};

use swath_cuda::Gpu;

use crate::{
    cancel::Cancel,
    device::{DeviceOptions, Mode},
    error::Error,
    metadata::Metadata,
    names::{self, PredictorRule},
};

/// Size and type of a raster to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bands.
    pub bands: u16,
    /// Type of a sample.
    pub sample: SampleType,
}

/// How an image is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocks {
    /// Tiles of this many columns and rows, multiples of 16.
    Tiles(u32, u32),
    /// Strips of this many rows; `None` for about 64 KiB each.
    Strips(Option<NonZeroU32>),
}

/// Whether offsets have 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BigTiff {
    /// Where the file could become larger than 4 GiB.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: the writer refuses a file that could become larger than 4 GiB, before it writes anything.
    Never,
}

/// Which overviews a file gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overviews {
    /// A COG gets them until one tile holds the image; other files get none.
    #[default]
    Auto,
    /// None.
    None,
    /// This number of overviews, each half the size of the one before.
    Levels(u32),
    /// These factors, each a multiple of the one before.
    Factors(Vec<u32>),
}

/// What the last band means, beside colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alpha {
    /// Opacity.
    Unassociated,
    /// Opacity that colours are already multiplied with.
    Premultiplied,
}

/// How far a write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Rows that are done.
    pub rows: u32,
    /// Rows of the raster.
    pub of: u32,
    /// Bytes of tiles written so far.
    pub bytes: u64,
}

/// Called now and then, from the thread that writes.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// The options of a write. The default is a TIFF in tiles of 512² pixels, Deflate, with the predictor that makes a sample of the first
/// rows smallest.
///
/// ```
/// use swath::{Blocks, Compression, Overviews, WriteOptions};
///
/// let plain = WriteOptions::default().with_blocks(Blocks::Tiles(256, 256)).with_overviews(Overviews::Levels(3));
/// let cog = WriteOptions::cog().with_compression(Compression::Zstd).with_level(15).with_max_memory(64 << 20);
/// ```
#[derive(Clone)]
pub struct WriteOptions {
    pub(crate) compression: Compression,
    pub(crate) settings: Settings,
    pub(crate) predictor: PredictorRule,
    pub(crate) blocks: Blocks,
    pub(crate) planar: Planar,
    pub(crate) bits: Option<u16>,
    pub(crate) photometric: Option<Photometric>,
    pub(crate) subsampling: (u16, u16),
    pub(crate) alpha: Option<Alpha>,
    /// What samples beyond the colours mean in the file that is converted.
    pub(crate) extra_samples: Vec<u16>,
    /// Meaning as colour in the file that is converted, where the options say nothing.
    pub(crate) source_photometric: Option<Photometric>,
    pub(crate) mask: bool,
    pub(crate) soft_mask: bool,
    pub(crate) order: ByteOrder,
    pub(crate) bigtiff: BigTiff,
    pub(crate) sparse: bool,
    pub(crate) cog: bool,
    pub(crate) overviews: Overviews,
    pub(crate) resampling: Option<Resampling>,
    pub(crate) statistics: Option<bool>,
    pub(crate) tags: Vec<Field>,
    pub(crate) max_memory: usize,
    /// Whether the working memory of codecs counts in `max_memory`.
    pub(crate) counts_codecs: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) batch: Option<u32>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) progress: Option<OnProgress>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) nan_to_nodata: bool,
    pub(crate) device: DeviceOptions,
    pub(crate) nvcomp: bool,
    pub(crate) remote: RemoteOptions,
}

impl std::fmt::Debug for WriteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOptions")
            .field("compression", &self.compression)
            .field("blocks", &self.blocks)
            .field("cog", &self.cog)
            .finish_non_exhaustive()
    }
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Deflate,
            settings: Settings::default(),
            predictor: PredictorRule::BySamples,
            blocks: Blocks::Tiles(512, 512),
            planar: Planar::Contig,
            bits: None,
            photometric: None,
            subsampling: (2, 2),
            alpha: None,
            extra_samples: Vec::new(),
            source_photometric: None,
            mask: false,
            soft_mask: false,
            order: ByteOrder::Little,
            bigtiff: BigTiff::Auto,
            sparse: false,
            cog: false,
            overviews: Overviews::Auto,
            resampling: None,
            statistics: None,
            tags: Vec::new(),
            max_memory: 256 << 20,
            counts_codecs: false,
            threads: None,
            batch: None,
            cancel: None,
            progress: None,
            registry: Arc::new(Registry::default()),
            nan_to_nodata: false,
            device: DeviceOptions::default(),
            nvcomp: false,
            remote: RemoteOptions::default(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident = $kind:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $kind) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}

impl WriteOptions {
    /// A Cloud Optimized GeoTIFF: overviews, directories first, statistics.
    pub fn cog() -> Self {
        Self::default().with_cog(true)
    }

    /// This predictor, whatever the samples are.
    #[must_use]
    pub fn with_predictor(self, predictor: Predictor) -> Self {
        self.with_predictor_rule(PredictorRule::Given(predictor))
    }

    setters! {
        /// How to access an object store, where the file goes to one.
        with_remote: remote = RemoteOptions;
        /// How tiles are compressed.
        with_compression: compression = Compression;
        /// How the predictor is chosen; by the samples by default.
        with_predictor_rule: predictor = PredictorRule;
        /// How the image is cut.
        with_blocks: blocks = Blocks;
        /// Whether the samples of a pixel lie together or every band has tiles of its own.
        with_planar: planar = Planar;
        /// Bits of a stored sample, where they are fewer than the type has (NBITS).
        with_bits: bits = u16;
        /// Photometric interpretation, whatever the bands' metadata state; without this, from the bands' colours and number.
        with_photometric: photometric = Photometric;
        /// Luma samples for each chroma sample of JPEG in YCbCr; (2, 2) by default.
        with_subsampling: subsampling = (u16, u16);
        /// Declares the last band to be alpha.
        with_alpha: alpha = Alpha;
        /// Whether the file gets a mask, pushed together with the rows.
        with_mask: mask = bool;
        /// Whether the mask says how opaque a pixel is, from 0 to 255, rather than only whether it is data.
        with_soft_mask: soft_mask = bool;
        /// Byte order of the file.
        with_order: order = ByteOrder;
        /// Whether offsets have 64 bits.
        with_bigtiff: bigtiff = BigTiff;
        /// Leaves out tiles that hold nothing but nodata (or zeros, without nodata); not of CMYK and Lab of eight bits, which
        /// libtiff shows as colours only where every tile is there.
        with_sparse: sparse = bool;
        /// Whether directories, overviews and tiles are laid out as a Cloud Optimized GeoTIFF.
        with_cog: cog = bool;
        /// Which overviews the file gets.
        with_overviews: overviews = Overviews;
        /// How overviews are made; without this, averages (for palettes the nearest pixel).
        with_resampling: resampling = Resampling;
        /// Whether statistics of each band are put into the file; without this, into COGs only.
        with_statistics: statistics = bool;
        /// Further tags of the first directory, written as given.
        with_tags: tags = Vec<Field>;
        /// Threads that compress; all cores by default.
        with_threads: threads = usize;
        /// Tile rows of a step, the work that is done before more rows are taken; chosen by size by default. The file does not
        /// depend on it. (A batch of a GPU is something else: the tiles that it encodes at once.)
        with_batch: batch = u32;
        /// Stops the write from another thread.
        with_cancel: cancel = Cancel;
        /// Called now and then with the progress of the write.
        with_progress: progress = OnProgress;
        /// Which codecs there are.
        with_registry: registry = Arc<Registry>;
        /// Whether floats that are not a number are written as the nodata value, where the metadata have one.
        with_nan_to_nodata: nan_to_nodata = bool;
        /// Whether a GPU compresses Deflate and Zstd by NVIDIA's nvCOMP rather than by our kernels: a level is then one of its
        /// algorithms, and it takes several times the memory.
        with_nvcomp: nvcomp = bool;
    }

    /// Bytes of memory the writer may hold, the working memory of codecs included: fewer threads work where it does not
    /// suffice for all. Without this, 256 MiB and what the codecs need for all threads.
    #[must_use]
    pub fn with_max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self.counts_codecs = true;
        self
    }

    /// The device that cuts, shrinks and compresses; the CPU by default.
    #[must_use]
    pub fn with_device(mut self, mode: Mode) -> Self {
        self.device.mode = Some(mode);
        self
    }

    /// The GPU to use; the first by default.
    #[must_use]
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.device.gpu = Some(gpu);
        self
    }

    /// Bytes of device memory the writer may hold, temporary memory of codecs included.
    #[must_use]
    pub fn with_max_device_memory(mut self, bytes: u64) -> Self {
        self.device.max_memory = Some(bytes);
        self
    }

    /// Effort of the codec: Deflate 1 to 12, Zstd 1 to 22, LZMA 0 to 9.
    #[must_use]
    pub fn with_level(mut self, level: u32) -> Self {
        self.settings.level = Some(level);
        self
    }

    /// Quality of JPEG, WebP and JPEG 2000, 1 to 100. WebP and JPEG 2000 are lossless without it.
    #[must_use]
    pub fn with_quality(mut self, quality: u32) -> Self {
        self.settings.quality = Some(quality);
        self.settings.lossless = false;
        self
    }

    /// Whether WebP and JPEG 2000 keep every sample as it is.
    #[must_use]
    pub fn with_lossless(mut self, lossless: bool) -> Self {
        self.settings.lossless = lossless;
        self
    }

    /// Largest error LERC may make.
    #[must_use]
    pub fn with_max_z_error(mut self, error: f64) -> Self {
        self.settings.max_z_error = error;
        self
    }

    /// What LERC is wrapped in.
    #[must_use]
    pub fn with_lerc_wrap(mut self, wrap: LercWrap) -> Self {
        self.settings.lerc_wrap = wrap;
        self
    }

    /// Refuses settings that the codec does not have, and values outside their range.
    pub(crate) fn check_settings(&self) -> Result<(), Error> {
        let Settings { level, quality, max_z_error, lerc_wrap, .. } = &self.settings;
        let has = names::codec_options(self.compression, *lerc_wrap);
        let name = self.compression;
        let detail = match (*level, *quality, has.levels) {
            (Some(level), _, None) => format!("level {level}: {name} has no levels; leave it out"),
            (Some(level), _, Some(levels)) if !levels.contains(&level) => {
                format!("level {level}: {name} has levels from {} to {}", levels.start(), levels.end())
            }
            (_, Some(quality), _) if !has.quality => format!("quality {quality}: {name} has no quality; leave it out"),
            (_, Some(quality), _) if !(1..=100).contains(&quality) => {
                format!("quality {quality}: give a number from 1 to 100")
            }
            _ if *max_z_error > 0.0 && !has.max_z_error => {
                format!("{name} has no error limit (max_z_error={max_z_error}): leave it out, or use LERC")
            }
            _ => return Ok(()),
        };
        Err(Error::usage(detail))
    }

    /// These options with a predictor that was chosen, if any.
    pub(super) fn with_chosen(&self, predictor: Option<Predictor>) -> Self {
        predictor.map_or_else(|| self.clone(), |predictor| self.clone().with_predictor(predictor))
    }

    /// The options of a file that is made of encoded tile rows: its writer sees no samples, so the sample type decides instead of them.
    pub(super) fn by_sample_type(&self) -> Self {
        match self.predictor {
            PredictorRule::BySamples => self.clone().with_predictor_rule(PredictorRule::BySampleType),
            _ => self.clone(),
        }
    }

    /// Whether to write statistics.
    pub(crate) fn wants_statistics(&self) -> bool {
        self.statistics.unwrap_or(self.cog)
    }
}

/// Whether the writer changes samples before it encodes them.
pub(super) fn changes(options: &WriteOptions, shape: Shape, nodata: Option<&[u8]>) -> bool {
    options.nan_to_nodata && nodata.is_some() && shape.sample.is_float()
}

/// The nodata value as a sample of the raster.
pub(super) fn nodata_of(metadata: &Metadata, shape: Shape) -> Option<Vec<u8>> {
    metadata.bands.first().and_then(|band| band.nodata_sample(shape.sample))
}
