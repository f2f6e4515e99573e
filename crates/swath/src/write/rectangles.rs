//! Rectangles of pixels: areas, and what two of them share.

use std::ops::Range;

use swath_tiff::Window;

/// Number of pixels.
pub(super) fn area(part: Window) -> u64 {
    u64::from(part.width) * u64::from(part.height)
}

pub(super) fn columns_of(part: Window) -> Range<u32> {
    part.x..part.x + part.width
}

pub(super) fn rows_of(part: Window) -> Range<u32> {
    part.y..part.y + part.height
}

/// The range that holds both.
pub(super) fn union(one: Range<u32>, other: Range<u32>) -> Range<u32> {
    one.start.min(other.start)..one.end.max(other.end)
}

/// The window that holds both.
pub(super) fn bounds(one: Window, other: Window) -> Window {
    let (columns, rows) = (union(columns_of(one), columns_of(other)), union(rows_of(one), rows_of(other)));
    Window::new(columns.start, rows.start, columns.end - columns.start, rows.end - rows.start)
}

/// Returns the pixels that two windows share.
pub(super) fn overlap(one: Window, other: Window) -> Option<Window> {
    let (x, y) = (one.x.max(other.x), one.y.max(other.y));
    let (x_end, y_end) = (one.x_end().min(other.x_end()) as u32, one.y_end().min(other.y_end()) as u32);
    (x < x_end && y < y_end).then(|| Window::new(x, y, x_end - x, y_end - y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_share_what_both_hold() {
        let one = Window::new(2, 3, 10, 4);
        assert_eq!(overlap(one, Window::new(0, 0, 5, 5)), Some(Window::new(2, 3, 3, 2)));
        assert_eq!(overlap(one, Window::new(12, 3, 5, 5)), None);
        assert_eq!(bounds(one, Window::new(0, 5, 1, 9)), Window::new(0, 3, 12, 11));
    }
}
