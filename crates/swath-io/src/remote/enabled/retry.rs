//! How long and how often a request is retried.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use tokio::time::Instant;

use super::{failure::Failure, sending::Progress};
use crate::fault::RemoteFault;

/// First pause between attempts.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const LONGEST: Duration = Duration::from_secs(20);
/// Most retries after a failure that is probably permanent.
const FEW: u32 = 4;

/// The remaining time and attempts of one request.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Longest time for all attempts, or since the body last made progress.
    allowed: Duration,
    pub(crate) progress: Progress,
    retries: u32,
    tried: u32,
}

impl RetryBudget {
    pub(crate) fn new(deadline: Duration, retries: u32) -> Self {
        Self { allowed: deadline, progress: Progress::new(), retries, tried: 0 }
    }

    /// When the request times out, unless its body makes progress.
    pub(crate) fn until(&self) -> Instant {
        self.progress.ends_at(self.allowed)
    }

    /// Allows only few retries, after a failure that is probably permanent.
    pub(crate) fn shorten(&mut self) {
        self.retries = self.retries.min(FEW);
    }

    pub(crate) fn timed_out(&self, last: Option<&str>) -> Failure {
        let last = last.map(|why| format!("; before that: {why}")).unwrap_or_default();
        Failure::new(
            RemoteFault::TimedOut,
            format!("no complete response within the deadline of {:?}, in {}{last}", self.allowed, self.attempts()),
        )
    }

    fn attempts(&self) -> String {
        if self.tried == 0 { "1 attempt".to_owned() } else { format!("{} attempts", self.tried + 1) }
    }

    /// How long to wait before the next attempt, or why there is none. `after` is the pause that the server requested.
    pub(crate) fn again(&mut self, why: &str, after: Option<Duration>) -> Result<Duration, Failure> {
        if self.progress.is_over(self.allowed) {
            return Err(self.timed_out(Some(why)));
        }
        if self.tried >= self.retries {
            return Err(Failure::new(RemoteFault::Unavailable, format!("{why}; gave up after {}", self.attempts())));
        }
        let left = self.until().saturating_duration_since(Instant::now());
        let pause = after.map_or_else(|| backoff(self.tried), |after| after + backoff(0));
        if pause >= left {
            return Err(match after {
                Some(after) => Failure::new(
                    RemoteFault::Unavailable,
                    format!("{why}; the server asks for a pause of {after:?}, which exceeds the deadline"),
                ),
                None => self.timed_out(Some(why)),
            });
        }
        self.tried += 1;
        Ok(pause)
    }
}

/// Returns a pause that doubles with every attempt, shortened at random by up to half. So clients that failed together do not return
/// together, and none returns at once to an overloaded server.
fn backoff(tried: u32) -> Duration {
    let most = FIRST.saturating_mul(1 << tried.min(20)).min(LONGEST);
    let random = RandomState::new().build_hasher().finish();
    most.mul_f64(0.5 + 0.5 * (random >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        for tried in 0..40 {
            let most = (0..200).map(|_| backoff(tried)).max().unwrap();
            let least = (0..200).map(|_| backoff(tried)).min().unwrap();
            assert!(most <= LONGEST && most <= FIRST * (1 << tried.min(20)), "{tried}: {most:?}");
            assert!(least * 2 >= FIRST.min(most), "{tried}: {least:?}");
        }
        assert!((0..200).map(|_| backoff(9)).max().unwrap() > Duration::from_secs(1));
    }

    #[test]
    fn attempts_and_time_are_bounded() {
        let mut budget = RetryBudget::new(Duration::from_secs(60), 2);
        assert!(budget.again("a", None).is_ok() && budget.again("a", None).is_ok());
        assert_eq!(budget.again("a", None).map_err(|failure| failure.fault), Err(RemoteFault::Unavailable));
        let mut budget = RetryBudget::new(Duration::from_secs(1), 9);
        let asked = Some(Duration::from_secs(100));
        assert_eq!(budget.again("a", asked).map_err(|failure| failure.fault), Err(RemoteFault::Unavailable));
        assert!(RetryBudget::new(Duration::MAX, 1).again("a", asked).is_ok());
    }

    #[test]
    fn a_throttling_server_is_retried_by_default() {
        let options = crate::remote::RemoteOptions::default();
        for _ in 0..20 {
            let mut budget = RetryBudget::new(options.deadline, options.retries);
            let mut waited = Duration::ZERO;
            while let Ok(pause) = budget.again("503", None) {
                waited += pause;
            }
            assert!(waited > Duration::from_secs(50) && waited < options.deadline, "{waited:?}");
        }
        let mut budget = RetryBudget::new(options.deadline, options.retries);
        budget.shorten();
        let pauses: Vec<_> = std::iter::from_fn(|| budget.again("no name", None).ok()).collect();
        assert!(pauses.len() == FEW as usize && pauses.iter().sum::<Duration>() < Duration::from_secs(2));
    }
}
