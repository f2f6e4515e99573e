//! Replaces the C allocator of a test binary by one that can fail, and that counts.
//!
//! Rust's own allocator calls `malloc`, and so do the C libraries of codecs; a `#[global_allocator]` would not see the latter. In an
//! executable these functions come before those of glibc, which exports its own under other names for exactly this use.
//!
//! Requests below [`SMALL`] bytes never fail: the standard library, which ends the process where it gets no memory, makes such requests
//! for error messages, for locks and for threads. Memory for samples and for compressed bytes is larger. Buffers of 4 MiB and more are
//! mapped, not allocated (`swath_raster::memory`); the tests use smaller ones.

#![allow(unsafe_code, reason = "an allocator is unsafe code")]
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failure here is a failed test")]

use std::{
    backtrace::Backtrace,
    env,
    ffi::{OsString, c_int, c_void},
    process::Command,
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
};

/// Smaller requests never fail: less than a page.
pub const SMALL: usize = 4096;

/// Whether requests are counted and may fail.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Requests until one fails.
static LEFT: AtomicI64 = AtomicI64::new(0);
/// Whether those after it fail too.
static ALL: AtomicBool = AtomicBool::new(false);
/// Whether to print where a request failed.
static TRACE: AtomicBool = AtomicBool::new(false);
/// Bytes in use, and the most since [`peak`] began.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

unsafe extern "C" {
    fn __libc_malloc(len: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, len: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, len: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, len: usize) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

/// Whether a request of `len` bytes shall fail.
fn fails(len: usize) -> bool {
    if len < SMALL || !ARMED.load(SeqCst) {
        return false;
    }
    let left = LEFT.fetch_sub(1, SeqCst);
    let failed = left == 1 || left < 1 && ALL.load(SeqCst);
    if failed && TRACE.load(SeqCst) {
        ARMED.store(false, SeqCst);
        eprintln!("no memory for {len} bytes:\n{}", Backtrace::force_capture());
        ARMED.store(true, SeqCst);
    }
    failed
}

/// Counts a block, and passes it on.
fn counted(block: *mut c_void) -> *mut c_void {
    if !block.is_null() {
        let live = LIVE.fetch_add(size(block), SeqCst) + size(block);
        PEAK.fetch_max(live, SeqCst);
    }
    block
}

/// The bytes of a block; 0 for null.
fn size(block: *mut c_void) -> i64 {
    // SAFETY: callers pass null or a block of glibc's allocator.
    unsafe { malloc_usable_size(block) as i64 }
}

#[unsafe(no_mangle)]
extern "C" fn malloc(len: usize) -> *mut c_void {
    if fails(len) {
        return ptr::null_mut();
    }
    // SAFETY: any length is allowed.
    counted(unsafe { __libc_malloc(len) })
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, len: usize) -> *mut c_void {
    if fails(count.saturating_mul(len)) {
        return ptr::null_mut();
    }
    // SAFETY: any length is allowed.
    counted(unsafe { __libc_calloc(count, len) })
}

/// # Safety
/// As `realloc` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, len: usize) -> *mut c_void {
    if fails(len) {
        return ptr::null_mut();
    }
    let before = size(old);
    // SAFETY: the caller passes null or a block of this allocator, all of which come from glibc's.
    let new = unsafe { __libc_realloc(old, len) };
    if !new.is_null() || len == 0 {
        LIVE.fetch_sub(before, SeqCst);
    }
    counted(new)
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, len: usize) -> *mut c_void {
    if fails(len) {
        return ptr::null_mut();
    }
    // SAFETY: glibc checks the alignment.
    counted(unsafe { __libc_memalign(align, len) })
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
    memalign(align, len)
}

/// # Safety
/// As `posix_memalign` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, len: usize) -> c_int {
    let block = memalign(align, len);
    if block.is_null() {
        const ENOMEM: c_int = 12;
        return ENOMEM;
    }
    // SAFETY: the caller passes a pointer that may be written to.
    unsafe { *to = block };
    0
}

/// # Safety
/// As `free` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(old: *mut c_void) {
    LIVE.fetch_sub(size(old), SeqCst);
    // SAFETY: the caller passes null or a block of this allocator, all of which come from glibc's.
    unsafe { __libc_free(old) }
}

/// Keeps other tests of the binary from allocating meanwhile.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what `run` returns and the most bytes that it had in use.
pub fn peak<R>(run: impl FnOnce() -> R) -> (R, u64) {
    let before = live();
    PEAK.store(before, SeqCst);
    let result = run();
    (result, (PEAK.load(SeqCst) - before).max(0) as u64)
}

