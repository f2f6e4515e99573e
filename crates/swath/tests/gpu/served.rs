//! A file on an HTTP server, read to a GPU: the CPU's samples, few requests, pinned copies only. Shared with the tests
//! that run where there is a GPU.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Dataset, Mode, OpenOptions, ReadOptions, SampleType, Shape, Window, WriteOptions, gpu::Gpu,
};

use super::{
    cases::{self, Rng},
    server::Server,
};

/// Bytes of the tiles that a window touches.
fn tile_bytes(dataset: &Dataset, window: Window) -> Result<u64, String> {
    let image = dataset.main();
    let (columns, rows) = image.grid().span(&window);
    let mut sum = 0;
    for (column, row) in rows.flat_map(|row| columns.clone().map(move |column| (column, row))) {
        let tile = dataset.tile_bytes(image, column, row, 0).map_err(|error| error.to_string())?;
        sum += tile.map_or(0, |tile| tile.len() as u64);
    }
    Ok(sum)
}

/// Reads windows and the whole of a served COG to the GPU.
pub fn check(gpu: &Arc<Gpu>, compression: Compression, side: u32, tile: u32) -> Result<(), String> {
    let text = |error: swath::Error| error.to_string();
    let shape = Shape { width: side, height: side, bands: 1, sample: SampleType::U16 };
    let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(tile, tile));
    let samples = cases::samples(shape, &mut Rng::new(21));
    let file = cases::write(shape, &samples, &cases::nodata_of(""), &options).map_err(text)?;
    let server = Server::start(file.clone()).map_err(|error| error.to_string())?;
    let local = cases::open(&file).map_err(text)?;
    let windows = [
        Window::new(0, 0, side, side),
        Window::new(tile, tile, 2 * tile, 2 * tile),
        Window::new(tile / 2, tile / 3, 2 * tile, tile + 5),
    ];
    for window in windows {
        let remote = OpenOptions::default().open(&server.url).map_err(text)?;
        let opened = server.take();
        if opened.0 != 1 {
            return Err(format!("{window}: opening took {opened:?} requests and bytes"));
        }
        let read = ReadOptions::default().with_window(window);
        let on_gpu = read.clone().with_device(Mode::Auto).with_gpu(gpu.clone());
        let raster = remote.read_device(&on_gpu).map_err(text)?;
        let counters = raster.report().counters;
        if counters.synchronisations != 1 {
            return Err(format!("{window}: {counters:?}"));
        }
        let (requests, bytes) = server.take();
        let traffic = remote.traffic().ok_or("no traffic")?;
        if (traffic.requests, traffic.received) != (requests + opened.0, bytes + opened.1) {
            return Err(format!("{window}: {traffic:?}, the server counts {requests} requests, {bytes} bytes"));
        }
        let tiles = tile_bytes(&local, window)?;
        let rows = local.main().grid().span(&window).1.len() as u64;
        // Chunks of pinned memory bound a read as rows do.
        // Uncompressed tiles are read row by row, and their rows are apart in the file.
        let reads = if compression == Compression::None { rows * (rows + 1) } else { rows };
        // Tables of many tiles are not in the head: a slice of each is requested.
        let slices = if local.main().grid().count() > 2000 { 2 } else { 0 };
        if requests > reads + tiles / (2 << 20) + slices || bytes * 100 > tiles * 115 + slices * (16 << 10) * 100 {
            return Err(format!("{window}: {requests} requests and {bytes} bytes for {rows} rows, {tiles} bytes"));
        }
        let host = raster.to_host().map_err(text)?;
        if host.bytes() != local.read(&read).map_err(text)?.bytes() {
            return Err(format!("{window}: other samples"));
        }
    }
    Ok(())
}
