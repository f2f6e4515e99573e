//! Rows as the caller passes them.

use std::ops::Range;

use swath_codec::pre::Arrangement;

use swath_tiff::SampleType;

use super::options::Shape;
use crate::{
    error::Error,
    raster::Interleave,
    sample::{Sample, bytes_of},
};

/// Rows of a raster in memory, without gaps between them. [`Writer::push`](super::Writer::push) checks their type and number.
///
/// ```
/// use swath::Rows;
///
/// let rgb: [u8; 6] = [255, 0, 0, 0, 0, 255]; // a red and a blue pixel
/// let by_pixel = Rows::pixels(&rgb);
/// let planes: [u8; 6] = [255, 0, 0, 0, 0, 255]; // the same by bands: red, green, blue
/// let by_band = Rows::bands(&planes).with_mask(&[255, 255]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub(super) samples: &'a [u8],
    /// Type of the samples, where the caller gave numbers and not bytes.
    sample: Option<SampleType>,
    /// Columns and bands, where the caller gave an array that has both.
    counts: Option<(usize, usize)>,
    pub(super) interleave: Interleave,
    pub(super) mask: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Whole rows with all bands of a pixel together.
    pub fn pixels<T: Sample>(samples: &'a [T]) -> Self {
        Self { sample: Some(T::TYPE), ..Self::from_bytes(bytes_of(samples), Interleave::Pixel) }
    }

    /// Whole rows band after band: all rows of the first band, then of the next.
    pub fn bands<T: Sample>(samples: &'a [T]) -> Self {
        Self { sample: Some(T::TYPE), ..Self::from_bytes(bytes_of(samples), Interleave::Band) }
    }

    /// Whole rows as bytes: samples of the writer's type, in native byte order. For programs that learn the type when they run.
    pub fn from_bytes(samples: &'a [u8], interleave: Interleave) -> Self {
        Self { samples, sample: None, counts: None, interleave, mask: None }
    }

    /// Rows of an array without gaps: (bands, rows, columns) with [`Interleave::Band`], (rows, columns, bands) with
    /// [`Interleave::Pixel`]. An array of two dimensions becomes one of three by `insert_axis`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ndarray::Array3;
    /// use swath::{Interleave, Metadata, Rows, SampleType, Shape, WriteOptions, Writer, io::MemorySink};
    ///
    /// let array = Array3::<f32>::zeros((2, 30, 40));
    /// let shape = Shape { width: 40, height: 30, bands: 2, sample: SampleType::F32 };
    /// let (sink, memory) = MemorySink::new("array.tif");
    /// let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &WriteOptions::cog())?;
    /// writer.push(&Rows::from_ndarray(array.view(), Interleave::Band)?)?;
    /// writer.finish()?;
    /// # assert!(memory.take().is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the samples do not lie in the order of the axes, as after `reversed_axes` or a slice of columns; then
    /// `as_standard_layout` makes a copy that does.
    #[cfg(feature = "ndarray")]
    pub fn from_ndarray<T: Sample>(array: ndarray::ArrayView3<'a, T>, interleave: Interleave) -> Result<Self, Error> {
        let (first, second, third) = array.dim();
        let (columns, bands) = match interleave {
            Interleave::Band => (third, first),
            Interleave::Pixel => (second, third),
        };
        let samples = array.to_slice().ok_or_else(|| {
            Error::usage(format!(
                "the samples of an array of {first} x {second} x {third} have gaps or lie in another order than its axes; \
                 give a copy: array.as_standard_layout()"
            ))
        })?;
        let rows = Self::from_bytes(bytes_of(samples), interleave);
        Ok(Self { sample: Some(T::TYPE), counts: Some((columns, bands)), ..rows })
    }

    /// Adds the mask of these rows: a byte for each pixel, 0 where there is no data.
    #[must_use]
    pub fn with_mask(mut self, mask: &'a [u8]) -> Self {
        self.mask = Some(mask);
        self
    }
}

