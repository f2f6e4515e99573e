//! Rows that wait on disk, where memory does not suffice for them beside the tile rows.

use swath_codec::pre::Arrangement;
use swath_io::{Extent, Spill};

use super::{input::Pushed, predictor::PORTION_LEN, row_store::RowStore};
use crate::error::Error;

/// Rows in a temporary file, from the top.
#[derive(Debug)]
pub(super) struct SpilledRows {
    spill: Spill,
    /// Bytes of a row of each plane.
    planes: Vec<usize>,
    /// The bytes of some rows, plane by plane, and their number.
    portions: Vec<(Extent, u32)>,
}

impl SpilledRows {
    /// Moves rows to disk.
    pub(super) fn new(mut rows: RowStore, spill: Spill) -> Result<Self, Error> {
        let planes = rows.row_lens().to_vec();
        let at_once = (PORTION_LEN / planes.iter().sum::<usize>().max(1)).clamp(1, PORTION_LEN) as u32;
        let count = rows.count;
        let (there, _) = rows.split();
        let (mut portions, mut bytes, mut from) = (Vec::new(), Vec::new(), 0);
        while from < count {
            let until = count.min(from + at_once);
            bytes.clear();
            for (plane, row_len) in there.iter().zip(&planes) {
                let part = plane.get(from as usize * row_len..until as usize * row_len);
                bytes.extend_from_slice(part.ok_or_else(|| Error::internal("stored rows are incomplete"))?);
            }
            portions.push((spill.put(&bytes)?, until - from));
            from = until;
        }
        Ok(Self { spill, planes, portions })
    }

    /// Gives the rows to `take`, some at a time.
    pub(super) fn take(self, mut take: impl FnMut(&Pushed<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for (extent, rows) in self.portions {
            self.spill.take(extent, &mut bytes)?;
            let (mut planes, mut rest) = (Vec::new(), bytes.as_slice());
            for row_len in &self.planes {
                let split = rest.split_at_checked(row_len * rows as usize);
                let (plane, later) = split.ok_or_else(|| Error::internal("rows on disk are not all there"))?;
                planes.push(plane);
                rest = later;
            }
            take(&Pushed { planes, arrangement: Arrangement::Planes, rows })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_some_at_a_time() {
        let (wide, narrow, count) = (PORTION_LEN / 3, 7, 5);
        let mut rows = RowStore::new(vec![wide, narrow], count + 2).unwrap();
        for (plane, row_len) in rows.split().1.into_iter().zip([wide, narrow]) {
            plane.chunks_exact_mut(row_len).enumerate().for_each(|(y, row)| row.fill(y as u8 + row_len as u8));
        }
        rows.grow(count).unwrap();
        let spilled = SpilledRows::new(rows, Spill::in_folder(std::env::temp_dir())).unwrap();
        let mut found = Vec::new();
        spilled
            .take(|pushed| {
                for y in 0..pushed.rows as usize {
                    let row = |plane: usize, len: usize| &pushed.planes[plane][y * len..(y + 1) * len];
                    let y = found.len() as u8;
                    assert!(row(0, wide).iter().all(|byte| *byte == y + wide as u8));
                    assert!(row(1, narrow).iter().all(|byte| *byte == y + narrow as u8));
                    found.push(pushed.rows);
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(found, [2, 2, 2, 2, 1]);
    }
}
