//! Chooses the predictor by the samples. The best one differs from raster to raster, and is worth up to a third of the file.
//!
//! The choice looks at the first rows that are not all of one pixel value, as many as a row of tiles has. It compresses excerpts from all
//! over them with every predictor and takes the one that makes them smallest. So it is the same however rows are pushed, and whatever
//! encodes them.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use swath_codec::{
    TileSpec,
    encode::Settings,
    host::encode::HostEncoder,
    pre::{Arrangement, Edge, ImageRows, cut},
    scratch::Scratch,
};
use swath_raster::memory;
use swath_tiff::{
    Compression, Grid, Limits, Window,
    structure::{Layout, Planar, Predictor},
};

use super::{
    input::{Pushed, Rows},
    layout::{candidates, main_layout},
    options::{Shape, WriteOptions, changes, nodata_of},
    row_store::RowStore,
    step::{copy_rows, no_whole_tile},
};
use crate::{error::Error, metadata::Metadata, names::PredictorRule, raster::Interleave, threads::cores};

/// Rows from the top within which the choice looks for a row that differs. Where there is none, the sample type decides.
const SEARCHED_ROWS: u32 = 4096;
/// Places of the first rows among which the choice picks excerpts that are not constant.
const PLACES: u64 = 127;
/// Most excerpts that every predictor is tried on.
const EXCERPTS: usize = 8;
/// Bytes of the sample for each excerpt, up to that number of excerpts.
const EXCERPT_LEN: usize = 64 << 10;
/// Most rows of an excerpt.
const EXCERPT_ROWS: usize = 256;
/// The sample is one part in this many of the image, within the limits below.
const FRACTION: usize = 12;
/// Least bytes of the sample, where the image has as many.
const LEAST_SAMPLED: usize = 16 << 10;
/// Most bytes of the sample.
const MOST_SAMPLED: usize = 4 << 20;
/// Most rows of an excerpt in which changes from pixel to pixel are counted.
const ROWS_LOOKED_AT: u32 = 32;
/// Excerpts with fewer changes from pixel to pixel than this part of those of the busiest excerpt are left out.
const LEAST_BUSY: f64 = 0.5;
/// What a predictor must save on the sample to replace the usual one, as a part of its own compressed size: later rows may differ from
/// the first.
const LEAST_GAIN: f64 = 0.04;
/// The highest Zstd level at which the sample is compressed.
const MOST_ZSTD_LEVEL: u32 = 5;
/// Most bytes of the rows that the choice takes its sample from. Where a single row is longer, the sample type decides.
const WINDOW_LEN: usize = 24 << 20;
/// Bytes of rows that are copied at a time, or a row where that is longer.
pub(super) const PORTION_LEN: usize = 1 << 20;

/// Whether the choice looks at samples: the options ask for it, there is more than one candidate, and rows are short enough.
fn looks_at_samples(layout: &Layout, options: &WriteOptions) -> bool {
    let by_samples = options.predictor == PredictorRule::BySamples;
    by_samples && candidates(layout).len() > 1 && row_len(layout) <= WINDOW_LEN
}

/// Bytes of a row of all bands.
fn row_len(layout: &Layout) -> usize {
    layout.width as usize * usize::from(layout.samples) * layout.sample.size()
}

/// Rows that are enough to choose, unless they are constant.
fn window_rows(layout: &Layout) -> u32 {
    let most = (WINDOW_LEN / row_len(layout).max(1)).clamp(1, WINDOW_LEN) as u32;
    // Strips may have a single row.
    layout.tile_height.max(64).min(most).min(layout.height)
}

/// Bytes of a row of all bands, and of its mask.
fn masked_row_len(layout: &Layout, options: &WriteOptions) -> usize {
    row_len(layout) + if options.mask { layout.width as usize } else { 0 }
}

/// Most bytes of rows that wait for the choice of this file.
pub(super) fn choice_len(layout: &Layout, options: &WriteOptions) -> u64 {
    if !looks_at_samples(layout, options) {
        return 0;
    }
    masked_row_len(layout, options) as u64 * u64::from(window_rows(layout))
}

/// Most bytes of rows that are copied at a time on their way to or from those that wait.
pub(super) fn portion_len(layout: &Layout, options: &WriteOptions) -> u64 {
    choice_len(layout, options).min(masked_row_len(layout, options).max(PORTION_LEN) as u64)
}

