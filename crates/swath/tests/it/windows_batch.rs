//! Many windows in one call equal the windows read alone.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use swath::{
    Cancel, Dataset, ErrorKind, Interleave, Limits, OpenOptions, ReadOptions, Window,
    io::{MemorySource, ReadInto, Source, SourceError},
};

use crate::build::{Directory, File, Tag};

#[allow(dead_code)]
#[path = "../gpu/cases.rs"]
mod cases;

use cases::{Case, Rng};

fn value(x: u32, y: u32) -> u8 {
    (x * 7 + y * 13) as u8
}

/// Windows of one size that overlap, repeat, and touch all edges.
fn draw(rng: &mut Rng, width: u32, height: u32, count: usize) -> Vec<Window> {
    let (w, h) = (rng.within(1..width + 1), rng.within(1..height + 1));
    let (right, lower) = (width - w, height - h);
    let mut windows = vec![Window::new(right, lower, w, h), Window::new(0, 0, w, h), Window::new(right, 0, w, h)];
    while windows.len() < count {
        let again = rng.pick(&windows);
        let other = Window::new(rng.within(0..right + 1), rng.within(0..lower + 1), w, h);
        windows.push(if rng.chance(4) { again } else { other });
    }
    windows.truncate(count);
    windows
}

fn batch(dataset: &Dataset, options: &ReadOptions, windows: &[Window]) -> Result<Vec<u8>, swath::Error> {
    // Old contents of the buffer must not remain.
    let mut out = vec![0xa5; dataset.read_windows_len(options, windows)?];
    dataset.read_windows_into(options, windows, &mut out)?;
    Ok(out)
}

fn one_by_one(dataset: &Dataset, options: &ReadOptions, windows: &[Window]) -> Result<Vec<u8>, swath::Error> {
    let mut all = Vec::new();
    for window in windows {
        all.extend_from_slice(dataset.read(&options.clone().with_window(*window))?.bytes());
    }
    Ok(all)
}

#[test]
fn a_batch_equals_its_windows_one_by_one() {
    let mut rng = Rng::new(71);
    for number in 0..150 {
        let case = Case::draw(&mut rng);
        let dataset = OpenOptions::default()
            .with_limits(Limits::none())
            .with_tile_cache(rng.pick(&[0, 5_000, 1 << 20]))
            .open_source(Arc::new(MemorySource::new("case.tif", case.file.clone())))
            .unwrap();
        let layout = dataset.main().layout();
        let (width, height) = (layout.width, layout.height);
        let count = rng.within(1..14) as usize;
        let windows = draw(&mut rng, width, height, count);
        let found = batch(&dataset, &case.options, &windows).unwrap();
        let expected = one_by_one(&dataset, &case.options, &windows).unwrap();
        assert!(found == expected, "case {number}: {} windows like {} of {}", count, windows[0], case.what);
    }
}

#[test]
fn overviews_and_sparse_tiles_are_read_too() {
    let mut main = Directory::tiled(100, 90, 16, value).deflated();
    for sparse in [3, 9, 20] {
        main.tiles[sparse].clear();
    }
    let overview = Directory::tiled(50, 45, 16, |x, y| value(x + 1, y)).with(254, Tag::Long(vec![1]));
    let file = File { directories: vec![main.with(42113, Tag::Ascii("77")), overview], ..File::default() };
    let dataset = file.open().unwrap();
    let mut rng = Rng::new(4);
    for (options, width, height) in
        [(ReadOptions::default(), 100, 90), (ReadOptions::default().with_overview(0), 50, 45)]
    {
        for _ in 0..20 {
            let windows = draw(&mut rng, width, height, 9);
            let expected = one_by_one(&dataset, &options, &windows).unwrap();
            assert!(batch(&dataset, &options, &windows).unwrap() == expected);
        }
    }
}

#[test]
fn no_windows_are_no_bytes() {
    let dataset = File::of(Directory::tiled(40, 30, 16, value)).open().unwrap();
    let options = ReadOptions::default();
    assert_eq!(dataset.read_windows_len(&options, &[]).unwrap(), 0);
    dataset.read_windows_into(&options, &[], &mut []).unwrap();
    assert!(dataset.read_windows_into(&options, &[], &mut [0]).is_err());
    assert!(dataset.read_windows_len(&options.with_bands([2]), &[]).is_err());
}

#[test]
fn invalid_requests_are_refused_before_any_read() {
    let file = File::of(Directory::tiled(40, 30, 16, value).deflated()).bytes();
    let open = |limits: Limits| {
        let source = Arc::new(MemorySource::new("batch.tif", file.clone()));
        OpenOptions::default().with_limits(limits).open_source(source).unwrap()
    };
    let dataset = open(Limits::default());
    let good = [Window::new(0, 0, 8, 8), Window::new(32, 22, 8, 8), Window::new(3, 9, 8, 8)];
    let refused = |windows: &[Window], options: &ReadOptions, message: &str| {
        let mut out = [5; 192];
        let error = dataset.read_windows_into(options, windows, &mut out).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        assert!(error.to_string().contains(message), "'{message}' is not in: {error}");
        assert!(out.iter().all(|byte| *byte == 5), "{message}");
    };
    let plain = ReadOptions::default();
    refused(&[good[0], good[1], Window::new(3, 9, 8, 9)], &plain, "window 2 ");
    refused(&[good[0], Window::new(33, 0, 8, 8), good[2]], &plain, "window 1 ");
    refused(&[Window::new(0, 23, 8, 8), good[1], good[2]], &plain, "40x30");
    refused(&[good[0], Window::new(u32::MAX, 0, 8, 8), good[2]], &plain, "40x30");
    refused(&[Window::new(0, 0, 0, 8); 3], &plain, "40x30");
    refused(&good[..2], &plain, "the buffer has 192 bytes");
    refused(&good, &plain.clone().with_bands([2]), "there is no band 2");
    refused(&good, &plain.clone().with_overview(0), "there is no overview 0");
    refused(&good, &plain.clone().with_upright(true), "one window at a time");

    let len = |limit: u64| open(Limits::default().with_decoded_bytes(limit)).read_windows_len(&plain, &good);
    assert_eq!(len(192).unwrap(), 192);
    let error = len(191).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit(_)), "{error}");
    assert!(error.to_string().contains("decoded_bytes"), "{error}");
}

