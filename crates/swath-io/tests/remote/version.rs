//! Files that change while they are read.

use swath_io::{ReadInto, RemoteFault, Source};

use super::{
    SIZE, fault, open, read,
    server::{Act, Server, bytes, part, part_with, plain},
};

#[test]
fn another_tag_at_any_request_is_a_change() {
    for change in 1..4 {
        let data = bytes(SIZE);
        let server = Server::new(move |number, asked| {
            let tag = if number < change { "ETag: \"one\"" } else { "ETag: \"two\"" };
            Act::Send(part_with(&data, asked, &[tag]))
        });
        let source = open(&server.url("a.tif"));
        for _ in 1..change {
            read(&source).unwrap();
        }
        let (fault, detail) = fault(read(&source));
        assert_eq!(fault, RemoteFault::Changed, "request {change}");
        assert!(detail.contains("open it again"), "{detail}");
    }
}

#[test]
fn one_changed_range_among_many_fails_them_all() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| {
        let tag = if number == 5 { "ETag: \"two\"" } else { "ETag: \"one\"" };
        Act::Send(part_with(&data, asked, &[tag]))
    });
    let source = open(&server.url("a.tif"));
    let mut buffers = [[0; 10]; 16];
    let reads = buffers.iter_mut().enumerate();
    let mut reads: Vec<_> =
        reads.map(|(number, buffer)| ReadInto { offset: 50_000 + number as u64 * 1000, buffer }).collect();
    assert_eq!(fault(source.read_many(&mut reads)).0, RemoteFault::Changed);
}

#[test]
fn another_size_is_a_change() {
    let (data, longer) = (bytes(SIZE), bytes(SIZE + 1));
    let server =
        Server::new(move |number, asked| Act::Send(part_with(if number == 0 { &data } else { &longer }, asked, &[])));
    assert_eq!(fault(read(&open(&server.url("a.tif")))).0, RemoteFault::Changed);
}

#[test]
fn another_date_is_a_change_where_there_is_no_tag() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| {
        let date = format!("Last-Modified: Mon, 16 Nov 2026 00:00:0{number} GMT");
        Act::Send(part_with(&data, asked, &[&date]))
    });
    assert_eq!(fault(read(&open(&server.url("a.tif")))).0, RemoteFault::Changed);
    assert_eq!(server.asked()[1].header("if-unmodified-since"), Some("Mon, 16 Nov 2026 00:00:00 GMT"));
}

#[test]
fn a_failed_condition_is_a_change() {
    let data = bytes(SIZE);
    let server =
        Server::new(move |number, asked| if number == 0 { part(&data, asked) } else { plain("412 Changed", &[], b"") });
    assert_eq!(fault(read(&open(&server.url("a.tif")))).0, RemoteFault::Changed);
    assert_eq!((server.asked().len(), server.asked()[1].header("if-match")), (2, Some("\"one\"")));
}

#[test]
fn a_shrunken_file_is_a_change() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| match number {
        0 => part(&data, asked),
        _ => plain("416 No", &["Content-Range: bytes */10"], b""),
    });
    assert_eq!(fault(read(&open(&server.url("a.tif")))).0, RemoteFault::Changed);
}
