//! Writes that fail, or are cancelled, at every point.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use swath::{
    Blocks, Cancel, Compression, ErrorKind, Interleave, Metadata, Rows, SampleType, WriteOptions, Writer,
    io::{FileSink, MemorySink, Sink, SinkError},
    write::Progress,
};
use swath_io::conformance::faulty::Faulty;

use crate::{
    scene::{Feed, Rng, Scene, shape},
    write::folder,
};

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Streamed levels make a call for each tile; a COG of this size has three such levels.
fn streamed() -> Scene {
    Scene::new(shape(6144, 3072, 1, SampleType::U8), 1)
}

fn cases() -> Vec<(&'static str, Scene, WriteOptions)> {
    let plain = WriteOptions::default().with_compression(Compression::Lz4);
    let small = Scene::new(shape(200, 150, 3, SampleType::U8), 2);
    vec![
        ("small", small, plain.clone().with_cog(true).with_blocks(Blocks::Tiles(16, 16))),
        ("plain", streamed(), plain.clone()),
        ("COG", streamed(), plain.with_cog(true)),
    ]
}

#[test]
fn every_failed_call_is_reported_and_keeps_the_old_file() {
    let folder = folder(&std::env::temp_dir(), "faults");
    let path = folder.join("a.tif");
    let mut tried = 0;
    for (what, scene, options) in cases() {
        let calls = Arc::new(AtomicU64::new(0));
        let sink = |fails_at, kind, calls: &Arc<AtomicU64>| {
            let file = Box::new(FileSink::create(&path).unwrap());
            Box::new(Faulty::new(file, fails_at, kind, calls.clone())) as Box<dyn Sink>
        };
        let _ = std::fs::remove_file(&path);
        scene.write_to(sink(u64::MAX, io::ErrorKind::Other, &calls), &options, Feed::WholeBands).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let count = calls.load(Ordering::SeqCst);
        assert!(count >= 3, "{what}: {count} calls");
        for fails_at in 0..count {
            for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other, io::ErrorKind::PermissionDenied] {
                for old in [None, Some(b"old")] {
                    // One kind is enough where there are many calls.
                    if count > 20 && (kind != io::ErrorKind::StorageFull || old.is_none()) {
                        continue;
                    }
                    let _ = std::fs::remove_file(&path);
                    if let Some(old) = old {
                        std::fs::write(&path, old).unwrap();
                    }
                    let calls = Arc::new(AtomicU64::new(0));
                    let result = scene.write_to(sink(fails_at, kind, &calls), &options, Feed::WholeBands);
                    let error = result.expect_err("a failed call cannot be a success");
                    let ErrorKind::Sink(inner) = error.kind() else { panic!("{what}, call {fails_at}: {error:?}") };
                    assert_eq!(inner.io_kind(), kind, "{what}, call {fails_at}");
                    assert!(error.to_string().contains("a.tif"), "{error}");
                    let found = std::fs::read(&path).ok();
                    assert_eq!(found.as_deref(), old.map(|old| &old[..]), "{what}, call {fails_at}");
                    assert_eq!(names(&folder).len(), usize::from(old.is_some()), "{what}, call {fails_at}");
                    tried += 1;
                }
            }
        }
        // There is no such call: nothing fails then.
        let calls = Arc::new(AtomicU64::new(0));
        scene.write_to(sink(count, io::ErrorKind::Other, &calls), &options, Feed::WholeBands).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole, "{what}");
    }
    println!("calls failed: {tried}, reported: {tried}, success reported wrongly: 0");
    assert!(tried > 100, "{tried}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn pushes_after_an_error_are_refused() {
    let scene = streamed();
    let (sink, memory) = MemorySink::new("memory");
    let calls = Arc::new(AtomicU64::new(0));
    let sink = Box::new(Faulty::new(Box::new(sink), 3, io::ErrorKind::StorageFull, calls.clone()));
    let options = WriteOptions::cog().with_compression(Compression::Lz4);
    let mut writer = Writer::to_sink(sink, scene.shape, &Metadata::default(), &options).unwrap();
    let rows = vec![0; 6144 * 1024];
    let error = (0..3)
        .find_map(|_| writer.push(&Rows::from_bytes(&rows, Interleave::Band)).err())
        .expect("the fourth call fails");
    assert!(matches!(error.kind(), ErrorKind::Sink(_)), "{error:?}");
    let made = calls.load(Ordering::SeqCst);
    let error = writer.push(&Rows::from_bytes(&rows, Interleave::Band)).unwrap_err();
    assert!(error.to_string().contains("after an error"), "{error}");
    assert!(writer.finish().is_err());
    assert_eq!(calls.load(Ordering::SeqCst), made, "the sink was called again");
    assert!(memory.take().is_none());
}

