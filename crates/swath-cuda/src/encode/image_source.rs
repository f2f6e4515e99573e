//! How nvJPEG and nvJPEG2000 take the samples of tiles that they encode.

use swath_codec::TileSpec;
use swath_tiff::{Photometric, SampleFormat};

use crate::driver::libraries::{
    nvjpeg::encode::{JpegSource, Subsampling},
    nvjpeg2k::{Jpeg2000Sample, encode::Jpeg2000Image},
};

/// Returns how nvJPEG takes tiles of this spec, if it encodes them: grey, or RGB that becomes luma and chroma.
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

/// Returns how nvJPEG2000 takes tiles of this spec, if it encodes them.
pub(crate) fn jpeg2000_image(spec: &TileSpec) -> Option<Jpeg2000Image> {
    let is_whole = usize::from(spec.bits) == spec.sample.size() * 8;
    if !is_whole || !matches!(spec.format, SampleFormat::Uint | SampleFormat::Int) {
        return None;
    }
    let sample = Jpeg2000Sample::of(spec.sample)?;
    let colours = spec.samples >= 3 && spec.photometric == Some(Photometric::Rgb);
    (1..=4).contains(&spec.samples).then(|| Jpeg2000Image {
        sample,
        components: spec.samples.into(),
        colours,
        interleaved: spec.samples > 1,
    })
}