impl Rows<'_> {
    /// Checks type and number of the samples.
    fn check(&self, shape: Shape) -> Result<(), Error> {
        let Shape { width, bands, sample, .. } = shape;
        if let Some(given) = self.sample.filter(|given| *given != sample) {
            return Err(Error::usage(format!(
                "rows of {given} samples where the file has {sample}: convert them, begin the file with {given} samples, \
                 or give bytes to Rows::from_bytes"
            )));
        }
        if let Some((columns, planes)) = self.counts.filter(|counts| *counts != (width as usize, usize::from(bands))) {
            return Err(Error::usage(format!(
                "an array of {planes} bands and {columns} columns where {bands} bands and {width} columns belong; \
                 check that Interleave matches the order of its axes"
            )));
        }
        let (per_row, len) = (width as usize * usize::from(bands), self.samples.len());
        let row_len = per_row * sample.size();
        if len.is_multiple_of(row_len) {
            return Ok(());
        }
        Err(Error::usage(match self.sample {
            Some(_) => format!(
                "{} samples are not whole rows of {per_row} samples ({width} columns of {bands} bands)",
                len / sample.size()
            ),
            None => format!("{len} bytes are not whole rows of {row_len} bytes"),
        }))
    }
}

/// Rows that the writer checked.
#[derive(Debug)]
pub(super) struct Pushed<'a> {
    /// Samples, a plane for each band or one for all, and then the mask.
    pub planes: Vec<&'a [u8]>,
    pub arrangement: Arrangement,
    pub rows: u32,
}

impl<'a> Pushed<'a> {
    /// Checks that these are whole rows of a raster of this shape.
    pub(super) fn new(rows: &Rows<'a>, shape: Shape, masked: bool) -> Result<Self, Error> {
        rows.check(shape)?;
        let Shape { width, bands, sample, .. } = shape;
        let row_len = width as usize * usize::from(bands) * sample.size();
        let count = rows.samples.len() / row_len;
        match rows.mask {
            None if masked => return Err(Error::usage("the file has a mask, but these rows have none")),
            Some(_) if !masked => return Err(Error::usage("these rows have a mask, but the file has none")),
            Some(mask) if mask.len() != count * width as usize => {
                return Err(Error::usage(format!("a mask of {} bytes for {count} rows of {width}", mask.len())));
            }
            _ => {}
        }
        let too_many = |_| Error::usage(format!("{count} rows are more than a file can have"));
        let rows_there = u32::try_from(count).map_err(too_many)?;
        // A single band is the same either way, and the simpler one is cheaper.
        let planar = rows.interleave == Interleave::Band || bands == 1;
        let plane = if planar { count * width as usize * sample.size() } else { rows.samples.len() };
        let mut planes: Vec<&[u8]> = rows.samples.chunks_exact(plane.max(1)).collect();
        planes.extend(rows.mask);
        let arrangement = if planar { Arrangement::Planes } else { Arrangement::Pixels };
        Ok(Self { planes, arrangement, rows: rows_there })
    }

    /// Bytes of a row of each plane.
    pub(super) fn row_lens(&self, shape: Shape) -> Vec<usize> {
        let band = shape.sample.size() * shape.width as usize;
        let bands = usize::from(shape.bands);
        let mut lens = match self.arrangement {
            Arrangement::Planes => vec![band; bands],
            Arrangement::Pixels => vec![band * bands],
        };
        lens.resize(self.planes.len().max(lens.len()), shape.width as usize);
        lens
    }

    /// Some of the rows.
    pub(super) fn part(&self, rows: Range<u32>, shape: Shape) -> Result<Self, Error> {
        let cut = |(plane, len): (&&'a [u8], usize)| {
            let found = plane.get(rows.start as usize * len..rows.end as usize * len);
            found.ok_or_else(|| Error::internal(format!("rows {rows:?} are not among those that were pushed")))
        };
        let planes = self.planes.iter().zip(self.row_lens(shape)).map(cut).collect::<Result<_, _>>()?;
        Ok(Self { planes, arrangement: self.arrangement, rows: rows.end.saturating_sub(rows.start) })
    }
}
