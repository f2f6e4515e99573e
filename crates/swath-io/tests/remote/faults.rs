//! Responses that are late, short, long, wrong or missing.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use swath_io::{ReadInto, RemoteFault, RemoteSource, Source, conformance};

use super::{
    SIZE, fault, open, options, read,
    server::{Act, Server, answer, bytes, part, part_with, plain},
};

/// A server that does `act` with the first request after opening, and serves well otherwise.
pub(super) fn once(act: impl Fn(&[u8], &super::server::Asked) -> Act + Send + Sync + 'static) -> Server {
    let data = bytes(SIZE);
    Server::new(move |number, asked| if number == 1 { act(&data, asked) } else { part(&data, asked) })
}

/// A server that opens well and does `act` with every later request.
fn always(act: impl Fn(&[u8], &super::server::Asked) -> Act + Send + Sync + 'static) -> Server {
    let data = bytes(SIZE);
    Server::new(move |number, asked| if number == 0 { part(&data, asked) } else { act(&data, asked) })
}

fn survives(server: &Server) {
    let source = open(&server.url("a.tif"));
    assert_eq!(read(&source).unwrap(), bytes(SIZE)[100_000..101_000]);
    assert_eq!((server.asked().len(), source.traffic().unwrap().retries), (3, 1));
}

#[test]
fn a_good_server_conforms() {
    let data = bytes(SIZE);
    let expected = data.clone();
    let server = Server::new(move |_, asked| part(&data, asked));
    conformance::check_source(&open(&server.url("a.tif")), &expected);
}

#[test]
fn opening_is_one_request_and_its_bytes_are_kept() {
    let data = bytes(SIZE);
    let server = Server::new(move |_, asked| part(&data, asked));
    let source = open(&server.url("a.tif?sig=a%2Fb+c"));
    let mut head = vec![0; 32 << 10];
    source.read_at(0, &mut head).unwrap();
    assert_eq!(head, bytes(SIZE)[..32 << 10]);
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line, "GET /a.tif?sig=a%2Fb+c HTTP/1.1");
    assert_eq!((asked[0].range(), asked[0].header("accept-encoding")), ((0, 32767), Some("identity")));
    let traffic = source.traffic().unwrap();
    assert_eq!((traffic.requests, traffic.received), (1, 32 << 10));
    // A read that begins in them does not request them again.
    let mut across = [0; 20];
    source.read_at((32 << 10) - 10, &mut across).unwrap();
    assert_eq!(across, bytes(SIZE)[(32 << 10) - 10..(32 << 10) + 10]);
    assert_eq!(server.asked()[1].range(), (32 << 10, (32 << 10) + 9));
}

#[test]
fn a_short_body_is_requested_again() {
    survives(&once(|data, asked| {
        let mut cut = part_with(data, asked, &["ETag: \"one\""]);
        cut.truncate(cut.len() - 1);
        Act::SendAndClose(cut)
    }));
}

#[test]
fn a_reset_is_retried() {
    survives(&once(|_, _| Act::SendAndClose(Vec::new())));
}

#[test]
fn a_busy_server_is_retried() {
    survives(&once(|_, _| plain("503 Slow Down", &[], b"")));
    survives(&once(|_, _| plain("429 Too Many", &["Retry-After: 0"], b"")));
}

