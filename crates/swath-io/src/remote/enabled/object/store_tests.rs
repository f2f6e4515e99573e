//! Uploads to a small store on loopback, which speaks the protocols of S3 and Azure and misbehaves on request.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{super::tests::beside_others, *};
use crate::{Sink, SinkError};

/// How the server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Every request fails the first time it is made.
    FirstTry,
    /// The second part is refused.
    PartRefused,
    /// The last request fails each time, and nothing is done.
    CompleteFails,
    /// The status is a success, and the body an error.
    CompleteFailsLate,
    /// The object is made, but the response is lost: the next attempt finds no upload.
    AnswerLost,
    /// The upload is gone and nothing was made of it.
    UploadLost,
}

#[derive(Debug, Default)]
struct Bucket {
    object: Option<Vec<u8>>,
    tag: String,
    upload: Option<BTreeMap<u32, Vec<u8>>>,
    /// Azure's parts.
    blocks: BTreeMap<String, Vec<u8>>,
    seen: Vec<String>,
    unsigned: usize,
    aborted: usize,
}

#[derive(Debug, Clone)]
struct Server {
    bucket: Arc<Mutex<Bucket>>,
    endpoint: String,
}

struct RequestedRange {
    method: String,
    target: String,
    signed: bool,
    body: Vec<u8>,
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<RequestedRange> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut len, mut signed) = (0, false);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = value.trim().parse().unwrap(),
            "authorization" => {
                let value = value.trim();
                let s3 = value.starts_with("AWS4-HMAC-SHA256") && value.contains("/us-east-1/s3/");
                signed = s3 || value == "Bearer a-token" || value.starts_with("SharedKey account:");
            }
            _ => {}
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    Some(RequestedRange { method, target, signed, body })
}

