//! How far the levels of a file have come: which tile rows can be encoded, which overview rows can be made, and which rows are
//! still needed.
//!
//! The state machine is pure: it holds numbers only. The CPU's writer and the GPU's both use it.

use std::ops::Range;

use super::plan::LevelPlan;

/// The size of a level and of its grid of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelSize {
    /// Rows of pixels.
    pub height: u32,
    /// Rows of pixels in a tile.
    pub tile_height: u32,
    /// Tiles in a tile row.
    pub across: u32,
    /// Tile rows.
    pub down: u32,
}

impl LevelSize {
    pub(super) fn of(level: &LevelPlan) -> Self {
        Self {
            height: level.layout.height,
            tile_height: level.layout.tile_height,
            across: level.grid.across,
            down: level.grid.down,
        }
    }
}

/// How far one level has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LevelProgress {
    /// Rows that were pushed or made so far.
    pub rows: u32,
    /// The tile row that is encoded next.
    pub tile_row: u32,
    /// Tiles of that tile row that are encoded already.
    pub column: u32,
    /// Rows of the next level that were made of this one.
    pub shrunk: u32,
}

impl LevelProgress {
    /// Whether every row of the level is there.
    pub(super) fn has_all_rows(&self, size: LevelSize) -> bool {
        self.rows == size.height
    }

    /// Whether every tile is encoded.
    pub(super) fn is_encoded(&self, size: LevelSize) -> bool {
        self.tile_row >= size.down
    }

    /// Tile rows whose rows are all there and that are not encoded yet. The last tile row may be short.
    pub(super) fn complete_tile_rows(&self, size: LevelSize) -> Range<u32> {
        let until = if self.has_all_rows(size) { size.down } else { self.rows / size.tile_height.max(1) };
        self.tile_row..until.max(self.tile_row)
    }

    /// Rows of the next level that can be made now. Each is computed from the rows that `needs` returns; the next level has
    /// `height` rows and room for `room` more.
    pub(super) fn rows_to_make(&self, needs: impl Fn(u32) -> Range<u32>, height: u32, room: u32) -> Range<u32> {
        let most = self.shrunk + room.min(height.saturating_sub(self.shrunk));
        let mut until = self.shrunk;
        while until < most && needs(until).end <= self.rows {
            until += 1;
        }
        self.shrunk..until
    }

    /// The first row that is still needed: by a tile that is not encoded, or by a row of the next level, which has `height`
    /// rows, that is not made. `u32::MAX` where no row is.
    pub(super) fn first_needed(&self, size: LevelSize, next: Option<(impl Fn(u32) -> Range<u32>, u32)>) -> u32 {
        let by_tiles = self.tile_row.saturating_mul(size.tile_height);
        let by_overview = match next {
            Some((needs, height)) if self.shrunk < height => needs(self.shrunk).start,
            _ => u32::MAX,
        };
        by_tiles.min(by_overview)
    }

    /// Records `count` tiles that were encoded, all of the next tile row.
    pub(super) fn encode_tiles(&mut self, count: u32, size: LevelSize) {
        self.column += count;
        if self.column >= size.across {
            (self.tile_row, self.column) = (self.tile_row + 1, 0);
        }
    }

    /// Records that all tile rows up to `until` are encoded.
    pub(super) fn encode_tile_rows(&mut self, until: u32) {
        if until > self.tile_row {
            (self.tile_row, self.column) = (until, 0);
        }
    }

    /// Rows of pixels above the tile row that is encoded next.
    pub(super) fn rows_encoded(&self, size: LevelSize) -> u32 {
        self.tile_row.saturating_mul(size.tile_height).min(size.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: LevelSize = LevelSize { height: 40, tile_height: 16, across: 3, down: 3 };

    /// Rows that a kernel which looks two rows around needs, at half the size.
    fn needs(row: u32) -> Range<u32> {
        (2 * row).saturating_sub(2)..(2 * row + 4).min(SIZE.height)
    }

    #[test]
    fn a_short_last_tile_row_is_complete_when_all_rows_are_there() {
        let at = |rows, tile_row| LevelProgress { rows, tile_row, ..LevelProgress::default() }.complete_tile_rows(SIZE);
        assert_eq!([at(15, 0), at(16, 0), at(39, 0), at(40, 0)], [0..0, 0..1, 0..2, 0..3]);
        assert_eq!([at(39, 2), at(40, 2), at(40, 3)], [2..2, 2..3, 3..3]);
    }

    #[test]
    fn overview_rows_wait_for_the_rows_they_look_at_and_for_room() {
        let mut level = LevelProgress { rows: 16, ..LevelProgress::default() };
        // Row 6 needs rows up to 16, row 7 up to 18.
        assert_eq!(level.rows_to_make(needs, 20, 100), 0..7);
        assert_eq!(level.rows_to_make(needs, 20, 3), 0..3);
        level.shrunk = 7;
        assert_eq!(level.rows_to_make(needs, 20, 100), 7..7);
        level.rows = 40;
        assert_eq!(level.rows_to_make(needs, 20, 100), 7..20);
        level.shrunk = 20;
        assert_eq!(level.rows_to_make(needs, 20, 100), 20..20);
    }

    #[test]
    fn rows_are_needed_until_tiles_and_overviews_have_them() {
        let mut level = LevelProgress { rows: 40, tile_row: 2, column: 0, shrunk: 7 };
        assert_eq!(level.first_needed(SIZE, Some((needs, 20))), 12);
        level.shrunk = 20;
        assert_eq!(level.first_needed(SIZE, Some((needs, 20))), 32);
        assert_eq!(level.first_needed(SIZE, None::<(fn(u32) -> Range<u32>, u32)>), 32);
        level.tile_row = 3;
        assert_eq!((level.first_needed(SIZE, Some((needs, 20))), level.rows_encoded(SIZE)), (48, 40));
    }

    #[test]
    fn tiles_fill_one_tile_row_after_the_other() {
        let mut level = LevelProgress { rows: 40, ..LevelProgress::default() };
        level.encode_tiles(2, SIZE);
        assert_eq!((level.tile_row, level.column), (0, 2));
        level.encode_tiles(1, SIZE);
        assert_eq!((level.tile_row, level.column), (1, 0));
        level.encode_tiles(1, SIZE);
        level.encode_tile_rows(1);
        assert_eq!((level.tile_row, level.column), (1, 1), "a tile row that is not done keeps its tiles");
        level.encode_tile_rows(3);
        assert!((level.tile_row, level.column) == (3, 0) && level.is_encoded(SIZE));
    }
}
