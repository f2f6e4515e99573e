//! Millions of damaged Zstd tiles on the device: each verdict and each byte is compared with libzstd's.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use swath::{Gpu, GpuOptions, TileStatus};
use zstd_safe::DCtx;

use crate::{Fault, batch, option, stock::Stock, strict::huffman::leaves_bits, test::cases::Rng};

/// Lengths of tiles, streams in stock for each, tiles of a batch at most: small ones, some of several blocks, and few at
/// once, as windows have them: each by kernels of its own.
const SMALL: ([usize; 5], u64, usize) = ([4096, 5003, 8192, 12_347, 16_384], 64, 8192);
const LARGE: ([usize; 4], u64, usize) = ([65_536, 131_089, 200_000, 300_000], 20, 512);
const FEW: ([usize; 3], u64, usize) = ([65_536, 262_144, 1_048_576], 12, 64);
/// One batch of so many is of large tiles, and one of few.
const LARGE_EVERY: u64 = 4;
/// Tiles of the smallest batch.
const LEAST: usize = 64;
/// Sound tiles after each batch.
const INTACT: usize = 64;
/// Faults that are told in full.
const TOLD: usize = 8;

/// A stream, and what was wrong about it.
struct Wrong {
    what: String,
    name: String,
    stream: Vec<u8>,
}

/// What was found so far.
#[derive(Default)]
pub struct Tally {
    /// Tiles by what became of them.
    statuses: BTreeMap<String, u64>,
    tiles: u64,
    /// Those that libzstd decodes.
    sound: u64,
    /// Of these, those that the device leaves to the CPU, and those that it rightly calls damaged.
    left: u64,
    stricter: u64,
    intact: u64,
    intact_left: u64,
    wrong: u64,
    told: Vec<Wrong>,
}

impl Tally {
    fn wrong(&mut self, wrong: impl FnOnce() -> Wrong) {
        self.wrong += 1;
        if self.told.len() < TOLD {
            self.told.push(wrong());
        }
    }

    fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.tiles += other.tiles;
        self.sound += other.sound;
        self.left += other.left;
        self.stricter += other.stricter;
        self.intact += other.intact;
        self.intact_left += other.intact_left;
        self.wrong += other.wrong;
        self.told.extend(other.told);
        self.told.truncate(TOLD);
    }

    /// Tiles that were compared.
    pub fn cases(&self) -> u64 {
        self.tiles + self.intact
    }

    /// In words, what speaks against the decoder.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.told.iter().map(|wrong| format!("{}: {}", wrong.name, wrong.what)).collect();
        if self.wrong > faults.len() as u64 {
            faults.push(format!("and {} more", self.wrong - faults.len() as u64));
        }
        if self.intact_left * 10 > self.intact {
            faults.push(format!("{} of {} sound tiles are left to the CPU", self.intact_left, self.intact));
        }
        faults
    }
}

