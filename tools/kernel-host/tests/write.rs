//! The kernels of the write path, except encoders, against the CPU: taking rows, cutting tiles, statistics, checksums,
//! packing.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;

use swath_codec::{
    Registry, Scratch, TileSpec, conformance,
    conformance::Rng,
    encode::Settings,
    host::encode::HostEncoder,
    pre::{Arrangement, Edge, ImageRows, cut},
};
use swath_kernel_host::{
    Build, KernelHost,
    server::{Argument, Buffer},
};
use swath_raster::moments::TileBand;
use swath_tiff::{
    Compression, SampleFormat as F, SampleType as S, Window,
    structure::{ByteOrder, Predictor},
};

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next() % end.max(1)
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[below(rng, from.len() as u64) as usize]
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

/// A field of a kernel's arguments.
enum Field {
    /// A pointer into a buffer, at this offset.
    At(usize, u64),
    Null,
    Long(u64),
    Word(u32),
    Bytes(Vec<u8>),
}
use Field::{At, Bytes, Long, Null, Word};

fn launch(
    host: &mut KernelHost,
    kernel: &str,
    (blocks, lanes): (u32, u32),
    buffers: &[Buffer<'_>],
    fields: &[Field],
) -> Vec<Vec<u8>> {
    let raw: Vec<Vec<u8>> = fields
        .iter()
        .map(|field| match field {
            At(..) | Null => vec![0; 8],
            Long(number) => number.to_le_bytes().to_vec(),
            Word(number) => number.to_le_bytes().to_vec(),
            Bytes(bytes) => bytes.clone(),
        })
        .collect();
    let arguments: Vec<Argument<'_>> = fields
        .iter()
        .zip(&raw)
        .map(|(field, raw)| match field {
            At(buffer, within) => Argument::Pointer(*buffer, *within),
            _ => Argument::Bytes(raw),
        })
        .collect();
    host.run(kernel, blocks, lanes, buffers, &arguments).unwrap()
}

fn words(raw: &[u8]) -> Vec<u32> {
    raw.as_chunks().0.iter().map(|raw| u32::from_le_bytes(*raw)).collect()
}

fn raw_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Rows of a level, and their layout in the ring.
#[derive(Debug, Clone)]
struct Ring {
    band_step: u64,
    rows: u32,
    width: u32,
    bands: u32,
    size: usize,
}

impl Ring {
    /// The fields of `Rows` for a buffer of `len` bytes.
    fn fields(&self, buffer: usize, len: usize) -> [Field; 6] {
        let row_step = u64::from(self.width) * self.size as u64;
        [At(buffer, 0), Long(len as u64), Long(self.band_step), Long(row_step), Word(self.rows), Word(self.width)]
    }

    fn row_len(&self) -> usize {
        self.width as usize * self.size
    }

    fn len(&self) -> usize {
        (self.bands as usize - 1) * self.band_step as usize + self.rows as usize * self.row_len()
    }

    /// The start of a row of a band.
    fn at(&self, band: u32, y: u32) -> usize {
        band as usize * self.band_step as usize + (y % self.rows) as usize * self.row_len()
    }
}

/// Any kind of tile that a file can be written with.
fn any_spec(rng: &mut Rng) -> TileSpec {
    let whole = [
        (S::U8, F::Uint),
        (S::U8, F::Uint),
        (S::U16, F::Uint),
        (S::I16, F::Int),
        (S::I32, F::Int),
        (S::U64, F::Uint),
        (S::F16, F::Float),
        (S::F32, F::Float),
        (S::F32, F::Float),
        (S::F64, F::Float),
        (S::CI16, F::ComplexInt),
        (S::CI32, F::ComplexInt),
        (S::CF32, F::ComplexFloat),
        (S::CF64, F::ComplexFloat),
    ];
    let (mut sample, mut format) = pick(rng, &whole);
    let mut bits = 8 * sample.size() as u16;
    if below(rng, 5) == 0 {
        bits = pick(rng, &[1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 23, 31]);
        (sample, format) = (
            match bits {
                1..=7 => S::U8,
                8..=15 => S::U16,
                _ => S::U32,
            },
            F::Uint,
        );
    }
    let samples = pick(rng, &[1, 1, 1, 2, 3, 4, 5, 37]);
    let width = pick(rng, &[1, 2, 7, 16, 32, 33, 64, 96, 100, 128, 129, 256, 300]);
    let mut spec = conformance::spec(Compression::None, 1, sample, samples, width);
    let predicted = bits == 8 * sample.size() as u16;
    spec.predictor = match below(rng, 3) {
        0 if predicted => Predictor::Horizontal,
        1 if predicted && matches!(format, F::Float | F::ComplexFloat) => Predictor::FloatingPoint,
        _ => Predictor::None,
    };
    spec.order = pick(rng, &[ByteOrder::Little, ByteOrder::Big]);
    (spec.bits, spec.format, spec.height) = (bits, format, pick(rng, &[1, 2, 3, 5, 8, 13]));
    spec.tiled = below(rng, 3) != 0;
    spec
}

/// Cuts the grid rows `first_row` and on of an image whose rows lie in a ring; compares every byte of every tile.
fn cut_round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let mut spec = any_spec(rng);
    let (across, down) = (1 + below(rng, 3) as u32, 1 + below(rng, 3) as u32);
    let width = if spec.tiled { spec.width * across - below(rng, spec.width.into()) as u32 } else { spec.width };
    let across = if spec.tiled { across } else { 1 };
    if !spec.tiled && below(rng, 8) == 0 {
        // A strip of several pieces of work.
        spec.width = 4096 + below(rng, 3000) as u32;
    }
    let width = if spec.tiled { width } else { spec.width };
    let height = spec.height * down - below(rng, spec.height.into()) as u32;
    let planes = if spec.samples == 1 { 1 + below(rng, 3) as u32 } else { 1 };
    let first_row = below(rng, down.into()) as u32;
    let grid_rows = 1 + below(rng, (down - first_row).into()) as u32;
    let top = first_row * spec.height;
    let there = (grid_rows * spec.height).min(height - top);
    let size = spec.sample.size();
    let bands = u32::from(spec.samples) * planes;
    let rows = there + below(rng, 4) as u32;
    let spare = below(rng, 3) * size as u64;
    let ring = Ring { band_step: u64::from(rows) * u64::from(width) * size as u64 + spare, rows, width, bands, size };

    let mut fill = [0; 16];
    fill.fill_with(|| rng.next() as u8);
    let mut memory = noise(rng, ring.len());
    // A part of the image is only fill, so that some tiles are left out.
    let flat = below(rng, 3);
    if flat > 0 {
        for band in 0..bands {
            for y in top..top + there {
                let at = ring.at(band, y);
                memory[at..at + ring.row_len()].chunks_exact_mut(size).for_each(|to| to.copy_from_slice(&fill[..size]));
            }
        }
        if flat == 2 {
            let (band, y) = (below(rng, bands.into()) as u32, top + below(rng, there.into()) as u32);
            let at = ring.at(band, y) + below(rng, ring.row_len() as u64) as usize;
            memory[at] ^= 1 << below(rng, 8);
        }
    }
    let sparse = below(rng, 2) == 1;
    let edge = pick(rng, &[Edge::Repeat, Edge::RepeatColumns, Edge::Zero]);

    let all = across * grid_rows * planes;
    let skip = below(rng, all.into()) as u32;
    let count = 1 + below(rng, (all - skip).into()) as u32;
    let first = below(rng, 3) as u32;
    let stride = spec.stored_len(spec.height).next_multiple_of(16) + 16 * below(rng, 2) as usize;
    let cpu = HostEncoder::new(Arc::new(spec.clone()), &Settings::default(), &Registry::default()).unwrap();
    let bytes: Vec<Vec<u8>> = (0..bands)
        .map(|band| (top..top + there).flat_map(|y| memory[ring.at(band, y)..][..ring.row_len()].to_vec()).collect())
        .collect();
    let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    let view =
        ImageRows { planes: &slices, arrangement: Arrangement::Planes, bands: bands as u16, size, width, first: top };
    // The last tile ends with the buffer.
    let mut want = vec![0xcd; stride * (first + count - 1) as usize];
    let mut want_lens = vec![0; (first + count) as usize];
    for tile in 0..count {
        let (position, plane) = ((skip + tile) / planes, (skip + tile) % planes);
        let (column, row) = (position % across, first_row + position / across);
        let (x, y) = (column * spec.width, row * spec.height);
        let visible = Window::new(x, y, spec.width.min(width - x), spec.height.min(height - y));
        let stored_rows = if spec.tiled { spec.height } else { visible.height };
        let mut native = vec![0; spec.native_row_len() * stored_rows as usize];
        let take = plane as u16 * spec.samples..(plane as u16 + 1) * spec.samples;
        assert!(cut(&view, visible, take, spec.width, edge, &mut native));
        let in_image = native.chunks_exact(spec.native_row_len()).take(visible.height as usize).all(|row| {
            row.chunks_exact(size).take(visible.width as usize * usize::from(spec.samples)).all(|s| s == &fill[..size])
        });
        let mut stored = Vec::new();
        cpu.encode(stored_rows, &mut native, &mut stored, &mut Scratch::default()).unwrap();
        assert_eq!(stored.len(), spec.stored_len(stored_rows));
        if !(sparse && in_image) {
            want_lens[(first + tile) as usize] = stored.len() as u32;
        }
        let at = stride * (first + tile) as usize;
        want.resize(want.len().max(at + stored.len()), 0xcd);
        want[at..at + stored.len()].copy_from_slice(&stored);
    }

    // A tile without room is left out.
    if below(rng, 8) == 0 {
        let last = stride * (first + count - 1) as usize;
        want.pop();
        want[last..].fill(0xcd);
        want_lens[(first + count - 1) as usize] = 0;
    }

    let parts = 1 + below(rng, 3) as u32;
    let blocks = 1 + below(rng, u64::from(count * parts) + 2) as u32;
    let zeros = vec![0; want_lens.len() * 4];
    let buffers = [Buffer::In(&memory), Buffer::Out(want.len()), Buffer::InOut(&zeros)];
    let mut fields: Vec<Field> = ring.fields(0, memory.len()).into();
    fields.extend([At(1, 0), Long(want.len() as u64), Long(stride as u64), At(2, 0)]);
    fields.push(Long(spec.stored_row_len() as u64));
    fields.extend(
        [
            height,
            spec.width,
            spec.height,
            spec.tiled.into(),
            across,
            planes,
            spec.samples.into(),
            first_row,
            skip,
            first,
            count,
            parts,
            size as u32,
            spec.sample.word() as u32,
            spec.bits.into(),
            spec.order.is_foreign().into(),
            match spec.predictor {
                Predictor::None => 0,
                Predictor::Horizontal => 2,
                Predictor::FloatingPoint => 3,
            },
            edge as u32,
            sparse.into(),
            0,
        ]
        .map(Word),
    );
    fields.push(Bytes(fill.to_vec()));
    let back = launch(host, "swath_cut", (blocks, lanes), &buffers, &fields);
    assert_eq!(words(&back[1]), want_lens, "{spec:?} {ring:?}");
    if back[0] != want {
        let at = back[0].iter().zip(&want).position(|(got, want)| got != want);
        panic!("byte {at:?} of {}, tiles of {stride}: {spec:?} {ring:?} {edge:?} {height} {lanes}", want.len());
    }
}