/// Chooses the predictor of a file from its first rows, for callers that encode tile rows of it in several processes: they set it by
/// [`WriteOptions::with_predictor`]. A [`Writer`](crate::Writer) of rows or blocks makes the same choice by itself.
///
/// ```
/// # fn main() -> Result<(), swath::Error> {
/// use swath::{
///     Metadata, Rows, SampleType, Shape, WriteOptions,
///     write::{PredictorChoice, PredictorRule},
/// };
///
/// let shape = Shape { width: 256, height: 256, bands: 1, sample: SampleType::U16 };
/// let options = WriteOptions::default().with_predictor_rule(PredictorRule::BySamples);
/// let mut choice = PredictorChoice::new(shape, &Metadata::default(), &options)?;
/// let ramp: Vec<u16> = (0..256 * 256).map(|at| (at % 256 * 7) as u16).collect();
/// let predictor = choice.push(&Rows::pixels(&ramp))?;
/// assert!(predictor.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PredictorChoice {
    shape: Shape,
    masked: bool,
    layout: Layout,
    options: WriteOptions,
    /// The value that replaces NaN before rows are encoded.
    nodata: Option<Vec<u8>>,
    /// Rows at the top that all hold one pixel value.
    constant: Option<ConstantRows>,
    /// The rows below them, until there are enough.
    held: RowStore,
    seen: u32,
    chosen: Option<Predictor>,
    /// Whether predictors were compared.
    compared: bool,
    /// Threads that compress the sample.
    threads: usize,
}

/// A file whose predictor is not chosen yet.
#[derive(Debug)]
pub(super) struct Undecided {
    pub choice: PredictorChoice,
    /// To plan the file again.
    pub metadata: Metadata,
}

/// How far the choice of a file's predictor is.
#[derive(Debug)]
pub(super) enum ChoiceState {
    /// It needs more samples.
    Open(Box<Undecided>),
    /// The predictor is chosen.
    Made { by_samples: bool },
}

impl Default for ChoiceState {
    /// The choice of the options, or of the sample type.
    fn default() -> Self {
        Self::Made { by_samples: false }
    }
}

impl ChoiceState {
    pub(super) fn new(choice: PredictorChoice, metadata: &Metadata) -> Self {
        match choice.chosen {
            None => Self::Open(Box::new(Undecided { choice, metadata: metadata.clone() })),
            Some(_) => Self::default(),
        }
    }

    /// The choice, where it is not made yet.
    pub(super) fn open(&self) -> Option<&Undecided> {
        match self {
            Self::Open(undecided) => Some(undecided),
            Self::Made { .. } => None,
        }
    }

    /// Takes the choice out, to continue or to end it.
    pub(super) fn take_open(&mut self) -> Option<Box<Undecided>> {
        match std::mem::take(self) {
            Self::Open(undecided) => Some(undecided),
            made @ Self::Made { .. } => {
                *self = made;
                None
            }
        }
    }

    /// Whether the samples decided the predictor.
    pub(super) fn is_by_samples(&self) -> bool {
        matches!(self, Self::Made { by_samples: true })
    }
}

/// Rows of one pixel value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConstantRows {
    /// The samples of all bands.
    pixel: Vec<u8>,
    mask: Option<u8>,
    pub rows: u32,
}

impl ConstantRows {
    /// Writes `rows` such rows into buffers, pixel by pixel.
    pub(super) fn fill(&self, rows: u32, width: u32, samples: &mut Vec<u8>, mask: &mut Vec<u8>) -> Result<(), Error> {
        let pixels = rows as usize * width as usize;
        samples.clear();
        memory::resize(samples, pixels * self.pixel.len())?;
        samples.chunks_exact_mut(self.pixel.len().max(1)).for_each(|pixel| pixel.copy_from_slice(&self.pixel));
        mask.clear();
        if let Some(value) = self.mask {
            memory::resize(mask, pixels)?;
            mask.fill(value);
        }
        Ok(())
    }

    /// These rows, as [`ConstantRows::fill`] wrote them.
    pub(super) fn as_rows<'a>(&self, samples: &'a [u8], mask: &'a [u8]) -> Rows<'a> {
        let rows = Rows::from_bytes(samples, Interleave::Pixel);
        if self.mask.is_some() { rows.with_mask(mask) } else { rows }
    }
}

