//! Checks that every source and sink must pass, called by the tests of each.

pub mod faulty;

use crate::{
    sink::{BLOCK, Sink},
    source::{ReadInto, Source},
};

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

/// Writes a file with gaps to a sink, removes the gaps, commits, and returns the bytes that the file must then have.
///
/// # Panics
/// When the sink fails.
pub fn fill_sink(mut sink: Box<dyn Sink>) -> Vec<u8> {
    let bytes = |seed: u64, len: u64| -> Vec<u8> { (0..len).map(|value| (value * 31 + seed * 17) as u8).collect() };
    // Some writes fill their blocks and some do not. Several threads write them, the last one first.
    let parts = [(0, 100), (BLOCK * 40, 5000), (BLOCK * 1000, BLOCK), (BLOCK * 100_000, BLOCK * 5 + 7)];
    std::thread::scope(|scope| {
        for (seed, (offset, len)) in parts.iter().enumerate().rev() {
            let sink = &*sink;
            scope.spawn(move || assert!(sink.write_at(*offset, &bytes(seed as u64, *len)).is_ok()));
        }
    });
    let mut gaps = Vec::new();
    let mut expected = Vec::new();
    for (seed, pair) in parts.iter().enumerate() {
        let (offset, len) = *pair;
        expected.extend(bytes(seed as u64, len));
        if let Some((next, _)) = parts.get(seed + 1) {
            let end = (offset + len).div_ceil(BLOCK) * BLOCK;
            expected.resize(expected.len().div_ceil(BLOCK as usize) * BLOCK as usize, 0);
            gaps.push(end..*next);
        }
    }
    let size = BLOCK * 100_005 + 7 - gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>();
    assert!(sink.remove(&gaps, BLOCK * 100_005 + 7).is_ok(), "gaps");
    // Also remove some bytes that are not whole blocks.
    assert!(sink.remove(&[10..13, 5000..5001], size).is_ok(), "small gaps");
    expected.drain(5000..5001);
    expected.drain(10..13);
    assert!(sink.write_at(3, b"head").is_ok(), "a write after the gaps are gone");
    expected[3..7].copy_from_slice(b"head");
    assert!(sink.commit(expected.len() as u64).is_ok(), "commit");
    expected
}

#[cfg(test)]
mod tests {
    use super::{check_source, fill_sink};
    use crate::{FileSink, FileSource, MemorySink, MemorySource, StreamSink};

    #[test]
    fn every_sink_conforms() {
        let (sink, memory) = MemorySink::new("memory");
        let expected = fill_sink(Box::new(sink));
        assert!(memory.take().as_deref() == Some(&expected[..]), "memory");
        let folder = std::env::temp_dir().join(format!("swath-io-sinks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        fill_sink(Box::new(FileSink::create(folder.join("file")).unwrap()));
        assert!(std::fs::read(folder.join("file")).unwrap() == expected, "file");
        // tmpfs cannot remove ranges, so bytes are copied there.
        if let Ok(sink) = FileSink::create(format!("/dev/shm/swath-io-sink-{}", std::process::id())) {
            let path = std::path::PathBuf::from(crate::Sink::name(&sink));
            fill_sink(Box::new(sink));
            assert!(std::fs::read(&path).unwrap() == expected, "tmpfs");
            std::fs::remove_file(path).unwrap();
        }
        let stream = std::fs::File::create(folder.join("stream")).unwrap();
        fill_sink(Box::new(StreamSink::new("stream", stream).unwrap()));
        assert!(std::fs::read(folder.join("stream")).unwrap() == expected, "stream");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_source_conforms() {
        let bytes: Vec<u8> = (0..10_000u32).map(|value| (value * 7 % 251) as u8).collect();
        check_source(&MemorySource::new("memory", bytes.clone()), &bytes);
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
