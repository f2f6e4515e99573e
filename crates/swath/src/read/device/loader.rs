//! What a reading thread does: it brings tiles from the file to pinned memory, and decodes those that the GPU does not decode.

use std::{ops::Range, sync::Arc};

use swath_codec::{CodecError, Scratch, codec::jpeg::Jpeg};
use swath_cuda::{CHUNK_LEN, decode::Uploader};
use swath_io::{
    ReadInto,
    coalesce::{Merge, coalesce},
};
use swath_raster::memory::Buffer;
use swath_tiff::{Compression, Place};

use super::{
    board::{ChunkTask, ChunkWork, Prefetched},
    context::{DeviceReadContext, Refused},
    plan::Unit,
};
use crate::{cancel::Cancel, error::Error, state::spare::SampleBuffer};

/// Smaller neighbouring tiles are read together: a call for each would cost more than its bytes.
const SMALL: u64 = 32 << 10;
/// Small tiles up to this far apart are read together.
const GAP: u64 = 16 << 10;
/// Units with their streams.
type Streams = Vec<(usize, Vec<u8>)>;

/// Brings tiles to the device; one for each reading thread, with its buffers.
#[derive(Default)]
pub(super) struct TileLoader {
    scratch: Scratch,
    bytes: Buffer,
    tiles: Buffer,
}

impl TileLoader {
    pub(super) fn run(
        &mut self,
        context: &DeviceReadContext<'_>,
        uploader: Uploader<'_>,
        units: &[&Unit],
        task: ChunkTask,
    ) -> Result<Prefetched, (u64, Error)> {
        let index_of = |unit: usize| units.get(unit).map_or(0, |unit| unit.index);
        let first = index_of(task.first_unit());
        match &task.work {
            ChunkWork::DecodeLarge(unit) => {
                let Some(unit) = units.get(*unit) else { return Ok(Vec::new()) };
                return self.decode_large(context, uploader, unit, task.half, task.at).map(|()| Vec::new());
            }
            ChunkWork::Prefetch(list) => return self.prefetch(context, units, list),
            ChunkWork::ReadDirect(_) => return self.read_direct(context, uploader, units, &task).map(|()| Vec::new()),
            ChunkWork::Read(_) | ChunkWork::Decode(_) | ChunkWork::Batch(_) => {}
        }
        let mut chunk = uploader.chunk().map_err(|error| (first, error.into()))?;
        match &task.work {
            ChunkWork::Read(reads) => self.read(context, units, reads, chunk.bytes_mut())?,
            ChunkWork::Decode(list) if context.fetch.access.is_remote() => {
                self.decode_together(context, units, list, chunk.bytes_mut())?;
            }
            ChunkWork::Decode(list) => {
                for (unit, at) in list {
                    let Some(unit) = units.get(*unit) else { continue };
                    let place = chunk.bytes_mut().get_mut(*at..*at + unit.decoded_len).unwrap_or_default();
                    self.decode(context, unit, place).map_err(|error| (unit.index, error))?;
                }
            }
            ChunkWork::DecodeLarge(_) | ChunkWork::Prefetch(_) | ChunkWork::ReadDirect(_) | ChunkWork::Batch(_) => {}
        }
        uploader.upload(task.half, chunk, task.len, task.at).map_err(|error| (first, error.into()))?;
        Ok(Vec::new())
    }

    /// Reads parts with cuFile, one by one. Parts that arrive incomplete are read again through a pinned chunk.
    fn read_direct(
        &mut self,
        context: &DeviceReadContext<'_>,
        uploader: Uploader<'_>,
        units: &[&Unit],
        task: &ChunkTask,
    ) -> Result<(), (u64, Error)> {
        for part in task.reads() {
            let (_, range, inside) = part;
            if !context.direct.is_some_and(|direct| direct.read(uploader, task.half, range, task.at + inside)) {
                self.run(context, uploader, units, task.only(part))?;
            }
        }
        Ok(())
    }

