//! Checks a request against the image, and reads it.

use std::sync::atomic::Ordering;

use swath_tiff::{Compression, Photometric, Place, SampleType, TiffError, Window};

use super::{
    backing,
    context::ReadContext,
    options::{ColorView, ReadOptions},
    schedule,
};
use crate::{
    device::{DeviceOptions, DeviceReport, Mode},
    error::Error,
    open::{dataset::Dataset, image::Image},
    raster::Raster,
    state::spare::SampleBuffer,
    threads::cores,
};

/// A read whose options were checked against the image.
pub(crate) struct Request<'a> {
    pub(crate) image: &'a Image,
    /// The file the image is in: the dataset's own, or a sidecar.
    pub(crate) dataset: &'a Dataset,
    pub(crate) window: Window,
    pub(crate) bands: Vec<u16>,
    pub(crate) len: usize,
    pub(crate) device: DeviceOptions,
}

impl Dataset {
    /// Reads samples into new memory.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), swath::Error> {
    /// use swath::{Dataset, Interleave, ReadOptions, Window};
    ///
    /// let dataset = Dataset::open("scene.tif")?;
    /// // Red, green and blue of a window, the three of a pixel side by side.
    /// let options = ReadOptions::default()
    ///     .with_window(Window::new(2048, 1024, 512, 512))
    ///     .with_bands([3, 2, 1])
    ///     .with_interleave(Interleave::Pixel);
    /// let raster = dataset.read(&options)?;
    /// let samples: &[u16] = raster.samples()?;
    /// assert_eq!(samples.len(), 512 * 512 * 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the window or a band is outside the image, a limit is exceeded, bytes cannot be read or a tile is corrupt.
    pub fn read(&self, options: &ReadOptions) -> Result<Raster, Error> {
        if options.color == ColorView::Shown {
            let (_, image) = self.select(options)?;
            if image.is_painted() {
                return self.read_painted(image, options);
            }
        }
        let request = self.request(options)?;
        let mut buffer =
            SampleBuffer::new(request.len).ok_or_else(|| Error::no_memory(request.len).in_source(&self.name))?;
        let zeroed = buffer.was_zeroed();
        let report = request.fill(options, buffer.bytes_mut(), zeroed)?;
        self.add_report(report.as_ref());
        let raster = Raster {
            buffer,
            sample: request.image.layout.sample,
            width: request.window.width,
            height: request.window.height,
            bands: request.bands.len() as u32,
            interleave: options.interleave,
            report: report.map(Box::new),
        };
        if options.upright { raster.upright(request.image.layout.orientation) } else { Ok(raster) }
    }

