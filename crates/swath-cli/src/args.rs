//! The arguments of the command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// GeoTIFF and COG at the speed of the hardware.
#[derive(Debug, Parser)]
#[command(name = "swath", version)]
pub struct Args {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Describe a file: size, bands, georeferencing, layout, metadata.
    Info(Info),
    /// Make a picture of a file.
    Preview(Preview),
    /// Compute minimum, maximum, mean and standard deviation of every band.
    Stats(Stats),
    /// Compare two files: exit status 0 when equal, 1 when different, 2 on an error.
    Compare(Compare),
    /// Check whether a file is a valid COG: exit status 0 when it is, 1 when it is not, 2 on an error.
    Validate(Validate),
    /// Write a raster as another file: tiled or COG, compressed, cut, scaled, with overviews.
    Convert(Box<Convert>),
    /// Write decoded samples to a file: bands × rows × columns, native byte order.
    Dump(Dump),
    /// Measure how fast this machine reads and writes a file, on the CPU and on each GPU, beside what its memory, disk and
    /// bus allow.
    Bench(Box<Bench>),
    /// List the GPUs, the driver, and each optional library, or why it is not used.
    Devices(Devices),
    /// Print the script that completes swath's command lines in a shell.
    Completions(Completions),
    /// Write the reference of the command line to a folder.
    #[command(hide = true)]
    Generate(Generate),
}

impl Command {
    /// Whether the command has `--unlimited`.
    pub fn takes_unlimited(&self) -> bool {
        matches!(
            self,
            Self::Preview(_) | Self::Stats(_) | Self::Compare(_) | Self::Convert(_) | Self::Dump(_) | Self::Bench(_)
        )
    }
}

/// The device that decodes and encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum DeviceChoice {
    /// A GPU where there is one that supports the work, otherwise the CPU, with a notice.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// A CUDA GPU; an error where it cannot do the work.
    Cuda,
}

/// Options of work on a GPU.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "GPU")]
pub struct Device {
    /// Device that decodes and encodes tiles: the CPU, a CUDA GPU, or a GPU only where there is one.
    #[arg(long, value_enum, value_name = "auto | cpu | cuda", default_value_t)]
    pub device: DeviceChoice,
    /// Device memory to use at most, as in 512M or 8G; by default 80 % of the free memory.
    #[arg(long, value_name = "BYTES")]
    pub max_device_memory: Option<String>,
    /// Trust the file: lets NVIDIA's nvCOMP decode LZ4, which can hang on damaged data.
    #[arg(long)]
    pub trust_input: bool,
    /// Show on standard error what the GPU did (allocations, copies, launches, synchronisations, memory), and the requests to
    /// servers and stores.
    #[arg(long = "stats")]
    pub show_stats: bool,
}

/// `swath devices`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath devices\n\
                  \x20 swath devices --json")]
pub struct Devices {
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
}

/// `swath completions`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "bash: write the script to ~/.local/share/bash-completion/completions/swath. zsh: to _swath, in a folder of $fpath. \
                  fish: to ~/.config/fish/completions/swath.fish. It works in the next shell that you start.\n\n\
                  Examples:\n\
                  \x20 eval \"$(swath completions bash)\"\n\
                  \x20 swath completions zsh > _swath\n\
                  \x20 swath completions fish > swath.fish"
)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Shells with completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `swath generate`.
#[derive(Debug, ClapArgs)]
pub struct Generate {
    /// What to write.
    #[arg(value_enum)]
    pub what: GenerateWhat,
    /// The folder to write to; made where it is missing.
    pub folder: PathBuf,
}

/// Forms of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GenerateWhat {
    /// The page cli.md.
    Markdown,
    /// Man pages.
    Man,
    /// Completion scripts for bash, zsh and fish.
    Completions,
}

/// `swath info`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath info scene.tif\n\
                  \x20 swath info scene.tif --json --tags\n\
                  \x20 swath info https://example.com/cog.tif")]