#[test]
fn a_retry_after_beyond_the_deadline_is_an_error() {
    let server = always(|_, _| plain("429 Too Many", &["Retry-After: 1000"], b""));
    let (fault, detail) = fault(read(&open(&server.url("a.tif"))));
    assert_eq!(fault, RemoteFault::Unavailable, "{detail}");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a_server_that_always_fails_is_reported() {
    let server = always(|_, _| plain("500 No", &[], b"<Error><Code>Broken</Code></Error>"));
    let (fault, detail) = fault(read(&open(&server.url("a.tif"))));
    assert_eq!(fault, RemoteFault::Unavailable);
    assert!(detail.contains("500") && detail.contains("Broken") && detail.contains("4 attempts"), "{detail}");
    assert_eq!(server.asked().len(), 5);
}

#[test]
fn a_missing_file_is_not_retried() {
    for (status, expected) in [
        ("404 No", RemoteFault::Missing),
        ("410 Gone", RemoteFault::Missing),
        ("401 No", RemoteFault::Denied),
        ("403 No", RemoteFault::Denied),
        ("400 No", RemoteFault::Protocol),
        ("304 No", RemoteFault::Protocol),
    ] {
        let server = Server::new(move |_, _| plain(status, &[], b""));
        let (fault, _) = fault(RemoteSource::open(&server.url("a.tif"), &options()));
        assert_eq!((fault, server.asked().len()), (expected, 1), "{status}");
    }
}

/// A nonsensical response is requested twice, then reported.
fn senseless(act: impl Fn(&[u8], &super::server::Asked) -> Act + Send + Sync + 'static) {
    let server = always(act);
    let (fault, detail) = fault(read(&open(&server.url("a.tif"))));
    assert_eq!(fault, RemoteFault::Protocol, "{detail}");
    assert_eq!(server.asked().len(), 3, "{detail}");
}

#[test]
fn a_surplus_is_refused() {
    senseless(|data, asked| {
        let (start, end) = asked.range();
        let range = format!("Content-Range: bytes {start}-{end}/{}", data.len());
        Act::SendAndClose(answer("206 Partial", &[&range, "ETag: \"one\""], &data[start..end + 100]))
    });
}

#[test]
fn a_length_that_contradicts_the_range_is_refused() {
    senseless(|data, asked| {
        let (start, end) = asked.range();
        let range = format!("Content-Range: bytes {start}-{end}/{}", data.len());
        plain("206 Partial", &[&range, "ETag: \"one\""], &data[start..=end + 1])
    });
}

#[test]
fn another_range_is_refused() {
    senseless(|data, asked| {
        let (start, end) = asked.range();
        let range = format!("Content-Range: bytes {}-{}/{}", start + 1, end + 1, data.len());
        plain("206 Partial", &[&range, "ETag: \"one\""], &data[start + 1..=end + 1])
    });
}

#[test]
fn gzip_is_refused() {
    senseless(|data, asked| Act::Send(part_with(data, asked, &["ETag: \"one\"", "Content-Encoding: gzip"])));
}

#[test]
fn multipart_ranges_are_refused() {
    let kind = "Content-Type: multipart/byteranges; boundary=x";
    senseless(move |data, asked| Act::Send(part_with(data, asked, &["ETag: \"one\"", kind])));
}

#[test]
fn endless_headers_are_refused() {
    senseless(|_, _| Act::Pour(b"HTTP/1.1 206 Partial\r\nX: ".to_vec()));
}

#[test]
fn an_ignored_range_of_a_huge_file_is_not_downloaded() {
    let server = Server::new(|_, _| Act::Pour(answer("200 OK", &["Content-Length: 10000000000"], b"")));
    let (fault, detail) = fault(RemoteSource::open(&server.url("a.tif"), &options()));
    assert_eq!(fault, RemoteFault::Protocol);
    assert!(detail.contains("download the file first"), "{detail}");
    assert_eq!(server.asked().len(), 1);
    // Only what the buffers of both kernels hold.
    assert!(server.sent() < 64 << 20, "{}", server.sent());
}

#[test]
fn a_whole_small_file_is_accepted_as_its_range() {
    let server = Server::new(|_, _| plain("200 OK", &["ETag: \"one\""], b"small"));
    conformance::check_source(&open(&server.url("a.tif")), b"small");
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn an_empty_file_is_a_file() {
    let server = Server::new(|_, _| plain("416 No", &["Content-Range: bytes */0"], b""));
    assert_eq!(open(&server.url("a.tif")).size().unwrap(), 0);
}

#[test]
fn a_server_that_never_answers_ends_by_the_deadline() {
    let server = Server::new(|_, _| Act::Hang);
    let begun = Instant::now();
    let hurried = options().with_deadline(Duration::from_millis(300));
    let (fault, _) = fault(RemoteSource::open(&server.url("a.tif"), &hurried));
    assert_eq!(fault, RemoteFault::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_stalled_attempt_is_followed_by_another() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| if number == 0 { Act::Hang } else { part(&data, asked) });
    let source = RemoteSource::open(&server.url("a.tif"), &options().with_stall_timeout(Duration::from_millis(200)));
    assert_eq!(source.unwrap().traffic().unwrap().retries, 1);
}

#[test]
fn a_drip_ends_by_the_deadline() {
    let data = bytes(SIZE);
    let server = Server::new(move |_, asked| Act::Drip(part_with(&data, asked, &[])));
    let begun = Instant::now();
    let hurried = options().with_deadline(Duration::from_millis(500)).with_stall_timeout(Duration::from_secs(5));
    let (fault, _) = fault(RemoteSource::open(&server.url("a.tif"), &hurried));
    assert_eq!(fault, RemoteFault::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_refused_connection_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (fault, detail) = fault(RemoteSource::open(&format!("http://127.0.0.1:{port}/a"), &options().with_retries(1)));
    assert_eq!(fault, RemoteFault::Unavailable);
    assert!(detail.contains("refused"), "{detail}");
}

#[test]
fn a_read_stops_when_its_caller_cancels() {
    let server = always(|_, _| Act::Hang);
    let source = open(&server.url("a.tif"));
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.asked().len() < 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            stopped.store(true, Ordering::SeqCst);
        });
        let mut buffer = [0; 10];
        let mut reads = [ReadInto { offset: 100_000, buffer: &mut buffer }];
        let result = source.read_many_unless(&mut reads, &|| stopped.load(Ordering::SeqCst));
        assert_eq!(fault(result).0, RemoteFault::Cancelled);
    });
}

#[test]
fn many_ranges_are_in_flight_at_once() {
    // Answers are delayed until the allowed number of requests is in flight.
    let data = bytes(SIZE);
    let arrived = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::new(move |number, asked| {
        if number > 0 {
            let mine = arrived.fetch_add(1, Ordering::SeqCst);
            let until = Instant::now() + Duration::from_secs(10);
            while arrived.load(Ordering::SeqCst) < (mine / 16 + 1) * 16 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        part(&data, asked)
    });
    let source = open(&server.url("a.tif"));
    let mut buffers = vec![[0; 100]; 64];
    let offset = |number: usize| 40_000 + number as u64 * 1000;
    let reads = buffers.iter_mut().enumerate();
    let mut reads: Vec<_> = reads.map(|(number, buffer)| ReadInto { offset: offset(number), buffer }).collect();
    let begun = Instant::now();
    source.read_many(&mut reads).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(9), "ranges waited for each other");
    for (number, buffer) in buffers.iter().enumerate() {
        let start = offset(number) as usize;
        assert_eq!(buffer, &bytes(SIZE)[start..start + 100], "range {number}");
    }
    assert_eq!(source.traffic().unwrap().requests, 65);
}
