//! Overviews by kernels, byte for byte those of the CPU.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::ops::Range;

use swath_codec::conformance::Rng;
use swath_kernel_host::{Argument, Build, KernelHost, server::Buffer};
use swath_raster::shrink::{Resampling, Shrink, ShrinkScratch, Tables, levels};
use swath_tiff::SampleType;

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next() % end.max(1)
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[below(rng, from.len() as u64) as usize]
}

// ------------------------------------------------------------------------------------------------------------ pixels

/// The character of the samples of an image.
#[derive(Debug, Clone, Copy)]
enum Temper {
    /// Numbers near each other.
    Calm,
    /// Few values.
    Classes,
    /// Any bits.
    Bits,
    /// Special values of floats, and the limits of integers.
    Special,
}

const TEMPERS: [Temper; 4] = [Temper::Calm, Temper::Classes, Temper::Bits, Temper::Special];

fn from_number(sample: SampleType, number: f64) -> Vec<u8> {
    use SampleType as S;
    match sample {
        S::U8 => (number as u8).to_ne_bytes().to_vec(),
        S::I8 => (number as i8).to_ne_bytes().to_vec(),
        S::U16 => (number as u16).to_ne_bytes().to_vec(),
        S::I16 | S::CI16 => (number as i16).to_ne_bytes().to_vec(),
        S::U32 => (number as u32).to_ne_bytes().to_vec(),
        S::I32 | S::CI32 => (number as i32).to_ne_bytes().to_vec(),
        S::U64 => (number as u64).to_ne_bytes().to_vec(),
        S::I64 => (number as i64).to_ne_bytes().to_vec(),
        S::F16 | S::CF16 => swath_raster::half::narrow(number).to_ne_bytes().to_vec(),
        S::F32 | S::CF32 => (number as f32).to_ne_bytes().to_vec(),
        _ => number.to_ne_bytes().to_vec(),
    }
}

fn word(sample: SampleType, temper: Temper, rng: &mut Rng) -> Vec<u8> {
    let signed = |rng: &mut Rng, end: u64| below(rng, 2 * end) as f64 - end as f64;
    match temper {
        Temper::Calm => from_number(sample, 90.0 + signed(rng, 40) + below(rng, 1000) as f64 / 997.0),
        Temper::Classes => from_number(sample, below(rng, 4) as f64),
        Temper::Bits => (rng.next() << 32 ^ rng.next()).to_ne_bytes()[..sample.word()].to_vec(),
        Temper::Special if sample.is_float() => {
            let nan = |bytes: &mut Vec<u8>, rng: &mut Rng| {
                let last = bytes.len() - 1;
                bytes[last] = pick(rng, &[0x7f, 0xff]);
                bytes[last - 1] |= 0xf0;
                bytes[0] = below(rng, 256) as u8;
            };
            let mut bytes = match below(rng, 12) {
                0 => from_number(sample, f64::INFINITY),
                1 => from_number(sample, f64::NEG_INFINITY),
                2 => from_number(sample, -0.0),
                3 => from_number(sample, 0.0),
                4 => from_number(sample, f64::MIN_POSITIVE / 8.0),
                5 => from_number(sample, f64::from(f32::MIN_POSITIVE) / pick(rng, &[3.0, -5.0])),
                6 => from_number(sample, 6e-8 * signed(rng, 40)),
                7 => from_number(sample, pick(rng, &[1.0, -1.0, 0.9]) * f64::from(f32::MAX)),
                8 => from_number(sample, pick(rng, &[1.0, -1.0, 0.6]) * f64::MAX),
                9 => from_number(sample, pick(rng, &[65504.0, -65504.0, 65472.0])),
                _ => from_number(sample, signed(rng, 1 << 20) / 1024.0),
            };
            if below(rng, 40) == 0 {
                nan(&mut bytes, rng);
            }
            bytes
        }
        Temper::Special => {
            let ends = [f64::MIN, f64::MAX, 0.0, 1.0, -1.0, 127.0, 128.0, 32767.0, 2147483647.0, 4294967295.0];
            from_number(sample, pick(rng, &ends))
        }
    }
}

fn pixels(sample: SampleType, temper: Temper, count: usize, rng: &mut Rng) -> Vec<u8> {
    let words = count * sample.size() / sample.word();
    (0..words).flat_map(|_| word(sample, temper, rng)).collect()
}

fn mask(count: usize, soft: bool, rng: &mut Rng) -> Vec<u8> {
    let (holes, mut bytes) = (below(rng, 9), Vec::new());
    while bytes.len() < count {
        // In runs, so that some footprints are entirely valid and some entirely invalid.
        let byte = if below(rng, 9) < holes { 0 } else { 255 };
        let byte = if soft && byte != 0 { below(rng, 256) as u8 } else { byte };
        bytes.extend(std::iter::repeat_n(byte, 1 + below(rng, 7) as usize));
    }
    bytes.truncate(count);
    bytes
}