/// Copies a raster of any layout into a ring; compares every byte of the ring.
fn take_round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let size = pick(rng, &[1, 2, 4, 8, 16]);
    let bands = 1 + below(rng, 4) as u32;
    let (first_band, spare_bands) = (below(rng, 2) as u32, below(rng, 2) as u32);
    let width = pick(rng, &[1, 3, 16, 31, 64, 100, 257, 2047, 2048, 2113]);
    let count = 1 + below(rng, 5) as u32;
    let rows = count + below(rng, 3) as u32;
    let gap = below(rng, 3) * size.min(8) as u64;
    let row_len = u64::from(width) * size as u64;
    let ring =
        Ring { band_step: u64::from(rows) * row_len + gap, rows, width, bands: first_band + bands + spare_bands, size };
    let first = below(rng, 50) as u32;
    // Which of row, column and band varies fastest, sometimes with gaps or reversed.
    let mut order = [0, 1, 2];
    order.swap(0, below(rng, 3) as usize);
    order.swap(1, 1 + below(rng, 2) as usize);
    if below(rng, 2) == 0 {
        order = [1, 0, 2];
    }
    let extents = [u64::from(count), u64::from(width), u64::from(bands)];
    let odd = below(rng, 3) == 0;
    let (mut steps, mut extent) = ([0_i64; 3], size as u64);
    for (place, axis) in order.into_iter().enumerate() {
        let spare = if place == 0 && below(rng, 3) > 0 { 0 } else { below(rng, 3) };
        let step = extent + spare * if odd { 1 } else { size as u64 };
        steps[axis] = step as i64;
        extent += step * (extents[axis] - 1);
    }
    let shift = if odd { below(rng, 16) as i64 } else { 0 };
    let mut origin = shift;
    for axis in 0..3 {
        if below(rng, 4) == 0 {
            origin += steps[axis] * (extents[axis] as i64 - 1);
            steps[axis] = -steps[axis];
        }
    }
    let mut src = noise(rng, shift as usize + extent as usize);
    let replace = if matches!(size, 2 | 4 | 8) && below(rng, 2) == 0 { size } else { 0 };
    let nodata = noise(rng, 16);
    let memory = noise(rng, ring.len());
    let mut want = memory.clone();
    for y in 0..count {
        for x in 0..width {
            for band in 0..bands {
                let at = origin + i64::from(y) * steps[0] + i64::from(x) * steps[1] + i64::from(band) * steps[2];
                let from = &mut src[at as usize..at as usize + size];
                if below(rng, 4) == 0 && replace > 0 {
                    // NaN, infinity, and numbers with similar bits.
                    from[size - 1] |= 0x7f;
                    from[size - 2] |= pick(rng, &[0xf0, 0x80, 0x7c, 0xff]);
                    if below(rng, 2) == 0 {
                        from[..size - 2].fill(0);
                        from[size - 2] &= pick(rng, &[0xf0, 0x80, 0xff]);
                    }
                }
                let nan = match replace {
                    2 => u16::from_le_bytes([from[0], from[1]]) & 0x7fff > 0x7c00,
                    4 => f32::from_le_bytes((&*from).try_into().unwrap()).is_nan(),
                    8 => f64::from_le_bytes((&*from).try_into().unwrap()).is_nan(),
                    _ => false,
                };
                let to = ring.at(first_band + band, first + y) + x as usize * size;
                want[to..to + size].copy_from_slice(if nan { &nodata[..size] } else { from });
            }
        }
    }
    let buffers = [Buffer::InOut(&memory), Buffer::In(&src)];
    let mut fields: Vec<Field> = ring.fields(0, memory.len()).into();
    fields.push(At(1, origin as u64));
    fields.extend(steps.map(|step| Long(step as u64)));
    fields.extend([first, count, bands, first_band, size as u32, replace as u32].map(Word));
    fields.push(Bytes(nodata));
    let blocks = 1 + below(rng, 4) as u32;
    let back = launch(host, "swath_take", (blocks, lanes), &buffers, &fields);
    if back[0] != want {
        let at = back[0].iter().zip(&want).position(|(got, want)| got != want);
        panic!("byte {at:?} of {}: {ring:?} {steps:?} {replace} {lanes}", want.len());
    }
}

