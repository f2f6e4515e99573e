//! Tiles: every decoder on any bytes, and every encoder followed by its decoder.

use std::{cell::RefCell, sync::Arc};

use swath_codec::{Form, Registry, Scratch, TileSpec, conformance, encode::Settings, host::Host, jpeg};
use swath_tiff::{
    Compression, Limits, Photometric, SampleType,
    structure::{ByteOrder, Predictor},
};

use crate::{Input, limits};

/// Compressions, by the number in a file.
const CODES: [u16; 19] =
    [1, 2, 3, 4, 5, 7, 8, 32771, 32773, 33003, 34712, 34887, 34925, 50000, 50001, 50002, 50004, 52546, 6];

const SAMPLES: [SampleType; 14] = [
    SampleType::U8,
    SampleType::I8,
    SampleType::U16,
    SampleType::I16,
    SampleType::U32,
    SampleType::I32,
    SampleType::U64,
    SampleType::I64,
    SampleType::F16,
    SampleType::F32,
    SampleType::F64,
    SampleType::CF32,
    SampleType::CI16,
    SampleType::U8,
];

const PHOTOMETRIC: [Option<Photometric>; 6] = [
    None,
    Some(Photometric::MinIsBlack),
    Some(Photometric::MinIsWhite),
    Some(Photometric::Rgb),
    Some(Photometric::YCbCr),
    Some(Photometric::Separated),
];

/// Bytes of a decoded tile that an input may ask for.
const MOST: usize = 1 << 18;

/// The description of a tile, read from the front of an input.
#[derive(Debug)]
pub struct Head {
    /// The spec for the codec.
    pub spec: TileSpec,
    /// Rows of the tile.
    pub rows: u32,
    /// A number for the target itself.
    pub choice: u8,
}

impl Head {
    /// Bytes of it, without JPEGTables.
    pub const LEN: usize = 14;

    /// Reads it; `None` where the tile would be too large.
    pub fn read(input: &mut Input<'_>) -> Option<Self> {
        let code = input.pick(&CODES);
        let sample = input.pick(&SAMPLES);
        let photometric = input.pick(&PHOTOMETRIC);
        let predictor = input.pick(&[Predictor::None, Predictor::Horizontal, Predictor::FloatingPoint]);
        let flags = input.u8();
        let samples = u16::from(input.u8() % 8) + 1;
        let bits = input.pick(&[0, 1, 2, 4, 7, 8, 12, 16, 24, 32]);
        let choice = input.u8();
        let (width, rows) = (u32::from(input.u16()), u32::from(input.u16()));
        let tables = input.u16();
        let whole = sample.size() as u16 * 8;
        let mut spec = conformance::spec(Compression::from_code(code), code, sample, samples, width);
        spec.height = rows;
        spec.photometric = photometric;
        spec.predictor = predictor;
        spec.order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
        spec.bits_reversed = flags & 2 != 0;
        spec.tiled = flags & 4 == 0;
        spec.one_strip = flags & 12 == 12;
        spec.t4_options = u32::from(flags >> 4 & 7);
        spec.limits = limits();
        // As the reader of directories allows: fewer bits for integers without a predictor.
        if bits > 0
            && bits < whole
            && spec.predictor == Predictor::None
            && !sample.is_float()
            && !sample.is_complex()
            && whole <= 32
        {
            spec.bits = bits;
        }
        let allowed = match spec.predictor {
            Predictor::None => true,
            Predictor::Horizontal => !sample.is_complex(),
            Predictor::FloatingPoint => sample.is_float(),
        };
        if !allowed {
            spec.predictor = Predictor::None;
        }
        if tables > 0 {
            spec.jpeg_tables = jpeg::Tables::parse(input.part(tables.into())).ok().map(Arc::new);
        }
        let fits = width > 0 && rows > 0 && spec.native_row_len() * rows as usize <= MOST;
        fits.then_some(Self { spec, rows, choice })
    }