pub struct Info {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    #[arg(required_unless_present = "codecs")]
    pub file: Option<PathBuf>,
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
    /// List every tag of every directory.
    #[arg(long)]
    pub tags: bool,
    /// List the compressions that this build can decode and encode, and those that are missing.
    #[arg(long, conflicts_with_all = ["file", "tags"])]
    pub codecs: bool,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath preview`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath preview scene.tif scene.png --bands 3,2,1\n\
                  \x20 swath preview dem.tif dem.png --size 512 --colormap terrain")]
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
    /// Percentiles that become black and white (2,98), `minmax`, or `none`. By default 2,98, and none for 8-bit colour.
    #[arg(long, value_name = "P0,P1 | minmax | none")]
    pub stretch: Option<String>,
    /// Colour map of a single band.
    #[arg(long, value_enum, value_name = "NAME")]
    pub colormap: Option<Colormap>,
    /// Number of threads; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Device that decodes.
    #[command(flatten)]
    pub device: Device,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// Colour maps of a single band.
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
#[command(after_help = "Examples:\n\
                  \x20 swath stats scene.tif --bands 1,2\n\
                  \x20 swath stats scene.tif --json")]
pub struct Stats {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Bands, counted from 1, as in 3,2,1.
    #[arg(long, value_name = "B,…")]
    pub bands: Option<String>,
    /// Number of threads; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Device that decodes.
    #[command(flatten)]
    pub device: Device,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath compare`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath convert scene.tif copy.tif --compress zstd\n\
                  \x20 swath compare scene.tif copy.tif && echo equal\n\
                  \x20 swath compare scene.tif copy.tif --tolerance 0.5 --pixels-only")]
pub struct Compare {
    /// The first raster.
    pub a: PathBuf,
    /// The second raster.
    pub b: PathBuf,
    /// Largest difference between samples that still counts as equal.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub tolerance: f64,
    /// Compare size, type and samples, but not the metadata.
    #[arg(long)]
    pub pixels_only: bool,
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Number of threads; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Device that decodes.
    #[command(flatten)]
    pub device: Device,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath validate`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath validate scene.tif\n\
                  \x20 swath validate scene.tif --full --strict --json")]
pub struct Validate {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// Treat warnings as errors.
    #[arg(long)]
    pub strict: bool,
    /// Check every block too: leader and trailer bytes, order, masks, overlaps, the end of the file.
    #[arg(long)]
    pub full: bool,
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Show on standard error the requests to servers and stores.
    #[arg(long = "stats")]
    pub show_stats: bool,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// Which pixels to read.
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
    /// TIFF directory (IFD) to read instead of the first image, counted from 0; `swath info --json` lists them.
    #[arg(long, value_name = "N")]
    pub ifd: Option<usize>,
    /// Number of threads; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// `swath dump`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n\
                  \x20 swath dump scene.tif --out chip.npy --window 2048,1024,512,512 --bands 4,3,2\n\
                  \x20 swath dump scene.tif --out small.npy --overview 0\n\
                  \x20 swath dump scene.tif --out mask.npy --mask")]
pub struct Dump {
    /// The raster: a path, or an address (https://, s3://, gs://, az://).
    pub file: PathBuf,
    /// The file to write: `.npy` for NumPy, any other name for bare samples.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write the mask instead of samples: 255 for valid pixels, 0 for hidden ones, and values between them from an 8-bit mask
    /// or alpha band.
    #[arg(long)]
    pub mask: bool,
    /// Rotate or mirror the image upright, as its Orientation tag says.
    #[arg(long)]
    pub upright: bool,
    /// Write CMYK inks as stored instead of converting them to RGBA.
    #[arg(long)]
    pub stored: bool,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Which pixels to read.
    #[command(flatten)]
    pub selection: Selection,
    /// Device that decodes.
    #[command(flatten)]
    pub device: Device,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath convert`. It also takes options of gdal_translate: `-of COG`, `-co COMPRESS=ZSTD`, `-srcwin`, `-projwin`, `-b`,
/// `-a_nodata`, `-a_srs`, `-ot`, `-scale`, `-r`, `-q`.
#[derive(Debug, ClapArgs)]
#[command(
    args_override_self = true,
    after_help = "Options of gdal_translate work too: -of COG, -co COMPRESS=ZSTD and most other creation options, \
                  -srcwin, -projwin, -b, -a_nodata, -a_srs, -ot, -scale, -r, -ovr, -q.\n\n\
                  Examples:\n\
                  \x20 swath convert scene.tif cog.tif --cog --compress zstd\n\
                  \x20 swath convert scene.tif part.tif --window 0,0,1024,1024 --dtype uint8 --scale auto\n\
                  \x20 swath convert -of COG -co COMPRESS=ZSTD scene.tif same.tif\n\
                  \x20 swath convert scene.tif s3://rasters/cog.tif --cog"
)]
pub struct Convert {
    /// The raster to read: a path, or an address (https://, s3://, gs://, az://).
    pub input: PathBuf,
    /// The file to write, or an address in a store (s3://, gs://, az://); an existing file is replaced when the new one is
    /// complete. `-` writes to standard output.
    pub output: PathBuf,
    /// Write a Cloud Optimized GeoTIFF: all directories first, with overviews and statistics.
    #[arg(long)]
    pub cog: bool,
    /// Compression: none, packbits, lzw, deflate, zstd, lzma, lerc, lerc_deflate, lerc_zstd, jpeg, webp, jpeg2000, lz4, ccittfax4 …
    #[arg(long, value_name = "CODEC", default_value = "deflate")]
    pub compress: String,
    /// Compression level: deflate 1 to 12, zstd 1 to 22, lzma 0 to 9.
    #[arg(long, value_name = "N")]
    pub level: Option<u32>,
    /// Quality of jpeg, webp and jpeg2000, 1 to 100; webp and jpeg2000 are lossless without it.
    #[arg(long, value_name = "N")]
    pub quality: Option<u32>,
    /// Compress webp and jpeg2000 without loss, even with --quality, which then sets only the effort.
    #[arg(long)]
    pub lossless: bool,
    /// Largest error that lerc may make.
    #[arg(long, value_name = "E", default_value_t = 0.0)]
    pub max_z_error: f64,
    /// Predictor: auto (compresses excerpts of the first rows that are not constant with each, and takes the smallest), type (by
    /// sample type), none (1), horizontal (2) or float (3).
    #[arg(long, value_name = "P", default_value = "auto")]
    pub predictor: String,
    /// Size of a tile in pixels: N for N x N, or W,H.
    #[arg(long, value_name = "N | W,H", default_value = "512")]
    pub tile: String,
    /// Write strips of this many rows instead of tiles; 0 for strips of about 64 KiB.
    #[arg(long, value_name = "ROWS", conflicts_with = "tile")]
    pub strips: Option<u32>,
    /// Overviews: auto (for a COG, until one tile holds the image), none, a number of levels, or factors as in 2,4,8.
    #[arg(long, value_name = "auto | none | N | F,…", default_value = "auto")]
    pub overviews: String,
    /// Resampling of overviews: nearest, average, bilinear, cubic, lanczos, mode, min, max, median, rms. By default average,
    /// for palettes nearest.
    #[arg(long, value_name = "NAME")]
    pub resampling: Option<String>,
    /// Write a BigTIFF, which may exceed 4 GiB: auto (where it could get that large), yes, no.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub bigtiff: String,
    /// Nodata value of the output, or none. With --dtype or --scale, samples that were nodata get this value, and so does NaN
    /// where the type has no NaN.
    #[arg(long, value_name = "V | none", allow_hyphen_values = true)]
    pub nodata: Option<String>,
    /// Reference system of the output, without reprojection: EPSG:32633, EPSG:32633+5773, WKT, or a file of WKT.
    #[arg(long, value_name = "CRS")]
    pub crs: Option<String>,
    /// Bands, counted from 1, as in 3,2,1.
    #[arg(long, value_name = "B,…")]
    pub bands: Option<String>,
    /// Window as column,row,width,height.
    #[arg(long, value_name = "X,Y,W,H", conflicts_with = "bbox")]
    pub window: Option<String>,
    /// Window as west,south,east,north in the raster's own coordinates; includes every pixel that it touches.
    #[arg(long, value_name = "W,S,E,N", allow_hyphen_values = true)]
    pub bbox: Option<String>,
    /// Convert an overview instead of the image; 0 is the largest.
    #[arg(long, value_name = "N")]
    pub overview: Option<usize>,
    /// Sample type of the output: uint8, int16, float32 …; values are rounded and clamped to its range. For integers, NaN needs
    /// a nodata value.
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// Scale values: LOW,HIGH become the range of the output type, or with LOW,HIGH,TO_LOW,TO_HIGH the range TO_LOW to
    /// TO_HIGH; auto instead of LOW,HIGH takes the raster's own smallest and largest value.
    #[arg(long, value_name = "auto | L,H[,TL,TH]", allow_hyphen_values = true)]
    pub scale: Option<String>,
    /// Interleaving: pixel (a tile holds all bands) or band (each band has its own tiles).
    #[arg(long, value_name = "HOW", default_value = "pixel")]
    pub interleave: String,
    /// Bits to store for each sample, where its type has more than the values need, as in 12 for uint16.
    #[arg(long, value_name = "N")]
    pub nbits: Option<u16>,
    /// Photometric interpretation: minisblack, miniswhite, rgb, ycbcr, palette, cmyk.
    #[arg(long, value_name = "NAME")]
    pub photometric: Option<String>,
    /// Chroma subsampling of jpeg: 420 (the default), 422 or 444.
    #[arg(long, value_name = "S")]
    pub subsampling: Option<String>,
    /// Leave out tiles that hold only nodata. 8-bit CMYK and Lab keep all tiles: GDAL cannot read them otherwise.
    #[arg(long)]
    pub sparse: bool,
    /// Write a big-endian file.
    #[arg(long)]
    pub big_endian: bool,
    /// Store statistics of each band: auto (in a COG), yes, no.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub statistics: String,
    /// Memory to use at most, as in 256M or 2G. By default 256M, and the working memory of codecs.
    #[arg(long, value_name = "BYTES")]
    pub max_memory: Option<String>,
    /// Number of threads; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Show progress even where standard error is not a terminal.
    #[arg(long, conflicts_with = "quiet")]
    pub progress: bool,
    /// Show no progress and no notices.
    #[arg(long, short)]
    pub quiet: bool,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Write NaN as nodata.
    #[arg(long)]
    pub nan_to_nodata: bool,
    /// Device that decodes, makes overviews and compresses.
    #[command(flatten)]
    pub device: Device,
    /// On a GPU, compress deflate and zstd with NVIDIA's nvCOMP instead of swath's kernels: needs more memory, and files get
    /// other sizes.
    #[arg(long, help_heading = "GPU")]
    pub nvcomp: bool,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// `swath bench`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The table gives the best and the median of the runs, and the spread: slowest minus fastest, as a part of the \
                  median. One run before them warms up and does not count, so a local file that fits in memory is read from the \
                  page cache. Windows are random, the same ones each time, and read without the tile cache. Every repeated \
                  read must give the same samples, and every written file must give them back. Of a remote raster, at most \
                  64 MiB are received unless --max-remote-bytes allows more.\n\n\
                  Examples:\n\
                  \x20 swath bench scene.tif --seconds 5\n\
                  \x20 swath bench scene.tif --seconds 5 --only read,write --device cpu --svg bench.svg"
)]
pub struct Bench {
    /// The rasters: paths, or addresses (https://, s3://, gs://, az://).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What to measure; all by default.
    #[arg(long, value_enum, value_name = "read,windows,write", value_delimiter = ',')]
    pub only: Vec<BenchWork>,
    /// Most runs of each measurement.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Time for each file, in seconds. Measurements share it; each is run at least once, so slow ones can exceed it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON; https://swath-raster.github.io/swath/cli-json.html lists its keys.
    #[arg(long)]
    pub json: bool,
    /// Draw the figures in this file.
    #[arg(long, value_name = "OUT.svg")]
    pub svg: Option<PathBuf>,
    /// Folder in which files are written, in a subfolder that is removed at the end; the system's folder for temporary files by
    /// default.
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<PathBuf>,
    /// Memory to use at most, as in 256M or 2G. A raster whose samples take more than half of it is read part by part, and
    /// only its first part is written.
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    pub max_memory: String,
    /// Number of threads to compare with one thread; all cores by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Lift the limits that reject a small file with huge contents: only for files you trust.
    #[arg(long)]
    pub unlimited: bool,
    /// Devices to measure.
    #[arg(long, value_enum, value_name = "auto | cpu | cuda", default_value_t, help_heading = "GPU")]
    pub device: BenchDevice,
    /// Device memory to use at most, as in 512M or 8G; by default 80 % of the free memory.
    #[arg(long, value_name = "BYTES", help_heading = "GPU")]
    pub max_device_memory: Option<String>,
    /// Trust the file: lets NVIDIA's nvCOMP decode LZ4, which can hang on damaged data.
    #[arg(long, help_heading = "GPU")]
    pub trust_input: bool,
    /// Options for servers and stores.
    #[command(flatten)]
    pub remote: Remote,
}