// ----------------------------------------------------------------------------------------------------------- launches

/// Rows in a ring, bands at multiples of 256 bytes.
struct Ring {
    bytes: Vec<u8>,
    width: u32,
    capacity: u32,
    bands: usize,
    size: usize,
    step: usize,
}

impl Ring {
    fn new(width: u32, capacity: u32, bands: usize, size: usize) -> Self {
        let step = (width as usize * capacity as usize * size).next_multiple_of(256);
        let len = step * bands;
        Self { bytes: vec![0x5a; len], width, capacity, bands, size, step }
    }

    fn row(&mut self, band: usize, y: u32) -> &mut [u8] {
        let len = self.width as usize * self.size;
        let at = band * self.step + (y % self.capacity) as usize * len;
        &mut self.bytes[at..at + len]
    }

    fn fill(&mut self, band: usize, image: &[u8], rows: Range<u32>) {
        let len = self.width as usize * self.size;
        for y in rows {
            self.row(band, y).copy_from_slice(&image[y as usize * len..][..len]);
        }
    }

    fn arguments(&self) -> Vec<u8> {
        let numbers = [self.bytes.len() as u64, self.step as u64, u64::from(self.width) * self.size as u64];
        let mut all: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        all.extend([self.capacity, self.width].iter().flat_map(|number| number.to_ne_bytes()));
        all
    }
}

/// The kernel for a step, and its number of the sample type.
fn kernel(tables: &Tables) -> (&'static str, u32) {
    use Resampling as R;
    use SampleType as S;
    if tables.method == R::Nearest {
        return ("swath_shrink_nearest", tables.sample.size() as u32);
    }
    let kind = match tables.sample {
        S::U8 => 0,
        S::I8 => 1,
        S::U16 => 2,
        S::I16 | S::CI16 => 3,
        S::U32 => 4,
        S::I32 | S::CI32 => 5,
        S::U64 => 6,
        S::I64 => 7,
        S::F16 | S::CF16 => 8,
        S::F32 | S::CF32 => 9,
        _ => 10,
    };
    let name = match (tables.method, tables.sample.is_complex()) {
        (R::Average, false) => "swath_shrink_average",
        (R::Average, true) => "swath_shrink_complex_average",
        (R::Rms, false) => "swath_shrink_rms",
        (R::Rms, true) => "swath_shrink_complex_rms",
        (R::Mode, false) => "swath_shrink_mode",
        (R::Mode, true) => "swath_shrink_complex_mode",
        (R::Min, _) => "swath_shrink_min",
        (R::Max, _) => "swath_shrink_max",
        (R::Median, _) => "swath_shrink_median",
        _ => "swath_shrink_taps",
    };
    (name, kind)
}

struct Launch<'a> {
    tables: &'a Tables,
    source: &'a Ring,
    /// Rows of their own, or a band of the source.
    valid: Option<Result<&'a Ring, usize>>,
    rows: Range<u32>,
}

impl Launch<'_> {
    fn run(&self, host: &mut KernelHost, blocks: u32, lanes: u32, target: &mut Ring) {
        let Self { tables, source, valid, rows } = self;
        let (name, kind) = kernel(tables);
        let masked = valid.is_some() || tables.nodata.is_some();
        let flags = u32::from(tables.pairs)
            | u32::from(tables.narrow) << 1
            | u32::from(tables.spread) << 2
            | u32::from(tables.nodata.is_some()) << 3
            | u32::from(tables.negative) << 4;
        let mut numbers = Vec::new();
        let offsets = [tables.bytes.len(), tables.columns, tables.rows];
        numbers.extend(offsets.iter().flat_map(|number| (*number as u64).to_ne_bytes()));
        let weights = if masked { tables.raw } else { tables.normal };
        numbers.extend([weights, tables.weights].iter().flat_map(|number| (*number as u64).to_ne_bytes()));
        numbers.extend([tables.avoid, tables.instead].iter().flat_map(|number| number.to_ne_bytes()));
        numbers.extend([tables.nodata.unwrap_or(0), tables.fill].iter().flat_map(|number| number.to_ne_bytes()));
        let count = rows.end - rows.start;
        let last = [tables.source.1, tables.target.1, rows.start, count, source.bands as u32, kind, tables.plan as u32];
        numbers.extend(last.iter().chain(&[flags]).flat_map(|number| number.to_ne_bytes()));
        let (from, to) = (source.arguments(), target.arguments());
        let own = valid.and_then(Result::ok);
        let valid_bytes = own.map_or(&[][..], |ring| &ring.bytes);
        let (pointer, numbers_of_valid) = match valid {
            None => (Argument::Bytes(&[0; 8]), vec![0; 32]),
            Some(Ok(ring)) => (Argument::Pointer(2, 0), ring.arguments()),
            Some(Err(band)) => {
                let mut arguments = source.arguments();
                arguments[..8].copy_from_slice(&(source.step as u64).to_ne_bytes());
                (Argument::Pointer(0, (band * source.step) as u64), arguments)
            }
        };
        let buffers = [
            Buffer::In(&source.bytes),
            Buffer::InOut(&target.bytes),
            Buffer::In(valid_bytes),
            Buffer::In(&tables.bytes),
        ];
        let arguments = [
            Argument::Pointer(0, 0),
            Argument::Bytes(&from),
            Argument::Pointer(1, 0),
            Argument::Bytes(&to),
            pointer,
            Argument::Bytes(&numbers_of_valid),
            Argument::Pointer(3, 0),
            Argument::Bytes(&numbers),
        ];
        target.bytes = host.run(name, blocks, lanes, &buffers, &arguments).unwrap().remove(0);
    }
}