impl Server {
    fn start(fault: Fault, old: Option<&[u8]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bucket = Bucket { object: old.map(<[u8]>::to_vec), tag: "\"old\"".to_owned(), ..Bucket::default() };
        let server = Self { bucket: Arc::new(Mutex::new(bucket)), endpoint };
        let this = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(asked) = read(&mut reader) {
                        let Some((status, tag, body)) = this.answer(fault, &asked) else { return };
                        let len = if asked.method == "HEAD" { this.size() } else { body.len() };
                        let head = format!(
                            "HTTP/1.1 {status} x\r\nETag: {tag}\r\nContent-Length: {len}\r\n\
                             Last-Modified: Mon, 16 Nov 2026 00:00:00 GMT\r\n\r\n"
                        );
                        let body = if asked.method == "HEAD" { String::new() } else { body };
                        if stream.write_all((head + &body).as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        server
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self) -> usize {
        self.bucket().object.as_ref().map_or(0, Vec::len)
    }

    /// Status, tag and body; `None` to hang up.
    fn answer(&self, fault: Fault, asked: &RequestedRange) -> Option<(u16, String, String)> {
        let mut bucket = self.bucket();
        let request = format!("{} {}", asked.method, asked.target);
        let first = !bucket.seen.contains(&request);
        bucket.seen.push(request.clone());
        bucket.unsigned += usize::from(!asked.signed);
        let plain = |status: u16, body: &str| Some((status, "\"x\"".to_owned(), body.to_owned()));
        let gone = "<Error><Code>NoSuchUpload</Code></Error>";
        if fault == Fault::FirstTry && first {
            return plain(503, "<Error><Code>SlowDown</Code></Error>");
        }
        let (path, _) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let path = path.strip_prefix("/account").unwrap_or(path).replace("%2E", ".").replace('+', "%2B");
        assert_eq!(path, "/bucket/a%20key%2B.tif");
        let query = asked.target.split_once('?').map_or("", |(_, query)| query);
        let number =
            query.split('&').find_map(|pair| pair.strip_prefix("partNumber=")).map(|n| n.parse::<u32>().unwrap());
        match (asked.method.as_str(), number) {
            ("HEAD", _) => match &bucket.object {
                Some(_) => Some((200, bucket.tag.clone(), String::new())),
                None => plain(404, ""),
            },
            ("POST", _) if query.starts_with("uploads") => {
                bucket.upload = Some(BTreeMap::new());
                let name = "<InitiateMultipartUploadResult><UploadId>a/b+c</UploadId></InitiateMultipartUploadResult>";
                plain(200, name)
            }
            ("PUT", _) if query.contains("comp=blocklist") => {
                let xml = String::from_utf8(asked.body.clone()).unwrap();
                let names: Vec<_> =
                    xml.split("<Uncommitted>").skip(1).map(|rest| &rest[..rest.find('<').unwrap()]).collect();
                let blocks = std::mem::take(&mut bucket.blocks);
                if names.iter().any(|name| !blocks.contains_key(*name)) {
                    return plain(400, "<Error><Code>InvalidBlockList</Code></Error>");
                }
                bucket.tag = "\"new\"".to_owned();
                bucket.object = Some(names.iter().flat_map(|name| blocks[*name].clone()).collect());
                if fault == Fault::AnswerLost { None } else { plain(201, "") }
            }
            ("PUT", _) if query.contains("comp=block") => {
                let name = query.split('&').find_map(|pair| pair.strip_prefix("blockid=")).unwrap();
                let name = name.replace("%3D", "=").replace("%2B", "+").replace("%2F", "/");
                bucket.blocks.insert(name, asked.body.clone());
                plain(201, "")
            }
            ("PUT", None) => {
                bucket.object = Some(asked.body.clone());
                plain(200, "")
            }
            ("PUT", Some(number)) => {
                assert!(query.contains("uploadId=a%2Fb%2Bc"), "{query}");
                let parts = bucket.upload.as_mut().unwrap();
                if fault == Fault::PartRefused && parts.len() == 1 {
                    return plain(403, "<Error><Code>AccessDenied</Code></Error>");
                }
                parts.insert(number, asked.body.clone());
                Some((200, format!("\"{number}\""), String::new()))
            }
            ("DELETE", _) => match bucket.upload.take() {
                Some(_) => {
                    bucket.aborted += 1;
                    plain(204, "")
                }
                None => plain(404, gone),
            },
            ("POST", _) => {
                assert!(query.contains("uploadId=a%2Fb%2Bc"), "{query}");
                match fault {
                    Fault::CompleteFails => return plain(500, ""),
                    Fault::CompleteFailsLate => return plain(200, "\n\n<Error><Code>InternalError</Code></Error>"),
                    Fault::UploadLost => bucket.upload = None,
                    _ => {}
                }
                let Some(parts) = bucket.upload.take() else { return plain(404, gone) };
                let named =
                    |number: &u32| format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{number}\"</ETag></Part>");
                let list: String = parts.keys().map(named).collect();
                let xml = String::from_utf8(asked.body.clone()).unwrap();
                assert!(xml.contains(&list), "{xml}");
                assert!(parts.values().rev().skip(1).all(|part| part.len() >= 5 << 20), "a part is too short");
                bucket.tag = format!("\"new-{}\"", parts.len());
                bucket.object = Some(parts.into_values().flatten().collect());
                if fault == Fault::AnswerLost {
                    return None;
                }
                plain(200, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
            }
            other => panic!("{other:?}"),
        }
    }

    fn sink(&self, scheme: &str) -> Box<dyn Sink> {
        let options = RemoteOptions::default()
            .with_endpoint(&self.endpoint)
            .with_region("us-east-1")
            .with_retries(2)
            .with_setting("aws_access_key_id", "someone")
            .with_setting("aws_secret_access_key", "something")
            .with_setting("google_bearer_token", "a-token")
            .with_setting("azure_storage_account_name", "account")
            .with_setting("azure_storage_account_key", "a2V5");
        super::super::create(&format!("{scheme}://bucket/a key+.tif"), &options).unwrap()
    }
}

const STORES: [&str; 3] = ["s3", "gs", "az"];

const MIB: u64 = 1 << 20;

/// Two levels with room between them that is removed; returns the bytes that the object must then have.
fn write(mut sink: Box<dyn Sink>) -> (Vec<u8>, Result<(), SinkError>) {
    let tile: Vec<u8> = (0..MIB).map(|value| ((value * value) >> 7) as u8).collect();
    let expected = [vec![9; 100], vec![0; 4096 - 100], tile.repeat(16), tile.repeat(20)].concat();
    let mut write = || {
        sink.expect(100 * MIB);
        for number in 0..20 {
            if number < 16 {
                sink.write_at(4096 + number * MIB, &tile)?;
            }
            sink.write_at((50 + number) * MIB, &tile)?;
        }
        let gap = 4096 + 16 * MIB..50 * MIB;
        sink.remove(std::slice::from_ref(&gap), 70 * MIB)?;
        sink.write_at(0, &[9; 100])
    };
    let written = write();
    (expected, written.and_then(|()| sink.commit(4096 + 36 * MIB)))
}

#[test]
fn parts_become_an_object_also_where_every_request_fails_once() {
    let _shared = beside_others();
    for (fault, store) in STORES.map(|store| (Fault::None, store)).into_iter().chain([(Fault::FirstTry, "s3")]) {
        let server = Server::start(fault, Some(b"old"));
        let (expected, result) = write(server.sink(store));
        result.unwrap();
        let bucket = server.bucket();
        assert!(bucket.object.as_deref() == Some(&expected[..]), "{store}, {fault:?}");
        assert_eq!((bucket.unsigned, bucket.aborted), (0, 0), "{store}, {fault:?}");
    }
}

#[test]
fn failed_uploads_keep_the_old_object_and_leave_no_parts() {
    let _shared = beside_others();
    for fault in [Fault::PartRefused, Fault::CompleteFails, Fault::CompleteFailsLate] {
        let server = Server::start(fault, Some(b"old"));
        let (_, result) = write(server.sink("s3"));
        let error = result.unwrap_err();
        assert!(!error.to_string().contains("does not say"), "{fault:?}: {error}");
        let bucket = server.bucket();
        assert_eq!(bucket.object.as_deref(), Some(b"old".as_slice()), "{fault:?}");
        assert!(bucket.upload.is_none() && bucket.aborted > 0, "{fault:?}");
    }
}

#[test]
fn a_lost_response_is_distinguished_from_a_lost_upload() {
    let _shared = beside_others();
    for (store, old) in STORES.into_iter().zip([None, Some(b"old".as_slice()), Some(b"old")]) {
        let server = Server::start(Fault::AnswerLost, old);
        let (expected, result) = write(server.sink(store));
        result.unwrap();
        assert!(server.bucket().object.as_deref() == Some(&expected[..]), "{store}");
    }
    for old in [None, Some(b"old".as_slice())] {
        let server = Server::start(Fault::UploadLost, old);
        let (_, result) = write(server.sink("s3"));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("NoSuchUpload") && error.contains("does not say"), "{error}");
        assert_eq!(server.bucket().object.as_deref(), old);
    }
}

#[test]
fn a_dropped_upload_leaves_no_parts() {
    let _shared = beside_others();
    let server = Server::start(Fault::None, None);
    let sink = server.sink("s3");
    sink.expect(100 * MIB);
    sink.write_at(0, &vec![1; 40 << 20]).unwrap();
    drop(sink);
    let bucket = server.bucket();
    assert!(bucket.object.is_none() && bucket.upload.is_none());
}

#[test]
fn small_objects_are_one_request() {
    let _shared = beside_others();
    let server = Server::start(Fault::None, None);
    let sink = server.sink("s3");
    assert_eq!(sink.name(), "s3://bucket/a key+.tif");
    sink.write_at(0, b"tiny").unwrap();
    sink.commit(4).unwrap();
    let bucket = server.bucket();
    assert_eq!((bucket.object.as_deref(), bucket.seen.len()), (Some(b"tiny".as_slice()), 1));
}

#[test]
fn plain_servers_are_not_written_to() {
    let error = super::super::create("HTTPS://host/a.tif", &RemoteOptions::default()).unwrap_err().to_string();
    assert!(error.contains("s3://"), "{error}");
}

#[test]
fn lists_keep_tags_and_checksums_apart() {
    let with_sum = "<PartMetadata><e_tag>&quot;b&quot;</e_tag><checksum_sha256>c=</checksum_sha256></PartMetadata>";
    let text = list(&[(3, "\"a<&\"".to_owned()), (7, with_sum.to_owned())]);
    assert!(text.contains("<Part><PartNumber>3</PartNumber><ETag>\"a&lt;&amp;\"</ETag></Part>"), "{text}");
    let second = "<Part><PartNumber>7</PartNumber><ETag>&quot;b&quot;</ETag><ChecksumSHA256>c=</ChecksumSHA256></Part>";
    assert!(text.contains(second), "{text}");
}
