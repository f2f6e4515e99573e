//! What the command line may say.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

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
    /// Write decoded samples to a file: bands × rows × columns, native byte order.
    Dump(Dump),
}

/// `swath info`.
#[derive(Debug, ClapArgs)]
pub struct Info {
    /// The raster.
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
}

/// `swath preview`.
#[derive(Debug, ClapArgs)]
pub struct Preview {
    /// The raster.
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
    /// The raster.
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
}

/// `swath validate`.
#[derive(Debug, ClapArgs)]
pub struct Validate {
    /// The raster.
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
    /// The raster.
    pub file: PathBuf,
    /// Where to write: `.npy` for NumPy, anything else for bare samples.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write the mask instead of samples: 255 for data, 0 for none.
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
}