/// Where the validity of pixels comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    Nodata,
    Mask,
    MaskAndNodata,
    /// A band of the source, bytes of any value.
    Alpha,
    /// The band is its own validity.
    Itself,
}

const BYS: [By; 6] = [By::Nothing, By::Nodata, By::Mask, By::MaskAndNodata, By::Alpha, By::Itself];

#[derive(Debug, Clone, Copy)]
struct Case {
    from: (u32, u32),
    to: (u32, u32),
    sample: SampleType,
    method: Resampling,
    by: By,
    temper: Temper,
    quirks: bool,
}

/// Runs a step on CPU and kernel, the kernel's rows in several launches through rings that wrap.
fn check(host: &mut KernelHost, blocks: u32, lanes: u32, case: Case, rng: &mut Rng) {
    let Case { from, to, sample, method, by, temper, quirks } = case;
    if !method.supports(sample) || matches!(by, By::Alpha | By::Itself) && sample != SampleType::U8 {
        return;
    }
    let (size, count) = (sample.size(), from.0 as usize * from.1 as usize);
    let bands = if by == By::Itself { 1 } else { 1 + below(rng, 3) as usize };
    let images: Vec<Vec<u8>> = (0..bands)
        .map(|_| match by {
            By::Alpha | By::Itself => mask(count, true, rng),
            _ => pixels(sample, temper, count, rng),
        })
        .collect();
    let nodata = matches!(by, By::Nodata | By::MaskAndNodata).then(|| match below(rng, 4) {
        0 => from_number(sample, f64::NAN),
        1 => word(sample, temper, rng),
        _ => images[0][..sample.word()].to_vec(),
    });
    let plane = matches!(by, By::Mask | By::MaskAndNodata).then(|| mask(count, below(rng, 2) == 0, rng));
    let validity = match by {
        By::Nothing | By::Nodata => None,
        By::Mask | By::MaskAndNodata => plane.as_deref(),
        By::Alpha | By::Itself => images.last().map(Vec::as_slice),
    };
    let step = Shrink::new(from, to, sample, method, nodata.as_deref()).unwrap();
    let step = if quirks { step } else { step.without_quirks() };
    let tables = step.tables();
    let stride = to.0 as usize * size;
    let mut first = 0;
    while first < to.1 {
        let rows = first..(first + 1 + below(rng, 9) as u32).min(to.1);
        let needs = step.needs(rows.clone());
        let capacity = needs.end - needs.start + below(rng, 3) as u32;
        let mut source = Ring::new(from.0, capacity, bands, size);
        for (band, image) in images.iter().enumerate() {
            source.fill(band, image, needs.clone());
        }
        let mut own = Ring::new(from.0, needs.end - needs.start + below(rng, 3) as u32, 1, 1);
        if let Some(plane) = &plane {
            own.fill(0, plane, needs.clone());
        }
        let valid = match by {
            By::Nothing | By::Nodata => None,
            By::Mask | By::MaskAndNodata => Some(Ok(&own)),
            By::Alpha | By::Itself => Some(Err(bands - 1)),
        };
        let mut target = Ring::new(to.0, rows.end - rows.start + below(rng, 3) as u32, bands, size);
        let mut want = Ring::new(to.0, target.capacity, bands, size);
        Launch { tables: &tables, source: &source, valid, rows: rows.clone() }.run(host, blocks, lanes, &mut target);
        for (band, image) in images.iter().enumerate() {
            let mut out = vec![0; stride * rows.len()];
            let scratch = &mut ShrinkScratch::new();
            step.run(image, validity, 0, rows.clone(), 0..to.0, &mut out, stride, scratch).unwrap();
            for (line, y) in out.chunks_exact(stride).zip(rows.clone()) {
                want.row(band, y).copy_from_slice(line);
            }
        }
        if target.bytes != want.bytes {
            let at = target.bytes.iter().zip(&want.bytes).position(|(got, want)| got != want).unwrap();
            let word = at / sample.word() * sample.word();
            let shown = |bytes: &[u8]| format!("{:02x?}", &bytes[word..word + sample.word()]);
            panic!(
                "{case:?} nodata {nodata:02x?} rows {rows:?} of {:?}: byte {at} is {}, not {}",
                tables.plan,
                shown(&target.bytes),
                shown(&want.bytes)
            );
        }
        first = rows.end;
    }
}

