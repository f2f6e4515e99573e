//! A body seen while it comes in, so that work on its first bytes need not wait for the last.

use std::sync::mpsc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// What is seen of an answer.
#[derive(Debug)]
pub(crate) enum Seen {
    /// An answer that fits its request begins; where there was one before, it failed, and this one begins anew.
    Head(StatusCode, HeaderMap),
    /// The next piece of its body.
    Piece(Bytes),
}

/// Shows whoever reads the other end what comes in. It goes along as an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Watcher(mpsc::Sender<Seen>);

impl Watcher {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Seen>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    /// Nobody looks any more where the read was given up.
    pub(crate) fn show(&self, seen: Seen) {
        let _ = self.0.send(seen);
    }
}
