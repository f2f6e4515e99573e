//! Reads which pixels are data.

use swath_raster::memory::{self, OutOfMemory};
use swath_tiff::{SampleType, Window};

use crate::{
    device::DeviceReport,
    error::Error,
    open::{
        dataset::Dataset,
        image::{Image, Role},
    },
    raster::{Interleave, Raster},
    read::options::{ColorView, ReadOptions},
};

impl Dataset {
    /// Which pixels are data: 255 for data, 0 for none, as rasterio's `dataset_mask`. From the file's mask, the mask file
    /// beside it, its nodata value (a pixel is data when any band is), or its alpha band; without any of these, all
    /// pixels are data. A mask of eight bits and an alpha band may hold values in between. The options' bands are ignored.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub fn read_mask(&self, options: &ReadOptions) -> Result<Raster, Error> {
        if options.page.is_some_and(|page| page > 0) {
            let detail = "masks belong to the first image and its overviews; read the mask's own directory instead";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let mask = self.read_flat_mask(&options.clone().with_upright(false).with_color(ColorView::Stored))?;
        if options.upright { mask.upright(self.main().layout.orientation) } else { Ok(mask) }
    }

    /// Reads the mask in the orientation of the stored image.
    fn read_flat_mask(&self, options: &ReadOptions) -> Result<Raster, Error> {
        let (width, height) = self.mask_size(options)?;
        let window = options.window.unwrap_or(Window::new(0, 0, width, height));
        let options = options.clone().with_interleave(Interleave::Band);
        if let Some((dataset, mask)) = self.mask_image(width, height)? {
            let mut raster = dataset.read(&ReadOptions {
                window: Some(window),
                bands: Some(vec![1]),
                overview: None,
                page: Some(mask.index as usize),
                ..options
            })?;
            if !std::ptr::eq(dataset, self) {
                self.add_report(raster.report());
            }
            // A mask of eight bits holds opacity; in other masks, any value but 0 means data.
            let wide = mask.layout.sample.size();
            if mask.is_soft() {
                return Ok(raster);
            }
            if wide == 1 {
                raster.bytes_mut().iter_mut().for_each(|byte| *byte = if *byte == 0 { 0 } else { 255 });
                return Ok(raster);
            }
            let bytes: Vec<u8> = raster
                .bytes()
                .chunks_exact(wide)
                .map(|sample| if sample.iter().all(|b| *b == 0) { 0 } else { 255 })
                .collect();
            return mask_raster(&window, &bytes, raster.report);
        }
        let bands = &self.metadata().bands;
        if bands.iter().any(|band| band.nodata.is_some()) {
            let raster = self.read(&ReadOptions { bands: None, ..options })?;
            return mask_raster(&window, &any_valid(&raster, self)?, raster.report);
        }
        if let Some(alpha) = bands.iter().position(|band| band.color == "alpha") {
            let raster = self.read(&options.with_bands([alpha as u32 + 1]))?;
            return mask_raster(&window, &alpha_to_byte(&raster)?, raster.report);
        }
        if !window.fits(width, height) {
            return Err(Error::usage(format!("the window ({window}) is not inside the image of {width}x{height}"))
                .in_source(&self.name));
        }
        self.read_len(&ReadOptions { window: Some(window), bands: Some(vec![1]), ..options })?;
        mask_raster(&window, &memory::collect((0..window.pixels() as usize).map(|_| 255))?, None)
    }

    fn mask_size(&self, options: &ReadOptions) -> Result<(u32, u32), Error> {
        if let Some(level) = options.overview {
            return self.overview(level).map(|overview| (overview.width, overview.height));
        }
        Ok((self.width(), self.height()))
    }

    /// Whether the mask of the image, in the file or beside it, says how opaque a pixel is, rather than only whether it is data.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn has_soft_mask(&self) -> Result<bool, Error> {
        Ok(self.mask_image(self.width(), self.height())?.is_some_and(|(_, mask)| mask.is_soft()))
    }

    /// The mask of this size, in the file or in the mask file beside it.
    pub(crate) fn mask_image(&self, width: u32, height: u32) -> Result<Option<(&Dataset, &Image)>, Error> {
        let fits = |image: &Image| image.layout.width == width && image.layout.height == height;
        for (image, role) in self.images()? {
            if role == Role::Mask && fits(image) {
                return Ok(Some((self, image)));
            }
        }
        if let Some(beside) = self.found_sidecars()?.mask() {
            for (image, _) in beside.images()? {
                if fits(image) {
                    return Ok(Some((beside, image)));
                }
            }
        }
        Ok(None)
    }
}

impl Image {
    /// Whether this mask holds opacity, from 0 to 255.
    pub(crate) fn is_soft(&self) -> bool {
        self.layout.bits == 8 && self.layout.sample == SampleType::U8
    }
}

