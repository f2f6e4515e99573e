//! Reads many windows in one read of a GPU: all their tiles are in flight at once, and a tile that several windows share is decoded
//! once.

use swath_cuda::transfer::to_device;
use swath_tiff::Window;

use crate::{
    device::DeviceReport,
    error::Error,
    open::dataset::Dataset,
    raster::{Interleave, device::DeviceRaster},
    read::{
        options::{ColorView, ReadOptions},
        request::Request,
        windows::WindowSet,
    },
};

impl Dataset {
    /// Reads many windows of one size to GPU memory, as [`Dataset::read_device`] reads one. The rows of the result are
    /// the windows' below each other: window `n` begins at row `n * height`. It ignores a window in the options.
    /// Windows may overlap and repeat; without windows the raster has no rows and columns.
    ///
    /// # Errors
    /// As [`Dataset::read_device`], and when the windows differ in size.
    pub fn read_windows_device(&self, options: &ReadOptions, windows: &[Window]) -> Result<DeviceRaster, Error> {
        if options.upright || options.color == ColorView::Shown {
            let detail =
                "on a GPU samples are returned as stored: use `read` to turn images upright or to convert colours";
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let request = self.window_set(options, windows)?.request;
        let run = || {
            let gpu = request.device.open()?;
            if !windows.is_empty() {
                return request.read_device(options, &gpu, windows);
            }
            let (buffer, ready, counters) = to_device(&gpu, &[])?;
            Ok(DeviceRaster {
                report: DeviceReport { device: gpu.facts().name.clone(), counters, ..DeviceReport::default() },
                gpu,
                buffer,
                ready,
                sample: request.image.layout.sample,
                width: 0,
                height: 0,
                bands: request.bands.len() as u32,
                interleave: options.interleave,
            })
        };
        let raster = run().map_err(|error: Error| error.in_ifd(request.image.index).in_source(&request.dataset.name));
        let raster = request.dataset.unchanged(raster)?;
        self.add_report(Some(raster.report()));
        Ok(raster)
    }
}

impl WindowSet<'_> {
    /// Decodes on a GPU and copies the samples to the host, as many windows at a time as its memory holds.
    pub(crate) fn fill_by_device(&self, options: &ReadOptions, out: &mut [u8]) -> Result<DeviceReport, Error> {
        let request = &self.request;
        let mut fill = || {
            let gpu = request.device.open()?;
            let mut report = DeviceReport::default();
            let most = (u32::MAX / request.window.height.max(1)) as usize;
            let mut left: Vec<(&[Window], &mut [u8])> =
                self.windows.chunks(most).zip(out.chunks_mut(most.saturating_mul(request.len.max(1)))).collect();
            left.reverse();
            while let Some((windows, out)) = left.pop() {
                if let [window] = windows {
                    report.add(&self.single(*window).fill_by_device(options, out)?);
                    continue;
                }
                match request.read_device(options, &gpu, windows) {
                    Ok(raster) => self.bring_back(&raster, windows.len(), out, &mut report)?,
                    Err(error) if error.is_out_of_device_memory() => {
                        // Blocks of other sizes would stay in the pool besides those that the halves take.
                        gpu.trim();
                        let (first, second) = windows.split_at(windows.len() / 2);
                        let (upper, lower) = out.split_at_mut(first.len() * request.len);
                        left.extend([(second, lower), (first, upper)]);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(report)
        };
        fill().map_err(|error: Error| error.in_ifd(request.image.index).in_source(&request.dataset.name))
    }

    /// The read of one of the windows.
    fn single(&self, window: Window) -> Request<'_> {
        let Request { image, dataset, len, .. } = self.request;
        Request { image, dataset, window, bands: self.request.bands.clone(), len, device: self.request.device.clone() }
    }

    /// Copies windows that lie below each other to the host, one after the other.
    fn bring_back(
        &self,
        raster: &DeviceRaster,
        count: usize,
        out: &mut [u8],
        report: &mut DeviceReport,
    ) -> Result<(), Error> {
        let bands = self.request.bands.len();
        if raster.interleave() == Interleave::Pixel || bands == 1 {
            let copied = swath_cuda::transfer::to_host(raster.gpu(), raster.buffer(), out)?;
            report.add(raster.report());
            report.add(&DeviceReport { counters: copied, ..DeviceReport::default() });
            return Ok(());
        }
        let host = raster.to_host()?;
        report.add(host.report().unwrap_or(raster.report()));
        let plane = (self.request.len / bands.max(1)).max(1);
        for (band, windows) in host.bytes().chunks_exact((plane * count).max(1)).enumerate() {
            let places = out.chunks_exact_mut(self.request.len.max(1));
            for (from, place) in windows.chunks_exact(plane).zip(places) {
                if let Some(place) = place.get_mut(band * plane..(band + 1) * plane) {
                    place.copy_from_slice(from);
                }
            }
        }
        Ok(())
    }
}
