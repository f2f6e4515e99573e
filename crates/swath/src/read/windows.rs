//! Reads many windows of one size in one call, as training on chips of a scene does.
//!
//! One thread reads each window: there are many, so threads need not share one. Threads take windows in the order of their tiles, so
//! that windows which share tiles find them in the cache.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use swath_tiff::{Compression, Place, TiffError, Window};

use crate::{
    device::{DeviceReport, Mode},
    error::Error,
    open::dataset::Dataset,
    read::{
        context::ReadContext,
        decode_time,
        options::{ColorView, ReadOptions},
        request::Request,
        schedule,
    },
    threads::cores,
};

/// Least number of times that each thread takes windows. Few times keep neighbours on one thread, many let all threads end together.
const DRAWS: usize = 8;

/// Windows of one size that were checked against the image.
pub(crate) struct WindowSet<'a> {
    /// The read of the first window, as an example of all; of the first pixel where there is no window.
    pub(crate) request: Request<'a>,
    pub(crate) windows: &'a [Window],
    /// Bytes of all windows.
    pub(crate) len: usize,
}

impl Dataset {
    /// Reads many windows of one size into the caller's memory, which must have exactly the size of the result
    /// ([`Dataset::read_windows_len`]): one window after the other, each as [`Dataset::read_into`] gives it. It ignores a
    /// window in the options. Windows may overlap and repeat. Returns the report of the GPU, where the options ask for one.
    ///
    /// # Errors
    /// As [`Dataset::read_into`], and when the windows differ in size.
    pub fn read_windows_into(
        &self,
        options: &ReadOptions,
        windows: &[Window],
        out: &mut [u8],
    ) -> Result<Option<DeviceReport>, Error> {
        let set = self.window_set(options, windows)?;
        let len = set.len;
        if out.len() != len {
            let detail = format!("the buffer has {} bytes, the {} windows have {len}", out.len(), windows.len());
            return Err(Error::usage(detail).in_source(&self.name));
        }
        if windows.is_empty() {
            return Ok(None);
        }
        let report = set.request.dataset.unchanged(set.fill(options, out))?;
        self.add_report(report.as_ref());
        Ok(report)
    }

    /// Bytes that [`Dataset::read_windows_into`] fills: none for no windows.
    ///
    /// # Errors
    /// As [`Dataset::read_windows_into`], without reading a tile.
    pub fn read_windows_len(&self, options: &ReadOptions, windows: &[Window]) -> Result<usize, Error> {
        self.window_set(options, windows).map(|set| set.len)
    }

    /// Checks everything that can be checked before a tile is read.
    pub(crate) fn window_set<'a>(
        &'a self,
        options: &ReadOptions,
        windows: &'a [Window],
    ) -> Result<WindowSet<'a>, Error> {
        // Without a window, bands and directory are checked by the one that every image has.
        let first = windows.first().copied().unwrap_or(Window::new(0, 0, 1, 1));
        let request = self.request(&options.clone().with_window(first))?;
        if options.upright || (options.color == ColorView::Shown && request.image.is_painted()) {
            let detail = "images are turned upright and colours converted for one window at a time: use `read`";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let (image, dataset) = (request.image, request.dataset);
        let check = || {
            let (width, height) = (image.layout.width, image.layout.height);
            let band = if image.grid.planes > 1 { request.bands.iter().copied().max().unwrap_or(0) } else { 0 };
            let mut last_tile = 0;
            for (number, window) in windows.iter().enumerate() {
                if (window.width, window.height) != (first.width, first.height) {
                    return Err(Error::usage(format!(
                        "all windows of one call have one size: window {number} ({window}) differs from the first \
                         ({first})"
                    )));
                }
                if !window.fits(width, height) {
                    let detail = format!("window {number} ({window}) is not inside the image of {width}x{height}");
                    return Err(Error::usage(detail));
                }
                let (columns, rows) = image.grid.span(window);
                let tile = image.grid.index(columns.end.saturating_sub(1), rows.end.saturating_sub(1), band.into());
                last_tile = last_tile.max(tile);
            }
            image.check_tables(last_tile, dataset.fetch.size())?;
            let bytes = request.len as u128 * windows.len() as u128;
            let allowed = dataset.limits.decoded_bytes.min(isize::MAX as u64);
            usize::try_from(bytes).ok().filter(|_| bytes <= u128::from(allowed)).ok_or_else(|| {
                Error::from(TiffError::Limit {
                    what: "decoded size of all windows",
                    asked: u64::try_from(bytes).unwrap_or(u64::MAX),
                    allowed,
                    field: "decoded_bytes",
                    place: Place::default(),
                })
            })
        };
        let len = check().map_err(|error| error.in_ifd(image.index).in_source(&dataset.name))?;
        Ok(WindowSet { request, windows, len })
    }
}

