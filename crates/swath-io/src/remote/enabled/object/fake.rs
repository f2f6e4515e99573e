//! A store in memory that enforces a store's rules, and fails on demand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::super::failure::Failure;
use super::{parts::Limits, upload::Upload};
use crate::{fault::RemoteFault, traffic::Traffic};

/// Calls of the store that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Begin,
    /// The part with this number after the first.
    Part(usize),
    Complete,
    Whole,
}

#[derive(Debug, Default)]
pub(super) struct StoreState {
    pub(super) object: Option<Vec<u8>>,
    pub(super) parts: BTreeMap<u32, Vec<u8>>,
    pub(super) begun: bool,
    pub(super) aborted: usize,
    pub(super) puts: usize,
    pub(super) in_flight: usize,
    pub(super) most_in_flight: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Fake {
    limits: Limits,
    fails: Option<Call>,
    state: Arc<Mutex<StoreState>>,
}

impl Fake {
    pub(super) fn new(limits: Limits, fails: Option<Call>) -> Self {
        Self { limits, fails, state: Arc::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, call: Call) -> Result<(), Failure> {
        match self.fails {
            Some(fails) if fails == call => {
                Err(Failure::new(RemoteFault::Unavailable, format!("{call:?} was to fail")))
            }
            _ => Ok(()),
        }
    }
}

/// A part in flight, which can be stopped.
struct UnderWay<'a>(&'a Fake);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

fn tag(bytes: &[u8]) -> String {
    format!("{}-{}", bytes.len(), bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
}

impl Upload for Fake {
    fn limits(&self) -> Limits {
        self.limits
    }

    async fn begin(&self) -> Result<String, Failure> {
        tokio::task::yield_now().await;
        self.fail(Call::Begin)?;
        assert!(!std::mem::replace(&mut self.state().begun, true), "begun twice");
        Ok("upload".to_owned())
    }

    async fn put_part(&self, upload: &str, number: u32, bytes: Bytes) -> Result<String, Failure> {
        assert_eq!(upload, "upload");
        let order = {
            let mut state = self.state();
            state.puts += 1;
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            state.puts - 1
        };
        let under_way = UnderWay(self);
        for _ in 0..number % 5 {
            tokio::task::yield_now().await;
        }
        drop(under_way);
        let mut state = self.state();
        self.fail(Call::Part(order))?;
        assert!((1..=self.limits.numbers).contains(&number.into()), "number {number}");
        assert!(bytes.len() as u64 <= self.limits.max, "{} bytes", bytes.len());
        let tag = tag(&bytes);
        assert!(state.parts.insert(number, bytes.to_vec()).is_none(), "part {number} was sent twice");
        Ok(tag)
    }

    async fn complete(&self, upload: &str, parts: &[(u32, String)], size: u64) -> Result<(), Failure> {
        assert_eq!(upload, "upload");
        self.fail(Call::Complete)?;
        let mut state = self.state();
        let stored: Vec<_> = state.parts.iter().map(|(number, bytes)| (*number, tag(bytes))).collect();
        assert_eq!(stored, parts);
        for (number, bytes) in state.parts.iter().rev().skip(1) {
            assert!(bytes.len() as u64 >= self.limits.min, "part {number} has {} bytes", bytes.len());
        }
        let object: Vec<u8> = std::mem::take(&mut state.parts).into_values().flatten().collect();
        assert_eq!(object.len() as u64, size);
        state.object = Some(object);
        Ok(())
    }

    async fn put_whole(&self, bytes: Bytes) -> Result<(), Failure> {
        self.fail(Call::Whole)?;
        assert!(bytes.len() as u64 <= self.limits.whole);
        self.state().object = Some(bytes.to_vec());
        Ok(())
    }

    async fn abort(&self, upload: &str) -> Result<(), Failure> {
        assert_eq!(upload, "upload");
        let mut state = self.state();
        state.aborted += 1;
        state.parts.clear();
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}
