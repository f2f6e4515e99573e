//! Objects of every shape, and every failure, against a store in memory.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicU64, Ordering},
};

use super::{
    ObjectSink,
    fake::{Call, Fake},
    parts::Limits,
    upload::abandon_all,
};
use crate::{MemorySink, Sink, conformance::fill_sink};

/// Aborting all uploads of the process would end those of other tests too.
static ALONE: RwLock<()> = RwLock::new(());

/// Held by tests whose uploads must not be aborted.
pub(super) fn beside_others() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

const SMALL: Limits = Limits { min: 16, max: 4096, part: 24, numbers: 200, whole: 64 };

fn sink(store: &Fake) -> ObjectSink<Fake> {
    ObjectSink::new("s3://bucket/key".to_owned(), store.clone()).unwrap()
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// A file as a writer makes it: levels in slots that they do not fill, written all at once, and a head at the end.
struct File {
    head: u64,
    /// For each level: its start, its room, and the bytes that it needs.
    levels: Vec<(u64, u64, u64)>,
    block: u64,
    writes: Vec<(u64, Vec<u8>)>,
}

impl File {
    fn new(random: &mut Random, window: usize) -> Self {
        let head = 1 + random.below(60);
        let block = 1 + random.below(8);
        let (mut position, mut levels, mut lanes) = (head, Vec::new(), Vec::new());
        for _ in 0..1 + random.below(5) {
            position = position.next_multiple_of(block);
            let room = 1 + random.below(400);
            let used = random.below(room + 1);
            let mut lane = Vec::new();
            let mut at = 0;
            while at < used {
                let len = (1 + random.below(30)).min(used - at);
                lane.push((position + at, (0..len).map(|_| random.below(255) as u8 + 1).collect()));
                at += len;
            }
            for near in lane.chunks_mut(window) {
                random.shuffle(near);
            }
            lanes.push(lane.into_iter());
            levels.push((position, room, used));
            position += room;
        }
        let mut writes = Vec::new();
        while !lanes.is_empty() {
            let lane = random.below(lanes.len() as u64) as usize;
            match lanes[lane].next() {
                Some(write) => writes.push(write),
                None => drop(lanes.remove(lane)),
            }
        }
        Self { head, levels, block, writes }
    }

    fn end(&self) -> u64 {
        self.levels.last().map_or(self.head, |(start, room, _)| start + room)
    }

    /// Writes it, with several threads; returns the most bytes that were in memory.
    fn write(&self, sink: &mut dyn Sink, threads: usize, unsent: &(dyn Fn() -> u64 + Sync)) -> (u64, u64) {
        sink.expect(self.end());
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (sink, most) = (&*sink, &most);
                scope.spawn(move || {
                    for (offset, bytes) in self.writes.iter().skip(thread).step_by(threads) {
                        sink.write_at(*offset, bytes).unwrap();
                        most.fetch_max(unsent(), Ordering::Relaxed);
                    }
                });
            }
        });
        let (mut gaps, mut position, mut removed) = (Vec::new(), self.head, 0);
        for (start, _, used) in &self.levels {
            let from = position.next_multiple_of(self.block);
            if from < *start {
                gaps.push(from..*start);
                removed += start - from;
            }
            position = start + used;
        }
        if !gaps.is_empty() {
            sink.remove(&gaps, position).unwrap();
        }
        sink.write_at(0, &vec![7; self.head as usize]).unwrap();
        (most.into_inner(), position - removed)
    }
}

#[test]
fn objects_equal_files_for_any_order_of_writes() {
    let _shared = beside_others();
    let mut in_parts = 0;
    for seed in 0..800 {
        let mut random = Random(seed);
        // In every third file the writes come in any order at all.
        let window = if seed % 3 == 0 { usize::MAX } else { 4 };
        let file = File::new(&mut random, window);
        let threads = 1 + random.below(4) as usize;
        let numbers = file.end().div_ceil(16 + random.below(10));
        let limits = Limits { numbers, ..SMALL };
        let (mut memory, expected) = MemorySink::new("memory");
        let (_, size) = file.write(&mut memory, 1, &|| 0);
        Box::new(memory).commit(size).unwrap();
        let store = Fake::new(limits, None);
        let mut object = sink(&store);
        let uploading = Arc::clone(&object.uploading);
        let (most, _) = file.write(&mut object, threads, &|| uploading.unsent_len());
        Box::new(object).commit(size).unwrap();
        let state = store.state();
        assert!(state.object == expected.take(), "seed {seed}");
        assert_eq!((state.parts.len(), state.aborted), (0, 0), "seed {seed}");
        assert!(state.most_in_flight <= 4, "{} parts on their way", state.most_in_flight);
        in_parts += usize::from(state.begun);
        if window == 4 {
            // The first bytes of each level are held back, less than a part more, and the latest writes of the threads.
            let unit = file.end().div_ceil(numbers).max(limits.min);
            let level = unit + limits.part.max(unit) + 4 * 30;
            let bound = level * file.levels.len() as u64 + 30 * threads as u64;
            assert!(most <= bound, "seed {seed}: {most} bytes in memory, {bound} allowed");
        }
    }
    assert!(in_parts > 300, "only {in_parts} objects were sent in parts");
}

#[test]
fn sink_conforms() {
    let _shared = beside_others();
    let limits = Limits { min: 5 << 20, max: 5 << 30, part: 8 << 20, numbers: 10_000, whole: 64 << 20 };
    for whole in [limits.whole, 0] {
        let store = Fake::new(Limits { whole, ..limits }, None);
        let expected = fill_sink(Box::new(sink(&store)));
        assert!(store.state().object == Some(expected));
        assert_eq!(store.state().begun, whole == 0);
    }
}

