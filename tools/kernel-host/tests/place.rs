//! The placing kernel against the CPU's samples, for random layouts.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;

use swath_codec::{Registry, Scratch, TileSpec, conformance, conformance::Rng, host::Host};
use swath_kernel_host::{
    Build, KernelHost,
    place::{Batch, Launch, Output, PlaceTile, place},
};
use swath_tiff::{
    Compression, SampleFormat as F, SampleType,
    structure::{ByteOrder, Predictor},
};

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next() % end.max(1)
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[below(rng, from.len() as u64) as usize]
}

/// Any kind of tile that a file can have.
fn any_spec(rng: &mut Rng) -> TileSpec {
    use SampleType as S;
    let whole = [
        (S::U8, F::Uint),
        (S::U16, F::Uint),
        (S::I32, F::Int),
        (S::U64, F::Uint),
        (S::F16, F::Float),
        (S::F32, F::Float),
        (S::F64, F::Float),
        (S::CI16, F::ComplexInt),
        (S::CF16, F::ComplexFloat),
        (S::CI32, F::ComplexInt),
        (S::CF32, F::ComplexFloat),
        (S::CF64, F::ComplexFloat),
    ];
    let (mut sample, mut format) = pick(rng, &whole);
    let mut bits = 8 * sample.size() as u16;
    match below(rng, 4) {
        0 => {
            bits = pick(rng, &[1, 2, 3, 4, 5, 7, 9, 10, 12, 13, 15, 17, 20, 23, 25, 31]);
            (sample, format) = (
                if bits < 8 {
                    S::U8
                } else if bits < 16 {
                    S::U16
                } else {
                    S::U32
                },
                F::Uint,
            );
        }
        1 => {
            bits = 24;
            (sample, format) = pick(rng, &[(S::U32, F::Uint), (S::F32, F::Float)]);
        }
        _ => {}
    }
    let samples = pick(rng, &[1, 1, 1, 2, 3, 3, 4, 5, 8, 17, 33, 40]);
    let width = pick(rng, &[1, 2, 7, 16, 31, 32, 33, 64, 100, 129, 256, 300]);
    let mut spec = conformance::spec(Compression::None, 1, sample, samples, width);
    let horizontal = matches!(bits, 8 | 16 | 32 | 64);
    let float = matches!(bits, 16 | 24 | 32 | 64) && format == F::Float;
    spec.predictor = match below(rng, 3) {
        0 if horizontal => Predictor::Horizontal,
        1 if float => Predictor::FloatingPoint,
        _ => Predictor::None,
    };
    spec.order = pick(rng, &[ByteOrder::Little, ByteOrder::Big]);
    (spec.bits, spec.format, spec.height) = (bits, format, 1 + below(rng, 12) as u32);
    spec
}

/// Several tiles of one spec in one launch, some of them sparse, refused, or partly outside; compares every byte of the
/// output.
fn round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let spec = Arc::new(any_spec(rng));
    let cpu = Host::new(spec.clone(), &Registry::default()).unwrap();
    let (size, samples) = (spec.sample.size() as u64, u64::from(spec.samples));
    let takes: Vec<u16> = match below(rng, 3) {
        0 => (0..spec.samples).collect(),
        1 => vec![below(rng, samples) as u16],
        _ => (0..1 + below(rng, samples + 1)).map(|_| below(rng, samples) as u16).collect(),
    };
    let spare = pick(rng, &[0, 0, 1, 3]);
    let bands = takes.len() as u64 + spare;
    let (columns, rows) = (u64::from(spec.width) + below(rng, 40), 40);
    let (pixel_step, band_step) = if below(rng, 2) == 0 { (bands * size, size) } else { (size, columns * rows * size) };
    let row_step = if band_step == size { columns * bands * size } else { columns * size };
    // Sometimes the output ends before its last row.
    let dst_len = (columns * rows * bands * size) as usize - below(rng, 8) as usize / 7 * (size as usize + 1);
    let mut fill = [0; 16];
    fill.fill_with(|| rng.next() as u8);
    let output = Output { row_step, pixel_step, band_step, samples: takes.clone(), fill };

    let (mut src, mut tiles, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    let dst: Vec<u8> = (0..dst_len).map(|_| rng.next() as u8).collect();
    let mut want = dst.clone();
    let mut scratch = Scratch::default();
    // Each tile gets rows of its own, so that no two tiles write the same bytes.
    for to_y in [0, 12, 24] {
        let stored: Vec<u8> = (0..spec.stored_len(spec.height)).map(|_| rng.next() as u8).collect();
        let mut native = vec![0; cpu.native_len(spec.height)];
        cpu.decode_native(spec.height, &stored, &mut native, &mut scratch).unwrap();
        let x = if below(rng, 2) == 0 { 0 } else { below(rng, spec.width.into()) as u32 };
        let width = if below(rng, 2) == 0 { spec.width - x } else { 1 + below(rng, (spec.width - x).into()) as u32 };
        let y = below(rng, spec.height.into()) as u32;
        let height = 1 + below(rng, (spec.height - y).into()) as u32;
        let fate = below(rng, 8);
        let short = if fate == 2 { 1 + below(rng, spec.stored_row_len() as u64) } else { 0 };
        let tile = PlaceTile {
            src: src.len() as u64,
            src_len: stored.len() as u64 - short,
            status: statuses.len() as u32,
            x,
            y,
            width,
            height,
            to_x: below(rng, columns - u64::from(width) + 1) as u32,
            to_y: to_y + below(rng, (13 - height).into()) as u32,
            slot: below(rng, spare + 1) as u32,
            sparse: u32::from(fate == 0),
        };
        statuses.push(if fate == 1 { 3 } else { 0 });
        src.extend_from_slice(&stored);
        src.resize(src.len().next_multiple_of(16), 0);
        tiles.push(tile);
        if fate == 1 {
            continue;
        }
        let mut put = |row: u64, column: u64, band: u64, value: &[u8]| {
            let (to_y, to_x) = (u64::from(tile.to_y) + row, u64::from(tile.to_x) + column);
            let at = (to_y * row_step + to_x * pixel_step + (u64::from(tile.slot) + band) * band_step) as usize;
            want[at..at + value.len()].copy_from_slice(value);
        };
        for row in 0..u64::from(height) {
            let last = u64::from(tile.to_x + width - 1) * pixel_step
                + (u64::from(tile.slot) + takes.len() as u64 - 1) * band_step;
            let end = (u64::from(tile.to_y) + row) * row_step + last + size;
            let all_there = (u64::from(y) + row + 1) * spec.stored_row_len() as u64 <= tile.src_len;
            if end > dst_len as u64 || (fate != 0 && !all_there) {
                continue;
            }
            for column in 0..u64::from(width) {
                for (band, sample) in takes.iter().enumerate() {
                    let index = (u64::from(y) + row) * u64::from(spec.width) + u64::from(x) + column;
                    let at = ((index * samples + u64::from(*sample)) * size) as usize;
                    let value = if fate == 0 { &fill[..size as usize] } else { &native[at..at + size as usize] };
                    put(row, column, band as u64, value);
                }
            }
        }
    }
    let shift = pick(rng, &[0, 0, 0, 1, 2, 4, 8]);
    let launch = Launch { lanes, parts: 1 + below(rng, 3) as u32, shift };
    let batch = Batch { src: &src, tiles: &tiles, statuses: &statuses };
    let got = place(host, &spec, launch, batch, &output, &dst).unwrap();
    if got != want {
        let at = got.iter().zip(&want).position(|(got, want)| got != want);
        panic!("byte {at:?} of {}: {spec:?} {output:?} {tiles:?} {launch:?}", want.len());
    }
}

