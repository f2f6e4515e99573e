//! Times of reads: of the whole raster, and of random windows.

use std::time::{Duration, Instant};

use anyhow::Result;
use swath::{ReadOptions, Window};

use super::{
    figure::{Checked, Timing},
    measure::{self, Random, TimeBudget, Times},
    subject::{Processor, Subject, room, skipped},
};

/// Most windows that are read at once.
const MOST_WINDOWS: usize = 256;
/// Runs over a remote file: the fewest that can be compared, because each costs bytes.
const REMOTE_RUNS: u32 = 2;

/// Reads the raster again and again, portion by portion where it does not fit in memory, or only its first portions where the time
/// is too short. Adds what there is to say to `notes`.
pub fn whole(
    subject: &mut Subject<'_>,
    processor: &Processor,
    budget: TimeBudget,
    notes: &mut Vec<String>,
) -> Result<Timing> {
    let options = subject.options(processor);
    let mut buffer = Vec::new();
    let mut first = Duration::ZERO;
    let (mut bytes, mut stored) = (0, 0);
    let mut portions: Vec<(Window, ReadOptions, u64)> = Vec::new();
    for portion in subject.portions()? {
        // The warm-up finds how much can be read as often as asked.
        if !portions.is_empty() && budget.has_passed(0.25) {
            break;
        }
        let options = options.clone().with_window(portion.window).with_bands(portion.bands.iter().copied());
        let (time, sum) = subject.read_once(processor, &options, &mut buffer)?;
        let first_band = portion.bands.first().copied().unwrap_or(1);
        notes.extend(subject.check_against_others(processor, portion.window, first_band, sum)?);
        first += time;
        bytes += subject.dataset.read_len(&options)? as u64;
        stored += subject.dataset.stored_len(&options)?;
        portions.push((portion.window, options, sum));
    }
    notes.dedup();
    let mut run = || -> Result<Duration> {
        let mut total = Duration::ZERO;
        for (window, options, sum) in &portions {
            let (time, again) = subject.read_once(processor, options, &mut buffer)?;
            subject.check_repeated(processor, *window, *sum, again)?;
            total += time;
        }
        Ok(total)
    };
    let times = match subject.allowance {
        Some(_) => with_first(first, budget.repeat(REMOTE_RUNS - 1, run)?),
        None => budget.repeat(subject.settings.runs, &mut run)?,
    };
    let bounds = subject.read_bounds(processor, bytes, stored);
    Ok(Timing { bytes, windows: None, stored, times, latency: None, bounds, checked: Checked::Equal })
}

/// Returns the times of all runs, the first one included: over a network a warm-up would cost as much.
fn with_first(first: Duration, rest: Times) -> Times {
    Times(std::iter::once(first.as_secs_f64()).chain(rest.0).collect())
}

/// Returns random windows inside an image; the same each time.
fn random_windows(width: u32, height: u32, side: u32) -> Vec<Window> {
    let mut random = Random::new(u64::from(side));
    let mut place = |length: u32| random.up_to(length.saturating_sub(side));
    (0..MOST_WINDOWS).map(|_| Window::new(place(width), place(height), side, side)).collect()
}

