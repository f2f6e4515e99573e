//! The fake driver: built when it is needed, used by one test at a time, and checked for leaks at the end.
#![allow(unsafe_code)]

use std::{
    ffi::{CString, c_char, c_int, c_ulonglong},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use swath::gpu::{DeviceError, Gpu, GpuOptions};

/// There is one fake driver in the process, and tests script it.
static ONE: Mutex<()> = Mutex::new(());

struct Library {
    script: unsafe extern "C" fn(*const c_char) -> c_int,
    count: unsafe extern "C" fn(*const c_char) -> c_ulonglong,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the library is, in one of its forms: ``, `old`, `empty`.
pub fn path(form: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(target).join("fake-driver").join(form).join("libcuda.so.1")
}

/// Builds the library; false without a compiler, which is allowed outside CI.
fn built() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    *BUILT.get_or_init(|| {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
        if Command::new(compiler).arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "the fake driver needs g++");
            eprintln!("skipped: the fake driver needs g++");
            return false;
        }
        let built = Command::new("bash").arg(root().join("tools/fake-driver/build.sh")).status();
        assert!(built.is_ok_and(|status| status.success()), "tools/fake-driver/build.sh failed");
        true
    })
}

fn library() -> &'static Library {
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        // SAFETY: our own library, whose start-up code does nothing.
        let library = unsafe { libloading::Library::new(path("")) }.expect("the fake driver was built");
        // SAFETY: the types are those of tools/fake-driver/README.md.
        let script = *unsafe { library.get(b"swath_fake_script\0") }.expect("it has a script");
        // SAFETY: as above.
        let count = *unsafe { library.get(b"swath_fake_count\0") }.expect("it counts");
        std::mem::forget(library);
        Library { script, count }
    })
}

/// The fake driver, this test's own.
pub struct Fake {
    _one: MutexGuard<'static, ()>,
}

/// The fake driver with its defaults; `None` if it cannot be built.
pub fn fake() -> Option<Fake> {
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    built().then(|| {
        let fake = Fake { _one: one };
        fake.reset("");
        fake
    })
}

impl Fake {
    /// Sets another script. Broken contexts are repaired; earlier errors of the caller fail the test.
    pub fn script(&self, text: &str) {
        assert_eq!(self.count("errors"), 0, "before the script '{text}'");
        self.reset(text);
    }

    fn reset(&self, text: &str) {
        let words = CString::new(text).expect("no zero");
        // SAFETY: the text ends with a zero and is copied.
        let code = unsafe { (library().script)(words.as_ptr()) };
        assert_eq!(code, 0, "script '{text}'");
    }

    /// One of the driver's own counts since the last script.
    pub fn count(&self, what: &str) -> u64 {
        let words = CString::new(what).expect("no zero");
        // SAFETY: the text ends with a zero.
        let count = unsafe { (library().count)(words.as_ptr()) };
        assert_ne!(count, u64::MAX, "there is no count '{what}'");
        count
    }

    pub fn open(&self) -> Result<Arc<Gpu>, DeviceError> {
        Gpu::open(&GpuOptions::default().with_driver(path("")))
    }

    /// Opens the GPU, passes it to `body`, and fails unless everything is freed when the GPU is dropped.
    pub fn with<R>(&self, script: &str, body: impl FnOnce(&Arc<Gpu>) -> R) -> R {
        self.script(script);
        let gpu = self.open().unwrap_or_else(|error| panic!("script '{script}': {error}"));
        let result = body(&gpu);
        // A broken driver frees nothing.
        if self.count("errors") == 0 {
            self.script("");
        }
        assert_eq!(Arc::strong_count(&gpu), 1, "script '{script}': someone holds on to the GPU");
        drop(gpu);
        self.expect_nothing_left(script);
        result
    }

    pub fn expect_nothing_left(&self, what: &str) {
        for count in ["errors", "live_bytes", "live_host_bytes", "streams", "events", "modules"] {
            assert_eq!(self.count(count), 0, "{count} after '{what}'");
        }
    }
}
