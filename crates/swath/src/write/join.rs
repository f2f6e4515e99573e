//! Assembles a file from tile rows that were encoded elsewhere.

use std::{path::Path, sync::Arc};

use swath_io::Sink;
use swath_raster::moments::Moments;

use super::{
    encoded::EncodedTileRows,
    memory::Memory,
    options::{Shape, WriteOptions, nodata_of},
    plan::{LevelPlan, Plan},
    predictor::ChoiceState,
    shared_sink::SharedSink,
    tile_rows,
    writer::{Side, Writer},
};
use crate::{cancel::cancelled, device::Mode, error::Error, metadata::Metadata};

impl Writer {
    /// Begins a file that is put together from tile rows of a [`TileRowEncoder`](crate::write::TileRowEncoder) with the same
    /// shape, metadata and options. It uses no GPU, and needs none with [`Mode::Cuda`]; with [`Mode::Auto`] it expects tile rows of
    /// a GPU where one can be opened. The CPU compresses the overviews.
    ///
    /// With default options the sample type decides the predictor, as with [`PredictorRule::BySampleType`](crate::write::PredictorRule):
    /// this writer sees no samples. [`PredictorChoice`](crate::write::PredictorChoice) makes the choice by the samples.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_from_tile_rows(
        path: impl AsRef<Path>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        Self::at_path(path.as_ref(), options, |sink| Self::to_sink_from_tile_rows(sink, shape, metadata, options))
    }

    /// The same, in any sink.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn to_sink_from_tile_rows(
        sink: Box<dyn Sink>,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let options = &options.by_sample_type();
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
        writer.side = Side::Encoded;
        Ok(writer)
    }

    /// Adds tile rows below those that were added before. A file takes either rows or encoded tile rows.
    ///
    /// # Errors
    /// When these are not the next tile rows of this file: the file is then unchanged. When they cannot be written: the file
    /// can then only be dropped.
    pub fn push_encoded(&mut self, encoded: &EncodedTileRows) -> Result<(), Error> {
        self.check_encoded(encoded)?;
        (self.side, self.choice) = (Side::Encoded, ChoiceState::default());
        let result = self.take_encoded(encoded);
        self.named(result)
    }

    fn check_encoded(&self, encoded: &EncodedTileRows) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        let pushed = match &self.side {
            Side::Device(_) => {
                let detail =
                    "a GPU writes this file; begin it with create_from_tile_rows to put it together from tile rows";
                return Err(Error::usage(detail));
            }
            Side::Blocks(_) => true,
            Side::Encoded => false,
            Side::Host => self.rows() > 0 || self.tile_row.is_some(),
        };
        if pushed {
            return Err(Error::usage("rows were pushed before: a file takes either rows or encoded tile rows"));
        }
        if encoded.plan != tile_rows::digest(&self.plan, self.shape, &self.options, self.nodata.as_deref()) {
            return Err(Error::usage(
                "the tile rows were encoded for another file: shape, nodata, options and version of swath have to be the \
                 same (with the device `auto`, all processes need a GPU, or none may have one: give `cuda` or `cpu`)",
            ));
        }
        let plan = &self.plan.levels.main;
        let (rows, next, down) = (&encoded.tile_rows, self.levels.main.progress.tile_row, plan.grid.down);
        if rows.start != next || rows.is_empty() || rows.end > down {
            return Err(Error::usage(format!("tile rows {rows:?} were pushed where {next} of {down} is next")));
        }
        let positions = rows.len() as u64 * u64::from(plan.grid.across);
        let bands_summed = if self.plan.statistics { u64::from(plan.layout.samples) } else { 0 };
        let overview = tile_rows::overview_rows(&self.plan, rows);
        let overview_len = self.overview_row_lens().iter().sum::<usize>() * overview.len();
        let per_position = plan.tiles_per_position();
        let [image, mask] = plan.worst_tiles(self.plan.frame);
        let fits = |(plane, len): (u32, &u32)| {
            let most = if plane < plan.grid.planes { image } else { mask };
            *len == 0 || (self.plan.frame + 1..=most).contains(&u64::from(*len))
        };
        let whole = encoded.lens.len() as u64 == positions * u64::from(per_position)
            && encoded.moments.len() as u64 == positions * bands_summed
            && encoded.pieces.len() == plan.piece_sizes(rows.len() as u32)
            && (&encoded.overview_rows, encoded.overview.len()) == (&overview, overview_len)
            && (0..per_position).cycle().zip(&encoded.lens).all(fits)
            && encoded.lens.iter().map(|len| u64::from(*len)).sum::<u64>() == encoded.bytes.len() as u64;
        if !whole {
            return Err(Error::malformed(format!("the encoded tile rows {rows:?} contradict their own head")));
        }
        Ok(())
    }

    fn take_encoded(&mut self, encoded: &EncodedTileRows) -> Result<(), Error> {
        if let Some(error) = cancelled(self.options.cancel.as_ref()) {
            return Err(error);
        }
        let (plan, level) = (&self.plan.levels.main, &self.level_writers.main);
        let start = level.len();
        let mut moments = encoded.moments.chunks(usize::from(plan.layout.samples).max(1));
        let missing = || Error::internal("encoded tile rows have fewer statistics than tiles");
        for (plane, len) in (0..plan.tiles_per_position()).cycle().zip(&encoded.lens) {
            // The first tile of a position has the statistics of all bands. Without statistics there are none at all.
            let has_moments = plane == 0 && !encoded.moments.is_empty();
            let statistics: &[Moments] = if has_moments { moments.next().ok_or_else(missing)? } else { &[] };
            level.register(u64::from(*len), statistics)?;
        }
        if level.is_buffered() {
            level.buffer(start, &encoded.bytes)?;
        } else {
            let mut offset = level.start() + start;
            for chunk in encoded.bytes.chunks(self.sink.0.write_chunk().max(1)) {
                self.sink.0.write_at(offset, chunk)?;
                offset += chunk.len() as u64;
            }
        }
        if self.pieces.is_none() {
            self.pieces = Some(self.plan.no_pieces()?);
        }
        let list = self.pieces.as_mut().and_then(|pieces| pieces.first_mut());
        let start = plan.piece_sizes(encoded.tile_rows.start);
        let list = list.and_then(|list| list.get_mut(start..start + encoded.pieces.len()));
        let lost = || Error::internal("encoded tile rows have more pieces than their tiles");
        list.ok_or_else(lost)?.copy_from_slice(&encoded.pieces);
        let level = &mut self.levels.main;
        // The image's rows are elsewhere: the overview rows come with the tiles.
        level.shrink = None;
        level.progress.rows = tile_rows::rows_of(&self.plan, &encoded.tile_rows).end;
        level.progress.encode_tile_rows(encoded.tile_rows.end);
        level.progress.shrunk = encoded.overview_rows.end;
        self.take_overview(encoded)?;
        self.report_progress();
        Ok(())
    }

    /// Bytes of a row of each plane of the first overview; none without overviews.
    fn overview_row_lens(&self) -> Vec<usize> {
        self.plan.levels.overviews.first().map_or_else(Vec::new, LevelPlan::plane_row_lens)
    }

    /// Takes the rows of the first overview, and makes the later overviews of them.
    fn take_overview(&mut self, encoded: &EncodedTileRows) -> Result<(), Error> {
        let (count, row_lens) = (encoded.overview_rows.len(), self.overview_row_lens());
        let too_short = || Error::internal("the rows of an overview do not fit into the memory for them");
        let mut done = 0;
        while done < count {
            let level = self.levels.at_mut(1)?;
            let rows = (level.store.room() as usize).min(count - done);
            let mut rest = &encoded.overview[..];
            let (_, free) = level.store.split();
            if free.len() != row_lens.len() {
                return Err(too_short());
            }
            for (room, row_len) in free.into_iter().zip(&row_lens) {
                let (plane, later) = rest.split_at_checked(row_len * count).ok_or_else(too_short)?;
                rest = later;
                let from = plane.get(done * row_len..(done + rows) * row_len);
                let (from, room) = from.zip(room.get_mut(..rows * row_len)).ok_or_else(too_short)?;
                room.copy_from_slice(from);
            }
            level.store.grow(rows as u32)?;
            level.progress.rows += rows as u32;
            done += rows;
            while self.is_overview_ready(done < count)? {
                self.step(None)?;
            }
        }
        Ok(())
    }

    /// Whether a step is due before more rows of overviews are taken, of which `more` says whether there are any.
    fn is_overview_ready(&self, more: bool) -> Result<bool, Error> {
        let full = self.levels.at(1)?.store.room() == 0;
        Ok((more && full) || self.due()?.iter().any(|due| !due.tile_rows.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use swath_io::MemorySink;
    use swath_tiff::SampleType;

    use super::*;
    use crate::{
        error::ErrorKind,
        write::{Rows, TileRowEncoder},
    };

    #[test]
    fn tile_rows_that_contradict_their_file_are_refused() {
        let shape = Shape { width: 40, height: 40, bands: 2, sample: SampleType::U8 };
        let (metadata, options) = (Metadata::default(), WriteOptions::cog().with_blocks(crate::Blocks::Tiles(16, 16)));
        let encoder = TileRowEncoder::new(shape, &metadata, &options).unwrap();
        let good = encoder.encode(0..2, 0, &Rows::pixels(&[9_u8; 40 * 40 * 2])).unwrap();
        let (sink, _) = MemorySink::new("memory");
        let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), shape, &metadata, &options).unwrap();
        let changes: [fn(&mut EncodedTileRows); 9] = [
            |encoded| encoded.lens.truncate(1),
            |encoded| encoded.lens[0] += 1,
            // Shorter than leader and trailer, and longer than any tile can be.
            |encoded| (encoded.lens[0], encoded.lens[1]) = (7, encoded.lens[0] + encoded.lens[1] - 7),
            |encoded| {
                (encoded.lens[0], encoded.bytes) =
                    (1 << 20, [&[0; 1 << 20], &encoded.bytes[encoded.lens[0] as usize..]].concat())
            },
            |encoded| encoded.bytes.truncate(1),
            |encoded| encoded.moments.truncate(1),
            |encoded| encoded.overview.truncate(1),
            |encoded| encoded.overview_rows.end += 1,
            |encoded| encoded.pieces.push(1),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut encoded = good.clone();
            change(&mut encoded);
            let error = writer.push_encoded(&encoded).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{number}: {error}");
        }
        for tile_rows in [0..0, 0..4, 1..2] {
            let error = writer.push_encoded(&EncodedTileRows { tile_rows, ..good.clone() }).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        }
        writer.push_encoded(&good).unwrap();
    }
}
