//! NVIDIA's libraries, found and loaded at run time: one module for each.

pub(crate) mod cufile;
pub(crate) mod load;
pub(crate) mod nvcomp;
pub(crate) mod nvjpeg;
pub(crate) mod nvjpeg2k;
pub(crate) mod registry;
pub(crate) mod session;
mod sys;
