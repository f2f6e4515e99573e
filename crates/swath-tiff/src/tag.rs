//! Numbers and names of tags.

/// NewSubfileType.
pub const NEW_SUBFILE_TYPE: u16 = 254;
/// SubfileType.
pub const SUBFILE_TYPE: u16 = 255;
/// ImageWidth.
pub const IMAGE_WIDTH: u16 = 256;
/// ImageLength.
pub const IMAGE_LENGTH: u16 = 257;
/// BitsPerSample.
pub const BITS_PER_SAMPLE: u16 = 258;
/// Compression.
pub const COMPRESSION: u16 = 259;
/// PhotometricInterpretation.
pub const PHOTOMETRIC: u16 = 262;
/// FillOrder.
pub const FILL_ORDER: u16 = 266;
/// StripOffsets.
pub const STRIP_OFFSETS: u16 = 273;
/// Orientation.
pub const ORIENTATION: u16 = 274;
/// SamplesPerPixel.
pub const SAMPLES_PER_PIXEL: u16 = 277;
/// RowsPerStrip.
pub const ROWS_PER_STRIP: u16 = 278;
/// StripByteCounts.
pub const STRIP_BYTE_COUNTS: u16 = 279;
/// MinSampleValue.
pub const MIN_SAMPLE_VALUE: u16 = 280;
/// MaxSampleValue.
pub const MAX_SAMPLE_VALUE: u16 = 281;
/// PlanarConfiguration.
pub const PLANAR_CONFIGURATION: u16 = 284;
/// T4Options.
pub const T4_OPTIONS: u16 = 292;
/// T6Options.
pub const T6_OPTIONS: u16 = 293;
/// Predictor.
pub const PREDICTOR: u16 = 317;
/// ColorMap.
pub const COLOR_MAP: u16 = 320;
/// TileWidth.
pub const TILE_WIDTH: u16 = 322;
/// TileLength.
pub const TILE_LENGTH: u16 = 323;
/// TileOffsets.
pub const TILE_OFFSETS: u16 = 324;
/// TileByteCounts.
pub const TILE_BYTE_COUNTS: u16 = 325;
/// SubIFDs.
pub const SUB_IFDS: u16 = 330;
/// ExtraSamples.
pub const EXTRA_SAMPLES: u16 = 338;
/// SampleFormat.
pub const SAMPLE_FORMAT: u16 = 339;
/// SMinSampleValue.
pub const S_MIN_SAMPLE_VALUE: u16 = 340;
/// SMaxSampleValue.
pub const S_MAX_SAMPLE_VALUE: u16 = 341;
/// JPEGTables.
pub const JPEG_TABLES: u16 = 347;
/// YCbCrCoefficients.
pub const YCBCR_COEFFICIENTS: u16 = 529;
/// YCbCrSubSampling.
pub const YCBCR_SUBSAMPLING: u16 = 530;
/// YCbCrPositioning.
pub const YCBCR_POSITIONING: u16 = 531;
/// ReferenceBlackWhite.
pub const REFERENCE_BLACK_WHITE: u16 = 532;
/// DataType.
pub const DATA_TYPE: u16 = 32996;
/// ImageDepth.
pub const IMAGE_DEPTH: u16 = 32997;
/// ModelPixelScale.
pub const MODEL_PIXEL_SCALE: u16 = 33550;
/// IntergraphMatrix.
pub const INTERGRAPH_MATRIX: u16 = 33920;
/// ModelTiepoint.
pub const MODEL_TIEPOINT: u16 = 33922;
/// ModelTransformation.
pub const MODEL_TRANSFORMATION: u16 = 34264;
/// GeoKeyDirectory.
pub const GEO_KEY_DIRECTORY: u16 = 34735;
/// GeoDoubleParams.
pub const GEO_DOUBLE_PARAMS: u16 = 34736;
/// GeoAsciiParams.
pub const GEO_ASCII_PARAMS: u16 = 34737;
/// GDAL_METADATA.
pub const GDAL_METADATA: u16 = 42112;
/// GDAL_NODATA.
pub const GDAL_NODATA: u16 = 42113;
/// swath's own tag: how each tile is cut into pieces that can be decoded independently. LONG values: the uncompressed bytes of a
/// piece, then, for every tile in the order of the tile tables, the compressed bytes of all pieces but the last; zeros for a tile
/// that is not cut.
pub const SWATH_PIECES: u16 = 65273;
/// LercParameters.
pub const LERC_PARAMETERS: u16 = 50674;
/// RPCCoefficient.
pub const RPC_COEFFICIENT: u16 = 50844;

