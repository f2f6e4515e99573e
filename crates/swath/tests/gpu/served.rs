//! A file behind HTTP, read to a GPU: the CPU's samples, few requests, pinned copies only. Shared with the tests that run
//! where there is a GPU.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use swath::{
    Blocks, Compression, Dataset, Gpu, Mode, OpenOptions, ReadOptions, SampleType, Shape, Window, WriteOptions,
};

use super::cases::{self, Rng};

/// A server on this machine that gives ranges of one file.
pub struct Server {
    pub url: String,
    requests: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Server {
    pub fn start(file: Arc<[u8]>) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/file.tif", listener.local_addr()?);
        let (requests, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counters = (requests.clone(), bytes.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (file, counters) = (file.clone(), counters.clone());
                std::thread::spawn(move || answer(stream, &file, &counters));
            }
        });
        Ok(Self { url, requests, bytes })
    }

    /// Requests and bytes since the last time.
    pub fn take(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

/// Answers requests on one connection until it is closed.
fn answer(stream: TcpStream, file: &[u8], (requests, bytes): &(Arc<AtomicU64>, Arc<AtomicU64>)) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut lines = BufReader::new(stream).lines();
    loop {
        let mut range = None;
        loop {
            let line = lines.next()?.ok()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(asked) = line.strip_prefix("range: bytes=") {
                let (start, end) = asked.split_once('-')?;
                range = Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?));
            }
        }
        let (start, end) = range?;
        let body = file.get(start..(end + 1).min(file.len()))?;
        requests.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        let (last, size, len) = (start + body.len() - 1, file.len(), body.len());
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{last}/{size}\r\nContent-Length: {len}\r\n\
             ETag: \"one\"\r\n\r\n"
        );
        out.write_all(head.as_bytes()).and_then(|()| out.write_all(body)).ok()?;
    }
}

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
        // Of uncompressed tiles only rows are read, which lie apart.
        let reads = if compression == Compression::None { rows * (rows + 1) } else { rows };
        if requests > reads + tiles / (2 << 20) || bytes * 100 > tiles * 115 {
            return Err(format!("{window}: {requests} requests and {bytes} bytes for {rows} rows, {tiles} bytes"));
        }
        let host = raster.to_host().map_err(text)?;
        if host.bytes() != local.read(&read).map_err(text)?.bytes() {
            return Err(format!("{window}: other samples"));
        }
    }
    Ok(())
}
