//! Copies the directories of camera data (EXIF, GPS) of an image, as tags to write.

use swath_tiff::{
    TiffError,
    structure::{Entry, FieldType, Ifd, Value, emit::Field},
};

use crate::{error::Error, open::dataset::Dataset};

const EXIF: u16 = 34665;
const GPS: u16 = 34853;
/// Inside EXIF's directory: rules that other programs may rely on.
const INTEROPERABILITY: u16 = 40965;
/// Width and height of the picture.
const SIZE: [u16; 2] = [40962, 40963];
/// Bytes of all values together: entries may overlap, so that a small file can ask for more than fits into memory.
const MOST: u64 = 4 << 20;

/// Copies the directories; `notices` names those that cannot be read. `resized` says that the target has other pixels.
pub(super) fn fields(dataset: &Dataset, resized: bool, notices: &mut Vec<String>) -> Vec<Field> {
    let mut found = Vec::new();
    for (number, name) in [(EXIF, "EXIF"), (GPS, "GPS")] {
        let mut left = MOST;
        match directory(dataset, dataset.main().ifd.entry(number), &[INTEROPERABILITY], &mut left) {
            Ok(mut fields) => {
                fields.retain(|field| !(resized && SIZE.contains(&field.tag)));
                if !fields.is_empty() {
                    found.push(Field::directory(number, fields));
                }
            }
            Err(error) => notices.push(format!("the {name} data are left out: {error}")),
        }
    }
    found
}

/// The tags of the directory that an entry points to; `below` are tags that point to further ones.
fn directory(dataset: &Dataset, pointer: Option<&Entry>, below: &[u16], left: &mut u64) -> Result<Vec<Field>, Error> {
    let Some(pointer) = pointer else { return Ok(Vec::new()) };
    let Value::Integers(offsets) = dataset.value(pointer)? else { return Ok(Vec::new()) };
    let Some(offset) = offsets.first().and_then(|offset| u64::try_from(*offset).ok()).filter(|offset| *offset > 0)
    else {
        return Ok(Vec::new());
    };
    let header = *dataset.header();
    let ifd = dataset.fetch.parse(|bytes| Ifd::parse(bytes, &header, offset))?;
    let mut fields = Vec::new();
    for entry in &ifd.entries {
        if below.contains(&entry.tag) {
            let inner = directory(dataset, Some(entry), &[], left)?;
            fields.extend((!inner.is_empty()).then(|| Field::directory(entry.tag, inner)));
            continue;
        }
        // Offsets mean nothing in another file, and other types are for BigTIFF or unknown.
        let plain = !matches!(
            entry.kind,
            FieldType::Ifd | FieldType::Ifd8 | FieldType::Long8 | FieldType::SLong8 | FieldType::Unknown(_)
        );
        if !plain || entry.is_empty() {
            continue;
        }
        *left = left.checked_sub(entry.len().unwrap_or(u64::MAX)).ok_or_else(|| {
            Error::from(TiffError::malformed(format!("they have more than {MOST} bytes")).at_tag(entry.tag))
        })?;
        let raw = dataset.fetch.parse(|bytes| entry.raw(bytes, &dataset.limits).map(<[u8]>::to_vec))?;
        fields.push(Field::raw(entry.tag, entry.kind, header.order, &raw));
    }
    Ok(fields)
}
