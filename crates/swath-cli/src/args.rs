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
    /// Write decoded samples to a file: bands × rows × columns, native byte order.
    Dump(Dump),
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