fn mask_raster(window: &Window, bytes: &[u8], report: Option<Box<DeviceReport>>) -> Result<Raster, Error> {
    let mask = Raster::from_u8(window.width, window.height, bytes);
    let mask = mask.ok_or_else(|| Error::memory("there is no memory for the mask"))?;
    Ok(Raster { report, ..mask })
}

/// Alpha of more than eight bits is scaled as GDAL does: 65535 becomes 255, and what is not quite transparent stays so.
fn alpha_to_byte(raster: &Raster) -> Result<Vec<u8>, Error> {
    let bytes = match raster.sample() {
        SampleType::U8 => memory::copied(raster.bytes())?,
        SampleType::U16 => {
            let alphas = raster.samples::<u16>()?.iter();
            memory::collect(alphas.map(|alpha| (alpha / 257).max((*alpha).min(1)) as u8))?
        }
        sample => {
            let nonzero = |pixel: &[u8]| if pixel.iter().all(|byte| *byte == 0) { 0 } else { 255 };
            memory::collect(raster.bytes().chunks_exact(sample.size()).map(nonzero))?
        }
    };
    Ok(bytes)
}

fn any_valid(raster: &Raster, dataset: &Dataset) -> Result<Vec<u8>, OutOfMemory> {
    let pixels = raster.width() as usize * raster.height() as usize;
    let mut mask: Vec<u8> = memory::zeroed(pixels)?;
    let size = raster.sample().size();
    let planes = raster.bytes().chunks_exact((pixels * size).max(1));
    for (plane, band) in planes.zip(&dataset.metadata().bands) {
        let valid = Validity::new(raster.sample(), band.nodata_sample(raster.sample()));
        for (sample, flag) in plane.chunks_exact(size).zip(&mut mask) {
            if valid.is_data(sample) {
                *flag = 255;
            }
        }
    }
    Ok(mask)
}

/// Distinguishes data from nodata, sample by sample.
pub(crate) struct Validity {
    sample: SampleType,
    nodata: Option<Vec<u8>>,
    nan: bool,
    zero: bool,
}

impl Validity {
    pub(crate) fn new(sample: SampleType, nodata: Option<Vec<u8>>) -> Self {
        let is = |test: fn(SampleType, &[u8]) -> bool| nodata.as_deref().is_some_and(|bytes| test(sample, bytes));
        Self { sample, nan: is(is_nan), zero: is(is_float_zero), nodata }
    }

    /// As in GDAL, NaN equals NaN here, -0 equals 0, and the imaginary part is ignored.
    pub(crate) fn is_data(&self, sample: &[u8]) -> bool {
        let Some(nodata) = &self.nodata else { return true };
        let word = sample.get(..nodata.len()).unwrap_or_default();
        match (self.nan, self.zero) {
            (true, _) => !is_nan(self.sample, word),
            (_, true) => !is_float_zero(self.sample, word),
            _ => word != nodata.as_slice(),
        }
    }
}

/// Whether this is the 0 of a float, which has two.
fn is_float_zero(sample: SampleType, word: &[u8]) -> bool {
    match (sample.is_float(), word) {
        (true, &[a, b]) => u16::from_ne_bytes([a, b]) & 0x7fff == 0,
        (true, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]) == 0.0,
        (true, &[a, b, c, d, e, f, g, h]) => f64::from_ne_bytes([a, b, c, d, e, f, g, h]) == 0.0,
        _ => false,
    }
}

fn is_nan(sample: SampleType, word: &[u8]) -> bool {
    match (sample.is_float(), word) {
        (true, &[a, b]) => u16::from_ne_bytes([a, b]) & 0x7fff > 0x7c00,
        (true, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]).is_nan(),
        (true, &[a, b, c, d, e, f, g, h]) => f64::from_ne_bytes([a, b, c, d, e, f, g, h]).is_nan(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_two_zeros_and_many_nans() {
        let bytes = |value: f32| value.to_ne_bytes().to_vec();
        for nodata in [0.0, -0.0] {
            let validity = Validity::new(SampleType::F32, Some(bytes(nodata)));
            let data = [0.0, -0.0, 1.0, f32::NAN].map(|value| validity.is_data(&bytes(value)));
            assert_eq!(data, [false, false, true, true]);
        }
        let validity = Validity::new(SampleType::F32, Some(bytes(f32::NAN)));
        assert_eq!([0.0, -f32::NAN].map(|value| validity.is_data(&bytes(value))), [true, false]);
        // The bits of -0 are a number among integers.
        let validity = Validity::new(SampleType::I32, Some(0_i32.to_ne_bytes().to_vec()));
        assert!(validity.is_data(&bytes(-0.0)) && !validity.is_data(&bytes(0.0)));
    }
}
