//! Tiles that a library for pictures compresses: it hands their streams out in host memory.

use std::ops::Range;

use swath_codec::TileSpec;
use swath_tiff::{SampleFormat, words::photometric::Photometric};

use crate::{
    encode::Pressed,
    error::DeviceError,
    ffi::{
        libraries::{self, Jpeg2000Picture, Jpeg2000Quality, JpegSettings, JpegSource, Planes, Subsampling},
        memory::DeviceBuffer,
        nvjpeg2k::Sample as Jpeg2000Sample,
        streams::Streams,
    },
    press::{Press, TileRule},
};

/// What nvJPEG takes of such tiles: grey, or colours that become luma and chroma.
pub(crate) fn jpeg_source(spec: &TileSpec) -> Option<JpegSource> {
    let subsampling = match spec.ycbcr.as_ref().map(|ycbcr| ycbcr.subsampling) {
        Some((1, 1)) => Subsampling::Full,
        Some((2, 1)) => Subsampling::Half,
        Some((2, 2)) => Subsampling::Quarter,
        _ => return (spec.samples == 1).then_some(JpegSource::Grey),
    };
    let colours = spec.samples == 3 && spec.photometric == Some(Photometric::YCbCr);
    colours.then_some(JpegSource::RgbInterleaved(subsampling))
}

/// What nvJPEG2000 takes of them.
pub(crate) fn jpeg2000_picture(spec: &TileSpec) -> Option<Jpeg2000Picture> {
    let sample = match (spec.format, spec.bits) {
        (SampleFormat::Uint, 8) => Jpeg2000Sample::U8,
        (SampleFormat::Uint, 16) => Jpeg2000Sample::U16,
        (SampleFormat::Int, 16) => Jpeg2000Sample::I16,
        _ => return None,
    };
    let colours = spec.samples >= 3 && spec.photometric == Some(Photometric::Rgb);
    (1..=4).contains(&spec.samples).then(|| Jpeg2000Picture {
        sample,
        components: spec.samples.into(),
        colours,
        interleaved: spec.samples > 1,
    })
}

/// Has a library encode the tiles at multiples of `stride`, each of its length, on the streams `over`. `ranges` says of each how
/// far its samples are apart, where that counts.
pub(crate) fn encode(
    streams: &Streams,
    over: Range<usize>,
    rule: &TileRule,
    tiles: &DeviceBuffer,
    stride: usize,
    lens: &[usize],
    ranges: &[u8],
) -> Result<Vec<Pressed>, DeviceError> {
    let spec = &rule.spec;
    let pitch = rule.row_len();
    let there: Vec<Planes> = (0..)
        .zip(lens)
        .filter(|(_, len)| **len > 0)
        .map(|(slot, len): (usize, _)| Planes {
            width: spec.width,
            height: (len / pitch.max(1)) as u32,
            at: slot * stride,
            pitch,
            plane_len: *len,
        })
        .collect();
    let refused = || DeviceError::Usage("such samples are not encoded".into());
    let made = match rule.press {
        Press::Jpeg(quality) => {
            let source = jpeg_source(spec).ok_or_else(refused)?;
            let settings = JpegSettings { source, quality: quality.clamp(1, 100) as u8, optimised: true };
            libraries::jpeg_encode(streams, over, settings, tiles, &there)?
        }
        press => {
            let picture = jpeg2000_picture(spec).ok_or_else(refused)?;
            let of = |range: u8| match press {
                Press::Jpeg2000(Some(quality)) => Jpeg2000Quality::of(quality, range),
                _ => Jpeg2000Quality::Lossless,
            };
            let range = |slot: usize| ranges.get(slot).copied().unwrap_or(u8::MAX);
            let slots = (0..).zip(lens).filter(|(_, len)| **len > 0);
            let qualities: Vec<Jpeg2000Quality> = slots.map(|(slot, _)| of(range(slot))).collect();
            libraries::jpeg2000_encode(streams, over, picture, tiles, &there, &qualities)?
        }
    };
    let mut made = made.into_iter();
    let next = |len: &usize| match len {
        0 => Pressed::Nothing,
        _ => match made.next() {
            Some(Ok(stream)) => Pressed::Host(stream),
            Some(Err(reason)) => Pressed::Refused(reason),
            None => Pressed::Refused("the library said nothing of it".into()),
        },
    };
    Ok(lens.iter().map(next).collect())
}
