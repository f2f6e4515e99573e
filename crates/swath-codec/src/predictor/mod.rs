//! TIFF predictors 2 and 3: `encode` takes differences before compression, `decode` undoes them after decompression.

pub mod decode;
pub mod encode;
