//! The file format: directories, tags, tile grids, and the place of an error in a file.
//!
//! A [`Dataset`](crate::Dataset) hides most of it. Programs that look at single directories begin at
//! [`Dataset::images`](crate::Dataset::images), those that look at tags at [`Dataset::tag`](crate::Dataset::tag).

pub use crate::open::{
    image::{Image, Role},
    overviews::Overview,
};
pub use crate::raster::upright::stored_position;
pub use swath_tiff::{Cell, Grid, Photometric, Place, SampleFormat, TiffError, structure, tag};
