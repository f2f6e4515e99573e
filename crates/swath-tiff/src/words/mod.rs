//! The words every other stage speaks.

pub mod compression;
pub mod limits;
pub mod photometric;
pub mod place;
pub mod sample;
pub mod window;