/// Bytes in use.
pub fn live() -> i64 {
    LIVE.load(SeqCst)
}

/// Runs `run` while its `nth` request fails, and those after it if `all`. Returns its result, and whether there was such a request.
fn failing<R>(nth: i64, all: bool, run: impl FnOnce() -> R) -> (R, bool) {
    LEFT.store(nth, SeqCst);
    ALL.store(all, SeqCst);
    ARMED.store(true, SeqCst);
    let result = run();
    ARMED.store(false, SeqCst);
    (result, LEFT.load(SeqCst) < 1)
}

/// Why a run failed: whether for lack of memory, and in words.
pub type Failure = (bool, String);

/// Something to run again and again while memory fails.
pub struct Case {
    pub name: String,
    /// Makes the function that runs; it may keep buffers from run to run.
    pub start: Box<dyn Fn() -> Run>,
    /// Whether two results mean the same.
    pub same: Box<Same>,
}

/// Whether two results mean the same.
pub type Same = dyn Fn(&[u8], &[u8]) -> bool;

/// One run. It returns what it made.
pub type Run = Box<dyn FnMut() -> Result<Vec<u8>, Failure>>;

const CASE: &str = "SWATH_ALLOCATION_CASE";
const FROM: &str = "SWATH_ALLOCATION_FROM";
/// Set by a person: prints where the requests failed.
const TRACED: &str = "SWATH_ALLOCATION_TRACE";

/// Whether this process is the child of another case, and need not prepare this one.
pub fn runs_another_than(name: &str) -> bool {
    env::var(CASE).is_ok_and(|case| case != name)
}

/// Fails every request of every case in turn, first alone and then with all that follow. Each case runs in a process of its own, so
/// that the report names every request whose failure ends the process. `test` is the name of the calling test.
///
/// `after` is called after each run, with memory in plenty; the children have `variables` in their environment.
pub fn run(test: &str, cases: &[Case], variables: &[(&str, OsString)], after: impl Fn(&Case, bool)) {
    if let Ok(name) = env::var(CASE) {
        let case = cases.iter().find(|case| case.name == name).expect("a case of this name");
        return run_case(case, env::var(FROM).unwrap().parse().unwrap(), after);
    }
    let mut deaths = Vec::new();
    for case in cases {
        let mut from = 1;
        for _ in 0..10 {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture", "--test-threads=1"])
                .env(CASE, &case.name)
                .env(FROM, from.to_string())
                // The symbols of a backtrace stay in memory, and would count as lost.
                .env("RUST_BACKTRACE", "0")
                .envs(variables.iter().cloned())
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&child.stderr);
            if child.status.success() {
                eprint!("{}", words.lines().filter(|line| line.starts_with("done ")).collect::<String>() + "\n");
                break;
            }
            let attempt =
                words.lines().rev().find_map(|line| line.strip_prefix("try ")).unwrap_or("0 before").to_owned();
            let last: Vec<&str> = words.lines().filter(|line| !line.starts_with("try ")).collect();
            from = attempt.split(' ').next().unwrap().parse::<i64>().unwrap() + 1;
            deaths.push(format!("{}, request {attempt}: {}\n{}", case.name, child.status, last.join("\n")));
        }
    }
    assert!(deaths.is_empty(), "{} failures:\n{}", deaths.len(), deaths.join("\n"));
}

fn run_case(case: &Case, from: i64, after: impl Fn(&Case, bool)) {
    TRACE.store(env::var_os(TRACED).is_some(), SeqCst);
    let want = (case.start)()().expect("it runs where memory is plenty");
    after(case, true);
    let (mut tries, mut errors) = (0, 0);
    for nth in from.. {
        let mut reached = false;
        for all in [false, true] {
            eprintln!("try {nth} {}", if all { "and all that follow" } else { "alone" });
            let before = live();
            let mut run = (case.start)();
            let (outcome, was_reached) = failing(nth, all, &mut run);
            reached |= was_reached;
            tries += 1;
            match &outcome {
                Ok(made) => assert!((case.same)(made, &want), "a success with another result"),
                Err((is_memory, words)) => {
                    assert!(*is_memory, "not an error about memory: {words}");
                    errors += 1;
                }
            }
            after(case, outcome.is_ok());
            drop(outcome);
            let again = run();
            assert!(again.as_ref() == Ok(&want), "the next run fails: {:?}", again.err());
            after(case, true);
            drop((again, run));
            assert!(live() - before < SMALL as i64, "{} bytes are lost", live() - before);
        }
        if !reached {
            break;
        }
    }
    eprintln!("done {}: {tries} tries, {errors} errors, no abort", case.name);
}
