//! Makes overview rows on the device, with the same bytes as on the CPU.

use std::{ops::Range, sync::Arc};

use swath_raster::shrink::{Resampling, Shrink, TablePlan, Tables};
use swath_tiff::SampleType;

use crate::{
    counters::Meter,
    driver::{
        launch::{
            moments::sample_kind,
            shrink::{ShrinkKernel, ShrinkLaunch, ShrinkParams, launch_shrink},
            slice::BufferSlice,
        },
        memory::{pool::DeviceBuffer, row_ring::RowRing, streams::Streams},
    },
    error::DeviceError,
};

/// Most source pixels of one target pixel that the kernels compare with each other: `MOST_COMPARED` of
/// `kernels/shrink/rank.cuh`.
const MOST_COMPARED: u64 = 256;

/// Longest side of an image that the kernels accept: `MOST_SIDE` of `kernels/shrink/shrink.cuh`.
const MOST_SIDE: u32 = 1 << 30;

/// `shrink::Flags` of `kernels/shrink/shrink.cuh`.
mod flag {
    pub(super) const PAIRS: u32 = 1;
    pub(super) const NARROW: u32 = 2;
    pub(super) const SPREAD: u32 = 4;
    pub(super) const NODATA: u32 = 8;
    pub(super) const NEGATIVE: u32 = 16;
}

/// A shrink with its tables on the device.
#[derive(Debug)]
pub(crate) struct DeviceShrink {
    kernel: ShrinkKernel,
    params: ShrinkParams,
    source_width: u32,
    target_width: u32,
    sample_len: usize,
    /// Offsets of the weights for masked pixels, and of the weights that sum to one.
    weights: [u64; 2],
    /// `None` where sides halve exactly.
    tables: Option<DeviceBuffer>,
}

impl DeviceShrink {
    /// Returns the bytes of the tables of a shrink; `None` where the device cannot do it.
    pub(crate) fn bytes(shrink: &Shrink) -> Option<usize> {
        let tables = shrink.tables();
        kernel_of(&tables).map(|_| tables.bytes.len())
    }

    /// Uploads the tables of a shrink. Launches on other streams must wait for this stream. Returns `None` where the
    /// device cannot do it.
    ///
    /// # Errors
    /// When the device has too little memory, or the copy fails.
    pub(crate) fn new(
        streams: &Streams,
        stream: usize,
        meter: &Arc<Meter>,
        shrink: &Shrink,
    ) -> Result<Option<Self>, DeviceError> {
        let tables = shrink.tables();
        let Some((kernel, kind)) = kernel_of(&tables) else { return Ok(None) };
        let mut buffer = None;
        if !tables.bytes.is_empty() {
            let room = streams.memory().buffer(tables.bytes.len(), meter)?;
            streams.upload_bytes(stream, &tables.bytes, &room, 0)?;
            buffer = Some(room);
        }
        let flags = [
            (tables.pairs, flag::PAIRS),
            (tables.narrow, flag::NARROW),
            (tables.spread, flag::SPREAD),
            (tables.nodata.is_some(), flag::NODATA),
            (tables.negative, flag::NEGATIVE),
        ];
        let params = ShrinkParams {
            columns: tables.columns as u64,
            rows: tables.rows as u64,
            weights: 0,
            weights_len: tables.weights as u64,
            avoid: tables.avoid,
            instead: tables.instead,
            nodata: tables.nodata.unwrap_or(0),
            fill: tables.fill,
            source_height: tables.source.1,
            target_height: tables.target.1,
            first: 0,
            count: 0,
            bands: 0,
            kind,
            plan: tables.plan as u32,
            flags: flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum(),
        };
        Ok(Some(Self {
            kernel,
            params,
            source_width: tables.source.0,
            target_width: tables.target.0,
            sample_len: tables.sample.size(),
            weights: [tables.raw as u64, tables.normal as u64],
            tables: buffer,
        }))
    }