/// A file of 40 parts, the last of which is short; returns whether the upload succeeded.
fn write_parts(object: ObjectSink<Fake>) -> Result<(), crate::SinkError> {
    object.expect(1000);
    for start in (0..990).step_by(10) {
        object.write_at(start, &[1; 10])?;
    }
    Box::new(object).commit(990)
}

#[test]
fn a_part_that_fails_leaves_nothing_behind_whichever_it_is() {
    let _shared = beside_others();
    let whole = Fake::new(SMALL, None);
    write_parts(sink(&whole)).unwrap();
    let parts = whole.state().puts;
    assert!(parts > 30);
    let failing = (0..parts).map(Call::Part).chain([Call::Begin, Call::Complete]);
    for call in failing {
        let store = Fake::new(SMALL, Some(call));
        let error = write_parts(sink(&store)).unwrap_err();
        assert_eq!(error.to_string(), format!("{call:?} was to fail"));
        let state = store.state();
        assert!(state.object.is_none() && state.parts.is_empty() && state.in_flight == 0, "{call:?}: {state:?}");
        assert_eq!(state.aborted > 0, call != Call::Begin, "{call:?}");
    }
    // The same store, without failures.
    let store = Fake::new(SMALL, Some(Call::Part(parts)));
    write_parts(sink(&store)).unwrap();
    assert_eq!(store.state().object.as_deref(), Some([1; 990].as_slice()));
}

#[test]
fn a_failure_is_reported_by_every_later_call() {
    let _shared = beside_others();
    let store = Fake::new(SMALL, Some(Call::Part(0)));
    let mut object = sink(&store);
    object.expect(1000);
    let mut failed = 0;
    for start in (0..900).step_by(10) {
        failed += usize::from(object.write_at(start, &[1; 10]).is_err());
    }
    // A write returns before its part has arrived, but not before there is room for the next.
    assert!(failed > 30, "{failed} writes failed");
    assert!(object.remove(std::slice::from_ref(&(905..906)), 1000).is_err());
    assert!(Box::new(object).commit(900).is_err());
    assert_eq!(store.state().object, None);
}

#[test]
fn a_small_object_is_one_request_and_nothing_else() {
    let _shared = beside_others();
    for size in [0, 1, 64] {
        let store = Fake::new(SMALL, None);
        let object = sink(&store);
        object.write_at(0, &vec![5; size]).unwrap();
        Box::new(object).commit(size as u64).unwrap();
        let state = store.state();
        assert_eq!((state.object.as_deref(), state.begun), (Some(vec![5; size].as_slice()), false));
    }
    let store = Fake::new(SMALL, Some(Call::Whole));
    let object = sink(&store);
    assert!(Box::new(object).commit(10).is_err());
    assert!(store.state().object.is_none());
}

#[test]
fn unwritten_bytes_are_zero_and_sent_in_parts() {
    let _shared = beside_others();
    let store = Fake::new(SMALL, None);
    let object = sink(&store);
    object.expect(1000);
    object.write_at(990, &[1; 10]).unwrap();
    Box::new(object).commit(1000).unwrap();
    let state = store.state();
    let expected: Vec<u8> = (0..1000).map(|position| u8::from(position >= 990)).collect();
    assert!(state.object == Some(expected));
    assert!(state.puts > 30, "{} parts", state.puts);
}

#[test]
fn an_object_that_is_dropped_leaves_nothing_behind() {
    let _shared = beside_others();
    let store = Fake::new(SMALL, None);
    let object = sink(&store);
    object.expect(1000);
    for start in (0..500).step_by(10) {
        object.write_at(start, &[1; 10]).unwrap();
    }
    drop(object);
    let state = store.state();
    assert!(state.begun && state.aborted > 0 && state.parts.is_empty() && state.object.is_none(), "{state:?}");
}

#[test]
fn an_object_without_sent_parts_makes_no_request() {
    let _shared = beside_others();
    let store = Fake::new(SMALL, None);
    drop(sink(&store));
    let state = store.state();
    assert!(!state.begun && state.aborted == 0);
}

#[test]
fn abandoned_uploads_are_dropped_and_cannot_be_completed() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let store = Fake::new(SMALL, None);
    let object = sink(&store);
    object.expect(1000);
    for start in (0..500).step_by(10) {
        object.write_at(start, &[1; 10]).unwrap();
    }
    abandon_all();
    assert!(store.state().aborted > 0 && store.state().parts.is_empty());
    assert!(object.write_at(500, &[1]).is_err());
    assert!(Box::new(object).commit(500).is_err());
    assert!(store.state().object.is_none());
}

#[test]
fn bytes_that_were_sent_cannot_be_written_again() {
    let _shared = beside_others();
    let store = Fake::new(SMALL, None);
    let object = sink(&store);
    object.expect(1000);
    object.write_at(0, &[1; 500]).unwrap();
    let error = object.write_at(100, &[2]).unwrap_err();
    assert!(error.to_string().contains("was sent"), "{error}");
    assert!(Box::new(object).commit(500).is_err());
    assert!(store.state().object.is_none() && store.state().parts.is_empty());
}

#[test]
fn more_than_was_expected_is_refused() {
    let _shared = beside_others();
    let object = sink(&Fake::new(SMALL, None));
    object.expect(1000);
    let error = object.write_at(995, &[2; 10]).unwrap_err();
    assert!(error.to_string().contains("no more than 1000"), "{error}");
    let object = sink(&Fake::new(SMALL, None));
    object.expect(1 << 40);
    let error = object.write_at(0, &[1]).unwrap_err();
    assert!(error.to_string().contains("more than the store accepts"), "{error}");
}