fn plain_adler(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65521;
        high = (high + low) % 65521;
    }
    high << 16 | low
}

fn adler_round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let tiles = 1 + below(rng, 5) as usize;
    let stride = 16 * below(rng, 300) as usize;
    let mut src = noise(rng, stride * tiles);
    if below(rng, 4) == 0 {
        src.fill(0xff);
    }
    let lens: Vec<u32> = (0..tiles).map(|_| below(rng, stride as u64 + 1) as u32).collect();
    // The last tile ends with the buffer, or beyond it.
    let last = stride * (tiles - 1) + *lens.last().unwrap() as usize;
    let short = below(rng, 4) == 0 && last > stride * (tiles - 1);
    src.truncate(last - usize::from(short));
    let mut want: Vec<u32> = (0..tiles)
        .map(|tile| plain_adler(src.get(tile * stride..).unwrap_or(&[]).get(..lens[tile] as usize).unwrap_or(&[])))
        .collect();
    if short {
        want[tiles - 1] = 0xcdcd_cdcd;
    }
    let raw = raw_words(&lens);
    let buffers = [Buffer::In(&src), Buffer::In(&raw), Buffer::Out(4 * tiles)];
    let fields =
        [At(0, 0), Long(src.len() as u64), Long(stride as u64), At(1, 0), At(2, 0), Word(tiles as u32), Word(0)];
    let back = launch(host, "swath_adler", (1 + below(rng, 6) as u32, lanes), &buffers, &fields);
    assert_eq!(words(&back[0]), want, "{lens:?} {stride} {lanes}");
}

