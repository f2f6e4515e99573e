//! How long and how often a request is tried.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use tokio::time::Instant;

use super::{RemoteFault, failure::Failure, sending::Progress};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(20);
/// Attempts after a fault that most likely will not pass.
const FEW: u32 = 4;

/// What is left of one exchange's time and attempts.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Longest time for all attempts, or since the body last got on.
    allowed: Duration,
    pub(crate) progress: Progress,
    retries: u32,
    tried: u32,
}

impl Patience {
    pub(crate) fn new(deadline: Duration, retries: u32) -> Self {
        Self { allowed: deadline, progress: Progress::new(), retries, tried: 0 }
    }

    /// When the exchange ends, unless its body gets on.
    pub(crate) fn until(&self) -> Instant {
        self.progress.ends_at(self.allowed)
    }

    /// Little is tried after a fault that is not likely to pass.
    pub(crate) fn shorten(&mut self) {
        self.retries = self.retries.min(FEW);
    }

    pub(crate) fn timed_out(&self, last: Option<&str>) -> Failure {
        let last = last.map(|why| format!("; before that: {why}")).unwrap_or_default();
        Failure::new(
            RemoteFault::TimedOut,
            format!("no whole answer within {:?}, the deadline, in {}{last}", self.allowed, self.attempts()),
        )
    }

    fn attempts(&self) -> String {
        if self.tried == 0 { "1 attempt".to_owned() } else { format!("{} attempts", self.tried + 1) }
    }

    /// How long to wait before the next attempt, or why there is none. `after` is what the server asked for.
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
                    format!("{why}; the server wants {after:?} of rest, which is more than the deadline leaves"),
                ),
                None => self.timed_out(Some(why)),
            });
        }
        self.tried += 1;
        Ok(pause)
    }
}

/// A time that doubles with every attempt, and of that between half and all at random, so that many clients that failed
/// together do not come back together, and none comes back at once to a server that has too much to do.
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
        let mut patience = Patience::new(Duration::from_secs(60), 2);
        assert!(patience.again("a", None).is_ok() && patience.again("a", None).is_ok());
        assert_eq!(patience.again("a", None).map_err(|failure| failure.fault), Err(RemoteFault::Unavailable));
        let mut patience = Patience::new(Duration::from_secs(1), 9);
        let asked = Some(Duration::from_secs(100));
        assert_eq!(patience.again("a", asked).map_err(|failure| failure.fault), Err(RemoteFault::Unavailable));
        assert!(Patience::new(Duration::MAX, 1).again("a", asked).is_ok());
    }

    #[test]
    fn a_server_that_has_too_much_to_do_is_waited_for_by_default() {
        let options = crate::remote::RemoteOptions::default();
        for _ in 0..20 {
            let mut patience = Patience::new(options.deadline, options.retries);
            let mut waited = Duration::ZERO;
            while let Ok(pause) = patience.again("503", None) {
                waited += pause;
            }
            assert!(waited > Duration::from_secs(50) && waited < options.deadline, "{waited:?}");
        }
        let mut patience = Patience::new(options.deadline, options.retries);
        patience.shorten();
        let pauses: Vec<_> = std::iter::from_fn(|| patience.again("no name", None).ok()).collect();
        assert!(pauses.len() == FEW as usize && pauses.iter().sum::<Duration>() < Duration::from_secs(2));
    }
}
