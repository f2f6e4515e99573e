//! Masks in GPU memory.

use swath_cuda::{DeviceError, transfer::to_device};

use crate::{
    device::DeviceReport, error::Error, open::dataset::Dataset, raster::device::DeviceRaster,
    read::options::ReadOptions,
};

impl Dataset {
    /// Which pixels are data, in GPU memory: 255 for data, 0 for none, as [`Dataset::read_mask`] returns it. The host makes
    /// the mask, from tiles that the CPU or the GPU decodes as the options say, and copies it over.
    ///
    /// # Errors
    /// As [`Dataset::read_mask`], and when there is no GPU or it has too little memory.
    pub fn read_mask_device(&self, options: &ReadOptions) -> Result<DeviceRaster, Error> {
        let mask = self.read_mask(options)?;
        let run = || {
            let device = options.device.clone().or(&self.device);
            let gpu = device.open()?;
            let available = device.max_memory.unwrap_or(u64::MAX).min(gpu.available()?);
            if mask.bytes().len() as u64 > available {
                return Err(Error::from(DeviceError::Memory {
                    what: "the mask".into(),
                    required: mask.bytes().len() as u64,
                    available,
                    hint: "; read a smaller window, or allow more (max_device_memory)",
                }));
            }
            let (buffer, ready, counters) = to_device(&gpu, mask.bytes())?;
            let uploaded = DeviceReport { device: gpu.facts().name.clone(), counters, ..DeviceReport::default() };
            self.add_report(Some(&uploaded));
            let mut report = uploaded;
            if let Some(decoding) = mask.report() {
                report.add(decoding);
            }
            Ok(DeviceRaster {
                gpu,
                buffer,
                ready,
                sample: mask.sample,
                width: mask.width,
                height: mask.height,
                bands: mask.bands,
                interleave: mask.interleave,
                report,
            })
        };
        run().map_err(|error: Error| error.in_source(&self.name))
    }
}