fn pack_round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let (tiles, pieces) = (1 + below(rng, 40) as usize, 1 + below(rng, 5) as usize);
    let stride = 16 * (1 + below(rng, 60) as usize);
    let longest = if below(rng, 4) == 0 { 3 } else { stride as u64 };
    let mut sizes: Vec<u32> = (0..tiles * pieces).map(|_| below(rng, longest + 1) as u32).collect();
    let lens: Vec<u32> = (0..tiles).map(|_| below(rng, 5) as u32).collect();
    for tile in 0..tiles {
        if lens[tile] == 0 {
            sizes[tile * pieces..][..pieces].fill(0);
        }
    }
    let src_len = stride * (tiles * pieces - 1) + sizes[tiles * pieces - 1] as usize;
    let src = noise(rng, src_len);
    // Sometimes an impossible size.
    if below(rng, 4) == 0 {
        let bad = below(rng, sizes.len() as u64) as usize;
        sizes[bad] = pick(rng, &[stride as u32 + 1, u32::MAX, 0x8000_0000]);
    }
    let checks: Vec<u32> = (0..tiles).map(|_| rng.next() as u32).collect();
    let head_len = below(rng, 17) as usize;
    let head = noise(rng, head_len);
    let (tail, frame) = (below(rng, 2) as u32, below(rng, 2) as u32);
    let start = below(rng, 40) as usize;

    let mut want = vec![0xcd; start];
    let (mut want_wholes, mut want_offsets) = (Vec::new(), Vec::new());
    for tile in 0..tiles {
        want_offsets.push(want.len() as u64);
        let range = tile * pieces..(tile + 1) * pieces;
        if lens[tile] == 0 {
            want_wholes.push(0);
            continue;
        }
        if range.clone().any(|piece| sizes[piece] as usize > stride) {
            want_wholes.push(u32::MAX);
            continue;
        }
        let mut stream = head.clone();
        range.for_each(|piece| stream.extend_from_slice(&src[piece * stride..][..sizes[piece] as usize]));
        if tail == 1 {
            stream.extend(checks[tile].to_be_bytes());
        }
        if frame == 1 {
            stream = [&(stream.len() as u32).to_le_bytes()[..], &stream].concat();
            stream.extend(*stream.clone().last_chunk::<4>().unwrap());
        }
        want_wholes.push(stream.len() as u32);
        want.extend_from_slice(&stream);
    }
    let needed = want.len() as u64;
    // Sometimes too little room.
    let room = if below(rng, 3) == 0 { start + below(rng, needed - start as u64 + 1) as usize } else { want.len() };
    if room < want.len() {
        let mut kept = start;
        for tile in 0..tiles {
            let end = want_offsets[tile] + u64::from(want_wholes[tile]);
            if want_wholes[tile] != u32::MAX && end > room as u64 {
                want_wholes[tile] = u32::MAX;
            } else if want_wholes[tile] != u32::MAX {
                kept = kept.max(end as usize);
            } else if want_offsets[tile] > room as u64 {
                want_wholes[tile] = u32::MAX;
            }
        }
        want.truncate(kept);
        want.resize(room, 0xcd);
    }

    let (raw_lens, raw_sizes, raw_checks) = (raw_words(&lens), raw_words(&sizes), raw_words(&checks));
    let total = (start as u64).to_le_bytes();
    let shift = below(rng, 16) as usize;
    let buffers = [
        Buffer::In(&src),
        Buffer::Out(shift + room),
        Buffer::In(&raw_lens),
        Buffer::In(&raw_sizes),
        Buffer::In(&raw_checks),
        Buffer::Out(4 * tiles),
        Buffer::Out(8 * tiles),
        Buffer::InOut(&total),
    ];
    let mut padded = head.clone();
    padded.resize(16, 0xaa);
    let fields = [
        At(0, 0),
        Long(src.len() as u64),
        Long(stride as u64),
        At(1, shift as u64),
        Long(room as u64),
        At(2, 0),
        At(3, 0),
        if tail == 1 { At(4, 0) } else { Null },
        At(5, 0),
        At(6, 0),
        At(7, 0),
        Word(tiles as u32),
        Word(pieces as u32),
        Word(head.len() as u32),
        Word(tail),
        Word(frame),
        Word(0),
        Bytes(padded),
    ];
    let blocks = 1 + below(rng, 9) as u32;
    let back = launch(host, "swath_layout,swath_pack", (blocks, lanes), &buffers, &fields);
    let offsets: Vec<u64> = back[2].as_chunks().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
    assert_eq!(offsets, want_offsets);
    assert_eq!(words(&back[1]), want_wholes);
    assert_eq!(u64::from_le_bytes(back[3][..].try_into().unwrap()), needed);
    assert!(back[0][shift..] == want, "{sizes:?} {stride} {shift} {lanes}");
}

