//! Tests of the encoders of NVIDIA's libraries on the fake driver. Stand-ins for the libraries write streams that every decoder
//! accepts, and our own decoders read them back.

use std::{
    ffi::{CString, c_char, c_int, c_ulonglong},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use swath_codec::{CodecError, Registry, Scratch, TileSpec};
use swath_tiff::{Compression, Photometric, SampleType};

use crate::{
    counters::Meter,
    decode::test_spec::spec,
    driver::{
        launch::{
            nvcomp::{CompressLaunch, nvcomp_compress, nvcomp_compress_plan},
            nvjpeg::jpeg_encode,
            nvjpeg2k::jpeg2000_encode,
            slice::ALIGN,
            slice::BufferSlice,
            stream_threads::TilePlanes,
        },
        libraries::{
            nvcomp::NvcompFormat,
            nvjpeg::encode::{JpegSettings, JpegSource, Subsampling},
            nvjpeg2k::{
                Jpeg2000Sample,
                encode::{Jpeg2000Image, Jpeg2000Quality},
            },
        },
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    error::DeviceError,
    gpu::{Gpu, GpuOptions},
};

/// Serialises the tests: the process has one fake driver, and each test scripts it.
static ONE: Mutex<()> = Mutex::new(());

/// A GPU of the fake driver with the stand-ins beside it.
struct Fake {
    gpu: Option<Arc<Gpu>>,
    meter: Arc<Meter>,
    driver: libloading::Library,
    _one: MutexGuard<'static, ()>,
}

impl Fake {
    /// Returns `None` where there is no compiler, which fails the test only in CI.
    fn new(script: &str) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
        if Command::new(compiler).arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "the fake driver needs g++");
            return None;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["build.sh", "libraries.sh"] {
            let built = Command::new("bash").arg(root.join("tools/fake-driver").join(name)).status();
            assert!(built.is_ok_and(|status| status.success()), "{name}");
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let path = root.join(target).join("fake-driver/libcuda.so.1").canonicalize().unwrap();
        // SAFETY: our own library, whose start-up code does nothing.
        let driver = unsafe { libloading::Library::new(&path) }.unwrap();
        let options = GpuOptions::default().with_libraries(path.with_file_name("libraries")).with_driver(path);
        let mut fake = Self { gpu: None, meter: Arc::default(), driver, _one: one };
        fake.script(script);
        fake.gpu = Some(Gpu::open(&options).unwrap());
        Some(fake)
    }

    fn gpu(&self) -> &Arc<Gpu> {
        self.gpu.as_ref().unwrap()
    }

    fn streams(&self, count: usize) -> Streams {
        Streams::new(self.gpu().memory.clone(), self.meter.clone(), count).unwrap()
    }

    /// Uploads bytes to a new buffer on stream 0.
    fn upload(&self, streams: &Streams, bytes: &[u8]) -> DeviceBuffer {
        let buffer = self.gpu().memory.buffer(bytes.len().max(1), &self.meter).unwrap();
        streams.upload_bytes(0, bytes, &buffer, 0).unwrap();
        buffer
    }

    fn script(&self, script: &str) {
        let words = CString::new(script).unwrap();
        // SAFETY: the type is that of tools/fake-driver/README.md; the text ends with a zero and is copied.
        let code = unsafe {
            let set = self.driver.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"swath_fake_script\0").unwrap();
            set(words.as_ptr())
        };
        assert_eq!(code, 0, "script '{script}'");
    }

    /// Drops the GPU, and fails where the fake driver reports a leak or an error.
    fn expect_nothing_left(mut self) {
        self.gpu = None;
        for what in ["errors", "live_bytes", "live_host_bytes", "streams", "events", "modules"] {
            let name = CString::new(what).unwrap();
            // SAFETY: the type is that of tools/fake-driver/README.md; the text ends with a zero.
            let count = unsafe {
                let get = self.driver.get::<unsafe extern "C" fn(*const c_char) -> c_ulonglong>(b"swath_fake_count\0");
                get.unwrap()(name.as_ptr())
            };
            assert_eq!(count, 0, "{what}");
        }
    }
}

fn words(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn read_back(streams: &Streams, buffer: &DeviceBuffer, len: usize) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; len];
    streams.finish(buffer, 0, &mut bytes)?;
    Ok(bytes)
}

/// Decodes a stream with our decoder.
fn decoded(spec: &TileSpec, stream: &[u8]) -> Result<Vec<u8>, CodecError> {
    let decoder = Registry::default().decoder(spec.compression)?.clone();
    let mut out = vec![0; spec.native_row_len() * spec.height as usize];
    decoder.decode(spec, spec.height, stream, &mut out, &mut Scratch::default())?;
    Ok(out)
}

