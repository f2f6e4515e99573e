//! What every source must do; called by the tests of each source.

use crate::source::{ReadInto, Source};

/// Checks a source that holds exactly `expected`.
///
/// # Panics
/// When the source breaks a promise of [`Source`].
pub fn check_source(source: &dyn Source, expected: &[u8]) {
    let size = expected.len();
    assert_eq!(source.size().ok(), Some(size as u64), "size");
    for (offset, len) in [(0, size), (0, 0), (size, 0), (size / 3, size / 3), (size.saturating_sub(1), size.min(1))] {
        let mut buffer = vec![0xA5; len];
        assert!(source.read_at(offset as u64, &mut buffer).is_ok(), "read of {len} bytes at {offset}");
        assert_eq!(buffer, expected[offset..offset + len], "bytes at {offset}");
    }
    let mut buffer = [0; 2];
    assert!(source.read_at(size as u64 - 1, &mut buffer).is_err(), "a read across the end must fail");
    assert!(source.read_at(u64::MAX - 1, &mut buffer).is_err(), "a read at the end of the address space must fail");
    let (mut first, mut second) = ([0; 1], [0; 1]);
    let mut reads =
        [ReadInto { offset: size as u64 - 1, buffer: &mut first }, ReadInto { offset: 0, buffer: &mut second }];
    assert!(source.read_many(&mut reads).is_ok(), "several reads in any order");
    assert_eq!((first[0], second[0]), (expected[size - 1], expected[0]));
    std::thread::scope(|scope| {
        for start in 0..4 {
            scope.spawn(move || {
                let mut buffer = vec![0; size - start];
                assert!(source.read_at(start as u64, &mut buffer).is_ok());
                assert_eq!(buffer, expected[start..]);
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::check_source;
    use crate::{FileSource, MemorySource, wrap::count::Count};

    #[test]
    fn every_source_conforms() {
        let bytes: Vec<u8> = (0..10_000u32).map(|value| (value * 7 % 251) as u8).collect();
        check_source(&MemorySource::new("memory", bytes.clone()), &bytes);
        check_source(&Count::new(MemorySource::new("memory", bytes.clone())), &bytes);
        let path = std::env::temp_dir().join(format!("swath-io-conformance-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        check_source(&FileSource::open(&path).unwrap(), &bytes);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn folder_is_not_a_source() {
        assert!(FileSource::open(std::env::temp_dir()).is_err());
    }
}
