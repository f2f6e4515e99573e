use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

/// Counts how often it is dropped.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_is_made_once() {
    let slot = PerProcess::new();
    assert_eq!(slot.get_or(|| 1), &1);
    assert_eq!(slot.get_or(|| 2), &1);
    assert_eq!(slot.get_or_try(|| Err(())), Ok(&1));
    assert_eq!(PerProcess::<u8>::new().get_or_try(|| Err("no")), Err("no"));
}

#[test]
fn concurrent_threads_get_one_value() {
    let (slot, made, once) = (PerProcess::new(), AtomicUsize::new(0), Once::new());
    let make = || made.fetch_add(1, Ordering::Relaxed);
    let found: Vec<(&usize, &usize)> = std::thread::scope(|scope| {
        let look = || (slot.get_or(make), once.get_or_init(make));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(look)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|pair| Some(pair) == found.first()));
}

#[test]
fn own_values_are_dropped_and_inherited_ones_are_not() {
    let drops = Counted::default();
    drop(Owned::new(drops.clone()));
    assert_eq!(drops.0.load(Ordering::Relaxed), 1);
    let mut inherited = Owned::new(drops.clone());
    inherited.generation = inherited.generation.wrapping_sub(1);
    assert!(inherited.get().is_none());
    drop(inherited);
    assert_eq!(drops.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_child_makes_its_own_and_leaves_the_value_of_its_parent() {
    let drops = Counted::default();
    let mut own = Owned::new((1, drops.clone()));
    own.generation = own.generation.wrapping_sub(1);
    let slot = PerProcess(OnceBox::with_value(Box::new(Node { own, next: PerProcess::new() })));
    let made = (2, drops.clone());
    assert_eq!(slot.get_or(|| made.clone()).0, 2);
    assert_eq!(slot.get_or(|| (3, drops.clone())).0, 2);
    drop((slot, made));
    // Its own value, and the state that it was made from.
    assert_eq!(drops.0.load(Ordering::Relaxed), 2);
}

#[test]
fn complete_values_are_inherited_and_made_once() {
    let once = Once::new();
    assert_eq!(once.get(), None);
    assert_eq!(once.get_or_init(|| 1), &1);
    assert_eq!(once.get_or_init(|| 2), &1);
    assert_eq!(once.get(), Some(&1));
}

#[cfg(all(unix, not(feature = "portable")))]
#[test]
fn a_child_that_is_forked_while_a_thread_starts_can_fork_again() {
    use std::{
        ffi::c_int,
        sync::atomic::AtomicBool,
        time::{Duration, Instant},
    };
    unsafe extern "C" {
        fn fork() -> c_int;
        fn waitpid(id: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn alarm(seconds: u32) -> u32;
        fn _exit(code: c_int) -> !;
    }
    /// Waits for a child, and gives its status.
    fn status_of(child: c_int) -> c_int {
        let mut status = -1;
        // SAFETY: `status` is ours, and the child is one that was forked here.
        let ended = unsafe { waitpid(child, &raw mut status, 0) };
        if ended == child { status } else { -1 }
    }
    fn spin(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    generation();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Stands for a thread that starts others while a fork begins.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                STARTS.fetch_add(1, Ordering::SeqCst);
                spin(Duration::from_micros(300));
                STARTS.fetch_sub(1, Ordering::SeqCst);
                spin(Duration::from_micros(50));
            }
        });
        let mut statuses = Vec::new();
        for _ in 0..40 {
            // SAFETY: the child makes system calls only, and then ends without running anything of ours.
            let child = unsafe { fork() };
            if child == 0 {
                // SAFETY: as above; the alarm ends a child that waits for ever.
                unsafe {
                    alarm(5);
                    let grandchild = fork();
                    if grandchild == 0 {
                        _exit(0);
                    }
                    _exit(if status_of(grandchild) == 0 { 0 } else { 1 });
                }
            }
            statuses.push(status_of(child));
            if statuses.last() != Some(&0) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(statuses.iter().all(|status| *status == 0), "{statuses:?}");
    });
}

/// Every thread has to be started by [`starting`], or a child forked at that moment may free memory twice.
#[test]
fn no_thread_is_started_without_regard_to_forks() {
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }

    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap().flatten() {
        sources(&entry.path().join("src"), &mut files);
    }
    let (mut starts, mut bare) = (0, Vec::new());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Tests do not fork while they start threads. Everything after `mod tests {` in a file is tests.
        if path.components().any(|part| part.as_os_str() == "conformance")
            || name == "conformance.rs"
            || name.ends_with("tests.rs")
            || name == "testing.rs"
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("\nmod tests {").next().unwrap_or_default();
        for call in ["spawn_scoped(", "thread::spawn(", "scope.spawn(", "Builder::new().spawn(", ").spawn("] {
            for (at, _) in text.match_indices(call) {
                let before = text.get(at.saturating_sub(120)..at).unwrap_or_default();
                // Tasks of the network's runtime are not threads.
                let task = text.get(at..).is_some_and(|rest| rest.starts_with(").spawn(async"));
                if task || before.ends_with("handle()?.") {
                    continue;
                }
                starts += 1;
                if !before.contains("starting(") {
                    let line = text.get(..at).unwrap_or_default().lines().count();
                    bare.push(format!("{}:{line}", path.display()));
                }
            }
        }
    }
    assert!(starts >= 10, "only {starts} places start threads: the words looked for are others by now");
    assert!(bare.is_empty(), "threads are started without `fork::starting`: {bare:#?}");
}
