//! Behaviour of the engine, seen through its public API only.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod build;
mod cache;
mod damage;
mod directories;
mod examples;
mod georeference;
mod limits;
mod masks;
mod opening;
mod validate;
mod windows;