    /// Reads samples into the caller's memory, which must have exactly the size of the result
    /// ([`Dataset::read_len`]). Returns the report of the GPU, where the options ask for one.
    ///
    /// # Errors
    /// As [`Dataset::read`], when the size is wrong, and when the options ask for colours or an upright picture that are
    /// not as stored.
    pub fn read_into(&self, options: &ReadOptions, out: &mut [u8]) -> Result<Option<DeviceReport>, Error> {
        if options.upright || (options.color == ColorView::Shown && self.select(options)?.1.is_painted()) {
            let detail = "turning images upright and converting colours need memory of their own: use `read`";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let request = self.request(options)?;
        if out.len() != request.len {
            let detail = format!("the buffer has {} bytes, the result has {}", out.len(), request.len);
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let report = request.fill(options, out, false)?;
        self.add_report(report.as_ref());
        Ok(report)
    }

    /// Bytes of the samples as they are stored: what [`Dataset::read_into`] fills.
    ///
    /// # Errors
    /// As [`Dataset::read`], without reading a tile.
    pub fn read_len(&self, options: &ReadOptions) -> Result<usize, Error> {
        self.request(options).map(|request| request.len)
    }

    /// Stored bytes of the tiles that the options would read: what has to come from the file before samples can be decoded.
    ///
    /// # Errors
    /// As [`Dataset::read_len`], and when the tables of tiles cannot be read.
    pub fn stored_len(&self, options: &ReadOptions) -> Result<u64, Error> {
        let Request { image, dataset, window, bands, .. } = self.request(options)?;
        let planes: Vec<u32> = if image.grid.planes > 1 { bands.into_iter().map(u32::from).collect() } else { vec![0] };
        backing::stored(image, &dataset.fetch, &window, &planes)
            .map_err(|error| error.in_ifd(image.index).in_source(&dataset.name))
    }

    /// Type of the samples that the options would read.
    ///
    /// # Errors
    /// When there is no such overview or directory, or bytes cannot be read.
    pub fn read_sample(&self, options: &ReadOptions) -> Result<SampleType, Error> {
        self.select(options).map(|(_, image)| image.layout.sample)
    }

    pub(crate) fn request(&self, options: &ReadOptions) -> Result<Request<'_>, Error> {
        let (dataset, image) = self.select(options)?;
        let checked = dataset.check(image, options);
        checked.map_err(|error| error.in_ifd(image.index).in_source(&dataset.name))
    }

    /// The directory that the options name, and the file it is in.
    fn select(&self, options: &ReadOptions) -> Result<(&Dataset, &Image), Error> {
        match (options.page, options.overview) {
            (Some(_), Some(_)) => {
                Err(Error::usage("an overview and a directory cannot be read at once").in_source(&self.name))
            }
            (Some(0), None) | (None, None) => Ok((self, self.main())),
            (Some(page), None) => self.image(page).map(|image| (self, image)),
            (None, Some(level)) => self.overview_image(&self.overview(level)?),
        }
    }

    fn check<'a>(&'a self, image: &'a Image, options: &ReadOptions) -> Result<Request<'a>, Error> {
        let layout = &image.layout;
        let window = options.window.unwrap_or(Window::new(0, 0, layout.width, layout.height));
        if !window.fits(layout.width, layout.height) {
            let detail = format!("the window ({window}) is not inside the image of {}x{}", layout.width, layout.height);
            return Err(Error::usage(detail));
        }
        let samples = layout.samples;
        let bands: Vec<u16> = match &options.bands {
            None => (0..samples).collect(),
            Some(bands) => bands
                .iter()
                .map(|band| match band.checked_sub(1).and_then(|band| u16::try_from(band).ok()) {
                    Some(band) if band < samples => Ok(band),
                    _ => Err(Error::usage(format!("there is no band {band}; the image has bands 1 to {samples}"))),
                })
                .collect::<Result<_, _>>()?,
        };
        if bands.is_empty() || bands.len() > usize::from(u16::MAX) {
            return Err(Error::usage(format!("{} bands are requested; 1 to 65535 are possible", bands.len())));
        }
        let bytes = u128::from(window.pixels()) * bands.len() as u128 * layout.sample.size() as u128;
        let limits = &self.limits;
        let limit = |what: &'static str, allowed: u64, field: &'static str| {
            let asked = u64::try_from(bytes).unwrap_or(u64::MAX);
            Error::from(TiffError::Limit { what, asked, allowed, field, place: Place::default() })
        };
        if bytes > u128::from(limits.decoded_bytes) {
            return Err(limit("decoded size", limits.decoded_bytes, "decoded_bytes"));
        }
        // A tile that is read is decoded whole, however small the window.
        let compressed = layout.compression != Compression::None;
        let tile_len = if compressed { image.tile_len() } else { 0 };
        let planes: Vec<u32> =
            if image.grid.planes > 1 { bands.iter().map(|band| u32::from(*band)).collect() } else { vec![0] };
        let decoded = u64::try_from(bytes).unwrap_or(u64::MAX).max(tile_len);
        let plausible = self.plausible(image, &window, &planes, decoded)?;
        if tile_len > plausible {
            return Err(Error::from(TiffError::Limit {
                what: "decoded size of a tile (limited by the size of the file)",
                asked: tile_len,
                allowed: plausible,
                field: "expansion",
                place: Place::default(),
            }));
        }
        if bytes > u128::from(plausible) {
            return Err(limit("decoded size (limited by the size of the file)", plausible, "expansion"));
        }
        let len = usize::try_from(bytes).ok().filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| limit("decoded size", isize::MAX as u64, "decoded_bytes"))?;
        let (columns, rows) = image.grid.span(&window);
        let plane = planes.iter().copied().max().unwrap_or(0);
        let last = image.grid.index(columns.end.saturating_sub(1), rows.end.saturating_sub(1), plane);
        image.check_tables(last, self.fetch.size())?;
        let device = options.device.clone().or(&self.device);
        Ok(Request { image, dataset: self, window, bands, len, device })
    }