/// Types that have statistics, in the order of their numbers.
const KINDS: [S; 11] = [S::U8, S::I8, S::U16, S::I16, S::U32, S::I32, S::U64, S::I64, S::F16, S::F32, S::F64];

/// Native bytes of a number, rounded to the type.
fn native(kind: S, value: f64) -> Vec<u8> {
    match kind {
        S::U8 => vec![value as u8],
        S::I8 => (value as i8).to_le_bytes().into(),
        S::U16 => (value as u16).to_le_bytes().into(),
        S::I16 => (value as i16).to_le_bytes().into(),
        S::U32 => (value as u32).to_le_bytes().into(),
        S::I32 => (value as i32).to_le_bytes().into(),
        S::U64 => (value as u64).to_le_bytes().into(),
        S::I64 => (value as i64).to_le_bytes().into(),
        S::F16 => swath_raster::half::narrow(value).to_le_bytes().into(),
        S::F32 => (value as f32).to_le_bytes().into(),
        _ => value.to_le_bytes().into(),
    }
}

/// Statistics are compared in their debug form, to the last digit: it shows private fields too.
fn moments_round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let number = below(rng, 11) as usize;
    let kind = KINDS[number];
    let size = kind.size();
    let (tile_width, tile_height) = (pick(rng, &[1, 7, 8, 16, 33, 64, 200]), pick(rng, &[1, 2, 5, 31, 32, 33, 70]));
    let (across, down) = (1 + below(rng, 3) as u32, 1 + below(rng, 2) as u32);
    let width = tile_width * across - below(rng, tile_width.into()) as u32;
    let height = tile_height * down - below(rng, tile_height.into()) as u32;
    let bands = 1 + below(rng, 3) as u32;
    let first_row = below(rng, down.into()) as u32;
    let all = across * (down - first_row);
    let skip = below(rng, all.into()) as u32;
    let count = 1 + below(rng, (all - skip).into()) as u32;
    let first = below(rng, 3) as u32;
    let there = height - first_row * tile_height;
    let rows = there + below(rng, 3) as u32;
    let ring = Ring { band_step: u64::from(rows) * u64::from(width) * size as u64, rows, width, bands, size };
    let masks = Ring { band_step: 0, rows: there + below(rng, 3) as u32, width, bands: 1, size: 1 };

    let temper = below(rng, 4);
    let nodata = native(kind, 3.0);
    let mut memory = noise(rng, ring.len());
    for sample in memory.chunks_exact_mut(size) {
        match (temper, below(rng, 5)) {
            (0, _) => {}
            (_, 0) => sample.copy_from_slice(&nodata),
            (1, _) => {
                let value = below(rng, 2000) as f64 / 7.0 - 30.0;
                sample.copy_from_slice(&native(kind, value));
            }
            (2, 1) => sample.copy_from_slice(&native(kind, pick(rng, &[f64::NAN, f64::INFINITY, -0.0, 0.0, 1e300]))),
            (2, _) => sample.copy_from_slice(&native(kind, pick(rng, &[0.0, -0.0, 1.5]))),
            _ => sample.copy_from_slice(&nodata),
        }
    }
    let mask: Vec<u8> = (0..masks.len()).map(|_| pick(rng, &[0, 1, 255])).collect();
    let (masked, has_nodata) = (below(rng, 3) == 0, below(rng, 2) == 0);

    let mut want = Vec::new();
    for tile in skip..skip + count {
        let (x, y) = ((tile % across) * tile_width, (first_row + tile / across) * tile_height);
        let (columns, lines) = (tile_width.min(width - x), tile_height.min(height - y));
        for band in 0..bands {
            let part = |from: &[u8], ring: &Ring, band: u32| -> Vec<u8> {
                let of = |y| ring.at(band, y) + x as usize * ring.size;
                (y..y + lines).flat_map(|y| from[of(y)..of(y) + columns as usize * ring.size].to_vec()).collect()
            };
            let (samples, mask) = (part(&memory, &ring, band), part(&mask, &masks, 0));
            let of = TileBand {
                tile: &samples,
                width: columns,
                visible: Window::new(0, 0, columns, lines),
                samples: 1,
                sample: 0,
                kind,
                nodata: has_nodata.then_some(&nodata[..]),
                mask: masked.then_some(&mask[..]),
            };
            want.push(format!("{:?}", of.moments().unwrap()));
        }
    }
    let (slots, room) = ((first + count) * bands, tile_height + below(rng, 3) as u32);
    let buffers = [Buffer::In(&memory), Buffer::In(&mask), Buffer::Out(48 * (slots * room) as usize)];
    let mut fields: Vec<Field> = ring.fields(0, memory.len()).into();
    if masked {
        fields.extend(masks.fields(1, mask.len()));
    } else {
        fields.extend([Null, Long(0), Long(0), Long(0), Word(0), Word(0)]);
    }
    fields.extend([At(2, 0), Long((slots * room).into())]);
    fields.extend([height, tile_width, tile_height, across, bands, first_row, skip, first, count].map(Word));
    fields.extend([number as u32, has_nodata.into(), room].map(Word));
    let mut padded = nodata.clone();
    padded.resize(8, 0xee);
    fields.push(Bytes(padded));
    let mut blocks = || 1 + below(rng, 4) as u32;
    let rows = launch(host, "swath_moments", (blocks(), lanes), &buffers, &fields).remove(0);
    let buffers = [Buffer::In(&rows), Buffer::Out(48 * slots as usize)];
    let fields = [At(0, 0), Long((slots * room).into()), At(1, 0), Long(slots.into()), Word(room), Word(slots)];
    let back = launch(host, "swath_moments_join", (blocks(), lanes), &buffers, &fields);
    let got = back[0].as_chunks::<48>().0.iter().skip((first * bands) as usize).map(|raw| {
        let numbers: Vec<u64> = raw.as_chunks().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
        let [count, all, rest @ ..] = &numbers[..] else { return String::new() };
        let [min, max, mean, squares] = [0, 1, 2, 3].map(|at| f64::from_bits(rest[at]));
        format!(
            "Moments {{ count: {count}, all: {all}, min: {min:?}, max: {max:?}, mean: {mean:?}, squares: {squares:?} }}"
        )
    });
    assert_eq!(got.collect::<Vec<_>>(), want, "{kind} {tile_width} {tile_height} {lanes}");
}