impl WindowSet<'_> {
    /// The windows' numbers, sorted by their first tile and then by their first pixel.
    fn by_place(&self) -> Vec<usize> {
        let grid = &self.request.image.grid;
        let mut order: Vec<usize> = (0..self.windows.len()).collect();
        order.sort_by_cached_key(|number| {
            self.windows.get(*number).map(|window| {
                let (columns, rows) = grid.span(window);
                (rows.start, columns.start, window.y, window.x)
            })
        });
        order
    }

    /// Fills the caller's memory with the CPU or a GPU, as the mode says.
    fn fill(&self, options: &ReadOptions, out: &mut [u8]) -> Result<Option<DeviceReport>, Error> {
        let mode = self.request.device.mode.unwrap_or(Mode::Cpu);
        if mode == Mode::Cpu {
            return self.run(options, out).map(|()| None);
        }
        match self.fill_by_device(options, out) {
            Ok(report) => Ok(Some(report)),
            // As for a single window: errors of the device are a reason to fall back, with a notice.
            Err(error) if mode == Mode::Auto && error.is_device() => {
                self.run(options, out)?;
                let notices = vec![format!("decoded by the CPU: {}", error.kind())];
                Ok(Some(DeviceReport { notices, ..DeviceReport::default() }))
            }
            Err(error) => Err(error),
        }
    }

    fn run(&self, options: &ReadOptions, out: &mut [u8]) -> Result<(), Error> {
        let (image, dataset) = (self.request.image, self.request.dataset);
        let mut run = || {
            let host = image.host(&dataset.registry, &dataset.limits)?;
            let fill = dataset.fill_sample(image)?;
            let count = self.windows.len();
            let threads = options.threads.or(dataset.threads).unwrap_or_else(cores);
            let decoded = match image.layout.compression {
                Compression::None => self.request.len as u64,
                _ => (self.request.len as u64).max(image.tile_len()),
            };
            // The tables of the tiles are not read yet; samples compress to half, say.
            let each = decode_time::nanoseconds(image.layout.compression, decoded / 2, decoded);
            let worth = each.saturating_mul(count as u64) / decode_time::WORTH_A_THREAD;
            // Threads that read a remote file mostly wait, so there are as many as requests in flight.
            let threads = threads.max(dataset.fetch.access.in_flight);
            let worth = if dataset.fetch.access.is_remote() { u64::MAX } else { worth };
            let drawing = threads.min(count).min(usize::try_from(worth).unwrap_or(usize::MAX)).max(1);
            let earlier = dataset.reads.fetch_add(count as u64, Ordering::Relaxed);
            let context = ReadContext {
                fetch: &dataset.fetch,
                image,
                host,
                window: self.request.window,
                bands: &self.request.bands,
                interleave: options.interleave,
                fill: &fill,
                zeroed: false,
                // With few large windows, threads are left to share among them.
                threads: (threads / drawing).max(1),
                in_flight: (dataset.fetch.access.in_flight / drawing).max(1),
                cancel: options.cancel.as_ref(),
                pool: &dataset.pool,
                // As for a single window: tiles are kept where more than one window comes.
                cache: &dataset.cache,
                lone: earlier == 0 && count == 1,
                warnings: &dataset.warnings,
                positions: &dataset.positions,
                arriving: &dataset.arriving,
            };
            self.deal(&context, drawing, out)
        };
        run().map_err(|error: Error| error.in_ifd(image.index).in_source(&dataset.name))
    }

    /// Has `drawing` threads, the caller's among them, take windows until all are read.
    fn deal(&self, context: &ReadContext<'_>, drawing: usize, out: &mut [u8]) -> Result<(), Error> {
        if let [_] = self.windows {
            return schedule::run(context, out);
        }
        let mut places: Vec<Option<&mut [u8]>> = out.chunks_exact_mut(self.request.len.max(1)).map(Some).collect();
        let entry = |number: usize| Some((number, *self.windows.get(number)?, places.get_mut(number)?.take()?));
        let sorted: Vec<(usize, Window, &mut [u8])> = self.by_place().into_iter().filter_map(entry).collect();
        let at_once = (sorted.len() / (drawing * DRAWS)).max(1);
        let left = Mutex::new(sorted.into_iter());
        let stop = AtomicBool::new(false);
        let first_error: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        let work = || {
            loop {
                let drawn: Vec<_> =
                    left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().take(at_once).collect();
                if drawn.is_empty() {
                    break;
                }
                for (number, window, place) in drawn {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Err(error) = schedule::run(&ReadContext { window, ..*context }, place) {
                        stop.store(true, Ordering::Relaxed);
                        let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                        if first.as_ref().is_none_or(|(known, _)| number < *known) {
                            *first = Some((number, error));
                        }
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..drawing {
                // If the system has no more threads, the read is slower but does not fail.
                if swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
        match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}