/// A sink in which a single write fails and all others succeed: a disk that was full for a moment.
#[derive(Debug)]
struct Hiccup {
    inner: Box<dyn Sink>,
    calls: AtomicU64,
    fails_at: u64,
}

impl Sink for Hiccup {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == self.fails_at {
            // Only the operating system makes these errors, so the test provokes one.
            let missing = FileSink::create("/no/such/folder/a.tif");
            return Err(missing.expect_err("there is no such folder"));
        }
        self.inner.write_at(offset, bytes)
    }

    fn remove(&mut self, gaps: &[std::ops::Range<u64>], size: u64) -> Result<(), SinkError> {
        self.inner.remove(gaps, size)
    }

    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError> {
        self.inner.commit(size)
    }
}

#[test]
fn single_failed_write_among_many_threads_is_always_reported() {
    let scene = streamed();
    let options = WriteOptions::cog().with_compression(Compression::Lz4).with_threads(4);
    for fails_at in 0..60 {
        let (sink, memory) = MemorySink::new("memory");
        let sink = Hiccup { inner: Box::new(sink), calls: AtomicU64::new(0), fails_at };
        let mut writer = Writer::to_sink(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
        // The caller ignores the result of `push`.
        let _ = writer.push(&Rows::from_bytes(&scene.samples, Interleave::Band));
        assert!(writer.finish().is_err(), "write {fails_at}");
        assert!(memory.take().is_none(), "write {fails_at}");
    }
}

#[test]
fn cancellation_at_any_point_keeps_the_old_file() {
    let folder = folder(&std::env::temp_dir(), "cancel");
    let path = folder.join("a.tif");
    let mut rng = Rng::new(4);
    let mut stopped = 0;
    for (what, scene, options) in cases() {
        for round in 0..12 {
            std::fs::write(&path, b"old").unwrap();
            let cancel = Cancel::new();
            let (at, inside) = (rng.below(scene.shape.height.into()) as u32, cancel.clone());
            let on_progress = move |progress: Progress| {
                if progress.rows >= at {
                    inside.cancel();
                }
            };
            let options = options.clone().with_cancel(cancel).with_progress(Arc::new(on_progress)).with_batch(1);
            let sink = Box::new(FileSink::create(&path).unwrap());
            match scene.write_to(sink, &options, Feed::Chunks(round)) {
                Ok(_) => assert!(std::fs::read(&path).unwrap() != b"old", "{what}"),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Usage(_)), "{what}: {error:?}");
                    assert_eq!(std::fs::read(&path).unwrap(), b"old", "{what}");
                    stopped += 1;
                }
            }
            assert_eq!(names(&folder), ["a.tif"], "{what}");
        }
    }
    assert!(stopped > 12, "only {stopped} were stopped");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn cancellation_before_the_write_writes_nothing() {
    let scene = Scene::new(shape(100, 100, 1, SampleType::U8), 1);
    let cancel = Cancel::new();
    cancel.cancel();
    let error = scene.write(&WriteOptions::cog().with_cancel(cancel), Feed::WholeBands).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error:?}");
}

#[test]
fn progress_rises_and_reaches_the_end() {
    for (what, scene, options) in cases() {
        for feed in [Feed::WholeBands, Feed::WholePixels, Feed::Chunks(1)] {
            let seen = Arc::new(Mutex::new(Vec::<Progress>::new()));
            let recorded = seen.clone();
            let report = Arc::new(move |progress| recorded.lock().unwrap().push(progress));
            scene.write(&options.clone().with_progress(report).with_batch(1), feed).unwrap();
            let seen = seen.lock().unwrap();
            let rises = seen.windows(2).all(|two| two[0].rows <= two[1].rows && two[0].bytes <= two[1].bytes);
            assert!(rises, "{what}, {feed:?}: {seen:?}");
            let last = seen.last().expect("at least one report");
            assert_eq!((last.rows, last.of), (scene.shape.height, scene.shape.height), "{what}, {feed:?}");
        }
    }
}
