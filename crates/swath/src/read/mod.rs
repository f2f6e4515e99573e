//! Reading windows: the options, and the work behind [`Dataset::read`](crate::Dataset::read).

mod arriving;
mod assemble;
mod backing;
mod color;
mod context;
mod decode_time;
mod device;
mod extent;
mod job;
mod mask;
mod options;
mod plan;
mod request;
mod schedule;
mod strip;
mod task;
mod windows;

pub use options::{ColorView, ReadOptions};

pub use crate::state::spare::SampleBuffer;
