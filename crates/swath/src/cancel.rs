//! Ends work from another thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, ErrorKind};

/// A token that ends a read or a write from another thread.
///
/// ```
/// use swath::{Cancel, ReadOptions};
///
/// let cancel = Cancel::new();
/// let options = ReadOptions::default().with_cancel(cancel.clone());
/// // Another thread may call this at any time; the read then fails with ErrorKind::Cancelled.
/// cancel.cancel();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    /// Tests cancel at a check instead of at a time, which sweeps every place that checks.
    #[cfg(test)]
    at_check: tests::AtCheck,
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every read and write that has this token, before its next job.
    pub fn cancel(&self) {
        self.0.set.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        #[cfg(test)]
        self.0.at_check.count(&self.0.set);
        self.0.set.load(Ordering::Relaxed)
    }
}

/// Returns the error of a cancelled operation, if `cancel` was cancelled.
pub(crate) fn cancelled(cancel: Option<&Cancel>) -> Option<Error> {
    cancel.is_some_and(Cancel::is_cancelled).then(|| Error::new(ErrorKind::Cancelled))
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU32,
        path::{Path, PathBuf},
        sync::atomic::AtomicU64,
    };

    use swath_io::{MemorySink, MemorySource};

    use super::*;
    use crate::{
        Blocks, Compression, ConvertOptions, Dataset, Interleave, Limits, Metadata, OpenOptions, ReadOptions, Rows,
        SampleType, Shape, WriteOptions, Writer, statistics::StatisticsOptions,
    };

    /// Counts checks, and cancels at the chosen one.
    #[derive(Debug)]
    pub(super) struct AtCheck {
        made: AtomicU64,
        chosen: AtomicU64,
    }

    impl Default for AtCheck {
        fn default() -> Self {
            Self { made: AtomicU64::new(0), chosen: AtomicU64::new(u64::MAX) }
        }
    }

    impl AtCheck {
        pub(super) fn count(&self, flag: &AtomicBool) {
            if self.made.fetch_add(1, Ordering::Relaxed) >= self.chosen.load(Ordering::Relaxed) {
                flag.store(true, Ordering::Relaxed);
            }
        }
    }

    const SHAPE: Shape = Shape { width: 90, height: 85, bands: 2, sample: SampleType::U16 };

    fn samples() -> Vec<u8> {
        (0..90 * 85 * 2_u32).flat_map(|at| ((at / 7 % 900 + at % 5) as u16).to_ne_bytes()).collect()
    }

    fn write(options: &WriteOptions) -> Vec<u8> {
        let (sink, memory) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), SHAPE, &Metadata::default(), options).unwrap();
        writer.push(&Rows::from_bytes(&samples(), Interleave::Band)).unwrap();
        writer.finish().unwrap();
        memory.take().unwrap()
    }

    fn open(file: Vec<u8>) -> Dataset {
        let options = OpenOptions::default().with_limits(Limits::none()).with_tile_cache(0);
        options.open_source(Arc::new(MemorySource::new("memory", file))).unwrap()
    }

    fn plain() -> WriteOptions {
        WriteOptions::default().with_threads(1_usize).with_blocks(Blocks::Tiles(16, 16))
    }

    /// Cancels at the first check, at the second, and so on, until `run` ends before the chosen one. `run` returns whether it
    /// completed; it looks at the result itself. The number of checks varies where there are several threads.
    fn cancel_at_every_check(what: &str, least: u64, run: impl Fn(Cancel) -> bool) {
        let mut cancelled = 0;
        for chosen in 0..10_000 {
            let cancel = Cancel::new();
            cancel.0.at_check.chosen.store(chosen, Ordering::Relaxed);
            let completed = run(cancel.clone());
            cancelled += u64::from(!completed);
            // Whether `run` ended before the chosen check, without asking once more.
            if cancel.0.at_check.made.load(Ordering::Relaxed) <= chosen {
                assert!(completed, "{what}: ended early although no check cancelled it");
                assert!(cancelled >= least, "{what}: {cancelled} of {chosen} checks ended it, at least {least} should");
                return;
            }
        }
        panic!("{what}: no end");
    }

    fn is_cancelled(what: &str, error: &Error) -> bool {
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{what}: {error:?}");
        false
    }

    #[test]
    fn a_read_ends_at_every_check_or_is_complete() {
        for (what, options) in [
            ("deflate", plain().with_compression(Compression::Deflate)),
            ("none", plain().with_compression(Compression::None)),
            ("one strip", plain().with_compression(Compression::None).with_blocks(Blocks::Strips(NonZeroU32::new(85)))),
        ] {
            let dataset = open(write(&options));
            let expected = dataset.read(&ReadOptions::default()).unwrap();
            for threads in [1, 3] {
                for interleave in [Interleave::Band, Interleave::Pixel] {
                    let what = format!("{what}, {threads} threads, {interleave:?}");
                    let pixels = ReadOptions::default().with_interleave(interleave);
                    let whole = dataset.read(&pixels).unwrap();
                    cancel_at_every_check(&what, 1, |cancel| {
                        match dataset.read(&pixels.clone().with_threads(threads).with_cancel(cancel)) {
                            Ok(read) => {
                                assert!(read.bytes() == whole.bytes(), "{what}: other samples");
                                true
                            }
                            Err(error) => is_cancelled(&what, &error),
                        }
                    });
                }
            }
            // The handle is as good as before.
            assert!(dataset.read(&ReadOptions::default()).unwrap().bytes() == expected.bytes(), "{what}");
            cancel_at_every_check(&format!("statistics of {what}"), 1, |cancel| {
                let found = dataset.statistics(&StatisticsOptions::default().with_cancel(cancel));
                found.map_or_else(|error| is_cancelled(what, &error), |found| found.bands.len() == 2)
            });
        }
    }

    /// A folder of this test's own, with an old file in it.
    struct Target(PathBuf);

    impl Target {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("swath-cancel-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn path(&self) -> PathBuf {
            self.0.join("a.tif")
        }

        /// Writes to a file that exists: it becomes the expected one, or stays as it was, with nothing beside it.
        fn check(&self, what: &str, whole: &[u8], least: u64, write: impl Fn(&Path, Cancel) -> Result<(), Error>) {
            cancel_at_every_check(what, least, |cancel| {
                std::fs::write(self.path(), b"old").unwrap();
                let completed = match write(&self.path(), cancel) {
                    Ok(()) => true,
                    Err(error) => is_cancelled(what, &error),
                };
                let found = std::fs::read(self.path()).unwrap();
                assert!(
                    found == if completed { whole } else { b"old" },
                    "{what}: neither the old file nor the new one"
                );
                assert_eq!(std::fs::read_dir(&self.0).unwrap().count(), 1, "{what}: something was left behind");
                completed
            });
        }
    }

    impl Drop for Target {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_write_ends_at_every_check_with_the_old_file_or_is_complete() {
        let target = Target::new("write");
        for (what, options) in [
            ("plain", plain().with_compression(Compression::Deflate)),
            ("COG", plain().with_compression(Compression::Zstd).with_cog(true)),
        ] {
            let whole = write(&options);
            for threads in [1_usize, 3] {
                let what = format!("{what}, {threads} threads");
                target.check(&what, &whole, 5, |path, cancel| {
                    let options = options.clone().with_threads(threads).with_batch(2_u32).with_cancel(cancel);
                    let mut writer = Writer::create(path, SHAPE, &Metadata::default(), &options)?;
                    let samples = samples();
                    let row = 90 * 2;
                    for rows in 0..5 {
                        let plane = |band: usize| &samples[(band * 85 + rows * 17) * row..][..17 * row];
                        writer.push(&Rows::from_bytes(&[plane(0), plane(1)].concat(), Interleave::Band))?;
                    }
                    writer.finish().map(|_| ())
                });
            }
        }
    }

    #[test]
    fn a_conversion_ends_at_every_check_with_the_old_file_or_is_complete() {
        let target = Target::new("convert");
        let source = open(write(&plain().with_compression(Compression::Lzw)));
        for cog in [false, true] {
            let options = plain().with_compression(Compression::Deflate).with_cog(cog);
            let convert = |path: &Path, options: &WriteOptions| {
                source.convert(path, &ConvertOptions::default(), options).map(|_| ())
            };
            convert(&target.path(), &options).unwrap();
            let whole = std::fs::read(target.path()).unwrap();
            for threads in [1_usize, 3] {
                let what = format!("COG {cog}, {threads} threads");
                target.check(&what, &whole, 5, |path, cancel| {
                    convert(path, &options.clone().with_threads(threads).with_cancel(cancel))
                });
            }
        }
    }
}