    /// Makes target rows `rows` of the bands `bands`, after all work queued on the stream. `source` holds the source
    /// rows that [`Shrink::needs`] names. `validity` holds the same rows in its band: bytes that are zero where there
    /// is no data. For a mask or alpha, `validity` is the source itself.
    ///
    /// # Errors
    /// When the rows or bands do not belong to the shrink, or the launch fails.
    #[allow(clippy::too_many_arguments, reason = "three rings and their ranges")]
    pub(crate) fn launch(
        &self,
        streams: &Streams,
        stream: usize,
        source: &RowRing,
        validity: Option<(&RowRing, u16)>,
        target: &RowRing,
        bands: Range<u16>,
        rows: Range<u32>,
    ) -> Result<(), DeviceError> {
        let fits = source.width == self.source_width
            && target.width == self.target_width
            && source.sample_len == self.sample_len
            && target.sample_len == self.sample_len
            && bands.start <= bands.end
            && bands.end <= source.bands.min(target.bands)
            && rows.start <= rows.end
            && rows.end <= self.params.target_height
            && rows.end - rows.start <= target.capacity;
        let valid = validity
            .is_none_or(|(ring, band)| ring.width == self.source_width && ring.sample_len == 1 && band < ring.bands);
        if !fits || !valid {
            return Err(DeviceError::Internal("the rows of an overview are outside its source or target".into()));
        }
        let masked = validity.is_some() || self.params.flags & flag::NODATA != 0;
        let [raw, normal] = self.weights;
        let params = ShrinkParams {
            weights: if masked { raw } else { normal },
            first: rows.start,
            count: rows.end - rows.start,
            bands: u32::from(bands.end - bands.start),
            ..self.params
        };
        let batch = ShrinkLaunch {
            source: (source, bands.start),
            target: (target, bands.start),
            valid: validity,
            tables: self.tables.as_ref().map(|buffer| BufferSlice { buffer, offset: 0, len: buffer.len() }),
        };
        launch_shrink(streams, stream, self.kernel, params, &batch)
    }
}

/// Returns the kernel of a shrink, and its number for the sample type.
fn kernel_of(tables: &Tables) -> Option<(ShrinkKernel, u32)> {
    use Resampling as R;
    // No side of the target is longer than that of the source.
    if tables.source.0.max(tables.source.1) > MOST_SIDE {
        return None;
    }
    if tables.method == R::Nearest {
        return Some((ShrinkKernel::Nearest, tables.sample.size() as u32));
    }
    let kernel = match (tables.method, tables.sample.is_complex()) {
        (R::Average, false) => ShrinkKernel::Average,
        (R::Average, true) => ShrinkKernel::ComplexAverage,
        (R::Mode, false) => ShrinkKernel::Mode,
        (R::Mode, true) => ShrinkKernel::ComplexMode,
        (R::Rms, false) => ShrinkKernel::Rms,
        (R::Rms, true) => ShrinkKernel::ComplexRms,
        (R::Min, false) => ShrinkKernel::Min,
        (R::Max, false) => ShrinkKernel::Max,
        (R::Median, false) => ShrinkKernel::Median,
        (R::Bilinear | R::Cubic | R::Lanczos, false) => ShrinkKernel::Taps,
        _ => return None,
    };
    let compares = matches!(tables.method, R::Mode | R::Median);
    let counted = u32::try_from(tables.weights).is_ok();
    if compares && tables.footprint > MOST_COMPARED || tables.plan == TablePlan::Taps && !counted {
        return None;
    }
    Some((kernel, kind_of(tables.sample)?))
}

/// Returns the number of `shrink::Kind` of `kernels/shrink/sample.cuh`; for a complex type that of its parts.
fn kind_of(sample: SampleType) -> Option<u32> {
    sample_kind(match sample {
        SampleType::CI16 => SampleType::I16,
        SampleType::CI32 => SampleType::I32,
        SampleType::CF16 => SampleType::F16,
        SampleType::CF32 => SampleType::F32,
        SampleType::CF64 => SampleType::F64,
        real => real,
    })
}
