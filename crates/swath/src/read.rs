//! Reading windows.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use swath_codec::memory::Buffer;
use swath_cuda::Gpu;
use swath_tiff::{Compression, Place, SampleType, TiffError, Window, words::photometric::Photometric};

use crate::{
    backing,
    color::ColorView,
    dataset::Dataset,
    device::{DeviceOptions, DeviceReport, Mode},
    error::Error,
    image::Image,
    raster::{Interleave, Raster},
    schedule::{self, Order},
};

/// Ends a read from another thread.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every read that has this token, before its next piece of work.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What to read. The default is the whole first image, all bands, bands apart.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    pub(crate) window: Option<Window>,
    pub(crate) bands: Option<Vec<u32>>,
    pub(crate) overview: Option<usize>,
    pub(crate) page: Option<usize>,
    pub(crate) interleave: Interleave,
    pub(crate) color: ColorView,
    pub(crate) upright: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) device: DeviceOptions,
}

impl ReadOptions {
    /// Only this window, in pixels of the image or overview that is read.
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Only these bands, in this order. Bands are counted from 1, as in GDAL.
    pub fn with_bands(mut self, bands: impl IntoIterator<Item = u32>) -> Self {
        self.bands = Some(bands.into_iter().collect());
        self
    }

    /// An overview instead of the full image: 0 is the largest.
    pub fn with_overview(mut self, level: usize) -> Self {
        self.overview = Some(level);
        self
    }

    /// Another directory of the file instead of the first image, counted from 0 along the chain.
    pub fn with_ifd(mut self, index: usize) -> Self {
        self.page = Some(index);
        self
    }

    /// Bands apart (the default) or side by side.
    pub fn with_interleave(mut self, interleave: Interleave) -> Self {
        self.interleave = interleave;
        self
    }

    /// Samples as they are stored (the default), or as the colours they stand for.
    pub fn with_color(mut self, color: ColorView) -> Self {
        self.color = color;
        self
    }

    /// Turns the result upright as the Orientation tag says. Georeferenced rasters are upright already; photos may not be.
    pub fn with_upright(mut self, upright: bool) -> Self {
        self.upright = upright;
        self
    }

    /// Threads this read may use.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Who decodes: the CPU, a GPU, or whichever there is. Unless said here or when the file was opened, [`Dataset::read`]
    /// uses the CPU and [`Dataset::read_device`] the GPU.
    pub fn with_device(mut self, mode: Mode) -> Self {
        self.device.mode = Some(mode);
        self
    }

    /// The GPU to use; the first unless said otherwise.
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.device.gpu = Some(gpu);
        self
    }

    /// Device memory a read may use, its result included; 80 % of what is free unless said otherwise. What does not fit at
    /// once is read in bands of tiles.
    pub fn with_max_device_memory(mut self, bytes: u64) -> Self {
        self.device.max_memory = Some(bytes);
        self
    }

    /// Says that the file is known to be sound, so that a decoder which damaged input can hang or crash may be used:
    /// NVIDIA's nvCOMP for LZ4. All else is decoded by what stands damage, whatever is said here.
    pub fn with_trust_input(mut self, trusted: bool) -> Self {
        self.device.trust_input = Some(trusted);
        self
    }

    /// Under [`Mode::Cuda`], lets the CPU decode what the GPU cannot. [`Mode::Auto`] always does.
    pub fn with_cpu_decode(mut self, allowed: bool) -> Self {
        self.device.cpu_decode = Some(allowed);
        self
    }

    /// Times the kernels of a read on a GPU; they then run after the last copy, so the read takes longer.
    pub fn with_kernel_times(mut self, timed: bool) -> Self {
        self.device.timed = Some(timed);
        self
    }

    /// A token that ends the read.
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }
}

/// A request, checked against the image.
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
    /// # Errors
    /// When the window or a band is outside the image, a limit is exceeded, bytes cannot be had or a tile is damaged.
    pub fn read(&self, options: &ReadOptions) -> Result<Raster, Error> {
        if options.color == ColorView::Shown {
            let (_, image) = self.select(options)?;
            if image.is_painted() {
                return self.read_painted(image, options);
            }
        }
        let request = self.request(options)?;
        let mut buffer = Buffer::zeroed(request.len).ok_or_else(|| {
            Error::usage(format!("there is no memory for {} bytes", request.len)).in_source(&self.name)
        })?;
        let report = request.fill(options, buffer.bytes_mut(), true)?;
        self.note(report.as_ref());
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
    /// ([`Dataset::read_len`]). Returns what a GPU did, where the options ask for one.
    ///
    /// # Errors
    /// As [`Dataset::read`], when the size is wrong, and when the options ask for colours or an upright picture that are
    /// not as stored.
    pub fn read_into(&self, options: &ReadOptions, out: &mut [u8]) -> Result<Option<DeviceReport>, Error> {
        if options.upright || (options.color == ColorView::Shown && self.select(options)?.1.is_painted()) {
            let detail = "turning upright and showing colours need memory of their own: use `read`";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let request = self.request(options)?;
        if out.len() != request.len {
            let detail = format!("the buffer has {} bytes, the result has {}", out.len(), request.len);
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let report = request.fill(options, out, false)?;
        self.note(report.as_ref());
        Ok(report)
    }

    /// Bytes of the samples as they are stored: what [`Dataset::read_into`] fills.
    ///
    /// # Errors
    /// As [`Dataset::read`], without reading a tile.
    pub fn read_len(&self, options: &ReadOptions) -> Result<usize, Error> {
        self.request(options).map(|request| request.len)
    }

    /// Type of the samples that the options would read.
    ///
    /// # Errors
    /// When there is no such overview or directory, or bytes cannot be had.
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
            (None, Some(level)) => {
                let overviews = self.overviews()?;
                let overview = overviews.get(level).ok_or_else(|| {
                    Error::usage(format!("there is no overview {level}; the file has {}", overviews.len()))
                        .in_source(&self.name)
                })?;
                self.overview_image(overview)
            }
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
            return Err(Error::usage(format!("{} bands are wanted; 1 to 65535 are possible", bands.len())));
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
                what: "decoded size of a tile for so small a file",
                asked: tile_len,
                allowed: plausible,
                field: "expansion",
                place: Place::default(),
            }));
        }
        if bytes > u128::from(plausible) {
            return Err(limit("decoded size for so small a file", plausible, "expansion"));
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

    /// Most bytes that a window of these planes may decode to; `asked` is what the caller wants of it.
    pub(crate) fn plausible(&self, image: &Image, window: &Window, planes: &[u32], asked: u64) -> Result<u64, Error> {
        let limits = &self.limits;
        let most = |bytes: u64| bytes.saturating_mul(limits.expansion).max(limits.decoded_floor);
        let claimed = most(self.fetch.size());
        // Most reads are small, and what is too much by the file's own size needs no closer look.
        if asked <= limits.decoded_floor || asked > claimed {
            return Ok(claimed);
        }
        let enough = asked.div_ceil(limits.expansion.max(1));
        Ok(most(backing::backing(image, &self.fetch, window, planes, enough)?))
    }

    /// One sample of what sparse tiles hold: nodata where the file has one that the type can hold, else zero.
    pub(crate) fn fill_sample(&self, image: &Image) -> Result<Vec<u8>, Error> {
        let sample = image.layout.sample;
        let mask = image.layout.photometric == Some(Photometric::Mask);
        let nodata = if mask { None } else { self.nodata_fill(image, sample)? };
        Ok(nodata.unwrap_or_else(|| vec![0; sample.size()]))
    }
}