/// Adds the zlib header and checksum to a stream.
fn zlib(stream: &[u8], data: &[u8]) -> Vec<u8> {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in data {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    [&[0x78, 0x01], stream, &(high << 16 | low).to_be_bytes()].concat()
}

const CHUNK: usize = 150_000;

/// Returns chunks of noise and runs: empty, of one byte, and of lengths that end in the middle of a block.
fn chunks() -> Vec<Vec<u8>> {
    let mut seed = 1_u32;
    let mut noise = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let mut all: Vec<Vec<u8>> = [CHUNK, 0, 1, 255, 256, 300, 65_536, 70_000]
        .map(|len| (0..len).map(|at| if at / 700 % 3 == 0 { noise() } else { (at / 90) as u8 }).collect())
        .into();
    all.push(vec![7; CHUNK]);
    all.extend((1..270).map(|run| [vec![1], vec![2; run], vec![3]].concat()));
    all
}

struct Compressed {
    streams: Vec<Vec<u8>>,
    statuses: Vec<i32>,
}

fn compress(fake: &Fake, codec: NvcompFormat, chunks: &[Vec<u8>]) -> Result<Compressed, DeviceError> {
    let streams = fake.streams(1);
    let nvcomp = fake.gpu().nvcomp()?;
    let longest = chunks.iter().map(Vec::len).max().unwrap();
    let total = chunks.iter().map(Vec::len).sum();
    let plan = nvcomp_compress_plan(nvcomp, &streams, 0, codec, chunks.len(), longest, total)?;
    let stride = plan.max_output_len.next_multiple_of(ALIGN);
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    for chunk in chunks {
        places.push(bytes.len() as u64);
        bytes.extend(chunk);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0xEE);
    }
    let buffer = |len| fake.gpu().memory.buffer(len, &fake.meter);
    let source = fake.upload(&streams, &bytes);
    let compressed = buffer(stride * chunks.len())?;
    let temp = buffer(plan.temp_len.max(1))?;
    let inputs = fake.upload(&streams, &words(places.iter().map(|place| source.address() + place)));
    let input_lens = fake.upload(&streams, &words(chunks.iter().map(|chunk| chunk.len() as u64)));
    let room = |at: usize| compressed.address() + (at * stride) as u64;
    let outputs = fake.upload(&streams, &words((0..chunks.len()).map(room)));
    let (output_lens, statuses) = (buffer(8 * chunks.len())?, buffer(4 * chunks.len())?);
    let part = |buffer, len| BufferSlice { buffer, offset: 0, len: len * chunks.len() };
    let batch = CompressLaunch {
        inputs: part(&inputs, 8),
        input_lens: part(&input_lens, 8),
        outputs: part(&outputs, 8),
        output_lens: part(&output_lens, 8),
        statuses: part(&statuses, 4),
        source: &source,
        compressed: &compressed,
        temp: &temp,
        temp_len: plan.temp_len,
    };
    let short = CompressLaunch { outputs: BufferSlice { len: 8 * chunks.len() - 1, ..batch.outputs }, ..batch };
    let refused = nvcomp_compress(nvcomp, &streams, 0, codec, chunks.len(), longest, &short);
    assert!(matches!(refused, Err(DeviceError::Internal(_))), "{refused:?}");
    let batch = CompressLaunch { outputs: part(&outputs, 8), ..short };
    nvcomp_compress(nvcomp, &streams, 0, codec, chunks.len(), longest, &batch)?;
    streams.synchronize()?;
    let lens = read_back(&streams, &output_lens, 8 * chunks.len())?;
    let lens: Vec<usize> = lens.as_chunks().0.iter().map(|len| u64::from_le_bytes(*len) as usize).collect();
    let status_bytes = read_back(&streams, &statuses, 4 * chunks.len())?;
    let all = read_back(&streams, &compressed, stride * chunks.len())?;
    assert!(lens.iter().all(|len| *len <= plan.max_output_len));
    Ok(Compressed {
        streams: all.chunks(stride).zip(lens).map(|(room, len)| room[..len].to_vec()).collect(),
        statuses: status_bytes.as_chunks().0.iter().map(|status| i32::from_le_bytes(*status)).collect(),
    })
}

