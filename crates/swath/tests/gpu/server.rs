//! An HTTP server on loopback with one file: ranges of it, and a count of requests.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A server on loopback that serves ranges of one file.
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
