//! What the command line may say.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::remote::Remote;

/// GeoTIFF and COG at the speed of the hardware.
#[derive(Debug, Parser)]
#[command(name = "swath", version, about)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a file is: size, bands, georeferencing, layout, metadata.
    Info(Info),
    /// Make a picture of a file.
    Preview(Preview),
    /// Minimum, maximum, mean and standard deviation of every band.
    Stats(Stats),
    /// Compare two files: exit status 0 when equal, 1 when different, 2 on an error.
    Compare(Compare),
    /// Check whether a file is a valid COG: exit status 0 when it is, 1 when it is not, 2 on an error.
    Validate(Validate),
    /// Write a raster as another file: tiled or COG, compressed, cut, scaled, with overviews.
    Convert(Box<Convert>),
    /// Write decoded samples to a file: bands × rows × columns, native byte order.
    Dump(Dump),
    /// Show the GPUs there are, the driver, and each optional library, or why it is not used.
    Devices(Devices),
}

impl Command {
    /// Whether the command has `--unlimited`.
    pub fn takes_unlimited(&self) -> bool {
        matches!(self, Self::Preview(_) | Self::Stats(_) | Self::Compare(_) | Self::Convert(_) | Self::Dump(_))
    }
}

/// Who decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Decoder {
    /// A GPU where there is one and it can, else the CPU; which is said.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// A CUDA GPU, or an error that says why not.
    Cuda,
}

/// Work by way of a GPU.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "GPU")]
pub struct Device {
    /// Who works on tiles: the CPU, a CUDA GPU, or whichever there is.
    #[arg(long, value_enum, value_name = "auto | cpu | cuda", default_value_t)]
    pub device: Decoder,
    /// Device memory that may be used, as in 512M or 8G; 80 % of what is free unless said otherwise.
    #[arg(long, value_name = "BYTES")]
    pub max_device_memory: Option<String>,
    /// Say that the file is sound, so that NVIDIA's decoder of LZ4 may be used, which damaged files can hang.
    #[arg(long)]
    pub trust_input: bool,
    /// Show on standard error what the GPU did (allocations, copies, launches, synchronisations, memory), and what was asked
    /// of servers and stores.
    #[arg(long = "stats")]
    pub show_stats: bool,
}

/// `swath devices`.
#[derive(Debug, ClapArgs)]
pub struct Devices {
    /// Print JSON; docs/cli-json.md lists its keys.
    #[arg(long)]
    pub json: bool,
}