#[test]
fn our_decoders_read_streams_of_nvcomp() {
    let Some(fake) = Fake::new("async=1 seed=3 leaks=1") else { return };
    let chunks = chunks();
    for codec in [NvcompFormat::Deflate { algorithm: 1 }, NvcompFormat::Deflate { algorithm: 0 }, NvcompFormat::Zstd] {
        let pressed = compress(&fake, codec, &chunks).unwrap();
        for (nth, (stream, chunk)) in pressed.streams.iter().zip(&chunks).enumerate() {
            assert_eq!(pressed.statuses[nth], 0);
            let (compression, stream) = match codec {
                NvcompFormat::Deflate { .. } => (Compression::Deflate, zlib(stream, chunk)),
                NvcompFormat::Zstd => (Compression::Zstd, stream.clone()),
            };
            if chunk.is_empty() {
                continue;
            }
            let tile = TileSpec { width: chunk.len() as u32, height: 1, ..spec(compression, SampleType::U8, 1) };
            assert!(decoded(&tile, &stream).unwrap() == *chunk, "{codec:?} {nth}");
        }
    }
    let wrong = compress(&fake, NvcompFormat::Deflate { algorithm: 6 }, &chunks);
    assert!(matches!(wrong, Err(DeviceError::Call { .. })));
    fake.expect_nothing_left();
}

/// A picture with a gradient in each component that chroma of half the size can follow, in rows that may be longer than
/// they need to be.
fn pixels(width: usize, height: usize, samples: usize, pitch: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; pitch * height];
    for (y, row) in bytes.chunks_mut(pitch).enumerate() {
        for (at, byte) in row[..width * samples].iter_mut().enumerate() {
            let (x, c) = (at / samples, at % samples);
            *byte = (20 + x * (c + 2) + y + x * y % 5) as u8;
        }
    }
    bytes
}

fn is_near(found: &[u8], wanted: &[u8], most: u8) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| a.abs_diff(*b) <= most)
}

/// Returns tiles that lie one after the other.
fn tiles(count: usize, width: u32, height: u32, pitch: usize, planes: usize) -> Vec<TilePlanes> {
    let plane_len = pitch * height as usize;
    let tile = |at: usize| TilePlanes { width, height, at: at * plane_len * planes, pitch, plane_len };
    (0..count).map(tile).collect()
}

