//! How many threads work may use.

use swath_io::fork::Once;

/// Returns the number of cores this process may use. The first call asks the system, which takes longer than opening a file;
/// later calls return the same number.
pub(crate) fn cores() -> usize {
    static CORES: Once<usize> = Once::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