fn rounds(build: Build, lanes: u32, count: u32, seed: u64) {
    let mut host = KernelHost::start(build).unwrap();
    let mut rng = Rng(seed);
    for _ in 0..count {
        round(&mut rng, &mut host, lanes);
    }
}

#[test]
fn one_lane_under_the_address_sanitizer() {
    rounds(Build::Asan, 1, 4000, 1);
}

#[test]
fn teams_under_the_address_sanitizer() {
    rounds(Build::Asan, 8, 150, 2);
    rounds(Build::Asan, 32, 40, 3);
}

#[test]
fn teams_under_the_thread_sanitizer() {
    rounds(Build::Tsan, 4, 30, 4);
    rounds(Build::Tsan, 8, 30, 5);
    rounds(Build::Tsan, 32, 10, 6);
}

/// A strip of one long row is more than one piece of work; 16-byte accesses, words and single bytes all occur.
#[test]
fn long_rows() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(7);
    for sample in [SampleType::U8, SampleType::U16, SampleType::F32, SampleType::F64, SampleType::CF64] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (to_x, x) in [(0, 0), (1, 0), (0, 3), (5, 2)] {
                let mut spec = conformance::spec(Compression::None, 1, sample, 1, 16411);
                (spec.order, spec.height) = (order, 2);
                let spec = Arc::new(spec);
                let size = sample.size() as u64;
                let stored: Vec<u8> = (0..spec.stored_len(2)).map(|_| rng.next() as u8).collect();
                let mut native = vec![0; stored.len()];
                let cpu = Host::new(spec.clone(), &Registry::default()).unwrap();
                cpu.decode_native(2, &stored, &mut native, &mut Scratch::default()).unwrap();
                let (width, row_step) = (u64::from(spec.width - x), 16420 * size);
                let dst = vec![0; 2 * row_step as usize];
                let mut want = dst.clone();
                for row in 0..2 {
                    let from = ((row * u64::from(spec.width) + u64::from(x)) * size) as usize;
                    let to = (row * row_step + u64::from(to_x) * size) as usize;
                    let len = (width * size) as usize;
                    want[to..to + len].copy_from_slice(&native[from..from + len]);
                }
                let tile = PlaceTile {
                    src_len: stored.len() as u64,
                    x,
                    width: width as u32,
                    height: 2,
                    to_x,
                    ..PlaceTile::default()
                };
                let output = Output { row_step, pixel_step: size, band_step: 0, samples: vec![0], fill: [0; 16] };
                let launch = Launch { lanes: 1, parts: 1, shift: 0 };
                let batch = Batch { src: &stored, tiles: &[tile], statuses: &[0] };
                let got = place(&mut host, &spec, launch, batch, &output, &dst).unwrap();
                assert!(got == want, "{sample} {order:?} {to_x} {x}");
            }
        }
    }
}
