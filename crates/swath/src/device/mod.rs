//! Reading to and by way of a GPU.
//!
//! `Cuda` means the GPU and nothing else; `Auto` steps down and says so, in the report that comes with the samples.

mod board;
mod cuts;
mod mask;
mod plan;
mod raster;
mod run;
mod storage;
mod windows;
mod worker;

use std::{
    fs::File,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use swath_cuda::{
    DeviceError, Gpu, GpuOptions,
    decode::{Decoder, Plan},
    rule::{self, Output, Way},
};
use swath_io::fork::{self, PerProcess};
use swath_tiff::{Compression, Window};

pub(crate) use raster::dlpack_type;
pub use raster::{CudaArray, DeviceRaster, DeviceReport};

use crate::{
    color::ColorView,
    dataset::Dataset,
    error::{Error, ErrorKind},
    raster::Interleave,
    read::{Cancel, ReadOptions, Request},
    schedule,
};
use cuts::Cuts;
use plan::Wanted;
use storage::{Direct, PINNED};

/// Who decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A GPU where there is one and it can; else the CPU, which is then said in the report.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// A CUDA GPU, or an error that says why not.
    Cuda,
}

/// What the options of a read say about GPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceOptions {
    pub(crate) mode: Option<Mode>,
    pub(crate) gpu: Option<Arc<Gpu>>,
    pub(crate) max_memory: Option<u64>,
    pub(crate) trust_input: Option<bool>,
    pub(crate) cpu_decode: Option<bool>,
    pub(crate) timed: Option<bool>,
}

impl DeviceOptions {
    /// What these leave open is as the others say.
    pub(crate) fn or(self, others: &Self) -> Self {
        Self {
            mode: self.mode.or(others.mode),
            gpu: self.gpu.or_else(|| others.gpu.clone()),
            max_memory: self.max_memory.or(others.max_memory),
            trust_input: self.trust_input.or(others.trust_input),
            cpu_decode: self.cpu_decode.or(others.cpu_decode),
            timed: self.timed.or(others.timed),
        }
    }

    pub(crate) fn open(&self) -> Result<Arc<Gpu>, DeviceError> {
        self.gpu.clone().map_or_else(default_gpu, Ok)
    }

    /// The GPU that the mode asks for. Under [`Mode::Auto`] it may be missing; then the second value says why.
    ///
    /// # Errors
    /// When [`Mode::Cuda`] asks for a GPU and there is none.
    pub(crate) fn open_if_wanted(&self) -> Result<(Option<Arc<Gpu>>, Option<DeviceError>), DeviceError> {
        let mode = self.mode.unwrap_or_default();
        if mode == Mode::Cpu {
            return Ok((None, None));
        }
        match self.open() {
            Ok(gpu) => Ok((Some(gpu), None)),
            Err(error) if mode == Mode::Auto => Ok((None, Some(error))),
            Err(error) => Err(error),
        }
    }
}

/// Share of the free memory that a read may use unless told otherwise: the rest is for whoever else is on the GPU.
const SHARE: (u64, u64) = (4, 5);
/// How often a read that the device has no room for is tried again with half the memory.
const RETRIES: u32 = 4;

/// The GPU that reads use unless they are given one: the first, opened when first asked for.
///
/// # Errors
/// When there is none, or a parent process opened it; the reason is kept and given again.
pub fn default_gpu() -> Result<Arc<Gpu>, DeviceError> {
    type Opened = Mutex<Option<Result<Arc<Gpu>, DeviceError>>>;
    static OPENED: PerProcess<Opened> = PerProcess::new();
    /// One more than the generation of the process that opened it, or is about to.
    static OPENER: AtomicU64 = AtomicU64::new(0);
    let mut opened = OPENED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(result) = &*opened {
        return result.clone();
    }
    let ours = fork::generation() + 1;
    let result = match OPENER.load(Ordering::Relaxed) {
        opener if opener != 0 && opener != ours => Err(DeviceError::forked()),
        _ => {
            OPENER.store(ours, Ordering::Relaxed);
            Gpu::open(&GpuOptions::default())
        }
    };
    if result.is_err() && OPENER.load(Ordering::Relaxed) == ours {
        OPENER.store(0, Ordering::Relaxed);
    }
    *opened = Some(result.clone());
    result
}