impl PredictorChoice {
    /// Begins the choice for a file.
    ///
    /// # Errors
    /// When the options contradict the shape.
    pub fn new(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<Self, Error> {
        let layout = main_layout(shape, metadata, options)?;
        let chosen = (!looks_at_samples(&layout, options)).then_some(layout.predictor);
        Ok(Self {
            shape,
            masked: options.mask,
            layout,
            options: options.clone(),
            nodata: nodata_of(metadata, shape).filter(|nodata| changes(options, shape, Some(nodata))),
            constant: None,
            held: RowStore::default(),
            seen: 0,
            chosen,
            compared: false,
            threads: options.threads.unwrap_or_else(cores),
        })
    }

    /// Sets how many threads compress the sample: as many as the memory of the writer is enough for. The choice does not depend on it.
    pub(super) fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    /// Looks at further rows of the image, from the top. Returns the predictor once it is chosen; later rows do not change it.
    ///
    /// # Errors
    /// When these are not whole rows, or a sample cannot be compressed.
    pub fn push(&mut self, rows: &Rows<'_>) -> Result<Option<Predictor>, Error> {
        let pushed = Pushed::new(rows, self.shape, self.masked)?;
        self.look_at(&pushed)?;
        Ok(self.chosen)
    }

    /// Returns the predictor, if it is chosen.
    pub fn chosen(&self) -> Option<Predictor> {
        self.chosen
    }

    /// Whether the samples decided: predictors were compared. Otherwise the sample type or the caller did.
    pub(super) fn compared(&self) -> bool {
        self.compared
    }

    /// Rows that are enough to choose, unless they are constant: as many are best pushed at a time.
    pub fn rows_at_once(&self) -> u32 {
        window_rows(&self.layout)
    }

    /// Rows that were seen before the predictor was chosen.
    pub(super) fn seen(&self) -> u32 {
        self.seen
    }

    /// Looks at rows until the predictor is chosen. Returns how many of them it kept: those are in [`PredictorChoice::into_kept`].
    pub(super) fn look_at(&mut self, pushed: &Pushed<'_>) -> Result<u32, Error> {
        let Some(nodata) = self.nodata.clone() else { return self.look_at_samples(pushed) };
        let portion = (PORTION_LEN / self.plane_row_lens().iter().sum::<usize>().max(1)).clamp(1, PORTION_LEN) as u32;
        let mut kept = 0;
        while self.chosen.is_none() && kept < pushed.rows {
            let more = portion.min(pushed.rows - kept);
            let Shape { width, bands, sample, .. } = self.shape;
            let mut store = RowStore::new(self.plane_row_lens(), more)?;
            copy_rows(pushed, kept..kept + more, width, bands, sample, Some(&nodata), &mut store)?;
            store.grow(more)?;
            kept += self.look_at_samples(&Pushed {
                planes: store.split().0,
                arrangement: Arrangement::Planes,
                rows: more,
            })?;
        }
        Ok(kept)
    }

    /// Bytes of a row of each band, and of the mask.
    fn plane_row_lens(&self) -> Vec<usize> {
        let band = self.shape.width as usize * self.shape.sample.size();
        let mut planes = vec![band; self.shape.bands.into()];
        planes.extend(self.masked.then_some(self.shape.width as usize));
        planes
    }

    /// The same, of rows as they are encoded: NaN is already replaced.
    pub(super) fn look_at_samples(&mut self, pushed: &Pushed<'_>) -> Result<u32, Error> {
        if self.chosen.is_some() || pushed.rows == 0 {
            return Ok(0);
        }
        let kept = if self.held.count == 0 { self.skip_constant(pushed)? } else { 0 };
        let window = self.rows_at_once();
        let (rest, ends) = (pushed.rows - kept, self.seen + (pushed.rows - kept) >= self.shape.height);
        if self.chosen.is_some() || rest == 0 {
            return Ok(kept);
        }
        if self.held.count == 0 && (rest >= window || ends) {
            let part = pushed.part(kept..kept + rest.min(window), self.shape)?;
            self.decide(&part)?;
            return Ok(kept);
        }
        if self.held.count == 0 {
            self.held = RowStore::new(self.plane_row_lens(), window)?;
        }
        let more = rest.min(window - self.held.count);
        let Shape { width, bands, sample, .. } = self.shape;
        copy_rows(pushed, kept..kept + more, width, bands, sample, None, &mut self.held)?;
        self.held.grow(more)?;
        self.seen += more;
        if self.held.count == window || self.seen >= self.shape.height {
            let mut held = std::mem::take(&mut self.held);
            let (rows, (planes, _)) = (held.count, held.split());
            self.decide(&Pushed { planes, arrangement: Arrangement::Planes, rows })?;
            self.held = held;
        }
        Ok(kept + more)
    }

    /// Passes the first rows as long as they continue the constant ones at the top. Returns how many did. Where there are too many, the
    /// sample type decides.
    pub(super) fn skip_constant(&mut self, pushed: &Pushed<'_>) -> Result<u32, Error> {
        let skipped = self.count_constant(pushed)?;
        self.seen += skipped;
        let constant = self.constant.as_ref().map_or(0, |constant| constant.rows);
        if constant >= SEARCHED_ROWS.min(self.shape.height) {
            self.chosen = Some(self.layout.predictor);
        }
        Ok(skipped)
    }

    /// Returns the rows that were kept: those of one value, and those below.
    pub(super) fn into_kept(self) -> (Option<ConstantRows>, RowStore) {
        (self.constant, self.held)
    }

    /// Counts the first rows that continue the constant ones.
    fn count_constant(&mut self, pushed: &Pushed<'_>) -> Result<u32, Error> {
        let row_lens = pushed.row_lens(self.shape);
        let size = self.shape.sample.size();
        let together = usize::from(self.shape.bands) * size;
        let pixel_lens = pushed.planes.iter().enumerate().map(|(plane, _)| match pushed.arrangement {
            Arrangement::Pixels if plane == 0 => together,
            Arrangement::Planes if plane < usize::from(self.shape.bands) => size,
            _ => 1,
        });
        let planes: Vec<(&[u8], usize, usize)> = pushed
            .planes
            .iter()
            .zip(row_lens)
            .zip(pixel_lens)
            .map(|((plane, row), pixel)| (*plane, row, pixel))
            .collect();
        let first: Vec<u8> = planes.iter().flat_map(|(plane, _, pixel)| plane.iter().take(*pixel)).copied().collect();
        let mut pixel = first;
        let mask = if self.masked { pixel.pop() } else { None };
        let known = self.constant.get_or_insert_with(|| ConstantRows { pixel: pixel.clone(), mask, rows: 0 });
        if known.pixel != pixel || known.mask != mask {
            return Ok(0);
        }
        let mut rows = 0;
        let most = SEARCHED_ROWS - known.rows.min(SEARCHED_ROWS);
        while rows < pushed.rows.min(most) {
            let mut is_constant = true;
            for (plane, row_len, pixel) in &planes {
                let start = rows as usize * row_len;
                let row = plane.get(start..start + row_len);
                let row =
                    row.ok_or_else(|| Error::internal(format!("row {rows} is not among those that were pushed")))?;
                is_constant &= row.get(..*pixel) == plane.get(..*pixel) && is_of_one_pixel(row, *pixel);
            }
            if !is_constant {
                break;
            }
            rows += 1;
        }
        known.rows += rows;
        Ok(rows)
    }

    /// Chooses the predictor by these rows.
    fn decide(&mut self, rows: &Pushed<'_>) -> Result<(), Error> {
        let excerpts = self.excerpts(rows)?;
        self.compared = !excerpts.is_empty();
        self.chosen = Some(if self.compared { self.smallest(rows, &excerpts)? } else { self.layout.predictor });
        Ok(())
    }

    /// Compresses excerpts of these rows with each predictor. Returns the one that makes them smallest.
    fn smallest(&self, rows: &Pushed<'_>, excerpts: &[Excerpt]) -> Result<Predictor, Error> {
        let candidates = candidates(&self.layout);
        let usual = self.layout.predictor;
        let settings = sample_settings(&self.layout, &self.options.settings);
        let mut hosts = Vec::new();
        for predictor in candidates {
            let layout = Layout { predictor: *predictor, ..self.layout.clone() };
            let spec = Arc::new(TileSpec::new(&layout, Limits::none())?);
            hosts.push(HostEncoder::new(spec, &settings, &self.options.registry)?);
        }
        let mut jobs: Vec<(usize, &HostEncoder, &Excerpt)> = Vec::new();
        for excerpt in excerpts {
            jobs.extend(hosts.iter().enumerate().map(|(candidate, host)| (candidate, host, excerpt)));
        }
        let sizes = self.compress_all(rows, &jobs)?;
        let mut best = (usual, f64::INFINITY);
        for (candidate, predictor) in candidates.iter().enumerate() {
            let own = jobs.iter().zip(&sizes).filter(|((of, ..), _)| *of == candidate);
            let sum = own.map(|(_, size)| *size).sum::<usize>() as f64;
            // The usual one comes first. Another has to save enough to be worth it.
            let size = if *predictor == usual { sum } else { sum * (1.0 + LEAST_GAIN) };
            if size < best.1 {
                best = (*predictor, size);
            }
        }
        Ok(best.0)
    }

    /// Returns the compressed size of each excerpt.
    fn compress_all(&self, rows: &Pushed<'_>, jobs: &[(usize, &HostEncoder, &Excerpt)]) -> Result<Vec<usize>, Error> {
        let threads = self.threads.clamp(1, jobs.len().max(1));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            let (mut tile, mut encoded, mut scratch) = (Vec::new(), Vec::new(), Scratch::default());
            while let Some((number, (_, host, excerpt))) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(number).map(|job| (number, job))
            } {
                self.cut(rows, excerpt, host.edge(), &mut tile)?;
                encoded.clear();
                host.encode(excerpt.window.height, &mut tile, &mut encoded, &mut scratch)?;
                done.push((number, encoded.len()));
            }
            Ok::<_, Error>(done)
        };
        let mut sizes = vec![None; jobs.len()];
        let parts = run_beside(threads, work)?;
        for (number, size) in parts.into_iter().flatten() {
            if let Some(place) = sizes.get_mut(number) {
                *place = Some(size);
            }
        }
        let missing = || Error::internal("an excerpt of the sample was not compressed");
        sizes.into_iter().map(|size| size.ok_or_else(missing)).collect()
    }

    /// Picks excerpts that are not constant, evenly spread.
    fn excerpts(&self, rows: &Pushed<'_>) -> Result<Vec<Excerpt>, Error> {
        let Shape { width, height, bands, sample } = self.shape;
        let grid = Grid::new(&self.layout).map_err(|error| Error::usage(error.to_string()))?;
        let apart = self.layout.planar == Planar::Separate && bands > 1;
        let pixel = sample.size() * if apart { 1 } else { usize::from(bands) };
        let line_len = self.layout.tile_width as usize * pixel;
        let wanted =
            (row_len(&self.layout).saturating_mul(height as usize) / FRACTION).clamp(LEAST_SAMPLED, MOST_SAMPLED);
        let count = (wanted / EXCERPT_LEN).clamp(1, EXCERPTS);
        let most_rows = EXCERPT_ROWS.min(self.layout.tile_height as usize);
        let excerpt_rows = (wanted / count / line_len.max(1)).clamp(1, most_rows) as u32;
        let down = rows.rows.div_ceil(excerpt_rows.max(1));
        let places = u64::from(down) * u64::from(grid.across);
        let looked_at = places.min(PLACES);
        let mut found = Vec::new();
        let mut tile = Vec::new();
        for nth in 0..looked_at {
            let place = nth * places / looked_at.max(1);
            let (x, y) = (
                (place % u64::from(grid.across)) as u32 * self.layout.tile_width,
                (place / u64::from(grid.across)) as u32 * excerpt_rows,
            );
            let (columns, rows_here) = ((width - x).min(self.layout.tile_width), (rows.rows - y).min(excerpt_rows));
            // With bands apart, excerpts take turns.
            let band = (found.len() % usize::from(bands)) as u16;
            let bands = if apart { band..band + 1 } else { 0..bands };
            let excerpt = Excerpt { window: Window::new(x, y, columns, rows_here), bands };
            let (changes, pixels) = self.changes(rows, &excerpt, pixel, &mut tile)?;
            if changes > 0 {
                found.push((excerpt, changes as f64 / pixels as f64));
            }
        }
        // Margins without data at the top are not what the file is made of.
        let busiest = found.iter().map(|(_, busy)| *busy).fold(0.0, f64::max);
        found.retain(|(_, busy)| *busy >= busiest * LEAST_BUSY);
        let found: Vec<Excerpt> = found.into_iter().map(|(excerpt, _)| excerpt).collect();
        let count = count.min(found.len());
        let missing = || Error::internal("there are fewer excerpts of the sample than counted");
        let nth_excerpt = |nth| found.get((2 * nth + 1) * found.len() / (2 * count)).cloned().ok_or_else(missing);
        (0..count).map(nth_excerpt).collect()
    }

    /// Counts the pixels of some rows of an excerpt that differ from the one before them, and all pixels of these rows.
    fn changes(
        &self,
        rows: &Pushed<'_>,
        excerpt: &Excerpt,
        pixel: usize,
        tile: &mut Vec<u8>,
    ) -> Result<(usize, usize), Error> {
        let Window { x, y, width, height } = excerpt.window;
        let (mut changes, mut pixels) = (0, 0);
        let mut last = Vec::new();
        for row in (y..y + height).step_by(height.div_ceil(ROWS_LOOKED_AT).max(1) as usize) {
            let line = Excerpt { window: Window::new(x, row, width, 1), bands: excerpt.bands.clone() };
            self.cut(rows, &line, Edge::RepeatColumns, tile)?;
            let is_other = !last.is_empty() && !tile.starts_with(&last);
            changes += changes_of(tile, pixel) + usize::from(is_other);
            pixels += tile.len() / pixel.max(1);
            last.clear();
            last.extend_from_slice(tile.get(tile.len().saturating_sub(pixel)..).unwrap_or_default());
        }
        Ok((changes, pixels))
    }

    fn cut(&self, rows: &Pushed<'_>, excerpt: &Excerpt, edge: Edge, tile: &mut Vec<u8>) -> Result<(), Error> {
        let Shape { width, bands, sample, .. } = self.shape;
        let pixel = sample.size() * excerpt.bands.len();
        tile.clear();
        memory::resize(tile, self.layout.tile_width as usize * excerpt.window.height as usize * pixel)?;
        let view = ImageRows {
            planes: &rows.planes,
            arrangement: rows.arrangement,
            bands,
            size: sample.size(),
            width,
            first: 0,
        };
        if !cut(&view, excerpt.window, excerpt.bands.clone(), self.layout.tile_width, edge, tile) {
            return Err(no_whole_tile());
        }
        Ok(())
    }
}

