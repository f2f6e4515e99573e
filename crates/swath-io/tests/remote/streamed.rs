//! Bytes that are shown while they arrive are the right ones, whatever happens to their response.

use swath_io::{RemoteFault, Source, SourceError};

use super::{
    SIZE, fault,
    faults::once,
    open,
    server::{Act, Server, answer, bytes, part, part_with},
};

const START: u64 = 30_000;
const LEN: usize = 150_000;

/// Reads from within the head to far behind it, and checks everything that is shown on the way.
fn streamed(server: &Server) -> (Result<(), SourceError>, Vec<u8>, usize) {
    let (source, expected) = (open(&server.url("a.tif")), bytes(SIZE));
    let expected = &expected[START as usize..START as usize + LEN];
    let mut buffer = vec![0; LEN];
    let (mut times, mut wrong) = (0, 0);
    let result = source.read_streamed(START, &mut buffer, &|| false, &mut |shown| {
        times += 1;
        wrong += usize::from(shown != &expected[..shown.len()]);
    });
    assert!(result.is_err() || wrong == 0, "{wrong} of {times} times wrong bytes were shown, and all was well");
    (result, buffer, times)
}

fn survives(server: &Server) {
    let (result, buffer, _) = streamed(server);
    result.unwrap();
    assert!(buffer == bytes(SIZE)[START as usize..START as usize + LEN]);
}

#[test]
fn bytes_are_shown_as_they_arrive() {
    let data = bytes(SIZE);
    let server = Server::new(move |_, asked| part(&data, asked));
    survives(&server);
    assert!(streamed(&server).2 > 1, "in more than one go");
}

#[test]
fn a_broken_response_continues_with_the_next() {
    survives(&once(|data, asked| {
        let mut cut = part_with(data, asked, &["ETag: \"one\""]);
        cut.truncate(cut.len() / 2);
        Act::SendAndClose(cut)
    }));
}

#[test]
fn a_response_without_length_is_shown_only_when_complete() {
    // Other bytes, and too many of them, which is known only at their end.
    survives(&once(|data, asked| {
        let (start, end) = asked.range();
        let range = format!("Content-Range: bytes {start}-{end}/{}", data.len());
        let body = vec![7; end - start + 1000];
        Act::SendAndClose(answer("206 Partial Content", &[&range, "ETag: \"one\"", "Connection: close"], &body))
    }));
    let data = bytes(SIZE);
    survives(&Server::new(move |number, asked| {
        if number == 0 {
            return part(&data, asked);
        }
        let (start, end) = asked.range();
        let range = format!("Content-Range: bytes {start}-{end}/{}", data.len());
        let body = &data[start..=end];
        Act::SendAndClose(answer("206 Partial Content", &[&range, "ETag: \"one\"", "Connection: close"], body))
    }));
}

#[test]
fn answers_that_contradict_each_other_are_an_error() {
    let (result, ..) = streamed(&once(|data, asked| {
        let mut wrong = part_with(&vec![7; data.len()], asked, &["ETag: \"one\""]);
        wrong.truncate(wrong.len() / 2);
        Act::SendAndClose(wrong)
    }));
    let (fault, detail) = fault(result);
    assert_eq!(fault, RemoteFault::Protocol, "{detail}");
}

#[test]
fn another_version_is_never_shown() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| match number {
        0 => part(&data, asked),
        _ => Act::Send(part_with(&vec![7; data.len()], asked, &["ETag: \"two\""])),
    });
    let (result, _, times) = streamed(&server);
    assert_eq!((fault(result).0, times), (RemoteFault::Changed, 0));
}