    /// Decodes units of a remote file, whose bytes are read at once.
    fn decode_together(
        &mut self,
        context: &DeviceReadContext<'_>,
        units: &[&Unit],
        list: &[(usize, usize)],
        chunk: &mut [u8],
    ) -> Result<(), (u64, Error)> {
        let numbers: Vec<usize> = list.iter().map(|(number, _)| *number).collect();
        let streams = self.streams(context, units, &numbers)?;
        for ((number, stream), (_, at)) in streams.iter().zip(list) {
            let Some(unit) = units.get(*number) else { continue };
            let place = chunk.get_mut(*at..*at + unit.decoded_len).unwrap_or_default();
            decode_rows(context, unit, stream, place, &mut self.scratch).map_err(|error| {
                let at = Place { offset: Some(unit.range.start), ..context.image.place_of(unit.index) };
                (unit.index, error.at(&at))
            })?;
        }
        Ok(())
    }

    /// Reads units for a library. nvJPEG returns samples of damaged streams without an error. So the threads that read ahead
    /// while the library works also check the streams, and those that the CPU's decoder would refuse never reach nvJPEG.
    fn prefetch(
        &mut self,
        context: &DeviceReadContext<'_>,
        units: &[&Unit],
        list: &[usize],
    ) -> Result<Prefetched, (u64, Error)> {
        let streams = self.streams(context, units, list)?;
        let spec = context.host.spec();
        let mut offer = |number: usize, stream: Vec<u8>| {
            if spec.compression != Compression::Jpeg {
                return Ok(stream);
            }
            let rows = units.get(number).map_or(0, |unit| unit.rows);
            match Jpeg::check(spec, rows, &stream, &mut self.scratch) {
                Ok(Some(end)) => Ok(whole_jpeg(&context.jpeg_tables, stream.get(..end).unwrap_or_default())),
                Ok(None) => Err("progressive or lossless".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        Ok(streams.into_iter().map(|(number, stream)| (number, offer(number, stream))).collect())
    }

    /// Reads units as whole streams.
    fn streams(
        &mut self,
        context: &DeviceReadContext<'_>,
        units: &[&Unit],
        list: &[usize],
    ) -> Result<Streams, (u64, Error)> {
        let (mut reads, mut end) = (Vec::with_capacity(list.len()), 0_usize);
        for (number, unit) in list.iter().filter_map(|number| Some((*number, units.get(*number)?))) {
            reads.push((number, unit.range.clone(), end));
            end = end.saturating_add(usize::try_from(unit.stream_len()).unwrap_or(usize::MAX));
        }
        let mut tiles = std::mem::take(&mut self.tiles);
        let first = list.first().and_then(|number| units.get(*number)).map_or(0, |unit| unit.index);
        let read = match tiles.room(end) {
            Some(bytes) => self.read(context, units, &reads, bytes),
            None => Err((first, Error::from(CodecError::NoMemory(end as u64)))),
        };
        let streams = read.map(|()| {
            let bytes = tiles.bytes();
            let tile = |(number, range, at): &(usize, Range<u64>, usize)| {
                let tile = bytes.get(*at..*at + (range.end - range.start) as usize).unwrap_or_default();
                (*number, tile.to_vec())
            };
            reads.iter().map(tile).collect()
        });
        self.tiles = tiles;
        streams
    }

    fn read(
        &mut self,
        context: &DeviceReadContext<'_>,
        units: &[&Unit],
        reads: &[(usize, Range<u64>, usize)],
        chunk: &mut [u8],
    ) -> Result<(), (u64, Error)> {
        let index_of = |unit: usize| units.get(unit).map_or(0, |unit| unit.index);
        let failed = |unit: usize, offset: u64| {
            let index = index_of(unit);
            move |error: swath_io::SourceError| {
                let place = Place { offset: Some(offset), ..context.image.place_of(index) };
                (index, Error::from(error).at(&place))
            }
        };
        let total: u64 = reads.iter().map(|(_, range, _)| range.end - range.start).sum();
        // A remote source merges ranges itself, and puts each tile in its place.
        let remote = context.fetch.access.is_remote();
        if !remote && reads.len() > 1 && total / (reads.len() as u64) < SMALL {
            let ranges: Vec<Range<u64>> = reads.iter().map(|(_, range, _)| range.clone()).collect();
            for merged in coalesce(&ranges, Merge { gap: GAP, max_len: CHUNK_LEN as u64, waste: 100 }) {
                let first = merged.members.first().and_then(|member| reads.get(*member)).map_or(0, |(unit, ..)| *unit);
                let len = merged.range.end - merged.range.start;
                let buffer = self.bytes.room(len as usize);
                let buffer = buffer.ok_or_else(|| (index_of(first), Error::from(CodecError::NoMemory(len))))?;
                context.fetch.source.read_at(merged.range.start, buffer).map_err(failed(first, merged.range.start))?;
                for (_, range, at) in merged.members.iter().filter_map(|member| reads.get(*member)) {
                    let from = (range.start - merged.range.start) as usize;
                    let len = (range.end - range.start) as usize;
                    if let (Some(found), Some(place)) = (buffer.get(from..from + len), chunk.get_mut(*at..*at + len)) {
                        place.copy_from_slice(found);
                    }
                }
            }
            return Ok(());
        }
        let mut buffers = Vec::with_capacity(reads.len());
        let (mut rest, mut done) = (chunk, 0);
        for (_, range, at) in reads {
            let (_, tail) = rest.split_at_mut_checked(at - done).unwrap_or_default();
            let len = (range.end - range.start) as usize;
            let (buffer, tail) = tail.split_at_mut_checked(len).unwrap_or_default();
            buffers.push(ReadInto { offset: range.start, buffer });
            (rest, done) = (tail, at + len);
        }
        let (unit, offset) = reads.first().map_or((0, 0), |(unit, range, _)| (*unit, range.start));
        let given_up = || context.cancel.is_some_and(Cancel::is_cancelled);
        context.fetch.source.read_many_unless(&mut buffers, &given_up).map_err(failed(unit, offset))
    }

    /// Reads a tile and decodes the needed rows.
    fn decode(&mut self, context: &DeviceReadContext<'_>, unit: &Unit, place: &mut [u8]) -> Result<(), Error> {
        let at = Place { offset: Some(unit.range.start), ..context.image.place_of(unit.index) };
        let len = usize::try_from(unit.stream_len())
            .map_err(|_| Error::malformed("a tile is larger than the address space").at(&at))?;
        let stream = self.bytes.room(len).ok_or_else(|| Error::from(CodecError::NoMemory(len as u64)).at(&at))?;
        context.fetch.source.read_at(unit.range.start, stream).map_err(|error| Error::from(error).at(&at))?;
        decode_rows(context, unit, stream, place, &mut self.scratch).map_err(|error| error.at(&at))
    }

    fn decode_large(
        &mut self,
        context: &DeviceReadContext<'_>,
        uploader: Uploader<'_>,
        unit: &Unit,
        half: usize,
        at: usize,
    ) -> Result<(), (u64, Error)> {
        let here = |error: Error| (unit.index, error);
        let mut tile = SampleBuffer::new(unit.decoded_len).ok_or_else(|| here(Error::no_memory(unit.decoded_len)))?;
        self.decode(context, unit, tile.bytes_mut()).map_err(here)?;
        for (number, bytes) in tile.bytes().chunks(CHUNK_LEN).enumerate() {
            let mut chunk = uploader.chunk().map_err(|error| here(error.into()))?;
            if let Some(place) = chunk.bytes_mut().get_mut(..bytes.len()) {
                place.copy_from_slice(bytes);
            }
            uploader.upload(half, chunk, bytes.len(), at + number * CHUNK_LEN).map_err(|error| here(error.into()))?;
        }
        Ok(())
    }
}

/// A JPEG tile up to the end of its last scan as a whole stream: the directory's tables behind its first marker, and an end of
/// image, whether or not the tile has one.
fn whole_jpeg(tables: &[u8], tile: &[u8]) -> Vec<u8> {
    let (start, rest) = tile.split_at_checked(2).unwrap_or((tile, &[]));
    [start, tables, rest, &[0xFF, 0xD9]].concat()
}

/// Returns the quantisation and Huffman tables of a JPEGTables field, as segments. It ignores everything else.
pub(super) fn table_segments(field: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(field.len());
    let mut rest = field.get(2..).unwrap_or_default();
    while let [0xFF, marker, after @ ..] = rest {
        match marker {
            // Fill bytes before a marker.
            0xFF => rest = rest.get(1..).unwrap_or_default(),
            0xD9 => break,
            0x01 | 0xD0..=0xD8 => rest = after,
            _ => {
                let len = after.first_chunk().map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
                let Some(segment) = rest.get(..2 + len).filter(|_| len >= 2) else { break };
                if matches!(marker, 0xC4 | 0xDB) {
                    kept.extend_from_slice(segment);
                }
                rest = rest.get(2 + len..).unwrap_or_default();
            }
        }
    }
    kept
}

/// Decodes the needed rows of a tile on the CPU, to samples in native byte order.
pub(super) fn decode_rows(
    context: &DeviceReadContext<'_>,
    unit: &Unit,
    stream: &[u8],
    place: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(), Error> {
    context.host.decode_rows(unit.rows, unit.wanted.clone(), stream, place, scratch)?;
    if let Some(detail) = scratch.take_warning() {
        context.warnings.add(context.image.index, unit.index, context.image.place_of(unit.index), detail);
    }
    Ok(())
}

/// Has the CPU decode a tile that the device refused. The CPU also words the error, if there is one.
pub(super) fn decode_refused(context: &DeviceReadContext<'_>, refused: &Refused<'_>) -> Result<Arc<Vec<u8>>, Error> {
    let unit = refused.unit;
    let at = Place { offset: Some(unit.range.start), ..context.image.place_of(unit.index) };
    let mut read;
    let stream = match &refused.stream {
        Some(stream) if !context.host.spec().bits_reversed => stream,
        _ => {
            read = vec![0; usize::try_from(unit.stream_len()).unwrap_or(usize::MAX)];
            context.fetch.source.read_at(unit.range.start, &mut read).map_err(|error| Error::from(error).at(&at))?;
            &read
        }
    };
    let len = context.host.spec().native_row_len() * unit.wanted.len();
    let mut tile = vec![0; len];
    decode_rows(context, unit, stream, &mut tile, &mut Scratch::default()).map_err(|error| error.at(&at))?;
    Ok(Arc::new(tile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_go_behind_the_first_marker_and_only_definitions_do() {
        let quant = [0xFF, 0xDB, 0, 4, 1, 2];
        let huffman = [0xFF, 0xC4, 0, 3, 9];
        let restart = [0xFF, 0xDD, 0, 4, 0, 8];
        let field = [&[0xFF, 0xD8][..], &quant, &restart, &[0xFF], &huffman, &[0xFF, 0xD9, 7, 7]].concat();
        let tables = table_segments(&field);
        assert_eq!(tables, [&quant[..], &huffman].concat());
        assert_eq!(
            whole_jpeg(&tables, &[0xFF, 0xD8, 5, 6]),
            [&[0xFF, 0xD8][..], &tables, &[5, 6, 0xFF, 0xD9]].concat()
        );
        assert_eq!(whole_jpeg(&[], &[0xFF, 0xD8, 5]), [0xFF, 0xD8, 5, 0xFF, 0xD9]);
        for len in 0..field.len() {
            assert!(tables.starts_with(&table_segments(field.get(..len).unwrap_or_default())), "{len}");
        }
    }
}
