//! The kernels that compute statistics of areas, against the same sums written out. `swath/tests/gpu/statistics.rs` compares
//! them with the engine's.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use swath_codec::conformance::Rng;
use swath_kernel_host::{
    Build, KernelHost,
    server::{Argument, Buffer},
};
use swath_raster::half;
use swath_tiff::SampleType as S;

/// Samples that are summed up at once.
const CHUNK: usize = 2048;
/// Bytes of the statistics of an area.
const SUMMARY: usize = 56;

/// Types, in the order of their numbers.
const KINDS: [S; 16] = [
    S::U8,
    S::I8,
    S::U16,
    S::I16,
    S::U32,
    S::I32,
    S::U64,
    S::I64,
    S::F16,
    S::F32,
    S::F64,
    S::CI16,
    S::CI32,
    S::CF16,
    S::CF32,
    S::CF64,
];

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next() % end.max(1)
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[below(rng, from.len() as u64) as usize]
}

/// A real number of this type, and the bits by which it is compared.
fn real(kind: S, raw: &[u8]) -> (f64, i128) {
    macro_rules! int {
        ($t:ty) => {{
            let value = <$t>::from_le_bytes(raw.try_into().unwrap());
            (value as f64, i128::from(value))
        }};
    }
    let float = match kind {
        S::U8 => return int!(u8),
        S::I8 => return int!(i8),
        S::U16 => return int!(u16),
        S::I16 => return int!(i16),
        S::U32 => return int!(u32),
        S::I32 => return int!(i32),
        S::U64 => return int!(u64),
        S::I64 => return int!(i64),
        S::F16 => half::widen(u16::from_le_bytes(raw.try_into().unwrap())),
        S::F32 => f32::from_le_bytes(raw.try_into().unwrap()).into(),
        _ => f64::from_le_bytes(raw.try_into().unwrap()),
    };
    (float, 0)
}

fn number(kind: S, raw: &[u8]) -> (f64, i128) {
    let part = match kind {
        S::CI16 => S::I16,
        S::CI32 => S::I32,
        S::CF16 => S::F16,
        S::CF32 => S::F32,
        S::CF64 => S::F64,
        real_kind => return real(real_kind, raw),
    };
    let (a, b) = raw.split_at(raw.len() / 2);
    let (a, b) = (real(part, a).0.abs(), real(part, b).0.abs());
    if a == f64::INFINITY || b == f64::INFINITY {
        return (f64::INFINITY, 0);
    }
    // By powers of two, so that squares stay in range.
    let scale = match a.max(b) {
        larger if larger > 2f64.powi(500) => 2f64.powi(-600),
        larger if larger < 2f64.powi(-500) => 2f64.powi(600),
        _ => 1.0,
    };
    (((a * scale).powi(2) + (b * scale).powi(2)).sqrt() / scale, 0)
}

