//! Decodes on a GPU by the best decode path, and by the next one where that declines or refuses tiles.

use std::{fs::File, sync::Arc};

use swath_codec::{TileSpec, decode::LZ4_FRAME};
use swath_cuda::{
    DeviceError, Gpu,
    decode::{self, DecodePath, DecodePlan, Decoder, Output},
};
use swath_tiff::{Place, Window};

use super::{
    context::{DeviceReadContext, Refused},
    direct::{Direct, PINNED},
    loader,
    piece_sizes::PieceSizes,
    plan::{self, TileSelection},
    run,
};
use crate::{
    cancel::cancelled,
    device::{DeviceOptions, DeviceReport, Mode},
    error::Error,
    open::image::Image,
    raster::{Interleave, device::DeviceRaster},
    read::{options::ReadOptions, request::Request},
    threads::cores,
};

/// How often a read that the device has no room for is tried again with half the memory.
const RETRIES: u32 = 4;
/// Most tiles that the CPU decodes one by one after the GPU refused them. With more, the CPU decodes all tiles.
const MOST_PATCHED: usize = 8;

/// Returns why a path cannot decode the selected tiles, or `None` where it can.
type Decline = fn(&TileSelection<'_>, &[plan::RowUnits]) -> Result<Option<&'static str>, Error>;

/// What the engine knows of a decode path, beside what swath-cuda knows (`decode/path.rs`). A new path adds its facts to [`facts`].
#[derive(Default)]
struct ReadFacts {
    /// Checks the tiles of a read.
    decline: Option<Decline>,
    /// Returns the segments that each tile needs to be a stream of its own.
    tables: Option<fn(&Image) -> Vec<u8>>,
    /// The path that decodes the whole read again where this one refuses a tile.
    instead: Option<DecodePath>,
    /// Notice for samples that may differ from the CPU's.
    notice: Option<&'static str>,
}

/// Returns the facts about a decode path.
fn facts(path: DecodePath) -> ReadFacts {
    match path {
        DecodePath::Lz4 => ReadFacts { decline: Some(decline_lz4_frames), ..ReadFacts::default() },
        DecodePath::Zstd => ReadFacts { decline: Some(decline_large_zstd), ..ReadFacts::default() },
        // A program that changes one of our files without knowing the tag of pieces leaves sound tiles behind. Only a tile that
        // is refused whole is corrupt or unusual.
        DecodePath::DeflatePieces => ReadFacts { instead: Some(DecodePath::Deflate), ..ReadFacts::default() },
        DecodePath::Jpeg => ReadFacts {
            tables: Some(|image| image.layout.jpeg_tables.as_deref().map_or_else(Vec::new, loader::table_segments)),
            notice: Some("JPEG tiles are decoded by nvJPEG, whose samples may differ from the CPU's by up to 2"),
            ..ReadFacts::default()
        },
        _ => ReadFacts::default(),
    }
}

/// Declines LZ4 frames. It checks the first stored tile, because all tiles of a file are written alike.
fn decline_lz4_frames(tiles: &TileSelection<'_>, rows: &[plan::RowUnits]) -> Result<Option<&'static str>, Error> {
    let mut start = [0; LZ4_FRAME.len()];
    let first = rows.iter().flat_map(|row| &row.units).find(|unit| unit.stream_len() >= start.len() as u64);
    if let Some(unit) = first {
        tiles.fetch.source.read_at(unit.range.start, &mut start)?;
    }
    Ok((start == LZ4_FRAME).then_some("tiles are LZ4 frames, and nvCOMP reads bare blocks"))
}

fn decline_large_zstd(tiles: &TileSelection<'_>, _: &[plan::RowUnits]) -> Result<Option<&'static str>, Error> {
    let large = DecodePath::Zstd.max_tile_len().is_some_and(|most| tiles.largest() > most);
    Ok(large.then_some("Zstd tiles of more than 1 GiB are not decoded on the GPU"))
}

/// Plans a read of few tiles by the path that is faster for them, if there is one and the read fits in one batch with its
/// scratch.
fn for_few(
    selection: TileSelection<'_>,
    plan: &DecodePlan,
    tiles: usize,
    gpu: &Gpu,
    budget: u64,
) -> Result<Option<(DecodePlan, Vec<plan::RowUnits>, plan::Batches)>, Error> {
    let Some(path) = plan.path.for_few(gpu, tiles, plan.largest) else { return Ok(None) };
    let rows = TileSelection { path, ..selection }.rows()?;
    let plan = DecodePlan { path, ..plan.clone() };
    let batches = plan::batches(&rows, budget, Decoder::fixed_bytes(&plan, tiles as u64));
    Ok(batches.ok().filter(|batches| batches.ranges.len() == 1).map(|batches| (plan, rows, batches)))
}

/// How one attempt ended.
enum Outcome {
    Done(DeviceRaster),
    /// The read has to be tried again by another path, with these notices; `spent` is what this attempt cost.
    Retry {
        path: DecodePath,
        notices: Vec<String>,
        spent: DeviceReport,
    },
}

impl Outcome {
    /// Has the CPU decode all tiles, for this reason.
    fn by_host(reason: &str, mut notices: Vec<String>, spent: DeviceReport) -> Self {
        notices.push(format!("tiles are decoded by the CPU into pinned memory: {reason}"));
        Self::Retry { path: DecodePath::Host, notices, spent }
    }
}

impl Request<'_> {
    /// Reads windows of one size, which lie below each other in the result.
    pub(super) fn read_device(
        &self,
        options: &ReadOptions,
        gpu: &Arc<Gpu>,
        windows: &[Window],
    ) -> Result<DeviceRaster, Error> {
        let mut budget = self.device.memory_budget(gpu)?;
        for _ in 0..RETRIES {
            match self.try_paths(options, gpu, windows, budget) {
                // The driver may have less than it said: other processes use the GPU too.
                Err(error) if error.is_driver_out_of_memory() => budget /= 2,
                result => return result,
            }
        }
        self.try_paths(options, gpu, windows, budget)
    }

    /// Tries one decode path after the other, within `budget` bytes of device memory.
    fn try_paths(
        &self,
        options: &ReadOptions,
        gpu: &Arc<Gpu>,
        windows: &[Window],
        budget: u64,
    ) -> Result<DeviceRaster, Error> {
        let host = self.image.host(&self.dataset.registry, &self.dataset.limits)?;
        let mut notices = Vec::new();
        let mut path = match choose_path(host.spec(), gpu, &self.device, &mut notices)? {
            DecodePath::Deflate => DecodePath::DeflatePieces,
            path => path,
        };
        let mut spent_before = DeviceReport::default();
        loop {
            match self.attempt(options, gpu, windows, budget, path, notices)? {
                Outcome::Done(mut raster) => {
                    raster.report.add(&spent_before);
                    return Ok(raster);
                }
                Outcome::Retry { path: next, notices: kept, spent } => {
                    spent_before.add(&spent);
                    (path, notices) = (next, kept);
                }
            }
        }
    }

    /// Columns and rows of windows below each other.
    fn output_size(&self, windows: &[Window]) -> Result<(u32, u32), Error> {
        let (width, height) = windows.first().map_or((0, 0), |window| (window.width, window.height));
        let rows = u32::try_from(windows.len()).ok().and_then(|count| count.checked_mul(height));
        let detail = || format!("{} windows of {height} rows are more rows than a raster has", windows.len());
        Ok((width, rows.ok_or_else(|| Error::usage(detail()))?))
    }

    /// Whether the CPU may decode tiles that the GPU does not.
    fn cpu_may_help(&self) -> bool {
        self.device.mode.unwrap_or(Mode::Cuda) != Mode::Cuda || self.device.cpu_decode.unwrap_or(false)
    }

    /// Decodes the windows by one path.
    fn attempt(
        &self,
        options: &ReadOptions,
        gpu: &Arc<Gpu>,
        windows: &[Window],
        budget: u64,
        path: DecodePath,
        mut notices: Vec<String>,
    ) -> Result<Outcome, Error> {
        let (dataset, image) = (self.dataset, self.image);
        let host = image.host(&dataset.registry, &dataset.limits)?;
        let piece_sizes = (path == DecodePath::DeflatePieces)
            .then(|| PieceSizes::find(image, plan::runs(image, windows, &self.bands), &dataset.fetch))
            .flatten();
        let path = if path == DecodePath::DeflatePieces && piece_sizes.is_none() { DecodePath::Deflate } else { path };
        let facts = facts(path);
        let selection = TileSelection {
            image,
            host,
            fetch: &dataset.fetch,
            windows,
            bands: &self.bands,
            path,
            piece_sizes: piece_sizes.as_ref(),
        };
        let output = self.output(options, windows)?;
        let rows = selection.rows()?;
        let declined = facts.decline.map(|decline| decline(&selection, &rows)).transpose()?.flatten();
        if let Some(reason) = declined {
            if !self.cpu_may_help() {
                let detail = format!("{reason}; the device auto lets the CPU decode them");
                return Err(DeviceError::Declined(detail).into());
            }
            return Ok(Outcome::by_host(reason, notices, DeviceReport::default()));
        }
        let columns = rows.iter().flat_map(plan::RowUnits::placements).map(|place| place.from.0 + place.size.0).max();
        decode::check_columns(host.spec(), columns.unwrap_or(0))?;
        let tiles: usize = rows.iter().map(|row| row.units.len()).sum();
        let plan = DecodePlan {
            spec: Arc::new(host.spec().clone()),
            path,
            output,
            samples: selection.samples(),
            fill: dataset.fill_sample(image)?,
            largest: selection.largest(),
            timed: self.device.timed.unwrap_or(false),
        };
        let batches = plan::batches(&rows, budget, Decoder::fixed_bytes(&plan, tiles as u64))?;
        let (plan, rows, batches) = match for_few(selection, &plan, tiles, gpu, budget)? {
            Some(faster) => faster,
            None => (plan, rows, batches),
        };
        let decoder = Decoder::new(gpu, plan.clone(), tiles, batches.room, batches.halves)?;
        let notices_before = notices.len();
        let direct =
            if path.uploads_streams() { direct(dataset.fetch.source.as_file(), gpu, &mut notices) } else { None };
        let context = DeviceReadContext {
            fetch: &dataset.fetch,
            image,
            host,
            threads: options.threads.or(dataset.threads).unwrap_or_else(cores),
            cancel: options.cancel.as_ref(),
            warnings: &dataset.warnings,
            direct: direct.as_ref(),
            jpeg_tables: facts.tables.map_or_else(Vec::new, |tables| tables(image)),
        };
        let refused = run::run(&context, &decoder, &plan, &rows, &batches)?;
        let spent = || DeviceReport { counters: decoder.counters(), ..DeviceReport::default() };
        if let (Some(path), false) = (facts.instead, refused.is_empty()) {
            notices.truncate(notices_before);
            return Ok(Outcome::Retry { path, notices, spent: spent() });
        }
        if let Some(reason) = self.refused_too_many(&context, &refused)? {
            return Ok(Outcome::by_host(&reason, notices, spent()));
        }
        let patched = self.patch_refused(&context, &decoder, &refused, &mut notices)?;
        if patched < tiles as u64 {
            notices.extend(facts.notice.map(str::to_owned));
        }
        if decoder.has_loss() {
            let detail = "JPEG 2000 tiles are lossy, and nvJPEG2000 may round them differently from the CPU";
            notices.push(detail.into());
        }
        notices.extend(direct.as_ref().and_then(Direct::notice));
        notices.extend(gpu.take_notice());
        let host_tiles = if path == DecodePath::Host { tiles as u64 } else { patched };
        let report = DeviceReport {
            device_tiles: tiles as u64 - host_tiles,
            host_tiles,
            pieces: rows.iter().flat_map(|row| &row.units).map(|unit| unit.pieces() as u64).sum(),
            batches: batches.ranges.len() as u32,
            storage: match &direct {
                _ if path.decodes_from_host() => "host memory",
                Some(direct) => direct.storage(),
                None => PINNED,
            },
            notices,
            ..DeviceReport::default()
        };
        Ok(Outcome::Done(self.raster(gpu, decoder, &plan, options.interleave, report)?))
    }

    /// The output of a read of windows below each other.
    fn output(&self, options: &ReadOptions, windows: &[Window]) -> Result<Output, Error> {
        let (width, height) = self.output_size(windows)?;
        Ok(Output {
            width,
            height,
            bands: self.bands.len() as u32,
            sample_len: self.image.layout.sample.size(),
            pixel_interleaved: options.interleave == Interleave::Pixel,
        })
    }

    /// Takes the decoded samples, and completes the report of the read.
    fn raster(
        &self,
        gpu: &Arc<Gpu>,
        decoder: Decoder,
        plan: &DecodePlan,
        interleave: Interleave,
        report: DeviceReport,
    ) -> Result<DeviceRaster, Error> {
        let kernels = if plan.timed { Some(decoder.times()?) } else { None };
        let (buffer, ready, counters) = decoder.into_output()?;
        let Output { width, height, bands, .. } = plan.output;
        let sample = self.image.layout.sample;
        let report = DeviceReport { device: gpu.facts().name.clone(), counters, kernels, ..report };
        Ok(DeviceRaster { gpu: gpu.clone(), buffer, ready, sample, width, height, bands, interleave, report })
    }

    /// Returns why the CPU should decode all tiles, where the GPU refused more than are worth patching one by one: all threads at
    /// once are faster. If the file is corrupt, one of the first tiles fails on the CPU too, with the error to report.
    fn refused_too_many(
        &self,
        context: &DeviceReadContext<'_>,
        refused: &[Refused<'_>],
    ) -> Result<Option<String>, Error> {
        let (true, Some(first)) = (self.cpu_may_help(), refused.get(MOST_PATCHED)) else { return Ok(None) };
        for tile in refused.iter().take(MOST_PATCHED + 1) {
            loader::decode_refused(context, tile)?;
        }
        Ok(Some(format!("the GPU's decoder refused many ({})", first.reason)))
    }

    /// Has the CPU decode the tiles that the GPU refused, and puts their samples into the result. Returns how many there were.
    fn patch_refused(
        &self,
        context: &DeviceReadContext<'_>,
        decoder: &Decoder,
        refused: &[Refused<'_>],
        notices: &mut Vec<String>,
    ) -> Result<u64, Error> {
        for tile in refused {
            if let Some(error) = cancelled(context.cancel) {
                return Err(error);
            }
            // The CPU words the error where there is one, so users meet one set of messages.
            let samples = loader::decode_refused(context, tile)?;
            if !self.cpu_may_help() {
                let place = self.image.place_of(tile.unit.index);
                return Err(refusal(tile).at(&Place { offset: Some(tile.unit.range.start), ..place }));
            }
            decoder.patch(&samples, &tile.unit.placements)?;
        }
        if let Some(first) = refused.iter().find(|tile| !tile.damaged) {
            notices
                .push(format!("some tiles were decoded by the CPU: the GPU's decoder refused them ({})", first.reason));
        }
        let damaged = refused.iter().filter(|tile| tile.damaged).count();
        if damaged > 0 {
            notices.push(format!(
                "{damaged} tiles are damaged, and the CPU's decoder, which read them, does not notice: their samples \
                 are most likely wrong"
            ));
        }
        Ok(refused.len() as u64)
    }
}

/// Opens the file for cuFile, where that is faster or the caller asked for it.
fn direct(file: Option<&File>, gpu: &Gpu, notices: &mut Vec<String>) -> Option<Direct> {
    match gpu.direct_file(file?) {
        Ok(file) => Some(Direct::new(file?)),
        Err(error) => {
            notices.push(format!("cuFile was requested and is not used: {error}"));
            None
        }
    }
}

/// The error of a tile that the GPU refuses and the CPU decodes.
fn refusal(tile: &Refused<'_>) -> Error {
    let reason = &tile.reason;
    Error::from(DeviceError::Declined(if tile.damaged {
        "this tile is damaged, and the CPU's decoder does not notice: get the file again; with the device auto, the CPU \
         returns samples that are most likely wrong"
            .into()
    } else {
        format!("the GPU's decoder refused this tile ({reason}), but the CPU can decode it: use the device auto")
    }))
}

/// Chooses the path of tiles to the device: decoded by a kernel or a library of the GPU, or, where that is allowed, by the CPU.
fn choose_path(
    spec: &TileSpec,
    gpu: &Gpu,
    device: &DeviceOptions,
    notices: &mut Vec<String>,
) -> Result<DecodePath, DeviceError> {
    let mode = device.mode.unwrap_or(Mode::Cuda);
    if mode == Mode::Cpu {
        return Ok(DecodePath::Host);
    }
    let declined = match DecodePath::choose(spec, gpu, device.trust_input.unwrap_or(false)) {
        Err(DeviceError::Declined(reason)) => reason,
        result => return result,
    };
    if mode == Mode::Cuda && !device.cpu_decode.unwrap_or(false) {
        return Err(DeviceError::Declined(format!("{declined}; the device auto lets the CPU decode it")));
    }
    notices.push(format!("tiles are decoded by the CPU into pinned memory: {declined}"));
    Ok(DecodePath::Host)
}