/// `corrupt [--count N] [--threads N] [--keep DIR]`: throws the tiles, tells what became of them.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let count: u64 = option(words, "--count").unwrap_or("10000000").parse()?;
    let threads = match option(words, "--threads") {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let gpu = Gpu::open(&GpuOptions::default())?;
    let start = Instant::now();
    let tally = throw(&gpu, count, threads, true)?;
    let faults = tally.faults();
    if let Some(folder) = option(words, "--keep").map(Path::new) {
        std::fs::create_dir_all(folder)?;
        for wrong in &tally.told {
            std::fs::write(folder.join(format!("{}.zst", wrong.name)), &wrong.stream)?;
        }
    }
    let answer = json!({
        "ok": faults.is_empty(),
        "device": gpu.facts().name,
        "tiles": tally.tiles,
        "statuses": tally.statuses,
        "libzstd_decodes": tally.sound,
        "left_to_cpu": tally.left,
        "stricter_than_libzstd": tally.stricter,
        "intact": tally.intact,
        "intact_left_to_cpu": tally.intact_left,
        "wrong": tally.wrong,
        "faults": faults,
        "seconds": start.elapsed().as_secs_f64(),
    });
    if let Some(path) = option(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    if faults.is_empty() { Ok(answer) } else { Err(format!("{answer}").into()) }
}

/// Damages `count` tiles, decodes them on the device, and compares all of them with libzstd.
///
/// # Errors
/// When the device fails: then it was lost to damaged input.
pub fn throw(gpu: &Arc<Gpu>, count: u64, threads: usize, tells: bool) -> Result<Tally, Fault> {
    let make = |(lens, streams): (&[usize], u64)| -> Result<Vec<Stock>, String> {
        std::thread::scope(|scope| {
            let made: Vec<_> = lens.iter().map(|len| scope.spawn(move || Stock::make(*len, streams))).collect();
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
        let mut thrower = Thrower { gpu, context: DCtx::create(), room: Vec::new() };
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
            let found = thrower.batch(number, stock, tiles as usize);
            if found.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(found?);
            if tells && before / 1_000_000 < (before + tiles) / 1_000_000 {
                eprintln!("{} million tiles", (before + tiles) / 1_000_000);
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

/// What one thread works with.
struct Thrower<'a> {
    gpu: &'a Arc<Gpu>,
    context: DCtx<'static>,
    room: Vec<u8>,
}

impl Thrower<'_> {
    /// A batch of damaged tiles, then some sound ones.
    fn batch(&mut self, number: u64, stock: &Stock, tiles: usize) -> Result<Tally, Fault> {
        let mut tally = Tally::default();
        let mut rng = Rng::new(number);
        let mut streams = vec![Vec::new(); tiles];
        streams.iter_mut().for_each(|stream| stock.damaged(&mut rng, stream));
        let views: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let decoded = batch::decode(self.gpu, &views, stock.len)
            .map_err(|error| format!("batch {number} of tiles of {} bytes: {error}", stock.len))?;
        self.room.resize(stock.len, 0);
        for (tile, ((stream, status), bytes)) in
            (0_u64..).zip(views.iter().zip(&decoded.statuses).zip(decoded.bytes.chunks(stock.len)))
        {
            let verdict = self.context.decompress(self.room.as_mut_slice(), stream);
            let sound = verdict == Ok(stock.len);
            tally.tiles += 1;
            tally.sound += u64::from(sound);
            *tally.statuses.entry(format!("{status:?}")).or_default() += 1;
            let wrong = match (status, sound) {
                (TileStatus::Ok, true) if self.room == bytes => continue,
                (TileStatus::Ok, true) => "other bytes than libzstd's".into(),
                (TileStatus::Ok, false) => {
                    let words = verdict.map_or_else(zstd_safe::get_error_name, |_| "another length");
                    format!("decoded, though libzstd says: {words}")
                }
                (TileStatus::Short | TileStatus::Long | TileStatus::Corrupt, false) => continue,
                (TileStatus::Checksum | TileStatus::Unusual, false) => continue,
                (TileStatus::Unusual, true) => {
                    tally.left += 1;
                    continue;
                }
                // libzstd does not look where the streams of literals end.
                (TileStatus::Corrupt, true) if leaves_bits(stream) == Some(true) => {
                    tally.stricter += 1;
                    continue;
                }
                (status, _) => format!("{status:?}, and libzstd {}", if sound { "decodes it" } else { "refuses it" }),
            };
            let name = format!("batch-{number}-tile-{tile}-of-{}", stock.len);
            tally.wrong(|| Wrong { what: wrong, name, stream: stream.to_vec() });
        }
        if decoded.statuses.len() != tiles {
            return Err(format!("batch {number}: {} statuses of {tiles} tiles", decoded.statuses.len()).into());
        }
        self.intact(number, stock, &mut tally)?;
        Ok(tally)
    }

    /// The context is alive, and nothing of the damage is left in it.
    fn intact(&self, number: u64, stock: &Stock, tally: &mut Tally) -> Result<(), Fault> {
        let from = (number as usize * 17) % stock.sound.len().max(1);
        let some: Vec<_> = stock.sound.iter().cycle().skip(from).take(INTACT).collect();
        let views: Vec<&[u8]> = some.iter().map(|sound| sound.stream.as_slice()).collect();
        let decoded = batch::decode(self.gpu, &views, stock.len)
            .map_err(|error| format!("sound tiles after batch {number}: {error}"))?;
        for (tile, ((sound, status), bytes)) in
            some.iter().zip(&decoded.statuses).zip(decoded.bytes.chunks(stock.len)).enumerate()
        {
            tally.intact += 1;
            match status {
                TileStatus::Ok if sound.content == bytes => {}
                TileStatus::Unusual => tally.intact_left += 1,
                _ => tally.wrong(|| Wrong {
                    what: format!("a sound tile is {status:?}, its bytes are not those that were compressed"),
                    name: format!("after-{number}-tile-{tile}-of-{}", stock.len),
                    stream: sound.stream.clone(),
                }),
            }
        }
        Ok(())
    }
}