fn eight(values: &[f64]) -> f64 {
    let (groups, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for group in groups {
        sums.iter_mut().zip(group).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum::<f64>() + rest.iter().sum::<f64>()
}

fn compensated((sum, lost): (f64, f64), value: f64) -> (f64, f64) {
    let total = sum + value;
    if !total.is_finite() {
        return (total, 0.0);
    }
    (total, lost + if sum.abs() >= value.abs() { (sum - total) + value } else { (value - total) + sum })
}

/// Statistics of samples, in words: valid, missing, extremes, sum, lost, spread.
fn expected(kind: S, samples: &[(f64, i128, bool)]) -> String {
    let (mut valid, mut missing, mut sum, mut spread) = (0_u64, 0_u64, (0.0, 0.0), 0.0_f64);
    let mut ends: Option<[(f64, i128); 2]> = None;
    let is_float = kind.is_float() || kind.is_complex();
    let less = |a: (f64, i128), b: (f64, i128)| if is_float { a.0 < b.0 } else { a.1 < b.1 };
    for chunk in samples.chunks(CHUNK) {
        let data: Vec<(f64, i128)> = chunk.iter().filter(|(.., keep)| *keep).map(|(a, b, _)| (*a, *b)).collect();
        missing += (chunk.len() - data.len()) as u64;
        let Some(first) = data.first() else { continue };
        let values: Vec<f64> = data.iter().map(|(value, _)| *value).collect();
        let count = values.len() as f64;
        let own = eight(&values);
        let mean = own / count;
        let apart: Vec<f64> = values.iter().map(|value| (value - mean) * (value - mean)).collect();
        spread += eight(&apart);
        if valid > 0 {
            let (all, difference) = (valid as f64, own / count - (sum.0 + sum.1) / valid as f64);
            spread += difference * difference * (all / (all + count) * count);
        }
        valid += values.len() as u64;
        sum = compensated(compensated(sum, own), 0.0);
        let [low, high] = ends.get_or_insert([*first; 2]);
        for value in data {
            if less(value, *low) {
                *low = value;
            }
            if less(*high, value) {
                *high = value;
            }
        }
    }
    let ends = ends.map(|ends| ends.map(|(value, int)| if is_float { value.to_bits() } else { int as u64 }));
    format!("{valid} {missing} {ends:?} {sum:?} {spread:?}")
}

fn found(raw: &[u8]) -> String {
    let words: Vec<u64> = raw.as_chunks().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
    let [sum, lost, spread] = [4, 5, 6].map(|at| f64::from_bits(words[at]));
    let ends = (words[0] > 0).then_some([words[2], words[3]]);
    format!("{} {} {ends:?} {:?} {spread:?}", words[0], words[1], (sum, lost))
}

struct Shape {
    width: u32,
    height: u32,
    bands: u32,
    /// Left, top, columns and rows.
    areas: Vec<[u32; 4]>,
}

fn draw_shape(rng: &mut Rng) -> Shape {
    let (width, height) = pick(rng, &[(1, 1), (3, 700), (64, 64), (91, 47), (2048, 2), (2500, 1), (100, 21)]);
    let mut area = || {
        let (x, y) = (below(rng, width.into()) as u32, below(rng, height.into()) as u32);
        [x, y, 1 + below(rng, (width - x).into()) as u32, 1 + below(rng, (height - y).into()) as u32]
    };
    let mut areas = vec![area(), area(), area()];
    areas.truncate(1 + below(rng, 3) as usize);
    if below(rng, 2) == 0 {
        areas = vec![[0, 0, width, height]];
    }
    Shape { width, height, bands: 1 + below(rng, 3) as u32, areas }
}

fn round(rng: &mut Rng, host: &mut KernelHost, lanes: u32) {
    let kind_number = below(rng, 16) as usize;
    let kind = KINDS[kind_number];
    let size = kind.size();
    let shape = draw_shape(rng);
    let plane = shape.width as usize * shape.height as usize;
    let mut samples: Vec<u8> = (0..plane * shape.bands as usize * size).map(|_| rng.next() as u8).collect();
    let common: Vec<u8> = (0..size).map(|_| pick(rng, &[0, 0x80, 0x7c, 0x3c])).collect();
    for sample in samples.chunks_exact_mut(size) {
        if below(rng, 3) == 0 {
            sample.copy_from_slice(&common);
        }
    }
    let mask_len = pick(rng, &[0_usize, 0, 1, 2]);
    let mask: Vec<u8> = (0..plane * mask_len.max(1)).map(|_| pick(rng, &[0, 0, 1])).collect();
    // Complex samples have nodata values of their real part.
    let nodata_len = if kind.is_complex() && below(rng, 2) == 0 { size / 2 } else { size };
    let rules: Vec<(Option<&[u8]>, bool)> =
        (0..shape.bands).map(|_| ((below(rng, 2) == 0).then_some(&common[..nodata_len]), below(rng, 2) == 0)).collect();

    let mut want = Vec::new();
    for (band, (nodata, masked)) in rules.iter().enumerate() {
        for [x, y, columns, rows] in &shape.areas {
            let pixels = (*y..y + rows).flat_map(|row| (*x..x + columns).map(move |column| (row, column)));
            let of: Vec<(f64, i128, bool)> = pixels
                .map(|(row, column)| {
                    let pixel = row as usize * shape.width as usize + column as usize;
                    let raw = &samples[(band * plane + pixel) * size..][..size];
                    let (value, int) = number(kind, raw);
                    let hidden =
                        *masked && mask_len > 0 && mask[pixel * mask_len..][..mask_len].iter().all(|b| *b == 0);
                    let is_nodata = nodata.is_some_and(|nodata| match nodata.len() == size {
                        true => number(kind, nodata) == (value, int),
                        false => raw.starts_with(nodata),
                    });
                    (value, int, !value.is_nan() && !hidden && !is_nodata)
                })
                .collect();
            want.push(expected(kind, &of));
        }
    }

    let (mut areas, mut chunks) = (Vec::new(), 0_u64);
    for area in &shape.areas {
        areas.extend(area.iter().flat_map(|number| number.to_le_bytes()));
        areas.extend(chunks.to_le_bytes());
        chunks += (area[2] as usize * area[3] as usize).div_ceil(CHUNK) as u64;
    }
    let mut raw_rules = Vec::new();
    for (nodata, masked) in &rules {
        let mut raw = nodata.unwrap_or_default().to_vec();
        raw.resize(16, 0xee);
        raw.extend((nodata.map_or(0, <[u8]>::len) as u32).to_le_bytes());
        raw.extend(u32::from(*masked).to_le_bytes());
        raw_rules.extend(raw);
    }
    let (parts, totals) = (chunks * u64::from(shape.bands), u64::from(shape.bands) * shape.areas.len() as u64);
    let blocks = 1 + below(rng, 4) as u32;
    let launch = |host: &mut KernelHost, kernel: &str, [parts_len, totals_len]: [u64; 2], chunks: u64, width: u32| {
        let buffers = [
            Buffer::In(&samples),
            Buffer::In(&mask),
            Buffer::In(&areas),
            Buffer::In(&raw_rules),
            Buffer::Out(SUMMARY * parts as usize),
            Buffer::Out(SUMMARY * totals as usize),
        ];
        let longs = [samples.len() as u64, mask.len() as u64, parts_len, totals_len, chunks].map(u64::to_le_bytes);
        let words = [shape.areas.len() as u32, shape.bands, width, shape.height, kind_number as u32, mask_len as u32];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let null = [0; 8];
        let arguments = [
            Argument::Pointer(0, 0),
            Argument::Bytes(&longs[0]),
            if mask_len > 0 { Argument::Pointer(1, 0) } else { Argument::Bytes(&null) },
            Argument::Bytes(&longs[1]),
            Argument::Pointer(2, 0),
            Argument::Pointer(3, 0),
            Argument::Pointer(4, 0),
            Argument::Bytes(&longs[2]),
            Argument::Pointer(5, 0),
            Argument::Bytes(&longs[3]),
            Argument::Bytes(&longs[4]),
            Argument::Bytes(&words),
        ];
        host.run(kernel, blocks, lanes, &buffers, &arguments).unwrap()
    };
    let both = "swath_summary_chunks,swath_summary_areas";
    let back = launch(host, both, [parts, totals], chunks, shape.width);
    let got: Vec<String> = back.last().unwrap().as_chunks::<SUMMARY>().0.iter().map(|raw| found(raw)).collect();
    assert_eq!(got, want, "{kind} {}x{} {:?} {lanes} lanes", shape.width, shape.height, shape.areas);
    // Numbers that do not agree with each other stay inside the buffers, or the sanitizer ends the program.
    let lies = [0, parts - 1, parts + 1, u64::MAX];
    for _ in 0..3 {
        let (parts_len, chunks) = (below(rng, parts + 1), pick(rng, &lies));
        let width = pick(rng, &[0, 1, shape.width - 1, shape.width + 1, u32::MAX]);
        let chunks = if chunks > parts { chunks.min(1 << 20) } else { chunks };
        launch(host, both, [parts_len, below(rng, totals + 1)], chunks, width);
    }
}

/// Most rounds run with one lane under the address sanitizer; some with teams under it and under the thread sanitizer.
#[test]
fn statistics_of_areas_are_exact_and_stay_in_bounds() {
    let turns =
        [(Build::Asan, 1, 400), (Build::Asan, 8, 30), (Build::Asan, 32, 8), (Build::Tsan, 4, 10), (Build::Tsan, 32, 4)];
    for (seed, (build, lanes, count)) in turns.into_iter().enumerate() {
        let mut host = KernelHost::start(build).unwrap();
        let mut rng = Rng(seed as u64 + 70);
        for _ in 0..count {
            round(&mut rng, &mut host, lanes);
        }
    }
}
