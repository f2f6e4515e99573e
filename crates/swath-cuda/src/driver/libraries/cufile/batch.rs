//! Batches of reads: submitted together, run side by side, and waited for with one call.

use std::{
    ptr,
    sync::{Arc, atomic::Ordering},
};

use crate::driver::libraries::{
    cufile::{FileRead, Registered, Session, check, missing},
    load::CallError,
    sys::cufile as sys,
};

/// How long one call waits for a batch, and how many failures in a row end the wait for it.
const PATIENCE: sys::Timespec = sys::Timespec { seconds: 0, nanoseconds: 100_000_000 };
const MOST_FAILURES: usize = 10;

/// Reads that were submitted together.
#[derive(Debug)]
pub(crate) struct ReadBatch {
    handle: sys::Opaque,
    session: Arc<Session>,
    /// The requests. NVIDIA does not document whether cuFile copies them, so they live as long as the batch.
    reads: Box<[sys::Parameters]>,
    /// Which reads are done.
    ended: Vec<bool>,
    pending: usize,
}

impl ReadBatch {
    /// Submits reads of a file, each to its place relative to `address`.
    ///
    /// # Errors
    /// cuFile's error; nothing was submitted then.
    ///
    /// # Safety
    /// As [`Registered::read`] for every read, until [`ReadBatch::finish`] has succeeded. The file stays registered
    /// until then.
    pub(crate) unsafe fn start(file: &Registered, address: u64, parts: &[FileRead]) -> Result<Self, CallError> {
        const SUBMIT: &str = "cuFileBatchIOSubmit";
        let table = &file.session.table;
        let (Some(set_up), Some(submit), Some(_), Some(destroy)) = (
            table.cuFileBatchIOSetUp,
            table.cuFileBatchIOSubmit,
            table.cuFileBatchIOGetStatus,
            table.cuFileBatchIODestroy,
        ) else {
            return Err(missing("cuFileBatchIOSetUp"));
        };
        let out_of_range = |_| CallError { call: SUBMIT, status: 0, text: "an offset beyond 2^63".to_owned() };
        let mut reads = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            reads.push(sys::Parameters {
                mode: sys::MODE_BATCH,
                address: address as *mut _,
                file_offset: i64::try_from(part.range.start).map_err(out_of_range)?,
                address_offset: i64::try_from(part.at).map_err(out_of_range)?,
                len: part.len(),
                handle: file.handle,
                opcode: sys::OPCODE_READ,
                cookie: ptr::without_provenance_mut(number),
            });
        }
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut batch = Self {
            handle: ptr::null_mut(),
            session: Arc::clone(&file.session),
            ended: vec![false; parts.len()],
            pending: parts.len(),
            reads: reads.into_boxed_slice(),
        };
        // SAFETY: writes one handle.
        check("cuFileBatchIOSetUp", unsafe { set_up(&raw mut batch.handle, count) })?;
        // SAFETY: the batch was set up for as many reads; the rest as the caller promises.
        let answer = unsafe { submit(batch.handle, count, batch.reads.as_mut_ptr(), 0) };
        if let Err(error) = check(SUBMIT, answer) {
            // SAFETY: set up above, and without reads.
            unsafe { destroy(std::mem::replace(&mut batch.handle, ptr::null_mut())) };
            return Err(error);
        }
        batch.session.under_way.fetch_add(1, Ordering::AcqRel);
        Ok(batch)
    }

    /// Returns the number of reads that are not done.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Waits for all reads, and calls `ended` with the number and the result of each.
    ///
    /// # Errors
    /// When cuFile does not report their state. Reads may then still be in flight.
    pub(crate) fn finish(
        &mut self,
        nap: std::time::Duration,
        mut ended: impl FnMut(usize, Result<usize, CallError>),
    ) -> Result<(), CallError> {
        const CALL: &str = "cuFileBatchIOGetStatus";
        let table = &self.session.table;
        let (Some(get_status), Some(destroy)) = (table.cuFileBatchIOGetStatus, table.cuFileBatchIODestroy) else {
            return Err(missing(CALL));
        };
        let nothing = sys::Event { cookie: ptr::null_mut(), status: 0, answer: 0 };
        let mut events = vec![nothing; self.pending];
        let mut failures = 0;
        while self.pending > 0 {
            let wanted = u32::try_from(self.pending).unwrap_or(u32::MAX);
            let (mut count, mut patience) = (wanted, PATIENCE);
            // SAFETY: there is room for `count` events; the batch was submitted and not destroyed.
            let answer =
                unsafe { get_status(self.handle, wanted, &raw mut count, events.as_mut_ptr(), &raw mut patience) };
            match check(CALL, answer) {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures >= MOST_FAILURES {
                        return Err(error);
                    }
                    count = 0;
                }
            }
            let before = self.pending;
            for event in events.iter().take(count as usize).filter(|event| event.status & sys::STATUS_OVER != 0) {
                let number = event.cookie.addr();
                // Skips reads that were never submitted, and second reports of the same read.
                let Some(over) = self.ended.get_mut(number).filter(|over| !**over) else { continue };
                *over = true;
                self.pending -= 1;
                ended(number, self.end_of(event));
            }
            if self.pending == before {
                std::thread::sleep(nap);
            }
        }
        if !self.handle.is_null() {
            // SAFETY: all its reads are over, and it is not used again.
            unsafe { destroy(self.handle) };
            self.handle = ptr::null_mut();
            self.session.under_way.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Returns the result that an event reports.
    fn end_of(&self, event: &sys::Event) -> Result<usize, CallError> {
        const CALL: &str = "cuFileBatchIOSubmit";
        let answer = Registered::answer(CALL, event.answer, None);
        if event.status == sys::STATUS_COMPLETE {
            return answer;
        }
        let text = match answer {
            Err(error) => error.text,
            Ok(_) => "a read of the batch failed".to_owned(),
        };
        Err(CallError { call: CALL, status: event.status.into(), text })
    }
}

impl Drop for ReadBatch {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // cuFile may still be reading: leak the requests that it may use, and stop counting the batch.
            Box::leak(std::mem::take(&mut self.reads));
            self.session.under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
