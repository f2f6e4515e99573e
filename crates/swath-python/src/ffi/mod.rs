//! All unsafe code of the bindings: memory shared with Python and other libraries.

#![allow(unsafe_code)]

pub mod buffer;
pub mod capsule;
pub mod export;
pub mod foreign;