impl Dataset {
    /// Reads samples to GPU memory: [`ReadOptions::with_device`] says whether only the GPU may decode ([`Mode::Cuda`], the
    /// default), the CPU may help ([`Mode::Auto`]) or the CPU decodes everything ([`Mode::Cpu`]).
    ///
    /// # Errors
    /// As [`Dataset::read`], and when there is no GPU, it cannot decode the file or has too little memory.
    pub fn read_device(&self, options: &ReadOptions) -> Result<DeviceRaster, Error> {
        if options.upright || options.color == ColorView::Shown {
            let detail = "on a GPU samples come as they are stored: turning upright and showing colours are for `read`";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let request = self.request(options)?;
        let run = || {
            let gpu = request.device.open()?;
            request.read_device(options, &gpu, std::slice::from_ref(&request.window))
        };
        let raster = run().map_err(|error: Error| error.in_ifd(request.image.index).in_source(&request.dataset.name));
        let raster = request.dataset.unchanged(raster)?;
        self.note(Some(raster.report()));
        Ok(raster)
    }

    /// Adds what a GPU did to the file's log.
    pub(crate) fn note(&self, report: Option<&DeviceReport>) {
        if let Some(report) = report {
            self.device_log.get().lock().unwrap_or_else(PoisonError::into_inner).add(report);
        }
    }

    /// What GPUs did for all reads of this handle so far.
    pub fn device_report(&self) -> DeviceReport {
        self.device_log.get().lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Request<'_> {
    /// Decodes on a GPU and brings the samples back, in as many pieces as its memory asks for.
    pub(crate) fn fill_by_device(&self, options: &ReadOptions, out: &mut [u8]) -> Result<DeviceReport, Error> {
        let mut fill = || {
            let gpu = self.device.open()?;
            let mut report = DeviceReport::default();
            let mut left = vec![self.window];
            while let Some(window) = left.pop() {
                let pieces = match self.read_device(options, &gpu, std::slice::from_ref(&window)) {
                    Ok(raster) if window == self.window => {
                        let copied = swath_cuda::decode::to_host(&gpu, raster.buffer(), out)?;
                        report.add(raster.report());
                        report.add(&DeviceReport { counters: copied, ..DeviceReport::default() });
                        continue;
                    }
                    Ok(raster) => {
                        let host = raster.to_host()?;
                        report.add(host.report().unwrap_or(&DeviceReport::default()));
                        self.copy_rows(options.interleave, &window, host.bytes(), out);
                        continue;
                    }
                    Err(error) => self.halves(&window).filter(|_| error.is_out_of_device_memory()).ok_or(error)?,
                };
                // Blocks of other sizes would stay in the pool beside those that the halves take.
                gpu.trim();
                // The upper half first.
                left.extend(pieces.into_iter().rev());
            }
            Ok(report)
        };
        fill().map_err(|error: Error| error.in_ifd(self.image.index).in_source(&self.dataset.name))
    }

    /// A window in two, cut between rows of tiles; `None` for a single row of tiles.
    fn halves(&self, window: &Window) -> Option<[Window; 2]> {
        let grid = &self.image.grid;
        let (_, rows) = grid.span(window);
        let middle = rows.start + (rows.end - rows.start) / 2;
        let at = (middle.checked_mul(grid.tile_height)?).checked_sub(window.y)?;
        (at > 0 && at < window.height).then(|| {
            [
                Window::new(window.x, window.y, window.width, at),
                Window::new(window.x, window.y + at, window.width, window.height - at),
            ]
        })
    }

    fn copy_rows(&self, interleave: Interleave, window: &Window, from: &[u8], out: &mut [u8]) {
        let size = self.image.layout.sample.size();
        let (strands, pixel) = match interleave {
            Interleave::Band => (self.bands.len(), size),
            Interleave::Pixel => (1, size * self.bands.len()),
        };
        let row = self.window.width as usize * pixel;
        let [piece, whole] = [window.height, self.window.height].map(|height| height as usize * row);
        let at = (window.y - self.window.y) as usize * row;
        for strand in 0..strands {
            let target = out.get_mut(strand * whole + at..strand * whole + at + piece);
            if let (Some(target), Some(found)) = (target, from.get(strand * piece..(strand + 1) * piece)) {
                target.copy_from_slice(found);
            }
        }
    }

    /// Reads windows of one size, which stand below each other in the result.
    fn read_device(&self, options: &ReadOptions, gpu: &Arc<Gpu>, windows: &[Window]) -> Result<DeviceRaster, Error> {
        let mut budget = match self.device.max_memory {
            Some(bytes) => bytes.min(gpu.available()?),
            None => gpu.available()? / SHARE.1 * SHARE.0,
        };
        for _ in 0..RETRIES {
            match self.try_device(options, gpu, windows, budget) {
                // The driver may have less than it said: others work there too.
                Err(error) if error.is_driver_out_of_memory() => budget /= 2,
                result => return result,
            }
        }
        self.try_device(options, gpu, windows, budget)
    }

    fn try_device(
        &self,
        options: &ReadOptions,
        gpu: &Arc<Gpu>,
        windows: &[Window],
        budget: u64,
    ) -> Result<DeviceRaster, Error> {
        let host = self.image.host(&self.dataset.registry, &self.dataset.limits)?;
        let mut notices = Vec::new();
        let mode = self.device.mode.unwrap_or(Mode::Cuda);
        let way = match choose_way(host.spec(), gpu, mode, &self.device, &mut notices)? {
            Way::Deflate => Way::DeflatePieces,
            way => way,
        };
        self.try_way(options, gpu, windows, budget, way, notices)
    }

    /// Columns and rows of windows below each other.
    fn output_size(&self, windows: &[Window]) -> Result<(u32, u32), Error> {
        let (width, height) = windows.first().map_or((0, 0), |window| (window.width, window.height));
        let rows = u32::try_from(windows.len()).ok().and_then(|count| count.checked_mul(height));
        let detail = || format!("{} windows of {height} rows are more rows than a raster has", windows.len());
        Ok((width, rows.ok_or_else(|| Error::usage(detail()))?))
    }

    /// Whether the CPU may decode what the GPU does not.
    fn may_help(&self) -> bool {
        self.device.mode.unwrap_or(Mode::Cuda) != Mode::Cuda || self.device.cpu_decode.unwrap_or(false)
    }

    /// Whether the first stored tile begins as an LZ4 frame does. All tiles of a file are written alike.
    fn is_framed(&self, rows: &[plan::Row]) -> Result<bool, Error> {
        const FRAME: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
        let mut start = [0; 4];
        let first = rows.iter().flat_map(|row| &row.units).find(|unit| unit.stream_len() >= FRAME.len() as u64);
        if let Some(unit) = first {
            self.dataset.fetch.source.read_at(unit.range.start, &mut start)?;
        }
        Ok(start == FRAME)
    }

    fn try_way(
        &self,
        options: &ReadOptions,
        gpu: &Arc<Gpu>,
        windows: &[Window],
        budget: u64,
        way: Way,
        mut notices: Vec<String>,
    ) -> Result<DeviceRaster, Error> {
        let dataset = self.dataset;
        let image = self.image;
        let host = image.host(&dataset.registry, &dataset.limits)?;
        let (width, height) = self.output_size(windows)?;
        let cuts = (way == Way::DeflatePieces)
            .then(|| Cuts::find(image, plan::runs(image, windows, &self.bands), &dataset.fetch))
            .flatten();
        let way = if way == Way::DeflatePieces && cuts.is_none() { Way::Deflate } else { way };
        let told = notices.len();
        let wanted =
            Wanted { image, host, fetch: &dataset.fetch, windows, bands: &self.bands, way, cuts: cuts.as_ref() };
        let rows = wanted.rows()?;
        let unread = match way {
            Way::Lz4 if self.is_framed(&rows)? => Some("tiles are LZ4 frames, and nvCOMP reads bare blocks"),
            Way::Zstd if wanted.largest() > rule::MOST_ZSTD_TILE => {
                Some("Zstd tiles of more than 1 GiB are not decoded on the GPU")
            }
            _ => None,
        };
        if let Some(reason) = unread {
            if !self.may_help() {
                let detail = format!("{reason}; the device auto lets the CPU decode them");
                return Err(DeviceError::Declined(detail).into());
            }
            notices.push(format!("tiles are decoded by the CPU into pinned memory: {reason}"));
            return self.try_way(options, gpu, windows, budget, Way::Host, notices);
        }
        let columns = rows.iter().flat_map(plan::Row::placements).map(|place| place.from.0 + place.size.0).max();
        rule::check_columns(host.spec(), columns.unwrap_or(0))?;
        let tiles: usize = rows.iter().map(|row| row.units.len()).sum();
        let output = Output {
            width,
            height,
            bands: self.bands.len() as u32,
            sample_len: image.layout.sample.size(),
            pixel_interleaved: options.interleave == Interleave::Pixel,
        };
        let plan = Plan {
            spec: Arc::new(host.spec().clone()),
            way,
            output,
            samples: wanted.samples(),
            fill: dataset.fill_sample(image)?,
            largest: wanted.largest(),
            timed: self.device.timed.unwrap_or(false),
        };
        let fixed = Decoder::fixed_bytes(&plan, tiles as u64);
        let bands = plan::deal(&rows, budget, fixed)?;
        let decoder = Decoder::new(gpu, plan.clone(), tiles, bands.room, bands.halves)?;
        let direct =
            if way.uploads_streams() { direct(dataset.fetch.source.as_file(), gpu, &mut notices) } else { None };
        let job = run::Job {
            fetch: &dataset.fetch,
            image,
            host,
            threads: options.threads.or(dataset.threads).unwrap_or_else(schedule::cores),
            cancel: options.cancel.as_ref(),
            remarks: &dataset.remarks,
            direct: direct.as_ref(),
            jpeg_tables: match (way, &image.layout.jpeg_tables) {
                (Way::Jpeg, Some(field)) => worker::table_segments(field),
                _ => Vec::new(),
            },
        };
        let refused = run::run(&job, &decoder, &plan, &rows, &bands)?;
        if way == Way::DeflatePieces && !refused.is_empty() {
            // Whoever changes a file of ours without knowing that tag leaves sound tiles behind: only what is refused
            // whole is damaged or unusual.
            notices.truncate(told);
            let spent = decoder.counters();
            drop(decoder);
            let mut raster = self.try_way(options, gpu, windows, budget, Way::Deflate, notices)?;
            raster.report.add(&DeviceReport { counters: spent, ..DeviceReport::default() });
            return Ok(raster);
        }
        let may_help = self.may_help();
        if let (true, Some(first)) = (may_help, refused.get(MOST_HELPED)) {
            // All threads at once are better than one tile after the other, unless the file is damaged: then the first of them
            // says so.
            for tile in refused.iter().take(MOST_HELPED + 1) {
                worker::decode_refused(&job, tile)?;
            }
            notices.push(format!(
                "tiles are decoded by the CPU into pinned memory: the GPU's decoder refused many ({})",
                first.reason
            ));
            let spent = decoder.counters();
            drop(decoder);
            let mut raster = self.try_way(options, gpu, windows, budget, Way::Host, notices)?;
            raster.report.add(&DeviceReport { counters: spent, ..DeviceReport::default() });
            return Ok(raster);
        }
        let mut helped = 0;
        for tile in &refused {
            if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
            // The CPU words the error where there is one, so users meet one set of messages.
            let samples = worker::decode_refused(&job, tile)?;
            if !may_help {
                return Err(refusal(tile).at(&swath_tiff::Place {
                    offset: Some(tile.unit.range.start),
                    ..image.place_of(tile.unit.index)
                }));
            }
            decoder.patch(&samples, &tile.unit.placements)?;
            helped += 1;
        }
        if let Some(first) = refused.iter().find(|tile| !tile.damaged) {
            notices
                .push(format!("some tiles were decoded by the CPU: the GPU's decoder refused them ({})", first.reason));
        }
        let damaged = refused.iter().filter(|tile| tile.damaged).count();
        if damaged > 0 {
            notices.push(format!(
                "{damaged} tiles are damaged, which the CPU's decoder, that read them, does not notice: their samples \
                 are most likely wrong"
            ));
        }
        if way == Way::Jpeg && helped < tiles as u64 {
            notices.push("JPEG tiles are decoded by nvJPEG, whose samples may differ from the CPU's by up to 2".into());
        }
        if decoder.has_loss() {
            let detail = "JPEG 2000 tiles are stored with loss, and nvJPEG2000 may round them otherwise than the CPU";
            notices.push(detail.into());
        }
        let storage = match &direct {
            _ if way.decodes_from_host() => "host memory",
            Some(direct) => direct.storage(),
            None => PINNED,
        };
        notices.extend(direct.as_ref().and_then(Direct::notice));
        notices.extend(gpu.take_notice());
        let kernels = if plan.timed { Some(decoder.times()?) } else { None };
        let (buffer, ready, counters) = decoder.into_output()?;
        let on_host = if way == Way::Host { tiles as u64 } else { helped };
        Ok(DeviceRaster {
            gpu: gpu.clone(),
            buffer,
            ready,
            sample: image.layout.sample,
            width,
            height,
            bands: self.bands.len() as u32,
            interleave: options.interleave,
            report: DeviceReport {
                device: gpu.facts().name.clone(),
                counters,
                device_tiles: tiles as u64 - on_host,
                host_tiles: on_host,
                pieces: rows.iter().flat_map(|row| &row.units).map(|unit| unit.pieces() as u64).sum(),
                bands: bands.bands.len() as u32,
                storage,
                notices,
                kernels,
            },
        })
    }
}

/// Tiles that a library refused and that are then decoded one by one; with more, the CPU decodes all of them.
const MOST_HELPED: usize = 8;

/// The file as one that cuFile reads, where that is better or was asked for.
fn direct(file: Option<&File>, gpu: &Gpu, notices: &mut Vec<String>) -> Option<Direct> {
    match gpu.direct_file(file?) {
        Ok(file) => Some(Direct::new(file?)),
        Err(error) => {
            notices.push(format!("cuFile was asked for and is not used: {error}"));
            None
        }
    }
}

/// A tile that the device refuses and the CPU reads.
fn refusal(tile: &run::Refused<'_>) -> Error {
    let reason = &tile.reason;
    Error::from(DeviceError::Declined(if tile.damaged {
        "this tile is damaged, which the CPU's decoder does not notice: get the file again; with the device auto, the CPU \
         gives samples that are most likely wrong"
            .into()
    } else {
        format!("the GPU's decoder refused this tile ({reason}), and the CPU's reads it: the device auto lets it help")
    }))
}

/// How tiles get to the device: by a kernel, or, where that is allowed, decoded by the CPU.
fn choose_way(
    spec: &swath_codec::TileSpec,
    gpu: &Gpu,
    mode: Mode,
    device: &DeviceOptions,
    notices: &mut Vec<String>,
) -> Result<Way, DeviceError> {
    if mode == Mode::Cpu {
        return Ok(Way::Host);
    }
    let mut declined = match Way::on_device(spec) {
        Ok(way) => return Ok(way),
        Err(error) => error.to_string(),
    };
    match Way::by_nvcomp(spec) {
        Ok(way) if device.trust_input.unwrap_or(false) => match gpu.has_nvcomp() {
            Ok(()) => return Ok(way),
            Err(absent) => declined = format!("{declined} without nvCOMP ({absent})"),
        },
        Ok(_) => {
            declined += " unless its input is trusted (trust_input): NVIDIA's decoder can hang on damaged streams";
        }
        Err(_) => {}
    }
    if matches!(spec.compression, Compression::Jpeg | Compression::Jpeg2000) {
        match by_picture_library(spec, gpu) {
            Ok(way) => return Ok(way),
            Err(reason) => declined = reason,
        }
    }
    let reason = declined;
    if mode == Mode::Cuda && !device.cpu_decode.unwrap_or(false) {
        return Err(DeviceError::Declined(format!("{reason}; the device auto lets the CPU decode it")));
    }
    notices.push(format!("tiles are decoded by the CPU into pinned memory: {reason}"));
    Ok(Way::Host)
}

/// nvJPEG or nvJPEG2000, where it reads such tiles and is there; else why not.
fn by_picture_library(spec: &swath_codec::TileSpec, gpu: &Gpu) -> Result<Way, String> {
    let way = Way::by_picture_library(spec).map_err(|error| error.to_string())?;
    let (name, found) = match way {
        Way::Jpeg => ("nvJPEG", gpu.has_nvjpeg()),
        _ => ("nvJPEG2000", gpu.has_nvjpeg2000()),
    };
    found.map_err(|absent| format!("{} is not decoded on the GPU without {name} ({absent})", spec.compression))?;
    Ok(way)
}

impl Error {
    /// Whether a smaller window might fit.
    fn is_out_of_device_memory(&self) -> bool {
        matches!(self.kind(), ErrorKind::Device(error) if error.is_out_of_memory())
    }

    /// Whether the driver ran out, as opposed to the budget.
    fn is_driver_out_of_memory(&self) -> bool {
        matches!(self.kind(), ErrorKind::Device(error @ DeviceError::Call { .. }) if error.is_out_of_memory())
    }
}