    /// The bytes that [`Head::read`] reads for a tile of a real file; `None` if a head cannot describe it.
    pub fn write(spec: &TileSpec, rows: u32, tables: &[u8]) -> Option<Vec<u8>> {
        let place = |found: Option<usize>| found.and_then(|at| u8::try_from(at).ok());
        let flags = u8::from(spec.order == ByteOrder::Big)
            | u8::from(spec.bits_reversed) << 1
            | u8::from(!spec.tiled) << 2
            | u8::from(spec.one_strip) << 3
            | ((spec.t4_options & 7) as u8) << 4;
        let mut head = vec![
            place(CODES.iter().position(|code| *code == spec.compression_code))?,
            place(SAMPLES.iter().position(|sample| *sample == spec.sample))?,
            place(PHOTOMETRIC.iter().position(|photometric| *photometric == spec.photometric)).unwrap_or_default(),
            match spec.predictor {
                Predictor::None => 0,
                Predictor::Horizontal => 1,
                Predictor::FloatingPoint => 2,
            },
            flags,
            u8::try_from(spec.samples.checked_sub(1)?).ok()?,
            0,
            0,
        ];
        for number in [spec.width, rows, tables.len() as u32] {
            head.extend(u16::try_from(number).ok()?.to_le_bytes());
        }
        head.extend_from_slice(tables);
        Some(head)
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static REGISTRY: Registry = Registry::default();
}

/// Any bytes as a tile of any kind: decoded, or refused. Its first rows alone are those of the whole.
pub fn decode(data: &[u8]) {
    let mut input = Input(data);
    let Some(Head { spec, rows, choice }) = Head::read(&mut input) else { return };
    let len = spec.native_row_len() * rows as usize;
    let Ok(host) = REGISTRY.with(|registry| Host::new(Arc::new(spec), registry)) else { return };
    SCRATCH.with_borrow_mut(|scratch| {
        let mut whole = vec![0; len];
        if host.decode_native(rows, input.0, &mut whole, scratch).is_err() {
            return;
        }
        let end = 1 + u32::from(choice) % rows;
        let mut part = vec![0; host.spec().native_row_len() * end as usize];
        host.decode_rows(rows, 0..end, input.0, &mut part, scratch).expect("the whole can be decoded");
        assert!(whole.starts_with(&part), "the first {end} of {rows} rows differ: {:?}", host.spec());
        scratch.shrink(MOST);
    });
}

/// Every lossless encoder preserves all samples.
pub fn encode(data: &[u8]) {
    let mut input = Input(data);
    let Some(Head { mut spec, rows, choice }) = Head::read(&mut input) else { return };
    // Codecs get the residuals after prediction.
    (spec.predictor, spec.bits_reversed, spec.order) = (Predictor::None, false, ByteOrder::Little);
    spec.bits = spec.sample.size() as u16 * 8;
    let mut settings = Settings::default();
    settings.level = (choice > 0).then(|| u32::from(choice % 23));
    let Ok(encoder) = REGISTRY.with(|registry| registry.encoder(&spec, &settings)) else { return };
    let len = match encoder.form() {
        Form::Stored => spec.stored_len(rows),
        Form::Native => spec.native_row_len() * rows as usize,
    };
    let src: Vec<u8> = input.0.iter().copied().chain(std::iter::repeat(0)).take(len).collect();
    SCRATCH.with_borrow_mut(|scratch| {
        let mut out = Vec::new();
        if encoder.encode(&spec, rows, &src, &mut out, scratch).is_err() {
            return;
        }
        assert!(out.len() <= encoder.max_encoded_len(&spec, rows), "more than the bound: {spec:?}");
        spec.jpeg_tables =
            encoder.jpeg_tables().map(|tables| Arc::new(jpeg::Tables::parse(&tables).expect("our own tables")));
        // The working memory of a decoder may exceed what the fuzzer allows for files.
        spec.limits = Limits::default();
        let mut back = vec![0xaa; len];
        let decoder = REGISTRY.with(|registry| registry.decoder(spec.compression).cloned()).expect("it is encoded");
        decoder.decode(&spec, rows, &out, &mut back, scratch).expect("what we encode can be decoded");
        // LERC has one bit pattern for NaN; JPEG keeps no sample exactly; JPEG 2000 by this code holds YCbCr, which is decoded to RGB.
        let exact = match spec.compression {
            Compression::Jpeg => false,
            Compression::Jpeg2000 => spec.compression_code != 33003,
            Compression::Lerc => !spec.sample.is_float(),
            _ => true,
        };
        if exact && let Some(at) = back.iter().zip(&src).position(|(after, before)| after != before) {
            panic!("byte {at} changed from {:?} to {:?}: {spec:?}", src.get(at), back.get(at));
        }
        scratch.shrink(MOST);
    });
}
