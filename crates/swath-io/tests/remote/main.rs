//! Servers that misbehave, and how a reader of remote files reacts.
#![allow(clippy::unwrap_used, reason = "tests")]

mod faults;
mod safety;
mod server;
mod stores;
mod streamed;
mod version;

use std::time::Duration;

use swath_io::{RemoteFault, RemoteOptions, RemoteSource, Source, SourceError};

/// Longer than the bytes that opening fetches.
const SIZE: usize = 200_000;

/// Options for servers on loopback.
fn options() -> RemoteOptions {
    RemoteOptions::default().with_deadline(Duration::from_secs(20)).with_retries(3)
}

fn open(address: &str) -> RemoteSource {
    RemoteSource::open(address, &options()).unwrap()
}

/// Reads far from the head.
fn read(source: &RemoteSource) -> Result<Vec<u8>, SourceError> {
    let mut buffer = vec![0; 1000];
    source.read_at(100_000, &mut buffer).map(|()| buffer)
}

fn fault<T>(result: Result<T, SourceError>) -> (RemoteFault, String) {
    match result {
        Err(SourceError::Remote { fault, detail }) => (fault, detail),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it worked"),
    }
}
