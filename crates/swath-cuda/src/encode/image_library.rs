//! Tiles that nvJPEG or nvJPEG2000 encodes: the library hands their streams out in host memory.

use std::ops::Range;

use crate::{
    driver::{
        launch::{nvjpeg::jpeg_encode, nvjpeg2k::jpeg2000_encode, stream_threads::TilePlanes},
        libraries::{nvjpeg::encode::JpegSettings, nvjpeg2k::encode::Jpeg2000Quality},
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    encode::{
        encoded::EncodedTile,
        image_source::{jpeg_source, jpeg2000_image},
        path::EncodePath,
        tile_format::TileFormat,
    },
    error::DeviceError,
};

/// Encodes tiles with a library on the streams `over`. The tiles lie at multiples of `stride`, with the lengths `lens`.
/// `ranges` has the value range of each, where the quality depends on it.
pub(crate) fn encode_images(
    streams: &Streams,
    over: Range<usize>,
    format: &TileFormat,
    tiles: &DeviceBuffer,
    stride: usize,
    lens: &[usize],
    ranges: &[u8],
) -> Result<Vec<EncodedTile>, DeviceError> {
    let spec = &format.spec;
    let pitch = format.row_len();
    let planes: Vec<TilePlanes> = (0..)
        .zip(lens)
        .filter(|(_, len)| **len > 0)
        .map(|(slot, len): (usize, _)| TilePlanes {
            width: spec.width,
            height: (len / pitch.max(1)) as u32,
            at: slot * stride,
            pitch,
            plane_len: *len,
        })
        .collect();
    let refused = || DeviceError::Internal("the library does not encode such samples".into());
    let encoded = match format.path {
        EncodePath::Jpeg(quality) => {
            let source = jpeg_source(spec).ok_or_else(refused)?;
            let settings = JpegSettings { source, quality: quality.clamp(1, 100) as u8, optimised: true };
            jpeg_encode(streams, over, settings, tiles, &planes)?
        }
        path => {
            let image = jpeg2000_image(spec).ok_or_else(refused)?;
            let no_range = || DeviceError::Internal("a tile has no value range".into());
            let quality_of = |slot: usize| match path {
                EncodePath::Jpeg2000(Some(quality)) => {
                    ranges.get(slot).map(|range| Jpeg2000Quality::of(quality, *range)).ok_or_else(no_range)
                }
                _ => Ok(Jpeg2000Quality::Lossless),
            };
            let slots = (0..).zip(lens).filter(|(_, len)| **len > 0);
            let qualities = slots.map(|(slot, _)| quality_of(slot)).collect::<Result<Vec<_>, _>>()?;
            jpeg2000_encode(streams, over, image, tiles, &planes, &qualities)?
        }
    };
    let mut encoded = encoded.into_iter();
    let result = |len: &usize| match len {
        0 => EncodedTile::Empty,
        _ => match encoded.next() {
            Some(Ok(stream)) => EncodedTile::OnHost(stream),
            Some(Err(reason)) => EncodedTile::Refused(reason),
            None => EncodedTile::Refused("the library gave no result".into()),
        },
    };
    Ok(lens.iter().map(result).collect())
}
