//! All that is unsafe in the bindings: memory that Python and other libraries share with us.

#![allow(unsafe_code)]

pub mod buffer;
pub mod capsule;
pub mod export;
pub mod foreign;
