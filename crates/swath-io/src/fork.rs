//! State that survives `fork`.
//!
//! A forked child has a copy of its parent's memory, but only the thread that forked. A lock that another thread held stays
//! locked in the child for ever, and the data that thread was changing stays half changed. So a child inherits nothing that
//! threads share: [`PerProcess`] gives every process its own value, [`Once`] passes on only completed values, and [`Owned`] is
//! usable only in the process that created it. None of them waits for another thread's lock, and none drops an inherited value.
#![allow(unsafe_code, reason = "a handler for forks, and values that are not dropped")]

use std::{
    fmt,
    mem::ManuallyDrop,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use once_cell::race::OnceBox;

/// Number of forks between the first process and this one. A process and its descendants all have different numbers.
#[cfg(all(unix, not(feature = "portable")))]
pub fn generation() -> u64 {
    use std::{
        ffi::c_int,
        sync::atomic::{AtomicBool, AtomicU64},
    };

    type Handler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    static GENERATION: AtomicU64 = AtomicU64::new(0);
    static COUNTED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn before() {
        FORKS.fetch_add(1, Ordering::SeqCst);
        while STARTS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
    unsafe extern "C" fn after() {
        FORKS.fetch_sub(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn in_child() {
        FORKS.store(0, Ordering::SeqCst);
        // Threads that were starting others do not exist in the child.
        STARTS.store(0, Ordering::SeqCst);
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // Several threads may register at once. A fork then counts several times, which is harmless; waiting for each other would not
    // be, if one of them forked meanwhile.
    if !COUNTED.load(Ordering::Relaxed) {
        // SAFETY: the handlers touch atomic numbers only, and are never unloaded before the process ends.
        let code = unsafe { pthread_atfork(Some(before), Some(after), Some(in_child)) };
        COUNTED.store(code == 0, Ordering::Relaxed);
    }
    GENERATION.load(Ordering::Relaxed)
}

/// This system has no forks.
#[cfg(not(all(unix, not(feature = "portable"))))]
pub fn generation() -> u64 {
    0
}

/// Forks in progress.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// Thread starts in progress.
static STARTS: AtomicUsize = AtomicUsize::new(0);

/// Runs `start`, which starts a thread, while no fork is in progress; forks wait until it is done. A new thread reuses the stack
/// of a finished one, and glibc frees that thread's data before it clears the pointers to it: a child forked in between would
/// free the data a second time.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _turn = Turn::wait();
    start()
}

/// Permission to start a thread: forks wait until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn(());

impl Turn {
    /// Waits until no fork is in progress.
    pub fn wait() -> Self {
        // The handlers must be registered before the first thread starts.
        generation();
        loop {
            STARTS.fetch_add(1, Ordering::SeqCst);
            let turn = Self(());
            if FORKS.load(Ordering::SeqCst) == 0 {
                return turn;
            }
            drop(turn);
            while FORKS.load(Ordering::SeqCst) > 0 {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        STARTS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A value that belongs to the process that created it. A forked child can neither use nor drop its copy.
#[derive(Debug)]
pub struct Owned<T> {
    generation: u64,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { generation: generation(), value: ManuallyDrop::new(value) }
    }

    /// The value; `None` in a forked child.
    pub fn get(&self) -> Option<&T> {
        self.is_ours().then_some(&*self.value)
    }

    fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: only this line drops the value, and nothing can reach it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value of which every process has its own, created on first use.
pub struct PerProcess<T>(OnceBox<Node<T>>);

/// The value of one process, and those of its children, their children, and so on.
struct Node<T> {
    own: Owned<T>,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    /// No process has a value yet.
    pub const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// This process's value. If several threads come first, each may create one; one of these is kept.
    ///
    /// # Errors
    /// As `make`.
    pub fn get_or_try<E>(&self, mut make: impl FnMut() -> Result<T, E>) -> Result<&T, E> {
        let mut slot = self;
        loop {
            match slot.0.get() {
                Some(node) => match node.own.get() {
                    Some(value) => return Ok(value),
                    None => slot = &node.next,
                },
                None => {
                    let node = Node { own: Owned::new(make()?), next: Self::new() };
                    // If another thread was faster, the next iteration finds its value, and this one is dropped.
                    let _ = slot.0.set(Box::new(node));
                }
            }
        }
    }

    /// As [`PerProcess::get_or_try`], for a value whose creation cannot fail.
    pub fn get_or(&self, mut make: impl FnMut() -> T) -> &T {
        match self.get_or_try(|| Ok::<T, std::convert::Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }
}

impl<T: Default> PerProcess<T> {
    /// This process's value.
    pub fn get(&self) -> &T {
        self.get_or(T::default)
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// A value that is created once and also serves forked children. Other threads wait while it is created; a child forked during
/// that time creates its own.
pub struct Once<T> {
    value: OnceBox<T>,
    making: PerProcess<Mutex<()>>,
}

impl<T> Once<T> {
    /// A value that has not been created yet.
    pub const fn new() -> Self {
        Self { value: OnceBox::new(), making: PerProcess::new() }
    }

    /// The value, if it has been created.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, created if necessary.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(found) = self.value.get() {
            return found;
        }
        let _turn = self.making.get().lock().unwrap_or_else(PoisonError::into_inner);
        self.value.get_or_init(|| Box::new(make()))
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests;
