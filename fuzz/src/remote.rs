//! A server whose answers are chosen by the input.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, LazyLock, Mutex},
    thread,
    time::Duration,
};

use swath::{OpenOptions, ReadOptions, io::RemoteOptions};

use crate::{Input, limits};

/// The next bytes of the server, and its position.
struct Server {
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
}

#[derive(Default)]
struct Answers {
    /// How the answer's head is written, and the file behind it.
    style: u8,
    lie: u64,
    body: Vec<u8>,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    let answers = Arc::new(Mutex::new(Answers::default()));
    let shared = answers.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let mut asked = [0; 2048];
            let len = stream.read(&mut asked).unwrap_or(0);
            let answer = shared.lock().expect("the fuzzer has one thread").answer(&asked[..len]);
            let _ = stream.write_all(&answer);
        }
    });
    Server { address, answers }
});

impl Answers {
    /// The bytes that go back: a sound answer to a request for a range, or one that the style spoils.
    fn answer(&self, asked: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(asked).to_lowercase();
        let range = text.split("bytes=").nth(1).and_then(|rest| rest.split_once('\r')).map(|(range, _)| range);
        let (first, last) = range.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
        let size = self.body.len();
        let first = first.parse::<usize>().unwrap_or(0).min(size);
        let last = last.parse::<usize>().map_or(size, |last| last.saturating_add(1)).clamp(first, size);
        let part = &self.body[first..last];
        let stated_size = match self.style >> 4 {
            1 => self.lie,
            2 => size as u64 / 2,
            _ => size as u64,
        };
        let head = match self.style & 15 {
            1 => format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"),
            2 => format!("HTTP/1.1 206 Partial\r\nContent-Length: {}\r\n\r\n", self.lie),
            3 => format!("HTTP/1.1 206 Partial\r\nContent-Range: bytes {}-{last}/{stated_size}\r\n\r\n", self.lie),
            4 => "HTTP/1.1 206 Partial\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            5 => format!("HTTP/1.1 {} Odd\r\nContent-Length: 0\r\n\r\n", self.lie % 600),
            6 => String::from_utf8_lossy(&self.body[..size.min(512)]).into_owned(),
            7 => format!(
                "HTTP/1.1 302 Found\r\nLocation: {}\r\n\r\n",
                String::from_utf8_lossy(&self.body[..size.min(99)])
            ),
            _ => format!(
                "HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{}/{stated_size}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                last.saturating_sub(1),
                part.len()
            ),
        };
        let mut answer = head.into_bytes();
        answer.extend_from_slice(if self.style & 15 == 1 { &self.body } else { part });
        answer
    }
}

/// A file on a server whose faults are chosen by the input.
pub fn remote(data: &[u8]) {
    let mut input = Input(data);
    let (style, number) = (input.u8(), input.bytes::<7>());
    let lie = number.into_iter().fold(0, |sum, byte| sum << 8 | u64::from(byte));
    *SERVER.answers.lock().expect("the fuzzer has one thread") = Answers { style, lie, body: input.0.to_vec() };
    let remote = RemoteOptions::default()
        .with_retries(0)
        .with_redirects(1)
        .with_max_requests(32)
        .with_max_bytes(8 << 20)
        .with_deadline(Duration::from_secs(2))
        .with_stall_timeout(Duration::from_secs(1))
        .with_allowed_hosts(vec![SERVER.address.to_string()])
        .with_public_only(true);
    let address = format!("http://{}/fuzz.tif", SERVER.address);
    let options = OpenOptions::default().with_limits(limits()).with_threads(1).with_tile_cache(0).with_remote(remote);
    if let Ok(dataset) = options.open(&address) {
        let _ = dataset.metadata();
        let _ = dataset.read(&ReadOptions::default().with_threads(1));
    }
}
