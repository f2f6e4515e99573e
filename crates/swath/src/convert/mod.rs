//! Converts one file to another: reads rows, converts them, and writes them.

mod cast;
mod exif;
mod kept;
mod nodata;

use std::path::Path;

use swath_io::{Sink, sink::side_files};
use swath_raster::memory;
use swath_tiff::{
    Compression, Photometric, SampleType, Window,
    geo::{Crs, GeoKeys, Nodata},
};

use crate::{
    convert::cast::Cast,
    device::{DeviceReport, Mode},
    error::Error,
    metadata::Metadata,
    open::{dataset::Dataset, location},
    raster::{Interleave, Raster},
    read::{ColorView, ReadOptions},
    write::{DeviceSamples, Rows, Shape, WriteOptions, Writer, Written, least_memory},
};

pub use cast::Scale;

/// Which part of a file to convert, and how.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    window: Option<Window>,
    bands: Option<Vec<u32>>,
    overview: Option<usize>,
    sample: Option<SampleType>,
    scale: Option<Scale>,
    nodata: Option<Option<Nodata>>,
    crs: Option<Crs>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident = $kind:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $kind) -> Self {
            self.$field = Some($field);
            self
        }
    )*};
}

impl ConvertOptions {
    setters! {
        /// Only these pixels.
        with_window: window = Window;
        /// Only these bands, counted from 1, in this order.
        with_bands: bands = Vec<u32>;
        /// An overview instead of the image; the window counts in its pixels.
        with_overview: overview = usize;
        /// As samples of this type: rounded, and kept inside its range.
        with_sample: sample = SampleType;
        /// With values stretched along a line.
        with_scale: scale = Scale;
        /// With this nodata value, or none. Samples that become another type take the new value where they had the old one,
        /// and NaN takes it where the new type has none.
        with_nodata: nodata = Option<Nodata>;
        /// As if it were in this reference system.
        with_crs: crs = Crs;
    }
}

/// The result of a conversion.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Converted {
    /// The result of the write.
    pub written: Written,
    /// Sentences about what the new file does not keep.
    pub notices: Vec<String>,
}

/// Bytes that are read at a time, where the memory allows.
const READ: u64 = 32 << 20;
/// Bytes that are read to a device at a time.
const DEVICE_READ: u64 = 128 << 20;

impl Dataset {
    /// Writes this file, or a part of it, as another. Never holds more than the memory in `write`, and never the whole
    /// image.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), swath::Error> {
    /// use swath::{Compression, ConvertOptions, Dataset, WriteOptions};
    ///
    /// let options = WriteOptions::cog().with_compression(Compression::Zstd);
    /// let converted = Dataset::open("scene.tif")?.convert("cog.tif", &ConvertOptions::default(), &options)?;
    /// println!("{} bytes; {:?}", converted.written.size, converted.notices);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it cannot be read, converted or written; the target is then unchanged.
    pub fn convert(
        &self,
        path: impl AsRef<Path>,
        convert: &ConvertOptions,
        write: &WriteOptions,
    ) -> Result<Converted, Error> {
        let path = path.as_ref();
        if self.path.as_deref().is_some_and(|own| side_files::is_side_file_of(own, path)) {
            let target = location::shown(path);
            return Err(Error::usage(format!(
                "this is a side file of {target} and would be removed with it; give the result another name"
            ))
            .in_source(&self.name));
        }
        let begin = || {
            let sink = location::sink(path, &write.remote);
            sink.map_err(|error| Error::from(error).in_source(&location::shown(path)))
        };
        self.convert_to(begin, convert, write)
    }

    /// Writes this file, or a part of it, to any sink, which is made only after everything else is checked.
    ///
    /// # Errors
    /// As [`Dataset::convert`].
    pub fn convert_to(
        &self,
        sink: impl FnOnce() -> Result<Box<dyn Sink>, Error>,
        convert: &ConvertOptions,
        write: &WriteOptions,
    ) -> Result<Converted, Error> {
        let job = Conversion::new(self, convert, write)?;
        let rows_at_once = job.rows_at_once()?;
        job.run(sink()?, rows_at_once)
    }
}

