//! Maps each compression to its decoder and encoder.

use std::{fmt, sync::Arc};

use swath_tiff::Compression;

use crate::{
    codec,
    decode::{Decode, Fill},
    encode::{Encode, Settings},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// Creates the encoder for tiles of one spec.
pub type MakeEncoder = fn(&TileSpec, &Settings) -> Result<Arc<dyn Encode>, CodecError>;

/// The decoders and encoders by compression: a plain value, so that a program can add or leave out codecs.
#[derive(Clone)]
pub struct Registry {
    decoders: Vec<(Compression, Arc<dyn Decode>)>,
    encoders: Vec<(Compression, MakeEncoder)>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.decoders.iter().map(|(compression, _)| compression)).finish()
    }
}

/// Replaces a codec that the build left out, and fails with an error that says so.
#[allow(dead_code)] // unused in a build with every codec
struct NotBuilt(&'static str, &'static str);

impl Decode for NotBuilt {
    fn decode(&self, _: &TileSpec, _: u32, _: &[u8], _: &mut [u8], _: &mut Scratch) -> Result<Fill, CodecError> {
        Err(CodecError::NotBuilt { codec: self.0, feature: self.1 })
    }
}

impl Registry {
    /// Creates a registry without codecs.
    pub fn empty() -> Self {
        Self { decoders: Vec::new(), encoders: Vec::new() }
    }

    /// Adds an encoder, replacing any earlier one for the same compression.
    pub fn insert_encoder(&mut self, compression: Compression, make: MakeEncoder) {
        self.encoders.retain(|(known, _)| *known != compression);
        self.encoders.push((compression, make));
    }

    /// Creates an encoder for tiles of this spec.
    ///
    /// # Errors
    /// When the registry has none, or the codec does not support such samples or settings.
    pub fn encoder(&self, spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
        let found = self.encoders.iter().find(|(known, _)| *known == spec.compression);
        let (_, make) = found.ok_or_else(|| CodecError::NoEncoder(spec.compression.to_string()))?;
        make(spec, settings)
    }

    /// Adds a decoder, replacing any earlier one for the same compression.
    pub fn insert(&mut self, compression: Compression, decoder: Arc<dyn Decode>) {
        self.decoders.retain(|(known, _)| *known != compression);
        self.decoders.push((compression, decoder));
    }

    /// Returns the decoder for a compression.
    ///
    /// # Errors
    /// When the registry has none; the error names the compression.
    pub fn decoder(&self, compression: Compression) -> Result<&Arc<dyn Decode>, CodecError> {
        self.decoders
            .iter()
            .find(|(known, _)| *known == compression)
            .map(|(_, decoder)| decoder)
            .ok_or_else(|| CodecError::NoDecoder(compression.to_string()))
    }

    /// Lists every codec with the libraries behind it, and whether this build has it.
    pub fn listing() -> Vec<Listing> {
        let row = |name, reads, writes, feature, built| Listing { name, reads, writes, feature, built };
        // Writing JPEG 2000 has its own feature.
        let jpeg2000 = if cfg!(feature = "jpeg2000-write") { "OpenJPEG" } else { "" };
        vec![
            row("None", "own", "own", "", true),
            row("PackBits", "own", "own", "", true),
            row("LZW", "own", "own", "", true),
            row("Deflate", "libdeflate", "own, libdeflate", "", true),
            row("Zstd", "zstd", "zstd", "", true),
            row("JPEG", "own (8 and 12 bit, lossless)", "own (8 and 12 bit)", "", true),
            row("CCITT RLE, T.4, T.6", "own", "own", "", true),
            row("LZMA", "liblzma", "liblzma", "lzma", cfg!(feature = "lzma")),
            row("LZ4", "lz4_flex", "lz4_flex", "lz4", cfg!(feature = "lz4")),
            row("LERC", "own, lerc-rs", "own, lerc-rs", "lerc", cfg!(feature = "lerc")),
            row("WebP", "libwebp", "libwebp", "webp", cfg!(feature = "webp")),
            row("JPEG 2000", "hayro-jpeg2000", jpeg2000, "jpeg2000", cfg!(feature = "jpeg2000")),
            row("JPEG XL", "jxl-oxide", "", "jpegxl", cfg!(feature = "jpegxl")),
        ]
    }
}

