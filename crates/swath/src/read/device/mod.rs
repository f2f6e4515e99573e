//! Reading to GPU memory, and decoding on a GPU.
//!
//! `Cuda` means the GPU and nothing else. `Auto` falls back to the CPU and says so in the report that comes with the samples.

mod attempt;
mod board;
mod context;
mod direct;
mod loader;
mod mask;
mod piece_sizes;
mod plan;
mod run;
mod storage;
mod windows;

use std::sync::PoisonError;

use swath_cuda::DeviceError;
use swath_tiff::Window;

use crate::{
    device::DeviceReport,
    error::{Error, ErrorKind},
    open::dataset::Dataset,
    raster::{Interleave, device::DeviceRaster},
    read::{
        options::{ColorView, ReadOptions},
        request::Request,
    },
};

impl Dataset {
    /// Reads samples to GPU memory: [`ReadOptions::with_device`] says whether only the GPU may decode
    /// ([`Mode::Cuda`](crate::Mode::Cuda), the default), the CPU may help ([`Mode::Auto`](crate::Mode::Auto)) or the CPU
    /// decodes everything ([`Mode::Cpu`](crate::Mode::Cpu)).
    ///
    /// # Errors
    /// As [`Dataset::read`], and when there is no GPU, it cannot decode the file or has too little memory.
    pub fn read_device(&self, options: &ReadOptions) -> Result<DeviceRaster, Error> {
        if options.upright || options.color == ColorView::Shown {
            let detail =
                "on a GPU samples are returned as stored: use `read` to turn images upright or to convert colours";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let request = self.request(options)?;
        let run = || {
            let gpu = request.device.open()?;
            request.read_device(options, &gpu, std::slice::from_ref(&request.window))
        };
        let raster = run().map_err(|error: Error| error.in_ifd(request.image.index).in_source(&request.dataset.name));
        let raster = request.dataset.unchanged(raster)?;
        self.add_report(Some(raster.report()));
        Ok(raster)
    }

    /// Adds a report to the file's log.
    pub(crate) fn add_report(&self, report: Option<&DeviceReport>) {
        if let Some(report) = report {
            self.device_log.get().lock().unwrap_or_else(PoisonError::into_inner).add(report);
        }
    }

    /// The report of all reads of this handle so far.
    pub fn device_report(&self) -> DeviceReport {
        self.device_log.get().lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Request<'_> {
    /// Decodes on a GPU and copies the samples to the host, in as many windows as its memory requires.
    pub(crate) fn fill_by_device(&self, options: &ReadOptions, out: &mut [u8]) -> Result<DeviceReport, Error> {
        let mut fill = || {
            let gpu = self.device.open()?;
            let mut report = DeviceReport::default();
            let mut left = vec![self.window];
            while let Some(window) = left.pop() {
                let halves = match self.read_device(options, &gpu, std::slice::from_ref(&window)) {
                    Ok(raster) if window == self.window => {
                        let copied = swath_cuda::transfer::to_host(&gpu, raster.buffer(), out)?;
                        report.add(raster.report());
                        report.add(&DeviceReport { counters: copied, ..DeviceReport::default() });
                        continue;
                    }
                    Ok(raster) => {
                        let host = raster.to_host()?;
                        report.add(host.report().unwrap_or(&DeviceReport::default()));
                        self.copy_rows(options.interleave, &window, host.bytes(), out)?;
                        continue;
                    }
                    Err(error) => self.halves(&window).filter(|_| error.is_out_of_device_memory()).ok_or(error)?,
                };
                // Blocks of other sizes would stay in the pool besides those that the halves take.
                gpu.trim();
                // The upper half first.
                left.extend(halves.into_iter().rev());
            }
            Ok(report)
        };
        fill().map_err(|error: Error| error.in_ifd(self.image.index).in_source(&self.dataset.name))
    }

    /// Cuts a window in two between tile rows; `None` for a single tile row.
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

    /// Copies the samples of `window` to their place in the output of the whole window.
    fn copy_rows(&self, interleave: Interleave, window: &Window, from: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let outside = || Error::internal("a part of the window is not inside the output");
        let size = self.image.layout.sample.size();
        let (planes, pixel) = match interleave {
            Interleave::Band => (self.bands.len(), size),
            Interleave::Pixel => (1, size * self.bands.len()),
        };
        let row = self.window.width as usize * pixel;
        let [part, whole] = [window.height, self.window.height].map(|height| height as usize * row);
        let at = (window.y - self.window.y) as usize * row;
        for plane in 0..planes {
            let target = out.get_mut(plane * whole + at..plane * whole + at + part).ok_or_else(outside)?;
            target.copy_from_slice(from.get(plane * part..(plane + 1) * part).ok_or_else(outside)?);
        }
        Ok(())
    }
}

impl Error {
    /// Whether a smaller window might fit.
    pub(crate) fn is_out_of_device_memory(&self) -> bool {
        matches!(self.kind(), ErrorKind::Device(error) if error.is_out_of_memory())
    }

    /// Whether the driver ran out, as opposed to the budget.
    fn is_driver_out_of_memory(&self) -> bool {
        matches!(self.kind(), ErrorKind::Device(error @ DeviceError::Call { .. }) if error.is_out_of_memory())
    }
}
