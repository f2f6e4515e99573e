//! Tables of text with aligned columns.

use std::fmt::Write;

/// Rows of cells under a heading.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table that has only a heading.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether the table has only the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Leaves out columns that are empty in every row.
    pub fn without_empty_columns(mut self) -> Self {
        let columns = self.rows.first().map_or(0, Vec::len);
        let used: Vec<bool> = (0..columns)
            .map(|column| self.rows.iter().skip(1).any(|row| row.get(column).is_some_and(|cell| !cell.is_empty())))
            .collect();
        for row in &mut self.rows {
            let mut column = used.iter();
            row.retain(|_| column.next().copied().unwrap_or(false));
        }
        self
    }

    /// Returns the table as text. Columns of numbers are aligned to the right.
    pub fn text(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let shape: Vec<(usize, bool)> = (0..columns)
            .map(|column| {
                let cells = || self.rows.iter().filter_map(|row| row.get(column));
                let width = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
                let numeric = cells().skip(1).all(|cell| cell.parse::<f64>().is_ok() || cell.is_empty());
                (width, numeric)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (cell, (width, numeric)) in row.iter().zip(&shape) {
                // Writing into a String cannot fail.
                let _ = if *numeric { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_empty_columns_dropped() {
        let mut table = Table::new(&["n", "what", "unit"]);
        table.row(["1".into(), "größe".into(), String::new()]);
        table.row(["100".into(), "b".into(), String::new()]);
        assert_eq!(table.without_empty_columns().text(1), "   n  what\n   1  größe\n 100  b\n");
    }
}
