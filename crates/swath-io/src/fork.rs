//! State that survives `fork`.
//!
//! A forked child has a copy of its parent's memory, but of its threads only the one that forked. A lock that another
//! thread held stays locked in the child for ever, and what that thread was changing stays half changed. So nothing that
//! threads share is taken over by a child: [`PerProcess`] gives every process a value of its own, [`Once`] hands on only
//! what was complete, and [`Owned`] is of no use to any process but the one that made it. None of them waits for
//! another thread's lock, and none drops what it inherited.
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

/// How many forks lie between this process and the first: no two processes of a line have the same number.
#[cfg(unix)]
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
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // Threads that come here together may all register: a fork then counts several times, which does no harm. Waiting
    // for each other would, if one forked meanwhile.
    if !COUNTED.load(Ordering::Relaxed) {
        // SAFETY: the handlers touch atomic numbers only, and are never unloaded before the process ends.
        let code = unsafe { pthread_atfork(Some(before), Some(after), Some(in_child)) };
        COUNTED.store(code == 0, Ordering::Relaxed);
    }
    GENERATION.load(Ordering::Relaxed)
}

/// There are no forks here.
#[cfg(not(unix))]
pub fn generation() -> u64 {
    0
}

/// Forks under way.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// Threads that are being started.
static STARTS: AtomicUsize = AtomicUsize::new(0);

/// Starts a thread while no fork is under way; forks wait for it in turn. A new thread gets the stack of an ended one, and glibc
/// frees what that one kept before it forgets about it: a child forked in between would free it once more.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    struct Started;
    impl Drop for Started {
        fn drop(&mut self) {
            STARTS.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // The handlers have to be there before the first thread is.
    generation();
    loop {
        STARTS.fetch_add(1, Ordering::SeqCst);
        let started = Started;
        if FORKS.load(Ordering::SeqCst) == 0 {
            let result = start();
            drop(started);
            return result;
        }
        drop(started);
        while FORKS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// A value that belongs to the process that made it. A child that was forked from that process can neither use nor drop its
/// copy.
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
            // SAFETY: this is the only place that drops it, and nobody can reach it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value of which every process has its own, made when first asked for.
pub struct PerProcess<T>(OnceBox<Node<T>>);

/// The value of one process, and those of its children, their children, and so on.
struct Node<T> {
    own: Owned<T>,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    /// One that no process has a value of yet.
    pub const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// This process's value. Threads that are first together may all make one; one of them is taken.
    ///
    /// # Errors
    /// As `make`.
    pub fn get_or_try<E>(&self, mut make: impl FnMut() -> Result<T, E>) -> Result<&T, E> {
        let mut place = self;
        loop {
            match place.0.get() {
                Some(node) => match node.own.get() {
                    Some(value) => return Ok(value),
                    None => place = &node.next,
                },
                None => {
                    let node = Node { own: Owned::new(make()?), next: Self::new() };
                    // Where another thread was quicker, its value is found in the next round, and this one dropped.
                    let _ = place.0.set(Box::new(node));
                }
            }
        }
    }

    /// As [`PerProcess::get_or_try`], of what can always be made.
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

/// A value that is made once and then stays, also in forked children. Threads that want it meanwhile wait; a child whose
/// parent was making it makes its own.
pub struct Once<T> {
    value: OnceBox<T>,
    making: PerProcess<Mutex<()>>,
}

impl<T> Once<T> {
    /// One that is still to be made.
    pub const fn new() -> Self {
        Self { value: OnceBox::new(), making: PerProcess::new() }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, made if it is not there yet.
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
