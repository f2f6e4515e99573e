//! One level step of an overview on the device, byte for byte the CPU's.

use std::{ops::Range, sync::Arc};

use swath_codec::shrink::{Resampling, Shrink, TablePlan, Tables};
use swath_tiff::SampleType;

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        kernels::Part,
        memory::DeviceBuffer,
        shrink::{ShrinkBatch, ShrinkRule, Shrinking, shrink},
        streams::Streams,
    },
    ring::Ring,
};

/// Most pixels under one that the kernels compare with each other: `MOST_COMPARED` of `kernels/shrink_rank.cuh`.
const MOST_COMPARED: u64 = 256;

/// Longest side of an image that the kernels take: `MOST_SIDE` of `kernels/shrink.cuh`.
const MOST_SIDE: u32 = 1 << 30;

/// `shrink::Flags` of `kernels/shrink.cuh`.
mod flag {
    pub(super) const PAIRS: u32 = 1;
    pub(super) const NARROW: u32 = 2;
    pub(super) const SPREAD: u32 = 4;
    pub(super) const NODATA: u32 = 8;
    pub(super) const NEGATIVE: u32 = 16;
}

/// A level step whose tables lie on the device.
#[derive(Debug)]
pub(crate) struct DeviceShrink {
    kernel: Shrinking,
    rule: ShrinkRule,
    source_width: u32,
    target_width: u32,
    sample_len: usize,
    /// Where the weights begin that masked pixels are weighed with, and where those that sum to one.
    weights: [u64; 2],
    /// None where sides halve.
    tables: Option<DeviceBuffer>,
}

impl DeviceShrink {
    /// Bytes that the tables of a step take; `None` where it is not done on the device.
    pub(crate) fn bytes(step: &Shrink) -> Option<usize> {
        let tables = step.tables();
        kernel_of(&tables).map(|_| tables.bytes.len())
    }

    /// Takes the tables of a step to the device: launches on other streams have to wait for this one. `None` where it
    /// is not done there.
    ///
    /// # Errors
    /// When the device has no memory left, or the copy fails.
    pub(crate) fn new(
        streams: &Streams,
        stream: usize,
        meter: &Arc<Meter>,
        step: &Shrink,
    ) -> Result<Option<Self>, DeviceError> {
        let tables = step.tables();
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
        let rule = ShrinkRule {
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
            rule,
            source_width: tables.source.0,
            target_width: tables.target.0,
            sample_len: tables.sample.size(),
            weights: [tables.raw as u64, tables.normal as u64],
            tables: buffer,
        }))
    }

    /// Makes target rows `rows` of the bands `bands`, after what the stream was given so far. The source rows that
    /// [`Shrink::needs`] names are in `source`, and the same rows of `validity` in its band: bytes, zero where there is
    /// no data. For a mask, or alpha, `validity` is the source itself.
    ///
    /// # Errors
    /// When rows or bands are not those of the step, or the launch fails.
    #[allow(clippy::too_many_arguments, reason = "three rings and what of them is meant")]
    pub(crate) fn launch(
        &self,
        streams: &Streams,
        stream: usize,
        source: &Ring,
        validity: Option<(&Ring, u16)>,
        target: &Ring,
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
            && rows.end <= self.rule.target_height
            && rows.end - rows.start <= target.capacity;
        let valid = validity
            .is_none_or(|(ring, band)| ring.width == self.source_width && ring.sample_len == 1 && band < ring.bands);
        if !fits || !valid {
            return Err(DeviceError::Usage("rows of an overview are not those of its step".into()));
        }
        let masked = validity.is_some() || self.rule.flags & flag::NODATA != 0;
        let [raw, normal] = self.weights;
        let rule = ShrinkRule {
            weights: if masked { raw } else { normal },
            first: rows.start,
            count: rows.end - rows.start,
            bands: u32::from(bands.end - bands.start),
            ..self.rule
        };
        let batch = ShrinkBatch {
            source: (source, bands.start),
            target: (target, bands.start),
            valid: validity,
            tables: self.tables.as_ref().map(|buffer| Part { buffer, offset: 0, len: buffer.len() }),
        };
        shrink(streams, stream, self.kernel, rule, &batch)
    }
}

/// The kernel for a step, and the number it knows the type of samples by.
fn kernel_of(tables: &Tables) -> Option<(Shrinking, u32)> {
    use Resampling as R;
    // No side of the target is longer than that of the source.
    if tables.source.0.max(tables.source.1) > MOST_SIDE {
        return None;
    }
    if tables.method == R::Nearest {
        return Some((Shrinking::Nearest, tables.sample.size() as u32));
    }
    let kernel = match (tables.method, tables.sample.is_complex()) {
        (R::Average, false) => Shrinking::Average,
        (R::Average, true) => Shrinking::ComplexAverage,
        (R::Mode, false) => Shrinking::Mode,
        (R::Mode, true) => Shrinking::ComplexMode,
        (R::Rms, false) => Shrinking::Rms,
        (R::Rms, true) => Shrinking::ComplexRms,
        (R::Min, false) => Shrinking::Min,
        (R::Max, false) => Shrinking::Max,
        (R::Median, false) => Shrinking::Median,
        (R::Bilinear | R::Cubic | R::Lanczos, false) => Shrinking::Taps,
        _ => return None,
    };
    let compares = matches!(tables.method, R::Mode | R::Median);
    let counted = u32::try_from(tables.weights).is_ok();
    if compares && tables.footprint > MOST_COMPARED || tables.plan == TablePlan::Taps && !counted {
        return None;
    }
    Some((kernel, kind_of(tables.sample)?))
}

/// The number of `shrink::Kind` of `kernels/shrink_sample.cuh`; of complex types that of a word.
fn kind_of(sample: SampleType) -> Option<u32> {
    Some(match sample {
        SampleType::U8 => 0,
        SampleType::I8 => 1,
        SampleType::U16 => 2,
        SampleType::I16 | SampleType::CI16 => 3,
        SampleType::U32 => 4,
        SampleType::I32 | SampleType::CI32 => 5,
        SampleType::U64 => 6,
        SampleType::I64 => 7,
        SampleType::F16 | SampleType::CF16 => 8,
        SampleType::F32 | SampleType::CF32 => 9,
        SampleType::F64 | SampleType::CF64 => 10,
        _ => return None,
    })
}
