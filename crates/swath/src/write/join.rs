//! Puts a file together from bands that were encoded elsewhere.

use std::{path::Path, sync::Arc};

use swath_codec::pre::moments::Moments;
use swath_io::Sink;

use super::{
    Memory, SharedSink, Writer, bands,
    encoded::EncodedBand,
    nodata_of,
    options::{Shape, WriteOptions},
    plan::Plan,
    store_planes,
};
use crate::{
    device::Mode,
    error::{Error, ErrorKind},
    metadata::Metadata,
    read::Cancel,
};

impl Writer {
    /// Begins a file that is put together from bands of a [`BandEncoder`](crate::BandEncoder) with the same shape,
    /// metadata and options. No GPU is used here: with [`Mode::Cuda`] there need not be one (with [`Mode::Auto`] bands
    /// are taken to be a GPU's where one can be opened), and overviews are compressed by the CPU.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_from_bands(
        path: impl AsRef<Path>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        Self::at_path(path.as_ref(), options, |sink| Self::to_sink_from_bands(sink, shape, metadata, options))
    }

    /// The same, in any sink.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn to_sink_from_bands(
        sink: Box<dyn Sink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let on_device = match options.device.mode.unwrap_or_default() {
            Mode::Cpu => false,
            Mode::Cuda => true,
            Mode::Auto => options.device.open().is_ok(),
        };
        let plan = Plan::new(shape, metadata, options, on_device)?;
        let memory = Memory::fit(&plan, options)?;
        let nodata = nodata_of(metadata, shape);
        let mut writer = Self::with(plan, Arc::new(SharedSink(sink)), shape, options, memory, nodata)?;
        writer.make_stores(&memory)?;
        writer.from_bands = true;
        Ok(writer)
    }

    /// Adds a band below those that were added before. A file takes either rows or bands.
    ///
    /// # Errors
    /// When it is no band of this file or another one is next, which leaves the file as it was; or when it cannot be
    /// written, after which the file can only be dropped.
    pub fn push_encoded(&mut self, band: &EncodedBand) -> Result<(), Error> {
        self.check_band(band)?;
        self.from_bands = true;
        let result = self.take_band(band);
        self.named(result)
    }

    fn check_band(&self, band: &EncodedBand) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        if self.device.is_some() {
            let detail = "a GPU writes this file; begin it with create_from_bands to put it together from bands";
            return Err(Error::usage(detail));
        }
        if self.blocks.is_some() || !self.from_bands && (self.rows() > 0 || self.tiles.is_some()) {
            return Err(Error::usage("rows were pushed before: a file takes either rows or encoded bands"));
        }
        if band.plan != bands::digest(&self.plan, self.shape, &self.options, self.nodata.as_deref()) {
            return Err(Error::usage(
                "the band was encoded for another file: shape, nodata, options and version of swath have to be the \
                 same (with the device `auto`, so has whether there is a GPU: say `cuda` or `cpu`)",
            ));
        }
        let (Some(plan), Some(level)) = (self.plan.levels.first(), self.levels.first()) else { return Ok(()) };
        let (tile_rows, next, down) = (&band.tile_rows, level.tile_rows, plan.grid.down);
        if tile_rows.start != next || tile_rows.is_empty() || tile_rows.end > down {
            return Err(Error::usage(format!("tile rows {tile_rows:?} were pushed where {next} of {down} is next")));
        }
        let positions = tile_rows.len() as u64 * u64::from(plan.grid.across);
        let bands_summed = if self.plan.statistics { u64::from(plan.layout.samples) } else { 0 };
        let overview = bands::overview_rows(&self.plan, tile_rows);
        let overview_len = store_planes(&self.plan, 1).iter().sum::<usize>() * overview.len();
        let parts = plan.parts();
        let [image, mask] = plan.worst_tiles(self.plan.frame);
        let fits = |(part, len): (u32, &u32)| {
            let most = if part < plan.grid.planes { image } else { mask };
            *len == 0 || (self.plan.frame..=most).contains(&u64::from(*len))
        };
        let whole = band.lens.len() as u64 == positions * u64::from(parts)
            && band.moments.len() as u64 == positions * bands_summed
            && band.pieces.len() == bands::pieces_in(plan, tile_rows)
            && (&band.overview_rows, band.overview.len()) == (&overview, overview_len)
            && (0..parts).cycle().zip(&band.lens).all(fits)
            && band.lens.iter().map(|len| u64::from(*len)).sum::<u64>() == band.bytes.len() as u64;
        if !whole {
            return Err(Error::malformed(format!("the band of tile rows {tile_rows:?} is not what its head says")));
        }
        Ok(())
    }

    fn take_band(&mut self, band: &EncodedBand) -> Result<(), Error> {
        if self.options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        let (Some(plan), Some(lane)) = (self.plan.levels.first(), self.lanes.first()) else { return Ok(()) };
        let start = lane.len();
        let mut moments = band.moments.chunks(usize::from(plan.layout.samples).max(1));
        for (part, len) in (0..plan.parts()).cycle().zip(&band.lens) {
            // Those of all bands come with the first.
            let statistics: &[Moments] = if part == 0 { moments.next().unwrap_or_default() } else { &[] };
            lane.admit(u64::from(*len), statistics);
        }
        if lane.is_held() {
            lane.keep(start, &band.bytes);
        } else {
            let mut offset = lane.start() + start;
            for chunk in band.bytes.chunks(self.sink.0.write_chunk().max(1)) {
                self.sink.0.write_at(offset, chunk)?;
                offset += chunk.len() as u64;
            }
        }
        self.pieces.resize_with(self.levels.len(), Vec::new);
        if let Some(pieces) = self.pieces.first_mut() {
            pieces.extend_from_slice(&band.pieces);
        }
        let rows = bands::rows_of(&self.plan, &band.tile_rows);
        if let Some(level) = self.levels.first_mut() {
            // The image's rows are elsewhere: what is made of them comes with them.
            level.shrink = None;
            (level.tile_rows, level.shrunk, level.store.first) = (band.tile_rows.end, band.overview_rows.end, rows.end);
        }
        self.take_overview(band)?;
        self.tell();
        Ok(())
    }

    /// Goes on from the rows of the first overview.
    fn take_overview(&mut self, band: &EncodedBand) -> Result<(), Error> {
        let (count, row_lens) = (band.overview_rows.len(), store_planes(&self.plan, 1));
        let mut done = 0;
        while done < count {
            let Some(level) = self.levels.get_mut(1) else { return Ok(()) };
            let rows = (level.store.room() as usize).min(count - done);
            let mut rest = &band.overview[..];
            for (room, row_len) in level.store.split().1.into_iter().zip(&row_lens) {
                let Some((plane, later)) = rest.split_at_checked(row_len * count) else { break };
                rest = later;
                let from = plane.get(done * row_len..(done + rows) * row_len);
                if let (Some(from), Some(room)) = (from, room.get_mut(..rows * row_len)) {
                    room.copy_from_slice(from);
                }
            }
            level.store.grow(rows as u32);
            done += rows;
            while self.is_overview_ready(done < count) {
                self.step(None)?;
            }
        }
        Ok(())
    }

    /// Whether a step is due before more rows of overviews are taken, of which `more` says whether there are any.
    fn is_overview_ready(&self, more: bool) -> bool {
        let full = self.levels.get(1).is_some_and(|level| level.store.room() == 0);
        (more && full) || self.due(None).iter().any(|due| !due.tile_rows.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use swath_io::MemorySink;
    use swath_tiff::SampleType;

    use super::*;
    use crate::write::{BandEncoder, Rows};

    #[test]
    fn a_band_that_contradicts_its_file_is_refused() {
        let shape = Shape { width: 40, height: 40, bands: 2, sample: SampleType::U8 };
        let (metadata, options) = (Metadata::default(), WriteOptions::cog().with_blocks(crate::Blocks::Tiles(16, 16)));
        let encoder = BandEncoder::new(shape, &metadata, &options).unwrap();
        let good = encoder.encode(0..2, 0, &Rows::pixels(&[9; 40 * 40 * 2])).unwrap();
        let (sink, _) = MemorySink::new("memory");
        let mut writer = Writer::to_sink_from_bands(Box::new(sink), shape, &metadata, &options).unwrap();
        let changes: [fn(&mut EncodedBand); 9] = [
            |band| band.lens.truncate(1),
            |band| band.lens[0] += 1,
            // Shorter than leader and trailer, and longer than any tile can be.
            |band| (band.lens[0], band.lens[1]) = (7, band.lens[0] + band.lens[1] - 7),
            |band| {
                (band.lens[0], band.bytes) = (1 << 20, [&[0; 1 << 20], &band.bytes[band.lens[0] as usize..]].concat())
            },
            |band| band.bytes.truncate(1),
            |band| band.moments.truncate(1),
            |band| band.overview.truncate(1),
            |band| band.overview_rows.end += 1,
            |band| band.pieces.push(1),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut band = good.clone();
            change(&mut band);
            let error = writer.push_encoded(&band).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{number}: {error}");
        }
        for tile_rows in [0..0, 0..4, 1..2] {
            let error = writer.push_encoded(&EncodedBand { tile_rows, ..good.clone() }).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        }
        writer.push_encoded(&good).unwrap();
    }
}
