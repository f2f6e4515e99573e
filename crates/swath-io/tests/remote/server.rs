//! A scripted server on loopback that answers well or badly, and records its requests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// What the server does with a request.
pub enum Act {
    /// Answers, and waits for the next request.
    Send(Vec<u8>),
    /// Answers, and closes the connection.
    SendAndClose(Vec<u8>),
    /// Answers, and appends zeros for as long as the client takes them.
    Pour(Vec<u8>),
    /// Answers a byte at a time, slowly.
    Drip(Vec<u8>),
    /// Never answers.
    Hang,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// First and last byte of the range it asks for.
    pub fn range(&self) -> (usize, usize) {
        let (start, end) = self.header("range").unwrap().strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        (start.parse().unwrap(), end.parse().unwrap())
    }
}

pub struct Server {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    sent: Arc<AtomicU64>,
}

impl Server {
    /// Answers request number `n` (from 0) as `act` says.
    pub fn new(act: impl Fn(usize, &Asked) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let server = Self { port, asked: Arc::clone(&asked), sent: Arc::clone(&sent) };
        let act = Arc::new(act);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (act, asked, sent) = (Arc::clone(&act), Arc::clone(&asked), Arc::clone(&sent));
                thread::spawn(move || converse(stream, &*act, &asked, &sent));
            }
        });
        server
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

fn converse(stream: TcpStream, act: &dyn Fn(usize, &Asked) -> Act, asked: &Mutex<Vec<Asked>>, sent: &AtomicU64) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    // A client that disconnects ends the connection.
    while let Some(request) = receive(&mut reader) {
        let number = {
            let mut asked = asked.lock().unwrap();
            asked.push(request.clone());
            asked.len() - 1
        };
        let mut send = |bytes: &[u8]| {
            sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            stream.write_all(bytes).is_ok()
        };
        match act(number, &request) {
            Act::Send(bytes) => {
                if !send(&bytes) {
                    return;
                }
            }
            Act::SendAndClose(bytes) => {
                send(&bytes);
                return;
            }
            Act::Pour(bytes) => {
                let zeros = vec![0; 1 << 16];
                let mut going = send(&bytes);
                while going {
                    going = send(&zeros);
                }
                return;
            }
            Act::Drip(bytes) => {
                for byte in bytes {
                    if !send(&[byte]) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            }
            Act::Hang => {
                // Ends when the client gives up.
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

fn receive(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    let mut lines = Vec::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Some(Asked { line: lines.first()?.clone(), headers })
}

/// Bytes that differ everywhere.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|value| (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

pub fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    let mut answer = format!("{text}\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// An answer without a range: an error, mostly.
pub fn plain(status: &str, headers: &[&str], body: &[u8]) -> Act {
    let length = format!("Content-Length: {}", body.len());
    let mut all = vec![length.as_str()];
    all.extend(headers);
    Act::Send(answer(status, &all, body))
}

/// The requested range, with these extra `headers`.
pub fn part_with(data: &[u8], asked: &Asked, headers: &[&str]) -> Vec<u8> {
    let (start, end) = asked.range();
    let end = end.min(data.len() - 1);
    let length = format!("Content-Length: {}", end - start + 1);
    let range = format!("Content-Range: bytes {start}-{end}/{}", data.len());
    let mut all = vec![length.as_str(), range.as_str()];
    all.extend(headers);
    answer("206 Partial Content", &all, &data[start..=end])
}

/// The requested range of version one.
pub fn part(data: &[u8], asked: &Asked) -> Act {
    Act::Send(part_with(data, asked, &["ETag: \"one\""]))
}