/// `swath info`.
#[derive(Debug, ClapArgs)]
pub struct Info {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    #[arg(required_unless_present = "codecs")]
    pub file: Option<PathBuf>,
    /// Print JSON; docs/cli-json.md lists its keys.
    #[arg(long)]
    pub json: bool,
    /// List every tag of every directory as it stands.
    #[arg(long)]
    pub tags: bool,
    /// List the compressions this build can decode, and what is missing.
    #[arg(long, conflicts_with_all = ["file", "tags"])]
    pub codecs: bool,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath preview`.
#[derive(Debug, ClapArgs)]
pub struct Preview {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// The picture to write.
    #[arg(value_name = "OUT.png")]
    pub out: PathBuf,
    /// Longest side of the picture, in pixels.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub size: u32,
    /// One band, or three for red, green and blue, counted from 1.
    #[arg(long, value_name = "B | R,G,B")]
    pub bands: Option<String>,
    /// Percentiles that become black and white (2,98), `minmax`, or `none`. Without this, 2,98; 8-bit colour stays as it is.
    #[arg(long, value_name = "P0,P1 | minmax | none")]
    pub stretch: Option<String>,
    /// Colours of a single band.
    #[arg(long, value_enum, value_name = "NAME")]
    pub colormap: Option<Colormap>,
    /// Threads to use; all cores unless said otherwise.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Read a file that asks for more memory than a file of its size should: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Who decodes.
    #[command(flatten)]
    pub device: Device,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// Colours of a single band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Colormap {
    Gray,
    Viridis,
    Magma,
    Inferno,
    Turbo,
    Terrain,
    Coolwarm,
}

/// `swath stats`.
#[derive(Debug, ClapArgs)]
pub struct Stats {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// Print JSON; docs/cli-json.md lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Bands, counted from 1, as in 3,2,1.
    #[arg(long, value_name = "B,…")]
    pub bands: Option<String>,
    /// Threads to use; all cores unless said otherwise.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Read a file that asks for more memory than a file of its size should: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Who decodes.
    #[command(flatten)]
    pub device: Device,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath compare`.
#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// One raster.
    pub a: PathBuf,
    /// The other.
    pub b: PathBuf,
    /// Largest difference between samples that still counts as equal.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub tolerance: f64,
    /// Compare size, type and samples, but no metadata.
    #[arg(long)]
    pub pixels_only: bool,
    /// Print JSON; docs/cli-json.md lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Threads to use; all cores unless said otherwise.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Read a file that asks for more memory than a file of its size should: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Who decodes.
    #[command(flatten)]
    pub device: Device,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath validate`.
#[derive(Debug, ClapArgs)]
pub struct Validate {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// Take warnings for errors.
    #[arg(long)]
    pub strict: bool,
    /// Look at every block too: leader and trailer bytes, order, masks, overlaps, the end of the file.
    #[arg(long)]
    pub full: bool,
    /// Print JSON; docs/cli-json.md lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Show on standard error what was asked of a server or store.
    #[arg(long = "stats")]
    pub show_stats: bool,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// Which pixels.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Selection {
    /// Window as column,row,width,height.
    #[arg(long, value_name = "X,Y,W,H")]
    pub window: Option<String>,
    /// Bands, counted from 1, as in 3,2,1.
    #[arg(long, value_name = "B,…")]
    pub bands: Option<String>,
    /// Overview level; 0 is the largest.
    #[arg(long, value_name = "N")]
    pub overview: Option<usize>,
    /// Directory of the file instead of the first image.
    #[arg(long, value_name = "N")]
    pub ifd: Option<usize>,
    /// Threads to use; all cores unless said otherwise.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// `swath dump`.
#[derive(Debug, ClapArgs)]
pub struct Dump {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// Where to write: `.npy` for NumPy, anything else for bare samples.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write the mask instead of samples: 255 for data, 0 for none, or between them where a mask or alpha band has eight bits.
    #[arg(long)]
    pub mask: bool,
    /// Turn the picture upright as its Orientation tag says.
    #[arg(long)]
    pub upright: bool,
    /// Leave CMYK inks as they are stored instead of showing them as RGBA.
    #[arg(long)]
    pub stored: bool,
    /// Read a file that asks for more memory than a file of its size should: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Which pixels.
    #[command(flatten)]
    pub selection: Selection,
    /// Who decodes.
    #[command(flatten)]
    pub device: Device,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath convert`. GDAL's habits are understood too: `-of COG`, `-co COMPRESS=ZSTD`, `-srcwin`, `-projwin`, `-b`,
/// `-a_nodata`, `-a_srs`, `-ot`, `-scale`, `-r`, `-q`.
#[derive(Debug, ClapArgs)]
#[command(
    args_override_self = true,
    after_help = "gdal_translate's options are understood too: -of COG, -co COMPRESS=ZSTD and most other creation options, \
                  -srcwin, -projwin, -b, -a_nodata, -a_srs, -ot, -scale, -r, -ovr, -q."
)]
pub struct Convert {
    /// The raster to read: a path, or an address (https://, s3://, gs://, az://).
    pub input: PathBuf,
    /// The file to write, or an address in a store (s3://, gs://, az://); what is there is replaced once the new file is
    /// whole. `-` writes to standard output.
    pub output: PathBuf,
    /// Write a Cloud Optimized GeoTIFF: overviews, directories first, statistics.
    #[arg(long)]
    pub cog: bool,
    /// none, packbits, lzw, deflate, zstd, lzma, lerc, lerc_deflate, lerc_zstd, jpeg, webp, jpeg2000, lz4, ccittfax4 …
    #[arg(long, value_name = "CODEC", default_value = "deflate")]
    pub compress: String,
    /// Effort: deflate 1 to 12, zstd 1 to 22, lzma 0 to 9.
    #[arg(long, value_name = "N")]
    pub level: Option<u32>,
    /// Quality of jpeg, webp and jpeg2000, 1 to 100; webp and jpeg2000 are lossless without it.
    #[arg(long, value_name = "N")]
    pub quality: Option<u32>,
    /// Keep every sample of webp and jpeg2000 in spite of a quality, which then says how hard to try.
    #[arg(long)]
    pub lossless: bool,
    /// Largest error that lerc may make.
    #[arg(long, value_name = "E", default_value_t = 0.0)]
    pub max_z_error: f64,
    /// auto (by sample type), none (1), horizontal (2) or float (3).
    #[arg(long, value_name = "P", default_value = "auto")]
    pub predictor: String,
    /// Tiles of N x N pixels, or W,H.
    #[arg(long, value_name = "N | W,H", default_value = "512")]
    pub tile: String,
    /// Strips of so many rows instead of tiles; 0 for about 64 KiB each.
    #[arg(long, value_name = "ROWS", conflicts_with = "tile")]
    pub strips: Option<u32>,
    /// auto (for a COG until one tile is left), none, a number of levels, or factors as in 2,4,8.
    #[arg(long, value_name = "auto | none | N | F,…", default_value = "auto")]
    pub overviews: String,
    /// How overviews are made: nearest, average, bilinear, cubic, lanczos, mode, min, max, median, rms. Without this average,
    /// for palettes nearest.
    #[arg(long, value_name = "NAME")]
    pub resampling: Option<String>,
    /// Whether offsets have 64 bits: auto, yes, no.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub bigtiff: String,
    /// Nodata value of the output, or none. With --dtype or --scale, samples that were nodata become it, and so does NaN
    /// where the type has none.
    #[arg(long, value_name = "V | none", allow_hyphen_values = true)]
    pub nodata: Option<String>,
    /// Reference system of the output (pixels stay where they are): EPSG:32633, EPSG:32633+5773, WKT, or a file of WKT.
    #[arg(long, value_name = "CRS")]
    pub crs: Option<String>,
    /// Bands, counted from 1, as in 3,2,1.
    #[arg(long, value_name = "B,…")]
    pub bands: Option<String>,
    /// Window as column,row,width,height.
    #[arg(long, value_name = "X,Y,W,H", conflicts_with = "bbox")]
    pub window: Option<String>,
    /// Window as west,south,east,north in the raster's own coordinates; pixels it touches are taken.
    #[arg(long, value_name = "W,S,E,N", allow_hyphen_values = true)]
    pub bbox: Option<String>,
    /// An overview instead of the image; 0 is the largest.
    #[arg(long, value_name = "N")]
    pub overview: Option<usize>,
    /// Sample type of the output: uint8, int16, float32 …; values are rounded and kept inside its range. NaN in integers
    /// needs a nodata value to become.
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// Stretch values: LOW,HIGH become the range of the output type, or LOW,HIGH,TO_LOW,TO_HIGH; auto instead of LOW,HIGH
    /// takes the raster's own smallest and largest value.
    #[arg(long, value_name = "auto | L,H[,TL,TH]", allow_hyphen_values = true)]
    pub scale: Option<String>,
    /// pixel (samples of a pixel together) or band (tiles for every band).
    #[arg(long, value_name = "HOW", default_value = "pixel")]
    pub interleave: String,
    /// Bits of a stored sample, where they are fewer than the type has.
    #[arg(long, value_name = "N")]
    pub nbits: Option<u16>,
    /// Meaning as colour: minisblack, miniswhite, rgb, ycbcr, palette, cmyk.
    #[arg(long, value_name = "NAME")]
    pub photometric: Option<String>,
    /// Chroma of jpeg: 420, 422 or 444.
    #[arg(long, value_name = "S", default_value = "420")]
    pub subsampling: String,
    /// Leave out tiles that hold nothing but nodata; not of CMYK and Lab of eight bits, which GDAL could not read then.
    #[arg(long)]
    pub sparse: bool,
    /// Write big-endian.
    #[arg(long)]
    pub big_endian: bool,
    /// Put statistics of each band into the file: auto (COGs), yes, no.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub statistics: String,
    /// Memory to use, as in 256M or 2G.
    #[arg(long, value_name = "BYTES", default_value = "256M")]
    pub max_memory: String,
    /// Threads to use; all cores unless said otherwise.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Show progress even where standard error is no terminal.
    #[arg(long, conflicts_with = "quiet")]
    pub progress: bool,
    /// Show no progress and no notes.
    #[arg(long, short)]
    pub quiet: bool,
    /// Read a file that asks for more than a file of its size should: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Write nodata where floats are not a number.
    #[arg(long)]
    pub nan_to_nodata: bool,
    /// Who decodes, shrinks and compresses.
    #[command(flatten)]
    pub device: Device,
    /// On a GPU, compress deflate and zstd by NVIDIA's nvCOMP instead of our kernels: more memory, other sizes.
    #[arg(long, help_heading = "GPU")]
    pub nvcomp: bool,
    /// How servers and stores are asked.
    #[command(flatten)]
    pub remote: Remote,
}