#[test]
fn window_of_the_options_is_ignored() {
    let dataset = File::of(Directory::tiled(40, 30, 16, value)).open().unwrap();
    let windows = [Window::new(1, 2, 5, 5), Window::new(30, 20, 5, 5)];
    let outside = ReadOptions::default().with_window(Window::new(1000, 1000, 9, 9));
    assert_eq!(
        batch(&dataset, &outside, &windows).unwrap(),
        one_by_one(&dataset, &ReadOptions::default(), &windows).unwrap()
    );
}

#[test]
fn damaged_tile_is_named_as_in_a_single_read_and_others_are_whole() {
    let mut directory = Directory::tiled(128, 128, 32, value).deflated();
    directory.tiles[6].truncate(9);
    let dataset = File::of(directory).open().unwrap();
    let whole = [Window::new(0, 0, 20, 20), Window::new(100, 100, 20, 20), Window::new(40, 64, 20, 20)];
    let damaged = Window::new(70, 40, 20, 20);
    for threads in [1, 4] {
        let options = ReadOptions::default().with_threads(threads);
        let single = dataset.read(&options.clone().with_window(damaged)).unwrap_err();
        let windows = [whole[0], whole[1], damaged, whole[2], damaged];
        let error = batch(&dataset, &options, &windows).unwrap_err();
        assert_eq!(error.to_string(), single.to_string());
        assert_eq!(error.place().tile, Some((2, 1)));
        assert_eq!(batch(&dataset, &options, &whole).unwrap(), one_by_one(&dataset, &options, &whole).unwrap());
    }
}

#[test]
fn cancelled_batch_is_an_error() {
    let dataset = File::of(Directory::tiled(64, 64, 16, value)).open().unwrap();
    let cancel = Cancel::new();
    let options = ReadOptions::default().with_cancel(cancel.clone());
    let windows = [Window::new(0, 0, 16, 16), Window::new(20, 20, 16, 16)];
    assert!(batch(&dataset, &options, &windows).is_ok());
    cancel.cancel();
    for windows in [&windows[..], &windows[..1]] {
        let error = batch(&dataset, &options, windows).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    }
}

#[test]
fn several_batches_at_once_share_one_handle() {
    let dataset = File::of(Directory::tiled(300, 300, 64, value).deflated()).open().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let dataset = &dataset;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..8 {
                    let interleave = rng.pick(&[Interleave::Band, Interleave::Pixel]);
                    let options = ReadOptions::default().with_threads(3).with_interleave(interleave);
                    let windows: Vec<Window> =
                        (0..40).map(|_| Window::new(rng.within(0..250), rng.within(0..250), 50, 50)).collect();
                    let out = batch(dataset, &options, &windows).unwrap();
                    for (window, samples) in windows.iter().zip(out.chunks_exact(2500)) {
                        for (index, sample) in (0..).zip(samples) {
                            assert_eq!(*sample, value(window.x + index % 50, window.y + index / 50));
                        }
                    }
                }
            });
        }
    });
}

/// Counts bytes that are read.
#[derive(Debug)]
struct Counting(MemorySource, AtomicU64);

impl Source for Counting {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> Result<u64, SourceError> {
        self.0.size()
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        self.1.fetch_add(reads.iter().map(|read| read.buffer.len() as u64).sum(), Ordering::Relaxed);
        self.0.read_many(reads)
    }
}

#[test]
fn windows_of_one_tile_come_after_each_other_so_that_a_small_cache_is_enough() {
    let noise = |x: u32, y: u32| (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).rotate_left(x % 32) as u8;
    let file = File::of(Directory::tiled(512, 512, 64, noise).deflated()).bytes();
    let source = Arc::new(Counting(MemorySource::new("m", file.clone()), 0.into()));
    // Room for eight of 64 tiles.
    let dataset = OpenOptions::default().with_tile_cache(8 * 64 * 64).open_source(source.clone()).unwrap();
    // Each tile is needed four times, with all others in between.
    let corners = [(0, 0), (30, 0), (0, 30), (30, 30)];
    let windows: Vec<Window> = corners
        .iter()
        .flat_map(|(x, y)| (0..64).map(move |tile| Window::new(tile % 8 * 64 + x, tile / 8 * 64 + y, 32, 32)))
        .collect();
    let before = source.1.load(Ordering::Relaxed);
    batch(&dataset, &ReadOptions::default().with_threads(1), &windows).unwrap();
    let read = source.1.load(Ordering::Relaxed) - before;
    assert!(read <= file.len() as u64, "{read} bytes of a file of {}", file.len());
}
