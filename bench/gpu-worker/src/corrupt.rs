//! Gives the device millions of damaged tiles of each codec, and compares each verdict and each byte with the CPU's.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Map, Value, json};
use swath::gpu::{Gpu, GpuOptions, TileStatus};
use swath_codec::{Decode, Fill, Registry, Scratch, TileSpec};

use crate::{
    Fault, batch, option,
    stock::{Codec, Stock},
    strict::huffman::leaves_bits,
    test::cases::Rng,
};

/// Tile lengths, sound streams for each length, and tiles of a batch at most. Small tiles, tiles of several blocks, and
/// few tiles at once (as windows have them) run through different kernels.
const SMALL: ([usize; 5], u64, usize) = ([4096, 5003, 8192, 12_347, 16_384], 64, 8192);
const LARGE: ([usize; 4], u64, usize) = ([65_536, 131_089, 200_000, 300_000], 20, 512);
const FEW: ([usize; 3], u64, usize) = ([65_536, 262_144, 1_048_576], 12, 64);
/// In this many batches, one has large tiles and one has few.
const LARGE_EVERY: u64 = 4;
/// Tiles of the smallest batch.
const LEAST: usize = 64;
/// Sound tiles after each batch.
const INTACT: usize = 64;
/// Faults that the report quotes.
const QUOTED: usize = 8;

/// A tile on which the device broke a rule.
struct Wrong {
    rule: String,
    name: String,
    stream: Vec<u8>,
}

/// Counts of one codec.
#[derive(Default)]
pub struct Tally {
    /// Tiles by the device's verdict.
    statuses: BTreeMap<String, u64>,
    tiles: u64,
    /// Tiles that the CPU decodes.
    sound: u64,
    /// Of these, tiles that the device passes to the CPU.
    unusual: u64,
    /// Of these, tiles that the device refuses: the engine then decodes them on the CPU, with a notice.
    stricter: u64,
    intact: u64,
    intact_unusual: u64,
    wrong: u64,
    quoted: Vec<Wrong>,
}

impl Tally {
    fn wrong(&mut self, wrong: impl FnOnce() -> Wrong) {
        self.wrong += 1;
        if self.quoted.len() < QUOTED {
            self.quoted.push(wrong());
        }
    }

    fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.tiles += other.tiles;
        self.sound += other.sound;
        self.unusual += other.unusual;
        self.stricter += other.stricter;
        self.intact += other.intact;
        self.intact_unusual += other.intact_unusual;
        self.wrong += other.wrong;
        self.quoted.extend(other.quoted);
        self.quoted.truncate(QUOTED);
    }

    /// Tiles that were compared.
    pub fn cases(&self) -> u64 {
        self.tiles + self.intact
    }

    /// The rules that the device broke.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.quoted.iter().map(|wrong| format!("{}: {}", wrong.name, wrong.rule)).collect();
        if self.wrong > faults.len() as u64 {
            faults.push(format!("and {} more", self.wrong - faults.len() as u64));
        }
        if self.intact_unusual * 10 > self.intact {
            faults.push(format!("the device passes {} of {} sound tiles to the CPU", self.intact_unusual, self.intact));
        }
        faults
    }

    fn answer(&self, seconds: f64) -> Value {
        json!({
            "tiles": self.tiles,
            "statuses": self.statuses,
            "cpu_decodes": self.sound,
            "left_to_cpu": self.unusual,
            "stricter_than_cpu": self.stricter,
            "intact": self.intact,
            "intact_left_to_cpu": self.intact_unusual,
            "wrong": self.wrong,
            "faults": self.faults(),
            "seconds": seconds,
        })
    }
}

