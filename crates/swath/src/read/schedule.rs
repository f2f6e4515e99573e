//! Runs a read with as many threads as are worth starting.
//!
//! Threads draw jobs from a [`Planner`], which cuts the output and looks tiles up as it goes, so neither the list of
//! tiles nor the list of output slices is ever complete in memory. A job is one read of neighbouring tiles: the thread
//! that reads the bytes decodes them while they are in its cache.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::{
    context::ReadContext,
    decode_time::WORTH_A_THREAD,
    job::{self, BytesInFlight},
    plan::Planner,
};
use crate::{cancel::cancelled, error::Error};

/// Reads the window into `out`, which has exactly its size.
pub(crate) fn run(context: &ReadContext<'_>, out: &mut [u8]) -> Result<(), Error> {
    let mut planner = Planner::new(context, out);
    let jobs = planner.look_ahead()?;
    let helpers = if planner.rows.is_empty() {
        let worth = usize::try_from(planner.nanoseconds / WORTH_A_THREAD).unwrap_or(usize::MAX).max(1);
        context.threads.min(worth).min(jobs).saturating_sub(1)
    } else {
        // The planner has not planned the whole read yet, so use all threads.
        context.threads.saturating_sub(1)
    };
    // Threads that read a remote file mostly wait, so there are as many as requests in flight.
    let helpers = match context.fetch.access.is_remote() {
        true if planner.rows.is_empty() => context.in_flight.min(jobs).saturating_sub(1),
        true => context.in_flight.saturating_sub(1),
        false => helpers,
    };
    let planner = Mutex::new(planner);
    let flight = BytesInFlight::default();
    let stop = AtomicBool::new(false);
    let first_error: Mutex<Option<(u64, Error)>> = Mutex::new(None);
    let work = || {
        let mut buffers = context.pool.take();
        loop {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let outcome = match cancelled(context.cancel) {
                Some(error) => Err((0, error)),
                None => {
                    let next = planner.lock().unwrap_or_else(PoisonError::into_inner).next();
                    match next {
                        Ok(Some(job)) => job::run(context, job, &mut buffers, &flight, &stop),
                        Ok(None) => break,
                        Err(error) => Err((0, error)),
                    }
                }
            };
            if let Err((index, error)) = outcome {
                stop.store(true, Ordering::Relaxed);
                let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(known, _)| index < *known) {
                    *first = Some((index, error));
                }
            }
        }
        context.pool.give_back(buffers, context.fetch.access.is_remote());
    };
    if helpers == 0 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                // If the system has no more threads, the read is slower but does not fail.
                if swath_io::fork::starting(|| std::thread::Builder::new().spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
    }
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
