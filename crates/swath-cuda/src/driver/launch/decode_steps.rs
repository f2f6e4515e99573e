//! Launches decoders that are several kernels, one after the other, with scratch for each tile.

use crate::{
    driver::{
        launch::{decode_batch::DecodeLaunch, slice::check_len},
        memory::streams::Streams,
    },
    error::DeviceError,
};

/// Scratch of a tile is a multiple of this.
pub(super) const GRAIN: usize = 256;

/// The kernels that decode a batch.
pub(super) struct DecodeSteps {
    /// The module that has them, and its PTX.
    pub module: (&'static str, &'static str),
    pub flags: u32,
    /// Least bytes of scratch for each tile.
    pub scratch_len: usize,
    /// Each kernel in its turn, and how many blocks of threads have work in it.
    pub kernels: Vec<(&'static str, usize)>,
}

impl DecodeSteps {
    /// Launches the kernels. There is at least one tile.
    pub(super) fn launch(self, streams: &Streams, stream: usize, batch: &DecodeLaunch<'_>) -> Result<(), DeviceError> {
        let (module, ptx) = self.module;
        let missing = || DeviceError::Internal(format!("the scratch memory of {module} is missing"));
        let scratch = batch.scratch.ok_or_else(missing)?;
        let each = scratch.len / (batch.count as usize).max(1) / GRAIN * GRAIN;
        check_len("scratch of a tile", each, self.scratch_len)?;
        let mut args = batch.args()?;
        (args.scratch, args.scratch_len, args.flags) = (scratch.address()?, each as u64, self.flags);
        let mut buffers = batch.buffers();
        buffers.push(scratch.buffer);
        for (name, most) in self.kernels {
            let function = streams.memory().function(module, ptx, name)?;
            let blocks = u32::try_from(most).unwrap_or(u32::MAX).min(function.resident).max(1);
            // SAFETY: the lengths are those of the parts, which were checked to lie in their buffers; the scratch holds
            // `scratch_len` bytes for each tile.
            unsafe { streams.launch(stream, function, blocks, &args, &buffers) }?;
        }
        Ok(())
    }
}