/// `corrupt [--codec NAME] [--count N] [--threads N] [--keep DIR]`: N damaged tiles of each codec.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let count: u64 = option(words, "--count").unwrap_or("10000000").parse()?;
    let threads = match option(words, "--threads") {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let codecs = match option(words, "--codec") {
        Some(name) => vec![Codec::named(name).ok_or("--codec takes deflate, lzw, packbits or zstd")?],
        None => Codec::ALL.to_vec(),
    };
    let gpu = Gpu::open(&GpuOptions::default())?;
    let (mut found, mut ok) = (Map::new(), true);
    for codec in codecs {
        let start = Instant::now();
        let tally = throw(&gpu, codec, count, threads, true)?;
        ok &= tally.faults().is_empty();
        if let Some(folder) = option(words, "--keep").map(Path::new) {
            std::fs::create_dir_all(folder)?;
            for wrong in &tally.quoted {
                std::fs::write(folder.join(format!("{}.bin", wrong.name)), &wrong.stream)?;
            }
        }
        found.insert(codec.to_string(), tally.answer(start.elapsed().as_secs_f64()));
    }
    let answer = json!({ "ok": ok, "device": gpu.facts().name, "codecs": found });
    if let Some(path) = option(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    if ok { Ok(answer) } else { Err(format!("{answer}").into()) }
}

/// Damages `count` tiles, decodes them on the device, and compares all of them with the CPU.
///
/// # Errors
/// When the device fails: damaged input has cost us the context.
pub fn throw(gpu: &Arc<Gpu>, codec: Codec, count: u64, threads: usize, progress: bool) -> Result<Tally, Fault> {
    let make = |(lens, streams): (&[usize], u64)| -> Result<Vec<Stock>, String> {
        std::thread::scope(|scope| {
            let made: Vec<_> = lens.iter().map(|len| scope.spawn(move || Stock::make(codec, *len, streams))).collect();
            made.into_iter().map(|made| made.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
        })
    };
    let (small, large, few) = (make((&SMALL.0, SMALL.1))?, make((&LARGE.0, LARGE.1))?, make((&FEW.0, FEW.1))?);
    let (numbers, thrown, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    // Every thread has some batches of each kind, however few tiles there are.
    let share = usize::try_from(count).unwrap_or(usize::MAX) / (threads.max(1) * LARGE_EVERY as usize);
    let share = share.max(LEAST);
    let work = || -> Result<(), Fault> {
        let mut thrower = Thrower::new(gpu, codec)?;
        while !stop.load(Ordering::Relaxed) {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let (stocks, most) = match number % LARGE_EVERY {
                1 => (&large, LARGE.2),
                3 => (&few, FEW.2),
                _ => (&small, SMALL.2),
            };
            let size = most.min(share);
            let before = thrown.fetch_add(size as u64, Ordering::Relaxed);
            let tiles = count.saturating_sub(before).min(size as u64);
            let Some(stock) = stocks.get((number / LARGE_EVERY) as usize % stocks.len()) else { break };
            if tiles == 0 {
                break;
            }
            let batch = thrower.batch(number, stock, tiles as usize);
            if batch.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(batch?);
            if progress && before / 1_000_000 < (before + tiles) / 1_000_000 {
                eprintln!("{codec}: {} million tiles", (before + tiles) / 1_000_000);
            }
        }
        Ok(())
    };
    let ended: Result<(), String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads.max(1)).map(|_| scope.spawn(|| work().map_err(|fault| fault.to_string()))).collect();
        let mut ended = threads.into_iter().map(|thread| thread.join());
        ended.try_for_each(|thread| thread.unwrap_or_else(|_| Err("a thread panicked".into())))
    });
    ended?;
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The state of one thread: the CPU's decoder, and room for what it decodes.
struct Thrower<'a> {
    gpu: &'a Arc<Gpu>,
    codec: Codec,
    decoder: Arc<dyn Decode>,
    spec: TileSpec,
    scratch: Scratch,
    room: Vec<u8>,
}

impl<'a> Thrower<'a> {
    fn new(gpu: &'a Arc<Gpu>, codec: Codec) -> Result<Self, Fault> {
        let spec = codec.spec(1);
        let decoder = Registry::default().decoder(spec.compression)?.clone();
        Ok(Self { gpu, codec, decoder, spec, scratch: Scratch::default(), room: Vec::new() })
    }