/// Rows that are read at a time, to a device and to the host; 0 for a side that is not used.
#[derive(Debug, Clone, Copy)]
struct RowsAtOnce {
    device: u32,
    host: u32,
}

/// Samples of the rows at hand, as they are read and as they are written.
#[derive(Default)]
struct RowBuffers {
    source: Vec<u8>,
    target: Vec<u8>,
}

/// The failure of a read or a write of rows on a device; the CPU can repeat only a read.
enum DeviceFailure {
    Read(Error),
    Write(Error),
}

/// What a conversion takes of a file.
struct Selection {
    /// Columns and rows of the image, or of the overview that is converted.
    size: (u32, u32),
    window: Window,
    /// Bands, counted from 1.
    bands: Vec<u32>,
}

impl Selection {
    fn new(dataset: &Dataset, convert: &ConvertOptions) -> Result<Self, Error> {
        let (width, height) = match convert.overview {
            None => (dataset.width(), dataset.height()),
            Some(level) => {
                let found = dataset.overview(level)?;
                (found.width, found.height)
            }
        };
        let window = convert.window.unwrap_or(Window::new(0, 0, width, height));
        if !window.fits(width, height) || window.width == 0 || window.height == 0 {
            let detail = format!("the window ({window}) is not inside the image of {width}x{height}");
            return Err(Error::usage(detail).in_source(&dataset.name));
        }
        let bands = convert.bands.clone().unwrap_or_else(|| (1..=dataset.bands()).collect());
        if let Some(band) = bands.iter().find(|band| **band == 0 || **band > dataset.bands()) {
            let detail = format!("there is no band {band}; the image has bands 1 to {}", dataset.bands());
            return Err(Error::usage(detail).in_source(&dataset.name));
        }
        Ok(Self { size: (width, height), window, bands })
    }
}

/// A conversion that is planned, before pixels are read.
struct Conversion<'a> {
    dataset: &'a Dataset,
    window: Window,
    bands: Vec<u32>,
    overview: Option<usize>,
    cast: Cast,
    shape: Shape,
    metadata: Metadata,
    write: WriteOptions,
    masked: bool,
    color: ColorView,
    /// Rows of a tile of the source.
    tile_height: u32,
    notices: Vec<String>,
}

impl<'a> Conversion<'a> {
    fn new(dataset: &'a Dataset, convert: &ConvertOptions, write: &WriteOptions) -> Result<Self, Error> {
        let layout = &dataset.main().layout;
        let Selection { size: (width, height), window, bands } = Selection::new(dataset, convert)?;
        let from = dataset.sample();
        let to = convert.sample.unwrap_or(from);
        let mut metadata = kept::selected(dataset.metadata(), &bands, window, (width, height), layout)?;
        if let Some(crs) = &convert.crs {
            metadata.georeference.crs = Some(crs.clone());
            metadata.georeference.keys = GeoKeys::default();
        }
        let before = metadata.nodata().cloned();
        let after = nodata::chosen(before.as_ref(), convert.nodata.as_ref(), from, to)
            .map_err(|error| error.in_source(&dataset.name))?;
        if convert.nodata.is_some() {
            metadata.bands.iter_mut().for_each(|band| band.nodata.clone_from(&after));
        }
        // A new nodata value declares pixels and does not change them. A scale or a new type must leave nodata as it is.
        let moves = convert.scale.is_some() || from != to;
        let holes = before.as_ref().zip(after.as_ref()).filter(|_| moves);
        let cast = Cast::new(from, to, convert.scale, holes).with_nan_as(after.as_ref());
        let changed = convert.window.is_some()
            || moves
            || convert.overview.is_some()
            || !nodata::same(before.as_ref(), after.as_ref(), to);
        if changed {
            metadata.bands.iter_mut().flat_map(|band| &mut band.domains).for_each(|domain| {
                domain.items.retain(|(name, _)| !name.starts_with("STATISTICS_"));
            });
        }
        let mut notices: Vec<String> = kept::notice_on_pages(dataset)?.into_iter().collect();
        if to.size() > 2 || to.format() != swath_tiff::SampleFormat::Uint {
            metadata.palette.clear();
        }
        notices.extend(kept::notice_on_palette(dataset.metadata(), &mut metadata));
        if let Some(method) = write.resampling.filter(|method| method.mixes() && !metadata.palette.is_empty()) {
            notices.push(format!("indices of a palette have no {method}: overviews take the nearest pixel"));
        }
        let mask = dataset.mask_image(width, height)?;
        let masked = mask.is_some();
        let shape = Shape { width: window.width, height: window.height, bands: narrow(bands.len())?, sample: to };
        let whole = bands.len() == usize::from(layout.samples) && !moves;
        let mut write = kept::inherited(layout, write, dataset, whole, !metadata.palette.is_empty(), &mut notices)
            .with_mask(masked || write.mask)
            .with_soft_mask(mask.is_some_and(|(_, mask)| mask.is_soft()));
        // Values stay, so colours that are multiplied by alpha still are.
        if convert.scale.is_none() {
            write.extra_samples.clone_from(&layout.extra_samples);
        }
        // In another order, the extra samples are others.
        if !bands.iter().copied().eq(1..=dataset.bands()) {
            write.extra_samples.clear();
        }
        let resized = (window.width, window.height) != (layout.width, layout.height);
        let known: Vec<u16> = write.tags.iter().map(|field| field.tag).collect();
        let exif = exif::fields(dataset, resized, &mut notices);
        write.tags.extend(exif.into_iter().filter(|field| !known.contains(&field.tag)));
        let tile_height = if convert.overview.is_none() { layout.tile_height } else { 1 };
        Ok(Self {
            dataset,
            window,
            bands,
            overview: convert.overview,
            cast,
            shape,
            metadata,
            write,
            masked,
            // Luma and colour differences in planes of their own are shown as the colours they mean; inks stay inks.
            color: match layout.photometric {
                Some(Photometric::YCbCr) => ColorView::Shown,
                _ => ColorView::Stored,
            },
            tile_height,
            notices,
        })
    }