#[test]
fn our_decoder_reads_streams_of_nvjpeg() {
    const SIZE: (u32, u32) = (48, 33);
    const COUNT: usize = 23;
    let Some(fake) = Fake::new("async=1 seed=5 leaks=1") else { return };
    let (width, height) = (SIZE.0 as usize, SIZE.1 as usize);
    for source in [
        JpegSource::Grey,
        JpegSource::RgbInterleaved(Subsampling::Full),
        JpegSource::RgbInterleaved(Subsampling::Quarter),
        JpegSource::RgbInterleaved(Subsampling::Half),
    ] {
        let samples = if source == JpegSource::Grey { 1 } else { 3 };
        let pitch = width * samples + 7;
        let picture = pixels(width, height, samples, width * samples);
        let one = pixels(width, height, samples, pitch);
        let streams = fake.streams(4);
        let buffer = fake.upload(&streams, &one.repeat(COUNT));
        streams.synchronize().unwrap();
        let settings = JpegSettings { source, quality: 100, optimised: true };
        let tiles = tiles(COUNT, SIZE.0, SIZE.1, pitch, 1);
        let encoded = jpeg_encode(&streams, 1..4, settings, &buffer, &tiles).unwrap();
        assert_eq!(encoded.len(), COUNT);
        let photometric = if samples == 1 { Photometric::MinIsBlack } else { Photometric::YCbCr };
        let tile = TileSpec {
            width: SIZE.0,
            height: SIZE.1,
            photometric: Some(photometric),
            ..spec(Compression::Jpeg, SampleType::U8, samples as u16)
        };
        for stream in &encoded {
            let stream = stream.as_ref().unwrap();
            assert!(!stream.windows(4).any(|window| window == b"JFIF"));
            let is_full = !matches!(source, JpegSource::RgbInterleaved(Subsampling::Half | Subsampling::Quarter));
            let found = decoded(&tile, stream).unwrap();
            assert!(is_near(&found, &picture, if is_full { 4 } else { 12 }), "{source:?}");
        }
        let bad = JpegSettings { quality: 0, ..settings };
        assert!(jpeg_encode(&streams, 0..1, bad, &buffer, &tiles).is_err());
        // One tile that the frame header cannot describe does not keep the others back.
        let mut odd = tiles[..3].to_vec();
        odd[1].width = 0;
        let some = jpeg_encode(&streams, 0..2, settings, &buffer, &odd).unwrap();
        assert_eq!(some.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        // A tile that is not all in the buffer is the caller's fault.
        odd[1] = TilePlanes { at: buffer.len(), ..tiles[0] };
        assert!(jpeg_encode(&streams, 0..2, settings, &buffer, &odd).is_err());
    }
    fake.expect_nothing_left();
}

#[test]
fn our_decoder_reads_streams_of_nvjpeg2000_exactly() {
    const SIZE: (u32, u32) = (70, 41);
    const COUNT: usize = 5;
    let Some(fake) = Fake::new("async=1 seed=6 leaks=1") else { return };
    let (width, height) = (SIZE.0 as usize, SIZE.1 as usize);
    for (sample, kind, components, colours, interleaved) in [
        (Jpeg2000Sample::U8, SampleType::U8, 1, false, false),
        (Jpeg2000Sample::U8, SampleType::U8, 3, true, true),
        (Jpeg2000Sample::U8, SampleType::U8, 3, true, false),
        (Jpeg2000Sample::U8, SampleType::U8, 2, false, true),
        (Jpeg2000Sample::U16, SampleType::U16, 1, false, false),
        (Jpeg2000Sample::I16, SampleType::I16, 4, false, true),
    ] {
        let (size, count) = (kind.size(), components as usize);
        let picture = pixels(width * size, height, count, width * size * count);
        let (one, pitch): (Vec<u8>, usize) = if interleaved {
            (picture.clone(), width * size * count)
        } else {
            let plane = |c: usize| picture.chunks(size).skip(c).step_by(count).flatten().copied().collect::<Vec<u8>>();
            ((0..count).flat_map(plane).collect(), width * size)
        };
        let streams = fake.streams(3);
        let buffer = fake.upload(&streams, &one.repeat(COUNT));
        streams.synchronize().unwrap();
        let tiles = tiles(COUNT, SIZE.0, SIZE.1, pitch, if interleaved { 1 } else { count });
        let shape = Jpeg2000Image { sample, components, colours, interleaved };
        let mut qualities = vec![Jpeg2000Quality::Lossless; COUNT];
        if sample == Jpeg2000Sample::U8 {
            qualities[3] = Jpeg2000Quality::of(75, 200);
        }
        let encoded = jpeg2000_encode(&streams, 0..3, shape, &buffer, &tiles, &qualities).unwrap();
        assert_eq!(encoded.len(), COUNT);
        let tile = TileSpec { width: SIZE.0, height: SIZE.1, ..spec(Compression::Jpeg2000, kind, components as u16) };
        for stream in &encoded {
            match decoded(&tile, stream.as_ref().unwrap()) {
                // The decoder is a feature, which only a build of the whole workspace is sure to have.
                Err(CodecError::NotBuilt { .. }) => {}
                found => assert!(found.unwrap() == picture, "{shape:?}"),
            }
        }
        assert!(jpeg2000_encode(&streams, 0..3, shape, &buffer, &tiles, &qualities[1..]).is_err());
        let mut odd = tiles[..2].to_vec();
        (odd[0].width, odd[0].height) = (1, 1);
        let some = jpeg2000_encode(&streams, 0..1, shape, &buffer, &odd, &qualities[..2]).unwrap();
        assert_eq!(some.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
    }
    fake.expect_nothing_left();
}

#[test]
fn a_device_failure_is_not_reported_as_a_refused_tile() {
    const TILE: TilePlanes = TilePlanes { width: 16, height: 16, at: 0, pitch: 16, plane_len: 256 };
    for script in ["fail_launch=3", "fault_launch=3", "fault_launch=3 async=1 seed=2", "fail_sync=3 async=1"] {
        for compression in [Compression::Jpeg, Compression::Jpeg2000, Compression::Deflate] {
            let Some(fake) = Fake::new(script) else { return };
            let streams = fake.streams(2);
            let buffer = fake.upload(&streams, &[7; 256]);
            let result = match compression {
                Compression::Jpeg => {
                    let settings = JpegSettings { source: JpegSource::Grey, quality: 75, optimised: false };
                    jpeg_encode(&streams, 0..2, settings, &buffer, &[TILE; 12]).map(drop)
                }
                Compression::Jpeg2000 => {
                    let picture =
                        Jpeg2000Image { sample: Jpeg2000Sample::U8, components: 1, colours: false, interleaved: false };
                    let qualities = [Jpeg2000Quality::Lossless; 12];
                    jpeg2000_encode(&streams, 0..2, picture, &buffer, &[TILE; 12], &qualities).map(drop)
                }
                _ => (0..3).try_for_each(|_| compress(&fake, NvcompFormat::Zstd, &chunks()[..4]).map(drop)),
            };
            assert!(matches!(result, Err(DeviceError::Call { .. })), "{script} {compression}: {result:?}");
            fake.script("");
            drop((streams, buffer));
            fake.expect_nothing_left();
        }
    }
}
