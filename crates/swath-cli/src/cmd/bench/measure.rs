//! Times of repeated work: how long it may take, what its runs took, and a checksum of its result.

use std::time::{Duration, Instant};

/// Divides the time for a file among its measurements. What one leaves goes to those after it.
pub struct Pace {
    end: Instant,
    left: u32,
}

impl Pace {
    /// Starts the time of `measurements` measurements.
    pub fn new(time: Duration, measurements: usize) -> Self {
        let end = Instant::now().checked_add(time).unwrap_or_else(Instant::now);
        Self { end, left: u32::try_from(measurements).unwrap_or(u32::MAX) }
    }

    /// Starts the next measurement.
    pub fn next_budget(&mut self) -> TimeBudget {
        let now = Instant::now();
        let time = self.end.saturating_duration_since(now) / self.left.max(1);
        self.left = self.left.saturating_sub(1);
        TimeBudget { began: now, time }
    }
}

/// The time of one measurement.
#[derive(Debug, Clone, Copy)]
pub struct TimeBudget {
    began: Instant,
    time: Duration,
}

impl TimeBudget {
    /// Whether this part of the time has passed.
    pub fn has_passed(&self, part: f64) -> bool {
        self.began.elapsed() >= self.time.mul_f64(part)
    }

    /// Returns how often work that takes `once` fits into this part of the time, at least once.
    pub fn fits(&self, once: Duration, part: f64) -> usize {
        let times = self.time.mul_f64(part).as_secs_f64() / once.as_secs_f64().max(1e-9);
        (times as usize).max(1)
    }

    /// Repeats timed work until `most` runs are done or the time is over; at least once.
    pub fn repeat<E>(&self, most: u32, mut run: impl FnMut() -> Result<Duration, E>) -> Result<Times, E> {
        let mut seconds = vec![run()?.as_secs_f64()];
        while seconds.len() < most as usize && !self.has_passed(1.0) {
            seconds.push(run()?.as_secs_f64());
        }
        Ok(Times(seconds))
    }
}

/// Seconds that each run took, in the order of the runs; at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Times(pub Vec<f64>);

impl Times {
    /// Returns the shortest time.
    pub fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9)
    }

    /// Returns the time in the middle.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the quantile `part` of the times, interpolated between runs.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = part.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
        let value = |index: f64| sorted.get(index as usize).copied().unwrap_or(f64::NAN);
        let (below, above) = (value(at.floor()), value(at.ceil()));
        (below + (above - below) * at.fract()).max(1e-9)
    }

    /// Returns the slowest minus the fastest time, as a part of the median.
    pub fn spread(&self) -> f64 {
        let slowest = self.0.iter().copied().fold(0.0, f64::max);
        (slowest - self.best()).max(0.0) / self.median()
    }
}

/// Returns a checksum: different bytes almost always give different numbers. It is computed faster than the bytes are read.
pub fn checksum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(ODD).rotate_left(29);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Numbers that look random and are the same in every run of the command.
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from 0 to `most`.
    pub fn up_to(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The remainder of division by at most 2³² fits.
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % (u64::from(most) + 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_runs_is_between_the_middle_ones() {
        let times = Times(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((times.best(), times.median(), times.spread()), (1.0, 2.5, 1.2));
        assert_eq!(Times(vec![7.0]).quantile(0.95), 7.0);
        assert_eq!(Times(vec![1.0, 2.0, 3.0]).quantile(1.0), 3.0);
    }

    #[test]
    fn work_runs_at_least_once_and_at_most_as_often_as_asked() {
        let mut counted = 0;
        let mut run = || {
            counted += 1;
            Ok::<_, ()>(Duration::from_millis(1))
        };
        let nothing = Pace::new(Duration::ZERO, 1).next_budget();
        assert_eq!(nothing.repeat(5, &mut run), Ok(Times(vec![0.001])));
        let hour = Pace::new(Duration::from_secs(3600), 1).next_budget();
        assert_eq!(hour.repeat(5, &mut run).unwrap().0.len(), 5);
        assert_eq!(counted, 6);
    }

    #[test]
    fn time_that_is_left_goes_to_later_measurements() {
        let mut pace = Pace::new(Duration::from_secs(3600), 3);
        let first = pace.next_budget().time;
        let second = pace.next_budget().time;
        let last = pace.next_budget().time;
        assert!(first < second && second < last, "{first:?} {second:?} {last:?}");
        assert!(pace.next_budget().time > Duration::ZERO);
    }

    #[test]
    fn one_changed_or_missing_byte_changes_the_checksum() {
        let bytes: Vec<u8> = (0..1003).map(|index| (index % 251) as u8).collect();
        let sum = checksum(&bytes);
        for at in [0, 7, 8, 500, 999, 1002] {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            assert_ne!(checksum(&other), sum, "byte {at}");
        }
        assert_ne!(checksum(&bytes[..1002]), sum);
        assert_ne!(checksum(&[0; 8]), checksum(&[0; 16]));
        assert_eq!(checksum(&bytes), sum);
    }

    #[test]
    fn random_numbers_reach_both_ends_and_repeat() {
        let draw = || -> Vec<u32> {
            let mut random = Random::new(3);
            (0..200).map(|_| random.up_to(4)).collect()
        };
        let drawn = draw();
        assert_eq!(drawn, draw());
        assert!((0..5).all(|number| drawn.contains(&number)) && drawn.iter().all(|number| *number <= 4));
        assert_eq!(Random::new(1).up_to(0), 0);
    }
}