type Round = fn(&mut Rng, &mut KernelHost, u32);

/// Most rounds run with one lane under the address sanitizer; some with teams under it and under the thread sanitizer.
fn rounds(round: Round, count: u32) {
    let turns = [
        (Build::Asan, 1, count),
        (Build::Asan, 8, count / 20),
        (Build::Asan, 32, count / 100),
        (Build::Tsan, 4, count / 60),
        (Build::Tsan, 8, count / 60),
        (Build::Tsan, 32, count / 200),
    ];
    for (seed, (build, lanes, count)) in turns.into_iter().enumerate() {
        let mut host = KernelHost::start(build).unwrap();
        let mut rng = Rng(seed as u64);
        for _ in 0..count {
            round(&mut rng, &mut host, lanes);
        }
    }
}

#[test]
fn tiles_are_cut_as_the_cpu_cuts_them() {
    rounds(cut_round, 3000);
}

#[test]
fn rows_of_any_layout_are_taken() {
    rounds(take_round, 1500);
}

#[test]
fn statistics_are_those_of_the_cpu_to_the_last_bit() {
    rounds(moments_round, 1500);
}

#[test]
fn checksums_are_those_of_every_byte() {
    rounds(adler_round, 800);
}

#[test]
fn tiles_are_packed_one_after_the_other() {
    rounds(pack_round, 1500);
}
