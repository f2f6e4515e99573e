//! Reports a body while it arrives, so that work on its first bytes need not wait for the last.

use std::sync::mpsc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// An event of a response.
#[derive(Debug)]
pub(crate) enum BodyEvent {
    /// A response that fits its request begins. An earlier one, if any, has failed.
    Head(StatusCode, HeaderMap),
    /// The next frame of its body.
    Frame(Bytes),
}

/// Sends the events of a response to a channel. It travels as an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Watcher(mpsc::Sender<BodyEvent>);

impl Watcher {
    pub(crate) fn new() -> (Self, mpsc::Receiver<BodyEvent>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    /// Sends an event. It is lost if the read was abandoned.
    pub(crate) fn show(&self, seen: BodyEvent) {
        let _ = self.0.send(seen);
    }
}