    /// Most bytes that a window of these planes may decode to; the caller asks for `asked` of them.
    pub(crate) fn plausible(&self, image: &Image, window: &Window, planes: &[u32], asked: u64) -> Result<u64, Error> {
        let limits = &self.limits;
        let most = |bytes: u64| bytes.saturating_mul(limits.expansion).max(limits.decoded_floor);
        let claimed = most(self.fetch.size());
        // Most reads are small. A request that is too large for the file's own size needs no closer look.
        if asked <= limits.decoded_floor || asked > claimed {
            return Ok(claimed);
        }
        let enough = asked.div_ceil(limits.expansion.max(1));
        Ok(most(backing::backing(image, &self.fetch, window, planes, enough)?))
    }

    /// One sample of a sparse tile: nodata where the file has a value that the type can hold, else zero.
    pub(crate) fn fill_sample(&self, image: &Image) -> Result<Vec<u8>, Error> {
        let sample = image.layout.sample;
        let mask = image.layout.photometric == Some(Photometric::Mask);
        let nodata = if mask { None } else { self.nodata_fill(image, sample)? };
        Ok(nodata.unwrap_or_else(|| vec![0; sample.size()]))
    }
}

impl Request<'_> {
    /// Fills the caller's memory, and checks that the file did not change meanwhile.
    fn fill(&self, options: &ReadOptions, out: &mut [u8], zeroed: bool) -> Result<Option<DeviceReport>, Error> {
        self.dataset.unchanged(self.fill_by_mode(options, out, zeroed))
    }

    fn fill_by_mode(&self, options: &ReadOptions, out: &mut [u8], zeroed: bool) -> Result<Option<DeviceReport>, Error> {
        let mode = self.device.mode.unwrap_or(Mode::Cpu);
        if mode == Mode::Cpu {
            return self.run(options, out, zeroed).map(|()| None);
        }
        match self.fill_by_device(options, out) {
            Ok(report) => Ok(Some(report)),
            // The CPU would meet the same errors of the file. Errors of the device are a reason to fall back, with a notice.
            Err(error) if mode == Mode::Auto && error.is_device() => {
                self.run(options, out, false)?;
                let notices = vec![format!("decoded by the CPU: {}", error.kind())];
                Ok(Some(DeviceReport { notices, ..DeviceReport::default() }))
            }
            Err(error) => Err(error),
        }
    }

    fn run(&self, options: &ReadOptions, out: &mut [u8], zeroed: bool) -> Result<(), Error> {
        let dataset = self.dataset;
        let mut run = || {
            let host = self.image.host(&dataset.registry, &dataset.limits)?;
            let fill = dataset.fill_sample(self.image)?;
            let context = ReadContext {
                fetch: &dataset.fetch,
                image: self.image,
                host,
                window: self.window,
                bands: &self.bands,
                interleave: options.interleave,
                fill: &fill,
                zeroed,
                threads: options.threads.or(dataset.threads).unwrap_or_else(cores),
                in_flight: dataset.fetch.access.in_flight,
                cancel: options.cancel.as_ref(),
                pool: &dataset.pool,
                cache: &dataset.cache,
                lone: dataset.reads.fetch_add(1, Ordering::Relaxed) == 0,
                arriving: &dataset.arriving,
                warnings: &dataset.warnings,
                positions: &dataset.positions,
            };
            schedule::run(&context, out)
        };
        run().map_err(|error: Error| error.in_ifd(self.image.index).in_source(&dataset.name))
    }
}
