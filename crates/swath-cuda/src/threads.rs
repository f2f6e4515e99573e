//! Starts threads only while no fork is under way. This crate knows nothing of forks: the engine gives it the function
//! that waits.

use std::any::Any;

use once_cell::race::OnceBox;

/// Waits until a thread may be started; the caller drops the returned value once it was started.
type Turn = fn() -> Box<dyn Any>;

static TURN: OnceBox<Turn> = OnceBox::new();

/// Sets the function that this crate calls before it starts a thread. Only the first call has an effect.
pub fn start_threads_in(turn: Turn) {
    if TURN.get().is_none() {
        let _ = TURN.set(Box::new(turn));
    }
}

/// Calls `start`, which starts a thread, while no fork is under way.
pub(crate) fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _turn = TURN.get().map(|turn| turn());
    start()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_thread_is_started_within_the_turn() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                ENDED.fetch_add(1, Ordering::SeqCst);
            }
        }
        assert_eq!(starting(|| 1), 1);
        start_threads_in(|| {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            Box::new(End)
        });
        let seen = starting(|| (BEGUN.load(Ordering::SeqCst), ENDED.load(Ordering::SeqCst)));
        assert!(seen.0 > seen.1, "{seen:?}");
        assert!(ENDED.load(Ordering::SeqCst) > 0);
    }
}
