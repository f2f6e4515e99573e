//! A whole read, write and conversion survive a lack of memory: while any one request fails, and while all later ones fail too, they return
//! an error about memory or the right result; the old file stays whole, no other file is left behind, and the next run works.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failure here is a failed test")]

#[path = "../../swath-codec/tests/failing_malloc/mod.rs"]
mod failing_malloc;

use std::{
    fs,
    path::{Path, PathBuf},
};

use failing_malloc::{Case, Failure, Run};
use swath::{
    Blocks, Compression, ConvertOptions, Dataset, Error, ErrorKind, Metadata, Mode, OpenOptions, ReadOptions, Rows,
    SampleType, Shape, Window, WriteOptions, Writer, tiff::structure::Predictor,
};

const SHAPE: Shape = Shape { width: 300, height: 200, bands: 2, sample: SampleType::U16 };
const OLD: &[u8] = b"what was there before";

fn samples() -> Vec<u16> {
    (0..300 * 200 * 2_u32).map(|at| (at / 7 % 900 + at % 1009 * (at % 1009) % 13) as u16).collect()
}

fn options() -> WriteOptions {
    let options = WriteOptions::default().with_device(Mode::Cpu).with_threads(2).with_blocks(Blocks::Tiles(64, 64));
    options.with_compression(Compression::Deflate).with_predictor(Predictor::Horizontal)
}

fn failure(error: &Error) -> Failure {
    (matches!(error.kind(), ErrorKind::Memory(_)), error.to_string())
}

fn write(path: &Path, options: &WriteOptions, samples: &[u16]) -> Result<(), Error> {
    let mut writer = Writer::create(path, SHAPE, &Metadata::default(), options)?;
    // In two parts, so that rows wait in the writer.
    let (first, second) = samples.split_at(300 * 2 * 90);
    writer.push(&Rows::pixels(first))?;
    writer.push(&Rows::pixels(second))?;
    writer.finish()?;
    Ok(())
}

fn open(path: &Path) -> Result<Dataset, Error> {
    OpenOptions::default().with_device(Mode::Cpu).with_threads(2).open(path)
}

fn case(name: &str, start: impl Fn() -> Run + 'static) -> Case {
    Case { name: name.to_owned(), start: Box::new(start), same: Box::new(|made, want| made == want) }
}

/// Runs `write` onto a file that exists, and returns the new file.
fn writing(name: &str, path: &Path, write: impl Fn(&Path) -> Result<(), Error> + Clone + 'static) -> Case {
    let path = path.to_owned();
    case(name, move || {
        fs::write(&path, OLD).unwrap();
        let (path, write) = (path.clone(), write.clone());
        Box::new(move || {
            write(&path).map_err(|error| failure(&error))?;
            Ok(path.to_string_lossy().into_owned().into_bytes())
        })
    })
}

#[test]
fn no_failed_request_ends_the_process() {
    let _alone = failing_malloc::alone();
    // The parent's folder is the child's too.
    let folder: PathBuf = std::env::var_os("SWATH_ALLOCATION_FOLDER")
        .map_or_else(|| std::env::temp_dir().join(format!("swath-allocation-{}", std::process::id())), PathBuf::from);
    fs::create_dir_all(folder.join("out")).unwrap();
    let source = folder.join("source.tif");
    if !source.exists() {
        write(&source, &options().with_cog(true), &samples()).unwrap();
    }
    let out = folder.join("out/a.tif");
    let expected = folder.join("expected.tif");
    let read = |path: &Path, options: &ReadOptions| -> Result<Vec<u8>, Failure> {
        let raster = open(path).and_then(|dataset| dataset.read(options));
        // The copy is the test's own.
        raster.map_err(|error| failure(&error)).and_then(|raster| {
            swath_raster::memory::collect(raster.bytes().iter().copied()).map_err(|error| (true, error.to_string()))
        })
    };
    let reading = |name: &str, options: ReadOptions| {
        let source = source.clone();
        case(name, move || {
            let (source, options) = (source.clone(), options.clone());
            Box::new(move || read(&source, &options))
        })
    };
    let converted = source.clone();
    // The samples are the test's own.
    let plain: &'static [u16] = samples().leak();
    let cases = [
        reading("reading", ReadOptions::default()),
        reading("reading a window", ReadOptions::default().with_window(Window::new(30, 40, 101, 99))),
        reading("reading an overview", ReadOptions::default().with_overview(0)),
        writing("writing", &out, move |path| write(path, &options(), plain)),
        writing("writing a COG", &out, move |path| {
            write(path, &options().with_cog(true).with_compression(Compression::Zstd), plain)
        }),
        writing("converting", &out, move |path| {
            let options = options().with_compression(Compression::Lzw);
            open(&converted)?.convert(path, &ConvertOptions::default(), &options).map(|_| ())
        }),
    ];
    // Children find the folder by this variable.
    let shared = ("SWATH_ALLOCATION_FOLDER", folder.clone().into_os_string());
    failing_malloc::run("no_failed_request_ends_the_process", &cases, &[shared], |case, succeeded| {
        if case.name.starts_with("reading") {
            return;
        }
        let names: Vec<_> = fs::read_dir(folder.join("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.tif"], "files are left behind");
        let found = fs::read(&out).unwrap();
        if !succeeded {
            assert!(found == OLD, "the old file is gone: {} bytes", found.len());
            return;
        }
        // The first success, with memory in plenty, is what all others have to equal.
        let own = expected.with_extension(case.name.replace(' ', "-"));
        if own.exists() {
            assert!(found == fs::read(&own).unwrap(), "another file than with memory in plenty");
        } else {
            fs::write(&own, found).unwrap();
        }
    });
    if std::env::var_os("SWATH_ALLOCATION_FOLDER").is_none() {
        fs::remove_dir_all(folder).unwrap();
    }
}
