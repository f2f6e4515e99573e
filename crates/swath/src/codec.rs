//! Which codecs there are.
//!
//! The default [`Registry`] has every codec that the crate was built with; [`OpenOptions::with_registry`] and
//! [`WriteOptions::with_registry`] take another, where a program decodes or encodes some compression itself.
//!
//! [`OpenOptions::with_registry`]: crate::OpenOptions::with_registry
//! [`WriteOptions::with_registry`]: crate::WriteOptions::with_registry

pub use swath_codec::{
    CodecError, Decode, Encode, Fill, Form, Scratch, TileSpec,
    encode::{LercWrap, Settings},
    registry::{Listing, MakeEncoder, Registry},
};
