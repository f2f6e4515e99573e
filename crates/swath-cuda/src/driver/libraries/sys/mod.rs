//! Tables of the C functions that we call, one file for each library.

pub mod cufile;
pub mod nvcomp;
pub mod nvjpeg;
pub mod nvjpeg2k;
