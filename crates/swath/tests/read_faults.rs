//! Reads of a local file while the system fails them: short reads, interruptions, device errors, and a file that is cut, replaced or
//! overwritten meanwhile, each at every call. The result is right, or an error that names the file; there is no third.
//!
//! The functions by which the standard library reads files are replaced in this binary, so that the engine's own code meets the faults.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "it replaces functions of the C library")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failure here is a failed test")]

use std::{
    ffi::{c_int, c_long, c_void},
    fs,
    os::fd::RawFd,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicU8, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use swath::{
    Blocks, Compression, Dataset, Error, Metadata, Mode, OpenOptions, ReadOptions, Rows, SampleType, Shape,
    WriteOptions, Writer,
};

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u8)]
enum Fault {
    None,
    /// The device fails.
    Device,
    /// A signal interrupts the call.
    Interrupted,
    /// This call and all after it return a few bytes only.
    Short,
    /// The file is cut to two thirds.
    Cut,
    /// The file is cut to nothing.
    Emptied,
    /// Another file takes its name.
    Replaced,
    /// Other bytes are written over it.
    Overwritten,
}

const FAULTS: [Fault; 7] =
    [Fault::Device, Fault::Interrupted, Fault::Short, Fault::Cut, Fault::Emptied, Fault::Replaced, Fault::Overwritten];

static FAULT: AtomicU8 = AtomicU8::new(0);
/// Calls until the fault; negative after it.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);
/// The file, and the one that replaces it.
static FILES: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

#[cfg(target_arch = "x86_64")]
const PREAD: c_long = 17;
#[cfg(target_arch = "aarch64")]
const PREAD: c_long = 67;

const EINTR: c_int = 4;
const EIO: c_int = 5;

fn fail(number: c_int) -> isize {
    // SAFETY: the pointer is to the calling thread's own number.
    unsafe { *__errno_location() = number };
    -1
}

/// # Safety
/// As `pread` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(file: RawFd, to: *mut c_void, len: usize, offset: i64) -> isize {
    let left = LEFT.fetch_sub(1, SeqCst);
    let fault = FAULTS.into_iter().find(|fault| *fault as u8 == FAULT.load(SeqCst)).unwrap_or(Fault::None);
    let mut len = len;
    match fault {
        Fault::Device if left == 0 => return fail(EIO),
        Fault::Interrupted if left == 0 => return fail(EINTR),
        Fault::Short if left <= 0 => len = len.min(1 + len / 3),
        Fault::Cut | Fault::Emptied | Fault::Replaced | Fault::Overwritten if left == 0 => {
            let files = FILES.lock().unwrap();
            let (path, other) = files.as_ref().unwrap();
            change(fault, path, other);
        }
        _ => {}
    }
    // SAFETY: the caller's arguments, with a length that is not greater.
    unsafe { syscall(PREAD, file, to, len, offset) as isize }
}

fn change(fault: Fault, path: &Path, other: &Path) {
    let len = fs::metadata(path).unwrap().len();
    let file = || fs::File::options().write(true).open(path).unwrap();
    match fault {
        Fault::Cut => file().set_len(len * 2 / 3).unwrap(),
        Fault::Emptied => file().set_len(0).unwrap(),
        Fault::Replaced => fs::rename(other, path).unwrap(),
        // `read` is not `pread`, so this does not come back here.
        _ => fs::write(path, fs::read(other).unwrap()).unwrap(),
    }
}

/// Writes a raster whose samples all lie `above` others'.
fn write(path: &Path, options: &WriteOptions, above: u16) {
    let shape = Shape { width: 400, height: 300, bands: 1, sample: SampleType::U16 };
    let samples: Vec<u16> =
        (0..400 * 300_u32).map(|at| (at % 400 / 3 + at % 1009 * (at % 1009) % 7) as u16 + above).collect();
    let mut writer = Writer::create(path, shape, &Metadata::default(), options).unwrap();
    writer.push(&Rows::pixels(&samples)).unwrap();
    writer.finish().unwrap();
    // Changes show in the time of a file; this one is old.
    let old = SystemTime::now() - Duration::from_secs(1000);
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

fn open(path: &Path) -> Result<Dataset, Error> {
    OpenOptions::default().with_device(Mode::Cpu).with_threads(2).with_tile_cache(0).open(path)
}

/// Opens and reads, whole and then a part again.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let dataset = open(path)?;
    let whole = dataset.read(&ReadOptions::default())?;
    let window = swath::Window::new(50, 60, 100, 90);
    let part = dataset.read(&ReadOptions::default().with_window(window))?;
    Ok([whole.bytes(), part.bytes()].concat())
}

/// Lets `fault` happen at call `nth` of `run`. Returns the result and whether the call came.
fn with<R>(fault: Fault, nth: i64, run: impl FnOnce() -> R) -> (R, bool) {
    LEFT.store(nth, SeqCst);
    FAULT.store(fault as u8, SeqCst);
    let result = run();
    FAULT.store(0, SeqCst);
    (result, LEFT.load(SeqCst) < 0)
}

#[test]
fn every_fault_gives_the_right_samples_or_an_error_that_names_the_file() {
    let folder = std::env::temp_dir().join(format!("swath-read-faults-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (path, other) = (folder.join("a.tif"), folder.join("b.tif"));
    *FILES.lock().unwrap() = Some((path.clone(), other.clone()));
    let plain = WriteOptions::default().with_device(Mode::Cpu);
    let kinds = [
        ("tiles", plain.clone().with_compression(Compression::Lzw).with_blocks(Blocks::Tiles(64, 64))),
        ("COG", plain.clone().with_compression(Compression::Zstd).with_cog(true)),
        ("strips without compression", plain.with_blocks(Blocks::Strips(std::num::NonZeroU32::new(50)))),
    ];
    let (mut tries, mut errors) = (0, 0);
    for (kind, options) in &kinds {
        write(&path, options, 0);
        let want = read(&path).unwrap();
        for fault in FAULTS {
            for nth in 0.. {
                write(&path, options, 0);
                write(&other, options, 1000);
                let (result, came) = with(fault, nth, || read(&path));
                if !came {
                    break;
                }
                tries += 1;
                let what = format!("{kind}, {fault:?} at call {nth}");
                match result {
                    Ok(samples) => {
                        assert!(fault != Fault::Device, "{what}: no error");
                        assert!(samples == want, "{what}: wrong samples");
                    }
                    Err(error) => {
                        errors += 1;
                        let harmless = matches!(fault, Fault::Interrupted | Fault::Short | Fault::Replaced);
                        assert!(!harmless, "{what}: {error}");
                        assert!(error.to_string().contains("a.tif"), "{what}: it does not name the file: {error}");
                        if fault == Fault::Device {
                            assert!(error.to_string().contains("offset"), "{what}: it does not say where: {error}");
                        }
                    }
                }
            }
        }
    }
    println!("{tries} faults, {errors} errors");
    assert!(tries > 60 && errors > 30, "{tries} faults, {errors} errors");
    fs::remove_dir_all(folder).unwrap();
}
