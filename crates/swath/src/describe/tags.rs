//! Every tag of every directory, as stored.

use serde_json::{Value, json};
use swath_tiff::{structure::Value as TagValue, tag};

use super::{
    facts::{self, Facts},
    number,
};

/// Values of one tag that are shown.
const MAX_VALUES: usize = 1024;

/// The listing as JSON.
pub(super) fn list(facts: &Facts<'_>) -> Value {
    let mut rows = Vec::new();
    for (image, _) in &facts.images {
        for entry in &image.ifd().entries {
            let (value, note) = match facts::left_out(entry) {
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
        _ => (Value::Null, Some("a value of an unknown kind".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_with_a_note() {
        let (value, note) = value_json(&TagValue::Integers(vec![7; 5000]));
        assert_eq!(value.as_array().map(Vec::len), Some(MAX_VALUES));
        assert_eq!(note.as_deref(), Some("the first 1024 of 5000"));
        assert_eq!(value_json(&TagValue::Integers(vec![7])).0, 7);
    }
}