impl Request<'_> {
    /// Fills the caller's memory by whoever the options say.
    fn fill(&self, options: &ReadOptions, out: &mut [u8], zeroed: bool) -> Result<Option<DeviceReport>, Error> {
        self.dataset.unchanged(self.fill_by_any(options, out, zeroed))
    }

    fn fill_by_any(&self, options: &ReadOptions, out: &mut [u8], zeroed: bool) -> Result<Option<DeviceReport>, Error> {
        let mode = self.device.mode.unwrap_or(Mode::Cpu);
        if mode == Mode::Cpu {
            return self.run(options, out, zeroed).map(|()| None);
        }
        match self.fill_by_device(options, out) {
            Ok(report) => Ok(Some(report)),
            // Errors of the file are the same on the CPU; those of the device are a reason to step down, and to say so.
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
            let order = Order {
                fetch: &dataset.fetch,
                image: self.image,
                host,
                window: self.window,
                bands: &self.bands,
                interleave: options.interleave,
                fill: &fill,
                zeroed,
                threads: options.threads.or(dataset.threads).unwrap_or_else(schedule::cores),
                in_flight: dataset.fetch.access.in_flight,
                cancel: options.cancel.as_ref(),
                pool: &dataset.pool,
                cache: &dataset.cache,
                lone: dataset.reads.fetch_add(1, Ordering::Relaxed) == 0,
                arriving: &dataset.arriving,
                remarks: &dataset.remarks,
                positions: &dataset.positions,
            };
            schedule::run(&order, out)
        };
        run().map_err(|error: Error| error.in_ifd(self.image.index).in_source(&dataset.name))
    }
}

impl Raster {
    /// Turned as the Orientation tag says the picture was stored.
    pub(crate) fn upright(self, orientation: u16) -> Result<Raster, Error> {
        if orientation == 1 {
            return Ok(self);
        }
        let (width, height) = (self.width as usize, self.height as usize);
        let transposed = orientation >= 5;
        let (new_width, new_height) = if transposed { (height, width) } else { (width, height) };
        let size = self.sample.size();
        let (planes, pixel) = match self.interleave {
            Interleave::Band => (self.bands as usize, size),
            Interleave::Pixel => (1, size * self.bands as usize),
        };
        let mut buffer = Buffer::zeroed(self.bytes().len())
            .ok_or_else(|| Error::usage("there is no memory to turn the picture in"))?;
        let plane_len = width * height * pixel;
        let planes_out = buffer.bytes_mut().chunks_exact_mut(plane_len.max(1));
        for (source, target) in self.bytes().chunks_exact(plane_len.max(1)).zip(planes_out).take(planes) {
            for (index, place) in target.chunks_exact_mut(pixel).enumerate() {
                let (x, y) = (index % new_width, index / new_width);
                // Where the upright pixel stands in the stored picture.
                let (from_x, from_y) = match orientation {
                    2 => (width - 1 - x, y),
                    3 => (width - 1 - x, height - 1 - y),
                    4 => (x, height - 1 - y),
                    5 => (y, x),
                    6 => (y, height - 1 - x),
                    7 => (width - 1 - y, height - 1 - x),
                    _ => (width - 1 - y, x),
                };
                let at = (from_y * width + from_x) * pixel;
                if let Some(found) = source.get(at..at + pixel) {
                    place.copy_from_slice(found);
                }
            }
        }
        Ok(Raster { buffer, width: new_width as u32, height: new_height as u32, ..self })
    }

    /// A raster of one band from bytes that are already there.
    pub(crate) fn from_u8(width: u32, height: u32, bytes: &[u8]) -> Option<Raster> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        let (sample, interleave) = (SampleType::U8, Interleave::Band);
        Some(Raster { buffer, sample, width, height, bands: 1, interleave, report: None })
    }
}
