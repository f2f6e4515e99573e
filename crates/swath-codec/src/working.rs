//! Reserves the working memory of codec libraries before they run.
//!
//! Some libraries abort the process when an allocation fails. So their need is estimated from the header of the stream,
//! compared with the limits, and checked against the free memory of the system before the library is called.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use swath_raster::memory;

use crate::{error::CodecError, spec::TileSpec};

/// The memory reserved by all threads: the process id in the upper half, units in the lower. A forked child has none of the
/// threads that would release their share, so it starts at zero; the id distinguishes it from its parent. The process may fork at any
/// moment, so this is an atomic number, not a lock.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Bytes per unit.
const UNIT: u64 = 64 << 10;
/// Sleep of a thread that waits for others; decoding takes far longer.
const NAP: Duration = Duration::from_millis(1);

/// The reserved memory of one tile, released when dropped.
#[derive(Debug)]
pub(crate) struct Working {
    bytes: u64,
    #[cfg_attr(not(feature = "jpegxl"), allow(dead_code))] // for JPEG XL alone
    short: bool,
}

impl Working {
    /// Reserves an amount within `bytes`, as much as possible, for a stream of `len` bytes. Threads wait while the total of all
    /// threads would exceed the plausible size of the file's data.
    ///
    /// # Errors
    /// When the limits or the system allow less than the minimum.
    pub fn reserve(
        codec: &'static str,
        bytes: RangeInclusive<u64>,
        spec: &TileSpec,
        len: usize,
    ) -> Result<Self, CodecError> {
        let (least, most) = bytes.into_inner();
        let mut together = spec.limits.plausible(len as u64);
        let allowed = together.min(spec.limits.tile_bytes);
        if least > allowed {
            return Err(CodecError::Limit { codec, asked: least, allowed });
        }
        let goal = most.min(allowed).max(least);
        let mut bytes = goal;
        loop {
            let Some(others) = claim(bytes, together) else {
                thread::sleep(NAP);
                continue;
            };
            let working = Self { bytes, short: bytes < goal };
            if memory::is_available(others.saturating_add(bytes)) {
                return Ok(working);
            }
            drop(working);
            if others > 0 {
                // Other threads have not allocated all that they reserved. Wait until no other holds any: only then does the
                // check measure what is free.
                together = 0;
            } else if bytes > least {
                bytes = (bytes - bytes / 8).max(least);
            } else {
                return Err(CodecError::NoMemory(least));
            }
        }
    }

    /// Whether the system had less memory than the limits allow.
    #[cfg_attr(not(feature = "jpegxl"), allow(dead_code))]
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Returns the reserved bytes.
    #[cfg_attr(not(feature = "jpegxl"), allow(dead_code))]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        change(|held| Some(held.saturating_sub(units(self.bytes))));
    }
}

/// Adds `bytes` to the total of all threads and returns the total before; `None` where the sum would exceed `together`. A thread
/// always succeeds while no other holds any.
fn claim(bytes: u64, together: u64) -> Option<u64> {
    let fits = |held: u64| held == 0 || (held * UNIT).saturating_add(bytes) <= together;
    change(|held| fits(held).then(|| held.saturating_add(units(bytes)))).map(|held| held * UNIT)
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT).min(u64::from(u32::MAX))
}

/// Updates the units that this process holds, and returns those before.
fn change(to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let own = u64::from(std::process::id()) << 32;
    let held = |word: u64| if word & !u64::from(u32::MAX) == own { word & u64::from(u32::MAX) } else { 0 };
    let changed = HELD
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(own | to(held(word))?.min(u64::from(u32::MAX))));
    changed.ok().map(held)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use swath_tiff::{Limits, SampleType};

    use super::*;
    use crate::codec::testing;

    fn spec(floor: u64) -> TileSpec {
        let mut limits = Limits::default();
        limits.decoded_floor = floor;
        TileSpec { limits, ..testing::spec(SampleType::U8, 1, 8) }
    }

    #[test]
    fn limits_come_before_memory() {
        let spec = spec(100 << 20);
        assert_eq!(
            Working::reserve("x", 200 << 20..=300 << 20, &spec, 10).unwrap_err(),
            CodecError::Limit { codec: "x", asked: 200 << 20, allowed: 100 << 20 }
        );
        // A longer stream may request more. The reservation is reduced to the limit, as long as the stream needs no more than that.
        assert_eq!(Working::reserve("x", 20 << 20..=300 << 20, &spec, 10).unwrap().bytes(), 100 << 20);
        assert_eq!(Working::reserve("x", 200 << 20..=300 << 20, &spec, 1 << 20).unwrap().bytes(), 300 << 20);
        let endless = TileSpec { limits: Limits::none(), ..spec };
        assert_eq!(Working::reserve("x", 1 << 60..=1 << 62, &endless, 10).unwrap_err(), CodecError::NoMemory(1 << 60));
    }

    #[test]
    fn threads_hold_no_more_together_than_one_may() {
        let spec = spec(300 << 20);
        let (held, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let working = Working::reserve("x", 100 << 20..=100 << 20, &spec, 1).unwrap();
                        most.fetch_max(
                            held.fetch_add(working.bytes(), Ordering::SeqCst) + working.bytes(),
                            Ordering::SeqCst,
                        );
                        thread::yield_now();
                        held.fetch_sub(working.bytes(), Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 300 << 20, "{most:?}");
    }
}