/// A row of [`Registry::listing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// Name of the codec.
    pub name: &'static str,
    /// The decoder's library; "own" for ours.
    pub reads: &'static str,
    /// The encoder's library; empty for a codec without an encoder.
    pub writes: &'static str,
    /// The Cargo feature that adds the codec; empty where every build has it.
    pub feature: &'static str,
    /// Whether this build has it.
    pub built: bool,
}

impl Default for Registry {
    fn default() -> Self {
        let mut registry = Self::empty();
        registry.insert(Compression::None, Arc::new(codec::none::None));
        registry.insert(Compression::PackBits, Arc::new(codec::packbits::PackBits));
        registry.insert(Compression::Lzw, Arc::new(codec::lzw::Lzw));
        registry.insert(Compression::Deflate, Arc::new(codec::deflate::Deflate));
        registry.insert(Compression::Zstd, Arc::new(codec::zstd::Zstd));
        registry.insert(Compression::Jpeg, Arc::new(codec::jpeg::Jpeg));
        registry.insert_encoder(Compression::Lzw, |_, _| Ok(Arc::new(codec::lzw::Lzw)));
        registry.insert_encoder(Compression::PackBits, |_, _| Ok(Arc::new(codec::packbits::PackBits)));
        registry.insert_encoder(Compression::Jpeg, codec::jpeg::JpegEncoder::make);
        for fax in [Compression::CcittRle, Compression::CcittRleWord, Compression::CcittT4, Compression::CcittT6] {
            registry.insert(fax, Arc::new(codec::ccitt::Ccitt));
        }
        registry.insert_encoder(Compression::None, codec::none::encoder);
        registry.insert_encoder(Compression::Deflate, codec::deflate::encoder);
        registry.insert_encoder(Compression::Zstd, codec::zstd::encoder);
        for fax in [Compression::CcittRle, Compression::CcittT4, Compression::CcittT6] {
            registry.insert_encoder(fax, codec::ccitt::encoder);
        }
        macro_rules! optional {
            ($compression:expr, $name:literal, $feature:literal, $decoder:expr) => {
                #[cfg(feature = $feature)]
                registry.insert($compression, Arc::new($decoder));
                #[cfg(not(feature = $feature))]
                registry.insert($compression, Arc::new(NotBuilt($name, $feature)));
            };
            ($compression:expr, $name:literal, $feature:literal, make $encoder:expr) => {
                #[cfg(feature = $feature)]
                registry.insert_encoder($compression, $encoder);
                #[cfg(not(feature = $feature))]
                registry.insert_encoder($compression, |_, _| {
                    Err(CodecError::encode($name, concat!("this build is without the `", $feature, "` feature")))
                });
            };
        }
        optional!(Compression::Lzma, "LZMA", "lzma", codec::lzma::Lzma);
        optional!(Compression::Lz4, "LZ4", "lz4", codec::lz4::Lz4);
        optional!(Compression::Lerc, "LERC", "lerc", codec::lerc::Lerc);
        optional!(Compression::WebP, "WebP", "webp", codec::webp::WebP);
        optional!(Compression::Jpeg2000, "JPEG 2000", "jpeg2000", codec::jpeg2000::Jpeg2000);
        optional!(Compression::JpegXl, "JPEG XL", "jpegxl", codec::jpegxl::JpegXl);
        optional!(Compression::Lzma, "LZMA", "lzma", make codec::lzma::encoder);
        optional!(Compression::Lz4, "LZ4", "lz4", make codec::lz4::encoder);
        optional!(Compression::Lerc, "LERC", "lerc", make codec::lerc::encoder);
        optional!(Compression::WebP, "WebP", "webp", make codec::webp::encoder);
        optional!(Compression::Jpeg2000, "JPEG 2000", "jpeg2000-write", make codec::jpeg2000::encoder);
        registry
    }
}
