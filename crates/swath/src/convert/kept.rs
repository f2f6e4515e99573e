//! What a conversion keeps of its source, besides pixels.

use swath_tiff::{
    Compression, Photometric, SampleFormat, Window,
    geo::GeoTransform,
    structure::{Layout, emit::Field},
    tag,
};

use crate::{
    error::Error,
    metadata::Metadata,
    open::{dataset::Dataset, image::Role},
    write::WriteOptions,
};

/// Metadata of the bands and pixels that are taken.
pub(super) fn selected(
    whole: &Metadata,
    bands: &[u32],
    window: Window,
    (width, height): (u32, u32),
    layout: &Layout,
) -> Result<Metadata, Error> {
    let mut metadata = whole.clone();
    let of_band = |band: &u32| {
        let found = band.checked_sub(1).and_then(|index| whole.bands.get(usize::try_from(index).ok()?));
        // Without this one, the bands after it would have the metadata of others.
        found.cloned().ok_or_else(|| Error::internal(format!("there are no metadata of band {band}")))
    };
    metadata.bands = bands.iter().map(of_band).collect::<Result<_, _>>()?;
    // The colours are those of the first band.
    if bands.first() != Some(&1) {
        metadata.palette.clear();
    }
    let (x, y) = (f64::from(window.x), f64::from(window.y));
    // An overview covers the same ground with fewer pixels.
    let (across, down) = (f64::from(layout.width) / f64::from(width), f64::from(layout.height) / f64::from(height));
    if let Some(transform) = &mut metadata.georeference.transform {
        let [c, a, b, f, d, e] = transform.0;
        let (a, b, d, e) = (a * across, b * down, d * across, e * down);
        *transform = GeoTransform([c + x * a + y * b, a, b, f + x * d + y * e, d, e]);
    }
    for gcp in &mut metadata.georeference.gcps {
        gcp.pixel = gcp.pixel / across - x;
        gcp.line = gcp.line / down - y;
    }
    if let Some(rpc) = &mut metadata.georeference.rpc {
        rpc.samp_off = (rpc.samp_off + 0.5) / across - 0.5 - x;
        rpc.line_off = (rpc.line_off + 0.5) / down - 0.5 - y;
        rpc.samp_scale /= across;
        rpc.line_scale /= down;
    }
    Ok(metadata)
}

/// Options that the source sets where the caller does not; `notices` names tags that cannot be read.
pub(super) fn inherited(
    layout: &Layout,
    options: &WriteOptions,
    dataset: &Dataset,
    whole: bool,
    palette: bool,
    notices: &mut Vec<String>,
) -> WriteOptions {
    let mut options = options.clone();
    if !whole {
        return options;
    }
    let full = usize::from(layout.bits) == layout.sample.size() * 8;
    let plain = !matches!(
        options.compression,
        Compression::Jpeg | Compression::Lerc | Compression::WebP | Compression::JpegXl | Compression::Jpeg2000
    );
    // Tiles that the source leaves out hold nodata, which may need more bits than the stored samples.
    let holds_fill = dataset.fill_sample(dataset.main()).is_ok_and(|fill| fits_bits(&fill, layout));
    if options.bits.is_none()
        && !full
        && holds_fill
        && layout.bits != 24
        && (plain || (options.compression == Compression::Jpeg && layout.bits == 12))
    {
        options.bits = Some(layout.bits);
    }
    // A palette says more than the grey photometric next to it.
    if options.compression != Compression::Jpeg && !palette {
        options.source_photometric = layout.photometric.filter(|photometric| {
            matches!(photometric, Photometric::MinIsWhite | Photometric::Separated | Photometric::CieLab)
        });
    }
    options.extra_samples.clone_from(&layout.extra_samples);
    // Colour profile, XMP and IPTC stay valid.
    for number in [700, 33723, 34675] {
        let known = options.tags.iter().any(|field| field.tag == number);
        let entry = dataset.main().ifd.entry(number).filter(|_| !known);
        let Some((entry, raw)) = entry.zip(dataset.raw_tag(number)) else { continue };
        match raw {
            Ok(raw) if raw.is_empty() => {}
            Ok(raw) => options.tags.push(Field::raw(number, entry.kind, dataset.header().order, &raw)),
            Err(error) => notices.push(format!("tag {number} is left out: {error}")),
        }
    }
    if layout.orientation != 1 {
        options.tags.push(Field::short(tag::ORIENTATION, [layout.orientation]));
    }
    options
}

/// Whether the stored bits of a sample can hold a value.
fn fits_bits(value: &[u8], layout: &Layout) -> bool {
    let value = match *value {
        [byte] => u64::from(byte),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => return true,
    };
    let (bits, size) = (u32::from(layout.bits), layout.sample.size() as u32 * 8);
    match layout.format {
        SampleFormat::Int => {
            let shift = 64 - size.min(64);
            let value = ((value << shift) as i64) >> shift;
            let most = 1_i64 << (bits.clamp(1, 63) - 1);
            (-most..most).contains(&value)
        }
        SampleFormat::Uint => value >> bits.min(63) == 0,
        // Floats of fewer bits are converted, not cut.
        _ => true,
    }
}

/// Returns a notice that colours are lost, where indices are converted without them, and drops the palette interpretation.
pub(super) fn notice_on_palette(before: &Metadata, after: &mut Metadata) -> Option<String> {
    if before.palette.is_empty() || !after.palette.is_empty() {
        return None;
    }
    let indices: Vec<&mut String> =
        after.bands.iter_mut().map(|band| &mut band.color).filter(|color| *color == "palette").collect();
    let notice = "the colours of the palette are left out: they are for a first band of type uint8 or uint16";
    let lost = !indices.is_empty();
    indices.into_iter().for_each(|color| "undefined".clone_into(color));
    lost.then(|| notice.to_owned())
}

/// Returns a notice that names the images of the file that are not converted.
pub(super) fn notice_on_pages(dataset: &Dataset) -> Result<Option<String>, Error> {
    const NAMED: usize = 5;
    let pages: Vec<u32> =
        dataset.images()?.filter(|(_, role)| *role == Role::Page).map(|(image, _)| image.index).collect();
    let Some(first) = pages.first() else { return Ok(None) };
    let images =
        if pages.len() == 1 { "1 further image is".to_owned() } else { format!("{} further images are", pages.len()) };
    let named: Vec<String> = pages.iter().take(NAMED).map(u32::to_string).collect();
    let more = if pages.len() > NAMED { ", …" } else { "" };
    Ok(Some(format!(
        "{images} not converted (ifd {}{more}): `swath dump --ifd {first} --out FILE.npy` extracts one",
        named.join(", ")
    )))
}