/// The settings with which the sample is compressed. Predictors rank alike at low levels, which take a fifth of the time or less: a GPU
/// writes hundreds of megabytes while the CPU compresses a sample at Zstd level 9.
fn sample_settings(layout: &Layout, settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    if layout.compression == Compression::Zstd {
        settings.level = Some(settings.level.map_or(MOST_ZSTD_LEVEL, |level| level.min(MOST_ZSTD_LEVEL)));
    }
    settings
}

/// Whether every pixel of `pixel` bytes equals the one before it.
fn is_of_one_pixel(pixels: &[u8], pixel: usize) -> bool {
    pixels.get(pixel..).is_none_or(|later| pixels.starts_with(later))
}

/// How many pixels of `pixel` bytes differ from the one before them.
fn changes_of(pixels: &[u8], pixel: usize) -> usize {
    // The compiler turns comparisons of a known length into vector instructions: 8 million pixels take 2 ms, not 17.
    match pixel {
        1 => count_changes::<1>(pixels),
        2 => count_changes::<2>(pixels),
        3 => count_changes::<3>(pixels),
        4 => count_changes::<4>(pixels),
        6 => count_changes::<6>(pixels),
        8 => count_changes::<8>(pixels),
        12 => count_changes::<12>(pixels),
        16 => count_changes::<16>(pixels),
        _ => {
            let later = pixels.get(pixel..).unwrap_or_default();
            pixels.chunks_exact(pixel).zip(later.chunks_exact(pixel)).filter(|(one, next)| one != next).count()
        }
    }
}

fn count_changes<const PIXEL: usize>(pixels: &[u8]) -> usize {
    let (pixels, _) = pixels.as_chunks::<PIXEL>();
    pixels.iter().zip(pixels.get(1..).unwrap_or_default()).map(|(one, next)| usize::from(one != next)).sum()
}

/// Runs the same work in this thread and in others, as far as they can be started. Returns the results of all.
fn run_beside<T: Send>(threads: usize, work: impl Fn() -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
    thread::scope(|scope| {
        let start = |_| swath_io::fork::starting(|| thread::Builder::new().spawn_scoped(scope, &work)).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        let join = |other: thread::ScopedJoinHandle<'_, Result<T, Error>>| {
            other.join().unwrap_or_else(|_| Err(Error::internal("a thread that compressed a sample panicked")))
        };
        let others: Vec<_> = others.into_iter().map(join).collect();
        others.into_iter().chain([own]).collect()
    })
}

/// A part of the rows that is compressed like a tile.
#[derive(Debug, Clone)]
struct Excerpt {
    window: Window,
    bands: Range<u16>,
}