    fn run(self, sink: Box<dyn Sink>, rows_at_once: RowsAtOnce) -> Result<Converted, Error> {
        let taken = self.row_len() * u64::from(rows_at_once.host);
        let left = (self.write.max_memory as u64).saturating_sub(taken);
        let options = WriteOptions { max_memory: usize::try_from(left).unwrap_or(usize::MAX), ..self.write.clone() };
        let mode = self.write.device.mode.unwrap_or_default();
        let options = match self.write.device.max_memory {
            // The reader has a third of the device memory, the writer the rest.
            Some(bytes) if mode != Mode::Cpu => options.with_max_device_memory(bytes - bytes / 3),
            _ => options,
        };
        let mut writer = Writer::to_sink(sink, self.shape, &self.metadata, &options)?;
        let mut notices = self.notices.clone();
        if self.write.sparse && !writer.is_sparse() {
            notices.push("no tile is left out: GDAL reads 8-bit CMYK and Lab only where no tile is missing".into());
        }
        let mut report = DeviceReport::default();
        let mut on_device = rows_at_once.device > 0 && writer.is_on_device();
        if mode != Mode::Cpu && rows_at_once.device == 0 {
            report.notices.push("the CPU reads the tiles, because it converts the samples".into());
        }
        let mut buffers = RowBuffers::default();
        let mut y = 0;
        while y < self.window.height {
            let rows = match (on_device, rows_at_once) {
                (true, RowsAtOnce { device, .. }) => device,
                // No memory was reserved for this; the error says how much is needed.
                (false, RowsAtOnce { host: 0, .. }) => self.rows_at_a_time()?,
                (false, RowsAtOnce { host, .. }) => host,
            };
            // Reads end where tiles of the source end, so that none is decoded twice.
            let into = if y == 0 { self.window.y % self.tile_height.max(1) } else { 0 };
            let count = rows.saturating_sub(into).max(1).min(self.window.height - y);
            let window = Window::new(self.window.x, self.window.y + y, self.window.width, count);
            let read = self.read_options(window, mode);
            if on_device {
                match self.push_by_device(&mut writer, &read, &mut report) {
                    Err(DeviceFailure::Read(error)) if mode == Mode::Auto && error.is_about_device() => {
                        on_device = false;
                        report.notices.push(format!("the CPU reads the tiles: {error}"));
                        continue;
                    }
                    Err(DeviceFailure::Read(error) | DeviceFailure::Write(error)) => return Err(error),
                    Ok(()) => {
                        y += count;
                        continue;
                    }
                }
            }
            self.push_by_host(&mut writer, &read, &window, &mut buffers)?;
            y += count;
        }
        let mut written = writer.finish()?;
        if mode != Mode::Cpu {
            if rows_at_once.device == 0 {
                report.add(&self.dataset.device_report());
            }
            report.add(&written.device);
            written.device = report;
        }
        Ok(Converted { written, notices })
    }

