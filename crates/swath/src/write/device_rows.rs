//! Rows that a GPU encodes, and how the CPU continues where the GPU fails.

use std::ops::Range;

use swath_raster::memory;

use super::{
    device::{
        DeviceSide, Incoming,
        samples::{DeviceSamples, FETCH},
    },
    input::Pushed,
    memory::{Memory, capacity},
    row_store::RowStore,
    writer::{Side, Writer},
};
use crate::{
    device::Mode,
    error::{Error, ErrorKind},
};

impl Writer {
    /// Checks that rows on a device fit the raster, and that at least as many are missing.
    pub(super) fn check_device(&self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        self.may_push()?;
        samples.check(self.shape, self.is_masked(), self.device().map(|device| device.encoder.gpu()))?;
        self.check_count(samples.count())
    }

    /// Takes some of the rows that are on a device.
    pub(super) fn take_device(&mut self, samples: &DeviceSamples<'_>, rows: Range<u32>) -> Result<(), Error> {
        let mut taken = rows.start;
        if let Some(mut device) = self.detach_device() {
            let incoming = Incoming::Device(&samples.rows, samples.mask.as_ref());
            let result = device.push(incoming, rows.end, &mut taken);
            self.continue_after(device, result)?;
        }
        // The CPU encodes the rows that the GPU did not take, some at a time.
        let row = (self.plan.levels.main.row_len() as u64).max(1);
        let at_once = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
        let masked = samples.mask.is_some();
        while taken < rows.end {
            let until = taken + at_once.min(rows.end - taken);
            let fetched = samples.fetch(&self.options.device, taken..until)?;
            let pushed = Pushed::new(&fetched.rows(), self.shape, masked)?;
            self.copy_in(&pushed)?;
            taken = until;
        }
        Ok(())
    }

    /// Hands rows of the host to the GPU.
    pub(super) fn push_by_device(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(mut device) = self.detach_device() else {
            return Err(Error::internal("no GPU takes part in this write"));
        };
        let row_lens = pushed.row_lens(self.shape);
        let mut taken = 0;
        let result = device.push(Incoming::Host(&pushed.planes, &row_lens), pushed.rows, &mut taken);
        self.continue_after(device, result)?;
        if taken < pushed.rows {
            return self.copy_in(&pushed.part(taken..pushed.rows, self.shape)?);
        }
        Ok(())
    }

    /// Lets the GPU finish its part.
    pub(super) fn finish_device(&mut self) -> Result<(), Error> {
        let Some(mut device) = self.detach_device() else { return Ok(()) };
        let result = device.finish();
        self.continue_after(device, result)?;
        // Its threads share the sink, which is about to be ours alone.
        if let Some(mut device) = self.detach_device() {
            self.report.add(&device.report());
            self.pieces = Some(device.pieces());
            self.set_all_encoded();
        }
        Ok(())
    }

    /// Continues with the GPU, or with the CPU where the GPU failed and the mode allows that.
    fn continue_after(&mut self, mut device: Box<DeviceSide>, result: Result<(), Error>) -> Result<(), Error> {
        let Err(failure) = result else {
            self.side = Side::Device(device);
            return Ok(());
        };
        if self.options.device.mode != Some(Mode::Auto) || !matches!(failure.kind(), ErrorKind::Device(_)) {
            return Err(failure);
        }
        let row = device.rows();
        let notice = format!("from row {row} on the CPU writes: {failure}");
        let left_behind = device.step_down(failure)?;
        // As many rows at a time as memory allows, and at least those that are there.
        if let Ok(memory) = Memory::fit(&self.plan, &self.options) {
            self.host.memory = memory;
        } else {
            self.host.memory.threads = 1;
        }
        for (index, (level, left)) in self.levels.iter_mut().zip(left_behind.iter()).enumerate() {
            let planes = self.plan.levels.at(index)?.plane_row_lens();
            let capacity = capacity(&self.plan, index, self.host.memory.rows_at_once);
            let count = left.progress.rows - left.first_row;
            level.store = RowStore::with_rows(planes, capacity, left.first_row, count, &left.planes)?;
            level.progress = left.progress;
        }
        self.report.add(&device.report());
        self.report.notices.push(notice);
        let mut pieces = device.pieces();
        for (list, level) in pieces.iter_mut().zip(self.plan.levels.iter()) {
            // The CPU's tiles have no pieces.
            let expected = level.piece_sizes(level.grid.down);
            if list.len() < expected {
                memory::resize(list, expected)?;
            }
        }
        self.pieces = Some(pieces);
        Ok(())
    }

    /// Records that all tiles of all levels are encoded.
    pub(super) fn set_all_encoded(&mut self) {
        for (level, plan) in self.levels.iter_mut().zip(self.plan.levels.iter()) {
            level.progress.encode_tile_rows(plan.grid.down);
        }
    }
}