/// Reads random windows: one after the other for the latency, and all in one call for the rate.
pub fn windows(
    subject: &mut Subject<'_>,
    processor: &Processor,
    side: u32,
    budget: TimeBudget,
    notes: &mut Vec<String>,
) -> Result<Timing> {
    let options = subject.options(processor);
    let mut drawn = random_windows(subject.dataset.width(), subject.dataset.height(), side);
    let at = |window: &Window| options.clone().with_window(*window);
    let mut buffer = Vec::new();
    let len = match drawn.first() {
        Some(first) => subject.dataset.read_len(&at(first))?,
        None => 0,
    };
    // The samples of all windows are in memory at once.
    let room_for = subject.most_samples() / (len as u64).max(1);
    if room_for == 0 {
        return Err(skipped(format!("a window takes {len} bytes of memory: raise --max-memory")));
    }
    drawn.truncate(usize::try_from(room_for).unwrap_or(MOST_WINDOWS));
    let mut stored = 0;
    match subject.allowance {
        Some(allowance) => {
            let mut affordable = 0;
            for window in &drawn {
                let cost = subject.dataset.stored_len(&at(window))?;
                if (stored + cost).saturating_mul(REMOTE_RUNS.into()) > allowance.windows {
                    break;
                }
                stored += cost;
                affordable += 1;
            }
            drawn.truncate(affordable);
            if drawn.is_empty() {
                return Err(skipped("the tiles of a window are too many bytes: raise --max-remote-bytes"));
            }
        }
        None => {
            let mut once = Duration::ZERO;
            for window in drawn.iter().take(2) {
                once = subject.read_once(processor, &at(window), &mut buffer)?.0;
            }
            drawn.truncate(budget.fits(once, 0.2).min(MOST_WINDOWS));
            for window in &drawn {
                stored += subject.dataset.stored_len(&at(window))?;
            }
        }
    }
    let mut latency = Vec::new();
    let mut sums = Vec::new();
    for window in &drawn {
        let (time, sum) = subject.read_once(processor, &at(window), &mut buffer)?;
        notes.extend(subject.check_against_others(processor, *window, 1, sum)?);
        latency.push(time.as_secs_f64());
        sums.push(sum);
    }
    notes.dedup();
    let mut known = None;
    let mut run = || -> Result<Duration> {
        let (time, sum) = read_all(subject, processor, &options, &drawn, &sums, &mut buffer)?;
        if let Some(window) = drawn.first() {
            subject.check_repeated(processor, *window, *known.get_or_insert(sum), sum)?;
        }
        Ok(time)
    };
    let times = match subject.allowance {
        Some(_) => budget.repeat(1, run)?,
        None => {
            run()?;
            budget.repeat(subject.settings.runs, run)?
        }
    };
    let bytes = len as u64 * drawn.len() as u64;
    let bounds = subject.read_bounds(processor, bytes, stored);
    Ok(Timing {
        bytes,
        windows: Some(drawn.len() as u64),
        stored,
        times,
        latency: Some(Times(latency)),
        bounds,
        checked: Checked::Equal,
    })
}

/// Reads all windows in one call. Returns the time and a checksum. On the CPU, compares each window with its checksum.
fn read_all(
    subject: &Subject<'_>,
    processor: &Processor,
    options: &ReadOptions,
    windows: &[Window],
    sums: &[u64],
    buffer: &mut Vec<u8>,
) -> Result<(Duration, u64)> {
    if processor.gpu.is_some() {
        let began = Instant::now();
        let raster = subject.dataset.read_windows_device(options, windows)?;
        let time = began.elapsed();
        return Ok((time, measure::checksum(raster.to_host()?.bytes())));
    }
    let out = room(buffer, subject.dataset.read_windows_len(options, windows)?)?;
    let began = Instant::now();
    subject.dataset.read_windows_into(options, windows, out)?;
    let time = began.elapsed();
    let len = (out.len() / windows.len().max(1)).max(1);
    for ((samples, window), sum) in out.chunks_exact(len).zip(windows).zip(sums) {
        subject.check_repeated(processor, *window, *sum, measure::checksum(samples))?;
    }
    Ok((time, measure::checksum(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_inside_the_image_and_differ() {
        for (width, height, side) in [(256, 256, 256), (1000, 300, 256), (5000, 5000, 1024)] {
            let windows = random_windows(width, height, side);
            assert!(windows.iter().all(|window| window.fits(width, height)));
            let differ = windows.iter().any(|window| Some(window) != windows.first());
            assert_eq!(differ, (width, height) != (side, side));
        }
        assert_eq!(random_windows(5000, 5000, 512), random_windows(5000, 5000, 512));
    }
}
