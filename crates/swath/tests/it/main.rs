//! Behaviour of the engine, seen through its public API only.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blocks;
mod build;
mod cache;
mod cog;
mod damage;
mod directories;
mod examples;
mod far;
mod georeference;
mod limits;
mod masks;
mod opening;
mod predictor;
mod same;
mod samples;
mod scene;
#[path = "../gpu/server.rs"]
mod server;
mod tile_rows;
mod validate;
mod windows;
mod windows_batch;
mod write;
mod write_faults;
