//! Times the Zstd decoder alone, on tiles of a file in device memory.

use std::{ops::Range, sync::Arc};

use serde_json::{Value, json};
use swath::gpu::{Gpu, GpuOptions, TileStatus};

use crate::{Fault, batch, checksum, option, stock::Codec, test::cases};

/// `zstd FILE --counts N,N… --repeat N`: that many tiles out of the middle of the file, or all where N is 0.
pub fn run(words: &[String]) -> Result<Value, Fault> {
    let path = words.first().ok_or("no file")?;
    let repeat: usize = option(words, "--repeat").unwrap_or("1").parse::<usize>()?.max(1);
    let counts: Vec<usize> =
        option(words, "--counts").unwrap_or("0").split(',').map(str::parse).collect::<Result<_, _>>()?;
    let file: Arc<[u8]> = std::fs::read(path)?.into();
    let dataset = cases::open(&file)?;
    let layout = dataset.main().layout();
    let len = layout.tile_width as usize * layout.tile_height as usize * layout.sample.size();
    let ranges = cases::tiles(&file)?;
    let streams: Vec<&[u8]> = ranges.iter().filter_map(|range| file.get(range.clone())).collect();
    let gpu = Gpu::open(&GpuOptions::default())?;
    let rows: Result<Vec<Value>, Fault> = counts
        .into_iter()
        .map(|count| time(&gpu, streams.get(middle(streams.len(), count)).unwrap_or_default(), len, repeat))
        .collect();
    Ok(json!({ "ok": true, "rows": rows? }))
}

/// Which tiles are taken: those around the middle.
fn middle(all: usize, count: usize) -> Range<usize> {
    let count = if count == 0 { all } else { count.min(all) };
    let first = (all - count) / 2;
    first..first + count
}

fn time(gpu: &Arc<Gpu>, streams: &[&[u8]], len: usize, repeat: usize) -> Result<Value, Fault> {
    let decoded = batch::decode(gpu, Codec::Zstd, streams, len)?;
    if let Some(status) = decoded.statuses.iter().find(|status| **status != TileStatus::Ok) {
        return Err(format!("a sound tile was refused: {status}").into());
    }
    let mut decode_ms = Vec::new();
    // The first round fills the pools.
    for _ in 0..=repeat {
        decode_ms.push(batch::time(gpu, Codec::Zstd, streams, len)?);
    }
    decode_ms.remove(0);
    Ok(json!({
        "tiles": streams.len(),
        "stream_bytes": streams.iter().map(|stream| stream.len()).sum::<usize>(),
        "decode_ms": decode_ms,
        "temp_bytes": decoded.temporary,
        "peak_bytes": decoded.peak,
        "checksum": checksum(&decoded.bytes),
    }))
}
