//! Describes the result of a check as JSON.

use serde_json::{Map, Value, json};

use crate::validate::{Check, Level, Report};

impl Report {
    /// The levels, each with rio-cogeo's and GDAL's name for it: `main`, `overview_0`, …
    pub fn named_levels(&self) -> impl Iterator<Item = (String, &Level)> {
        self.levels.iter().enumerate().map(|(index, level)| match index.checked_sub(1) {
            None => ("main".to_owned(), level),
            Some(overview) => (format!("overview_{overview}"), level),
        })
    }

    /// Returns the JSON that `swath validate --json` prints for a file of this name. Under `strict`, warnings make a file invalid.
    /// <https://swath-raster.github.io/swath/cli-json.html> lists the keys.
    pub fn document(&self, name: &str, strict: bool) -> Value {
        let keyed = |value: &dyn Fn(&Level) -> Option<u64>| -> Value {
            Value::Object(self.named_levels().map(|(key, level)| (key, json!(value(level)))).collect())
        };
        let levels = self.levels.iter().map(|level| {
            json!({
                "width": level.width,
                "height": level.height,
                "blockxsize": level.tile_width,
                "blockysize": level.tile_height,
                "tiled": level.tiled,
                "decimation": level.decimation,
                "ifd": level.ifd,
                "mask_ifd": level.mask,
                "external": level.external,
            })
        });
        let ghost = self.ghost.as_ref().map(|ghost| {
            let items = ghost.items.iter().map(|(key, value)| (key.clone(), json!(value)));
            Value::Object(items.collect::<Map<_, _>>())
        });
        let blocks = self.blocks.map(|blocks| {
            json!({
                "count": blocks.count, "sparse": blocks.sparse, "shared": blocks.shared, "first": blocks.first
            })
        });
        json!({
            "name": name,
            "valid": if strict { self.is_valid_strictly() } else { self.is_valid() },
            "strict": strict,
            "check": match self.check {
                Check::Structure => "structure",
                Check::Full => "full",
            },
            "errors": self.errors,
            "warnings": self.warnings,
            "details": {
                "ifd_offsets": keyed(&|level| Some(level.ifd_offset)),
                "data_offsets": keyed(&|level| level.data_offset),
            },
            "ghost": ghost,
            "block_leaders": self.claims("BLOCK_LEADER", "SIZE_AS_UINT4"),
            "mask_interleaved": self.claims("MASK_INTERLEAVED_WITH_IMAGERY", "YES"),
            "ifds": self.ifds,
            "levels": levels.collect::<Value>(),
            "blocks": blocks,
        })
    }
}