fn any_size(rng: &mut Rng, most: u64) -> ((u32, u32), (u32, u32)) {
    let even = |rng: &mut Rng| 2 * (1 + below(rng, most / 2) as u32);
    let any = |rng: &mut Rng| 1 + below(rng, most) as u32;
    let from = match below(rng, 4) {
        0 => (even(rng), even(rng)),
        1 => (even(rng), any(rng)),
        2 => (any(rng), even(rng)),
        _ => (any(rng), any(rng)),
    };
    match below(rng, 8) {
        // Not the next level but a later one, or rounded up.
        0 => (from, (from.0.div_ceil(2), from.1.div_ceil(2))),
        1 => (from, ((from.0 / 4).max(1), (from.1 / 3).max(1))),
        _ => (from, levels(from.0, from.1, 1).first().copied().unwrap_or(from)),
    }
}

fn all(build: Build, lanes: u32, rounds: usize, most: u64) {
    let mut host = KernelHost::start(build).unwrap();
    let mut rng = Rng(build as u64 + u64::from(lanes));
    for sample in SampleType::ALL {
        for method in Resampling::ALL {
            for by in BYS {
                for temper in TEMPERS {
                    for _ in 0..rounds {
                        let (from, to) = any_size(&mut rng, most);
                        let quirks = below(&mut rng, 4) == 0;
                        let blocks = 1 + below(&mut rng, 3) as u32;
                        let case = Case { from, to, sample, method, by, temper, quirks };
                        check(&mut host, blocks, lanes, case, &mut rng);
                    }
                }
            }
        }
    }
}

#[test]
fn overviews_are_the_cpus() {
    all(Build::Plain, 1, 5, 90);
}

#[test]
fn no_access_is_out_of_bounds() {
    all(Build::Asan, 1, 2, 60);
}

#[test]
fn lanes_share_the_work() {
    let mut host = KernelHost::start(Build::Tsan).unwrap();
    let mut rng = Rng(9);
    for round in 0..60 {
        let (from, to) = any_size(&mut rng, 120);
        let case = Case {
            from,
            to,
            sample: pick(&mut rng, &SampleType::ALL),
            method: pick(&mut rng, &Resampling::ALL),
            by: pick(&mut rng, &BYS),
            temper: pick(&mut rng, &TEMPERS),
            quirks: false,
        };
        check(&mut host, 2, if round % 2 == 0 { 8 } else { 32 }, case, &mut rng);
    }
}

/// Tables and lengths that point outside: nothing beyond the buffers may be accessed.
#[test]
fn wrong_arguments_reach_nothing() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(5);
    for _ in 0..400 {
        let sample = pick(&mut rng, &SampleType::ALL);
        let method = pick(&mut rng, &Resampling::ALL);
        if !method.supports(sample) {
            continue;
        }
        let (from, to) = any_size(&mut rng, 30);
        let mut tables = Shrink::new(from, to, sample, method, None).unwrap().tables();
        let mut source = Ring::new(from.0, from.1, 1, sample.size());
        source.bytes = pixels(sample, Temper::Special, source.bytes.len() / sample.size(), &mut rng);
        let mut target = Ring::new(to.0, to.1, 1, sample.size());
        let mut rows = 0..to.1;
        let wild = [0u32, 1, 77, u32::MAX, u32::MAX - 1, 1 << 31];
        match below(&mut rng, 7) {
            0 => source.width = pick(&mut rng, &wild),
            1 => target.width = pick(&mut rng, &wild),
            2 => target.capacity = pick(&mut rng, &wild),
            3 => source.capacity = pick(&mut rng, &wild),
            4 => rows.end = pick(&mut rng, &wild),
            5 => tables.columns = pick(&mut rng, &wild) as usize,
            _ => {
                for _ in 0..8 {
                    let words = tables.bytes.len() as u64 / 4;
                    let at = below(&mut rng, words) as usize * 4;
                    if let Some(word) = tables.bytes.get_mut(at..at + 4) {
                        word.copy_from_slice(&pick(&mut rng, &wild).to_ne_bytes());
                    }
                }
            }
        }
        let launch = Launch { tables: &tables, source: &source, valid: None, rows };
        launch.run(&mut host, 1, 1, &mut target);
    }
}