/// Devices that `swath bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BenchDevice {
    /// The CPU, and every GPU that can be used.
    #[default]
    Auto,
    /// Only the CPU.
    Cpu,
    /// Only CUDA GPUs; an error where there is none.
    Cuda,
}

/// A kind of work that `swath bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchWork {
    /// Reading all samples.
    Read,
    /// Reading random windows.
    Windows,
    /// Writing a GeoTIFF and a COG with the codec of the file.
    Write,
}

/// Options for files on servers and in stores.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "Remote")]
pub struct Remote {
    /// Send requests to stores without credentials, for public buckets.
    #[arg(long, alias = "no-sign-request")]
    pub anonymous: bool,
    /// Server of the store, where it is not the provider's own: an S3-compatible one, or an emulator.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of the bucket, where the store needs it.
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Header for every request to a plain HTTP server, as in 'Name: value'; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Setting of the store by its usual name, as in aws_profile=dev; may be repeated.
    #[arg(long = "remote-option", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Most bytes to receive for each raster, as in 64M; more is an error.
    #[arg(long, value_name = "BYTES")]
    pub max_remote_bytes: Option<String>,
    /// Most requests to send for each raster; more is an error.
    #[arg(long, value_name = "N")]
    pub max_remote_requests: Option<u64>,
    /// Longest time for one request with all its retries; for an upload, longest time without progress.
    #[arg(long, value_name = "SECONDS")]
    pub remote_timeout: Option<f64>,
    /// Number of retries of a request that failed because of the server or the network.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Reject private, loopback and link-local addresses, also of endpoints.
    #[arg(long)]
    pub public_only: bool,
    /// Host to permit although its address is private, as in name or name:port; may be repeated. All other private
    /// addresses are then refused, as with --public-only.
    #[arg(long = "allow-host", value_name = "HOST")]
    pub allowed_hosts: Vec<String>,
}
