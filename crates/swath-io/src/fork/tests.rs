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
fn threads_that_come_together_find_one_value() {
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
fn what_is_ours_is_dropped_and_what_was_inherited_is_not() {
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
    // Its own, and what it was made of.
    assert_eq!(drops.0.load(Ordering::Relaxed), 2);
}

#[test]
fn what_was_complete_stays_and_is_made_once() {
    let once = Once::new();
    assert_eq!(once.get(), None);
    assert_eq!(once.get_or_init(|| 1), &1);
    assert_eq!(once.get_or_init(|| 2), &1);
    assert_eq!(once.get(), Some(&1));
}