    /// The options of the read of a window.
    fn read_options(&self, window: Window, mode: Mode) -> ReadOptions {
        let mut read = ReadOptions::default()
            .with_window(window)
            .with_bands(self.bands.iter().copied())
            .with_interleave(Interleave::Band)
            .with_color(self.color);
        if let Some(level) = self.overview {
            read = read.with_overview(level);
        }
        if let Some(threads) = self.write.threads {
            read = read.with_threads(threads);
        }
        if let Some(cancel) = &self.write.cancel {
            read = read.with_cancel(cancel.clone());
        }
        if mode != Mode::Cpu {
            read = self.by_device(read, mode);
        }
        read
    }

    /// Reads rows to the host, converts their samples and writes them.
    fn push_by_host(
        &self,
        writer: &mut Writer,
        read: &ReadOptions,
        window: &Window,
        buffers: &mut RowBuffers,
    ) -> Result<(), Error> {
        let RowBuffers { source, target } = buffers;
        let shown;
        let read_samples: &[u8] = match self.color {
            ColorView::Stored => {
                memory::resize(source, self.dataset.read_len(read)?)?;
                self.dataset.read_into(read, source)?;
                source
            }
            _ => {
                shown = self.dataset.read(read)?;
                shown.bytes()
            }
        };
        let mask = if self.masked { Some(self.dataset.read_mask(read)?) } else { None };
        let samples = if self.cast.is_nothing() {
            read_samples
        } else {
            memory::resize(target, window.pixels() as usize * self.bands.len() * self.shape.sample.size())?;
            if let Some(index) = self.cast.lost_nan(read_samples, mask.as_ref().map(Raster::bytes)) {
                return Err(self.no_nan(index, window));
            }
            self.cast.run(read_samples, target)?;
            target
        };
        let rows = Rows::from_bytes(samples, Interleave::Band);
        match &mask {
            Some(mask) => writer.push(&rows.with_mask(mask.bytes())),
            None => writer.push(&rows),
        }
    }

    /// The error for sample `index` of a window.
    fn no_nan(&self, index: usize, window: &Window) -> Error {
        let (pixels, width) = ((window.pixels() as usize).max(1), (window.width as usize).max(1));
        let band = self.bands.get(index / pixels).copied().unwrap_or(1);
        let (row, column) = (index % pixels / width, index % width);
        nodata::no_nan(self.shape.sample, band, window.x as usize + column, window.y as usize + row)
            .in_source(&self.dataset.name)
    }

    /// A read by the GPU that writes, within its share of the memory.
    fn by_device(&self, read: ReadOptions, mode: Mode) -> ReadOptions {
        let device = &self.write.device;
        let mut read = read.with_device(mode);
        if let Some(gpu) = &device.gpu {
            read = read.with_gpu(gpu.clone());
        }
        if let Some(bytes) = device.max_memory {
            // The samples are in memory while their mask is read.
            read = read.with_max_device_memory(bytes / if self.masked { 6 } else { 3 });
        }
        read
    }

    /// Reads rows to the device and writes them from there.
    fn push_by_device(
        &self,
        writer: &mut Writer,
        read: &ReadOptions,
        report: &mut DeviceReport,
    ) -> Result<(), DeviceFailure> {
        let raster = self.dataset.read_device(read).map_err(DeviceFailure::Read)?;
        report.add(raster.report());
        let mask = match self.masked {
            true => Some(self.dataset.read_mask_device(read).map_err(DeviceFailure::Read)?),
            false => None,
        };
        let mut samples = DeviceSamples::of_raster(&raster).map_err(DeviceFailure::Read)?;
        if let Some(mask) = &mask {
            report.add(mask.report());
            samples = samples.with_mask_raster(mask).map_err(DeviceFailure::Read)?;
        }
        writer.push_device(&samples).map_err(DeviceFailure::Write)
    }