    /// A batch of damaged tiles, then some sound ones.
    fn batch(&mut self, number: u64, stock: &Stock, tiles: usize) -> Result<Tally, Fault> {
        let mut tally = Tally::default();
        let mut rng = Rng::new(number);
        let mut streams = vec![Vec::new(); tiles];
        streams.iter_mut().for_each(|stream| stock.damaged(&mut rng, stream));
        let views: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let decoded = batch::decode(self.gpu, self.codec, &views, stock.len)
            .map_err(|error| format!("batch {number} of {} tiles of {} bytes: {error}", self.codec, stock.len))?;
        self.room.resize(stock.len, 0);
        self.spec.width = u32::try_from(stock.len)?;
        for (tile, ((stream, status), bytes)) in
            (0_u64..).zip(views.iter().zip(&decoded.statuses).zip(decoded.bytes.chunks(stock.len)))
        {
            let verdict = self.decoder.decode(&self.spec, 1, stream, &mut self.room, &mut self.scratch);
            tally.tiles += 1;
            tally.sound += u64::from(verdict.is_ok());
            *tally.statuses.entry(format!("{status:?}")).or_default() += 1;
            let rule = match (status, verdict) {
                (TileStatus::Ok, Ok(_)) if self.room == bytes => continue,
                (TileStatus::Ok, Ok(_)) => "its bytes differ from the CPU's".into(),
                (TileStatus::Ok, Err(error)) => format!("the device decodes it, and the CPU says: {error}"),
                (TileStatus::Undone | TileStatus::Refused(_), _) => format!("its status is {status:?}"),
                // A stream that holds more than its tile: the CPU takes the first bytes, and the engine warns.
                (TileStatus::Long, Ok(Fill::Surplus)) | (_, Err(_)) => continue,
                (TileStatus::Unusual, Ok(_)) => {
                    tally.unusual += 1;
                    continue;
                }
                // libzstd does not check where the streams of literals end.
                (TileStatus::Corrupt, Ok(_)) if self.codec == Codec::Zstd && leaves_bits(stream) == Some(true) => {
                    tally.stricter += 1;
                    continue;
                }
                (status, Ok(Fill::Exact)) if self.codec == Codec::Zstd && is_whole_zstd(stream, stock.len) => {
                    format!("{status:?}, and libzstd decodes it")
                }
                // Only the CPU is as lenient as libtiff towards damaged LZW and PackBits, and stops reading a stream once
                // the tile is full.
                (_, Ok(_)) => {
                    tally.stricter += 1;
                    continue;
                }
            };
            let name = format!("{}-batch-{number}-tile-{tile}-of-{}", self.codec, stock.len);
            tally.wrong(|| Wrong { rule, name, stream: stream.to_vec() });
        }
        if decoded.statuses.len() != tiles {
            return Err(format!("batch {number}: {} statuses of {tiles} tiles", decoded.statuses.len()).into());
        }
        self.intact(number, stock, &mut tally)?;
        Ok(tally)
    }

    /// Decodes sound tiles: the context is alive, and no damage is left in it.
    fn intact(&self, number: u64, stock: &Stock, tally: &mut Tally) -> Result<(), Fault> {
        let from = (number as usize * 17) % stock.sound.len().max(1);
        let some: Vec<_> = stock.sound.iter().cycle().skip(from).take(INTACT).collect();
        let views: Vec<&[u8]> = some.iter().map(|sound| sound.stream.as_slice()).collect();
        let decoded = batch::decode(self.gpu, self.codec, &views, stock.len)
            .map_err(|error| format!("sound {} tiles after batch {number}: {error}", self.codec))?;
        for (tile, ((sound, status), bytes)) in
            some.iter().zip(&decoded.statuses).zip(decoded.bytes.chunks(stock.len)).enumerate()
        {
            tally.intact += 1;
            match status {
                TileStatus::Ok if sound.content == bytes => {}
                TileStatus::Unusual => tally.intact_unusual += 1,
                _ => tally.wrong(|| Wrong {
                    rule: format!("a sound tile is {status:?}, or its bytes are not those that were compressed"),
                    name: format!("{}-after-{number}-tile-{tile}-of-{}", self.codec, stock.len),
                    stream: sound.stream.clone(),
                }),
            }
        }
        Ok(())
    }
}

/// Whether libzstd decodes the whole stream, up to its last byte, to a tile of this length.
fn is_whole_zstd(stream: &[u8], len: usize) -> bool {
    let mut tile = vec![0; len];
    zstd_safe::decompress(tile.as_mut_slice(), stream) == Ok(len)
}
