//! A sink that the threads of a write share.

use swath_io::Sink;

/// A sink that the threads of a write share.
#[derive(Debug)]
pub(super) struct SharedSink(pub(super) Box<dyn Sink>);