    /// Whether rows stay on a device from reading to writing.
    fn stays_on_device(&self) -> bool {
        let mode = self.write.device.mode.unwrap_or_default();
        mode != Mode::Cpu && self.cast.is_nothing() && self.color == ColorView::Stored
    }

    /// Returns how many rows are read at a time. Where the CPU may have to take over, this reserves memory for it, if there is any.
    fn rows_at_once(&self) -> Result<RowsAtOnce, Error> {
        let stays = self.stays_on_device();
        let host = match self.write.device.mode.unwrap_or_default() {
            Mode::Cuda if stays => 0,
            Mode::Auto if stays => self.rows_at_a_time().unwrap_or(0),
            _ => self.rows_at_a_time()?,
        };
        Ok(RowsAtOnce { device: if stays { self.device_rows() } else { 0 }, host })
    }

    /// Rows that are read to a device at a time: whole tile rows of the source.
    fn device_rows(&self) -> u32 {
        let row = (u64::from(self.window.width)
            * (self.bands.len() as u64 * self.dataset.sample().size() as u64 + u64::from(self.masked)))
        .max(1);
        let wanted = self.write.device.max_memory.map_or(DEVICE_READ, |bytes| (bytes / 8).min(DEVICE_READ));
        let tile_rows = (wanted / row.saturating_mul(self.tile_height.into())).max(1);
        (tile_rows * u64::from(self.tile_height)).min(i32::MAX as u64) as u32
    }

    /// Bytes that a row takes while it is converted: read, turned, masked.
    fn row_len(&self) -> u64 {
        let pixels = u64::from(self.window.width);
        let bands = self.bands.len() as u64;
        let turned = if self.cast.is_nothing() { 0 } else { self.shape.sample.size() as u64 };
        let mask = if self.masked { 3 } else { 0 };
        pixels * (bands * (self.dataset.sample().size() as u64 + turned) + mask)
    }

    /// Returns whole tile rows of the source with enough bytes for all threads, or fewer rows where the writer leaves no room.
    fn rows_at_a_time(&self) -> Result<u32, Error> {
        let row = self.row_len().max(1);
        let tile_row = row.saturating_mul(self.tile_height.into());
        let budget = self.write.max_memory as u64;
        let least = least_memory(self.shape, &self.metadata, &self.write)?;
        let room = budget.saturating_sub(least);
        // No tile is decoded more than eight times, if it is not very high.
        let few = row.saturating_mul(self.tile_height.div_ceil(8).clamp(1, 64).min(self.window.height).into());
        // A tile that is too high to be read at once is still decoded at once.
        let main = self.dataset.main();
        let decoded = match main.layout.compression {
            _ if tile_row <= room.min(budget / 2) => 0,
            Compression::None => 0,
            _ => main.tile_len(),
        };
        let few = few.saturating_add(decoded);
        if few > room {
            let Shape { width, height, .. } = self.shape;
            return Err(Error::over("max_memory", format!(
                "converting {width} x {height} pixels takes {} bytes of memory, {budget} are allowed; use smaller tiles",
                least.saturating_add(few)
            ))
            .in_source(&self.dataset.name));
        }
        if tile_row > room.min(budget / 2) {
            // Tiles have to be decoded again for every few rows, or the memory would be exceeded.
            let rows =
                ((room - decoded).min((few - decoded).max(budget / 4)) / row).clamp(1, self.window.height.into());
            return Ok(u32::try_from(rows).unwrap_or(u32::MAX));
        }
        let wanted = READ.min(budget / 4).min(room);
        let tiles = (wanted / tile_row).max(1);
        Ok((tiles * u64::from(self.tile_height)).min(i32::MAX as u64) as u32)
    }
}

fn narrow(bands: usize) -> Result<u16, Error> {
    u16::try_from(bands).map_err(|_| Error::usage(format!("{bands} bands are more than a file can have")))
}
