//! Reads to and through a GPU, on a driver that executes the kernels on the host and fails on request.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blocks;
#[allow(dead_code)]
#[path = "../it/build.rs"]
mod build;
#[allow(dead_code)]
mod cases;
mod chips;
mod codecs;
mod counters;
mod damage;
mod driver;
mod export;
mod failures;
mod kernels;
mod matrix;
mod memory;
mod pieces;
mod remote;
#[allow(dead_code)]
mod served;
mod server;
mod statistics;
#[allow(dead_code)]
mod summed;
mod tile_rows;
mod write;
#[allow(dead_code)]
mod written;
mod zstd;
