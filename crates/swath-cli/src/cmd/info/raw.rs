//! The list of every tag of every directory.

use swath::{
    describe::facts::{self, Facts},
    tiff::tag,
};

use crate::{console, table::Table};

/// Appends the list as text.
pub fn append_text(facts: &Facts<'_>, text: &mut String) {
    for (image, _) in &facts.images {
        text.push_str(&format!("\nTags of IFD {} at byte {}\n", image.index(), image.ifd().offset));
        let mut table = Table::new(&["tag", "name", "type", "count", "value"]);
        for entry in &image.ifd().entries {
            let value = match facts::left_out(entry) {
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
