//! Every tag of every directory, as it stands.

use serde_json::{Value, json};
use swath::structure::{Entry, Value as TagValue, tag};

use super::facts::Facts;
use crate::{console, number, table::Table};

/// Values that are shown in full in JSON.
const MAX_VALUES: usize = 1024;
/// Longest value that is read to be shown.
const MAX_LEN: u64 = 1 << 20;

/// Why a value is not read: tables of tiles may have gigabytes, and `info` leaves them where they are.
fn left_out(entry: &Entry) -> Option<&'static str> {
    const TABLES: [u16; 4] = [tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS, tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS];
    if TABLES.contains(&entry.tag) {
        Some("not read: table of tiles")
    } else if entry.len().is_none_or(|len| len > MAX_LEN) {
        Some("not read: too long")
    } else {
        None
    }
}

/// Adds the listing for people.
pub fn append_text(facts: &Facts<'_>, text: &mut String) {
    for (image, _) in &facts.images {
        text.push_str(&format!("\nTags of IFD {} at byte {}\n", image.index(), image.ifd().offset));
        let mut table = Table::new(&["tag", "name", "type", "count", "value"]);
        for entry in &image.ifd().entries {
            let value = match left_out(entry) {
                Some(why) => format!("({why})"),
                None => match facts.dataset.value(entry) {
                    Ok(value) => console::short(&value.to_string(), 100),
                    Err(error) => format!("(unreadable: {})", console::safe(&error.to_string())),
                },
            };
            table.row([
                entry.tag.to_string(),
                tag::name(entry.tag).unwrap_or("").to_owned(),
                entry.kind.name().to_owned(),
                entry.count.to_string(),
                value,
            ]);
        }
        text.push_str(&table.text(2));
    }
}

/// The listing as JSON.
pub fn json(facts: &Facts<'_>) -> Value {
    let mut rows = Vec::new();
    for (image, _) in &facts.images {
        for entry in &image.ifd().entries {
            let (value, note) = match left_out(entry) {
                Some(why) => (Value::Null, Some(why.to_owned())),
                None => match facts.dataset.value(entry) {
                    Ok(value) => value_json(&value),
                    Err(error) => (Value::Null, Some(error.to_string())),
                },
            };
            rows.push(json!({
                "ifd": image.index(),
                "tag": entry.tag,
                "name": tag::name(entry.tag),
                "type": entry.kind.name(),
                "count": entry.count,
                "value": value,
                "note": note,
            }));
        }
    }
    Value::Array(rows)
}

fn value_json(value: &TagValue) -> (Value, Option<String>) {
    let one_or_many = |mut values: Vec<Value>| match values.len() {
        1 => values.pop().unwrap_or(Value::Null),
        _ => Value::Array(values),
    };
    let cut = (value.len() > MAX_VALUES).then(|| format!("the first {MAX_VALUES} of {}", value.len()));
    match value {
        TagValue::Text(text) => (text.clone().into(), None),
        TagValue::Integers(values) => {
            let shown = values.iter().take(MAX_VALUES).map(|value| number::Exact::Int(*value).json());
            (one_or_many(shown.collect()), cut)
        }
        TagValue::Floats(values) => {
            (one_or_many(values.iter().take(MAX_VALUES).map(|value| number::json(*value)).collect()), cut)
        }
        TagValue::Raw(raw) => {
            let hex: String = raw.iter().take(MAX_VALUES).map(|byte| format!("{byte:02x}")).collect();
            (hex.into(), cut.or_else(|| Some("bytes in hexadecimal".to_owned())))
        }
        _ => (Value::Null, Some("a kind of value this command does not know".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath::structure::FieldType;

    #[test]
    fn tables_of_tiles_and_huge_values_stay_unread() {
        let entry = |tag, count| Entry { tag, kind: FieldType::Long, count, offset: 0 };
        assert!(left_out(&entry(tag::TILE_OFFSETS, 1)).is_some());
        assert!(left_out(&entry(65000, u64::MAX)).is_some());
        assert!(left_out(&entry(65000, 4)).is_none());
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let (value, note) = value_json(&TagValue::Integers(vec![7; 5000]));
        assert_eq!(value.as_array().map(Vec::len), Some(MAX_VALUES));
        assert_eq!(note.as_deref(), Some("the first 1024 of 5000"));
        assert_eq!(value_json(&TagValue::Integers(vec![7])).0, 7);
    }
}