/// Whether a tag only describes an image, so that its pixels can be read without it.
#[must_use]
pub fn describes(tag: u16) -> bool {
    const TEXTS: [u16; 11] = [269, 270, 271, 272, 285, 305, 306, 315, 316, 33432, 50708];
    const PROFILES: [u16; 3] = [700, 33723, 34675];
    let model = [MODEL_PIXEL_SCALE, MODEL_TIEPOINT, MODEL_TRANSFORMATION, RPC_COEFFICIENT];
    let keys = [GEO_KEY_DIRECTORY, GEO_DOUBLE_PARAMS, GEO_ASCII_PARAMS];
    let gdal = [GDAL_METADATA, GDAL_NODATA];
    [&TEXTS[..], &PROFILES, &model, &keys, &gdal, &[282, 283]].iter().any(|list| list.contains(&tag))
}

/// The name of a tag.
#[must_use]
pub fn name(tag: u16) -> Option<&'static str> {
    Some(match tag {
        254 => "NewSubfileType",
        255 => "SubfileType",
        256 => "ImageWidth",
        257 => "ImageLength",
        258 => "BitsPerSample",
        259 => "Compression",
        262 => "PhotometricInterpretation",
        263 => "Threshholding",
        264 => "CellWidth",
        265 => "CellLength",
        266 => "FillOrder",
        269 => "DocumentName",
        270 => "ImageDescription",
        271 => "Make",
        272 => "Model",
        273 => "StripOffsets",
        274 => "Orientation",
        277 => "SamplesPerPixel",
        278 => "RowsPerStrip",
        279 => "StripByteCounts",
        280 => "MinSampleValue",
        281 => "MaxSampleValue",
        282 => "XResolution",
        283 => "YResolution",
        284 => "PlanarConfiguration",
        285 => "PageName",
        286 => "XPosition",
        287 => "YPosition",
        288 => "FreeOffsets",
        289 => "FreeByteCounts",
        290 => "GrayResponseUnit",
        291 => "GrayResponseCurve",
        292 => "T4Options",
        293 => "T6Options",
        296 => "ResolutionUnit",
        297 => "PageNumber",
        301 => "TransferFunction",
        305 => "Software",
        306 => "DateTime",
        315 => "Artist",
        316 => "HostComputer",
        317 => "Predictor",
        318 => "WhitePoint",
        319 => "PrimaryChromaticities",
        320 => "ColorMap",
        321 => "HalftoneHints",
        322 => "TileWidth",
        323 => "TileLength",
        324 => "TileOffsets",
        325 => "TileByteCounts",
        326 => "BadFaxLines",
        327 => "CleanFaxData",
        328 => "ConsecutiveBadFaxLines",
        330 => "SubIFDs",
        332 => "InkSet",
        333 => "InkNames",
        334 => "NumberOfInks",
        336 => "DotRange",
        337 => "TargetPrinter",
        338 => "ExtraSamples",
        339 => "SampleFormat",
        340 => "SMinSampleValue",
        341 => "SMaxSampleValue",
        347 => "JPEGTables",
        351 => "OPIProxy",
        512 => "JPEGProc",
        513 => "JPEGInterchangeFormat",
        514 => "JPEGInterchangeFormatLength",
        515 => "JPEGRestartInterval",
        519 => "JPEGQTables",
        520 => "JPEGDCTables",
        521 => "JPEGACTables",
        529 => "YCbCrCoefficients",
        530 => "YCbCrSubSampling",
        531 => "YCbCrPositioning",
        532 => "ReferenceBlackWhite",
        700 => "XMP",
        32995 => "Matteing",
        32996 => "DataType",
        32997 => "ImageDepth",
        32998 => "TileDepth",
        33421 => "CFARepeatPatternDim",
        33422 => "CFAPattern",
        33432 => "Copyright",
        33550 => "ModelPixelScale",
        33723 => "IPTC",
        33918 => "INGRPacketData",
        33919 => "INGRFlagRegisters",
        33920 => "IntergraphMatrix",
        33922 => "ModelTiepoint",
        34264 => "ModelTransformation",
        34377 => "Photoshop",
        34665 => "ExifIFD",
        34675 => "ICCProfile",
        34735 => "GeoKeyDirectory",
        34736 => "GeoDoubleParams",
        34737 => "GeoAsciiParams",
        34853 => "GPSIFD",
        37724 => "ImageSourceData",
        40965 => "InteroperabilityIFD",
        42112 => "GDAL_METADATA",
        42113 => "GDAL_NODATA",
        50674 => "LercParameters",
        65273 => "SwathPieces",
        50706 => "DNGVersion",
        50838 => "IJMetadataByteCounts",
        50839 => "IJMetadata",
        50844 => "RPCCoefficient",
        50909 => "GEO_METADATA",
        _ => return None,
    })
}
