//! Rows of one level that wait for their tile row to be complete, and for the overview below them.

use swath_raster::memory::Buffer;

use crate::error::Error;

/// Rows of one level in memory: every band in a plane of its own, the mask in a further one.
#[derive(Debug, Default)]
pub(super) struct RowStore {
    buffer: Buffer,
    /// Bytes of a row of each plane.
    planes: Vec<usize>,
    capacity: u32,
    /// Row of the level that comes first.
    pub first: u32,
    /// Rows that are there.
    pub count: u32,
}

impl RowStore {
    /// Room for `capacity` rows of planes whose rows are so long.
    pub(super) fn new(planes: Vec<usize>, capacity: u32) -> Result<Self, Error> {
        let len = planes.iter().sum::<usize>().checked_mul(capacity as usize);
        let buffer = len.and_then(Buffer::zeroed);
        let buffer = buffer.ok_or_else(|| Error::memory("there is no memory for the rows to be written"))?;
        Ok(Self { buffer, planes, capacity, first: 0, count: 0 })
    }

    /// The same, with rows from `first` on that are there: plane by plane, each as long as `count` rows of it.
    pub(super) fn with_rows(
        planes: Vec<usize>,
        capacity: u32,
        first: u32,
        count: u32,
        rows: &[Vec<u8>],
    ) -> Result<Self, Error> {
        let others = || Error::internal("the GPU returned other rows than the CPU needs");
        let lens = planes.iter().map(|row_len| row_len * count as usize);
        if !lens.eq(rows.iter().map(Vec::len)) {
            return Err(others());
        }
        let mut store = Self::new(planes, capacity.max(count))?;
        let (_, free) = store.split();
        for (room, plane) in free.into_iter().zip(rows) {
            room.get_mut(..plane.len()).ok_or_else(others)?.copy_from_slice(plane);
        }
        (store.first, store.count) = (first, count);
        Ok(store)
    }

    /// Bytes of a row of each plane.
    pub(super) fn row_lens(&self) -> &[usize] {
        &self.planes
    }

    /// Bytes that it allocated.
    pub(super) fn allocated_len(&self) -> u64 {
        self.planes.iter().sum::<usize>() as u64 * u64::from(self.capacity)
    }

    /// Rows that can still be added.
    pub(super) fn room(&self) -> u32 {
        self.capacity - self.count
    }

    /// The rows of each plane that are there, and the room after them.
    pub(super) fn split(&mut self) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let mut rest = self.buffer.bytes_mut();
        let (mut there, mut free) = (Vec::new(), Vec::new());
        for row_len in &self.planes {
            let Some((plane, later)) = rest.split_at_mut_checked(row_len * self.capacity as usize) else { break };
            rest = later;
            let Some((filled, room)) = plane.split_at_mut_checked(row_len * self.count as usize) else { break };
            there.push(&*filled);
            free.push(room);
        }
        (there, free)
    }

    /// Counts rows that were put into the room.
    pub(super) fn grow(&mut self, rows: u32) -> Result<(), Error> {
        if rows > self.room() {
            return Err(Error::internal(format!("{rows} rows came where there is room for {}", self.room())));
        }
        self.count += rows;
        Ok(())
    }

    /// Forgets the rows before `row`; what stays moves to the front.
    pub(super) fn forget_before(&mut self, row: u32) {
        let gone = row.saturating_sub(self.first).min(self.count);
        if gone == 0 {
            return;
        }
        let (count, capacity) = (self.count as usize, self.capacity as usize);
        let mut rest = self.buffer.bytes_mut();
        for row_len in &self.planes {
            let Some((plane, later)) = rest.split_at_mut_checked(row_len * capacity) else { break };
            rest = later;
            if gone < self.count {
                plane.copy_within(row_len * gone as usize..row_len * count, 0);
            }
        }
        self.first += gone;
        self.count -= gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn rows_move_to_the_front_when_others_are_forgotten() {
        let mut store = RowStore::new(vec![2, 1], 4).unwrap();
        {
            let (_, mut free) = store.split();
            free[0][..6].copy_from_slice(&[0, 0, 1, 1, 2, 2]);
            free[1][..3].copy_from_slice(&[10, 11, 12]);
        }
        store.grow(3).unwrap();
        store.forget_before(2);
        assert_eq!((store.first, store.count, store.room()), (2, 1, 3));
        let (there, _) = store.split();
        assert_eq!(there, [&[2, 2][..], &[12]]);
        store.forget_before(9);
        assert_eq!((store.first, store.count), (3, 0));
    }

    #[test]
    fn rows_beyond_the_room_are_an_internal_error() {
        let mut store = RowStore::new(vec![2], 4).unwrap();
        store.grow(3).unwrap();
        let error = store.grow(2).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Internal(_)), "{error}");
        assert_eq!((store.count, store.room()), (3, 1));
    }

    #[test]
    fn a_store_takes_all_rows_of_all_planes_or_none() {
        let store = |rows: &[Vec<u8>]| RowStore::with_rows(vec![2, 1], 4, 7, 2, rows);
        assert_eq!(store(&[vec![1; 4], vec![2; 2]]).unwrap().split().0, [&[1; 4][..], &[2; 2]]);
        for rows in [&[vec![1; 4]][..], &[vec![1; 4], vec![2; 1]], &[vec![1; 4], vec![2; 2], vec![3; 2]]] {
            let error = store(rows).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Internal(_)), "{error}");
        }
    }
}
