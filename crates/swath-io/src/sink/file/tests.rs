#![allow(clippy::single_range_in_vec_init, reason = "a list of gaps may have one")]

use std::sync::Mutex;

use super::*;
use crate::sink::{
    local::{CHUNK, LONG, STEP, waves},
    temporary::Temporary,
    unfinished::{PART, TEMPORARY, mark},
};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("swath-io-sink-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn dropped_file_leaves_the_old_one_and_nothing_else() {
    let folder = folder("dropped");
    let path = folder.join("a.tif");
    fs::write(&path, b"old").unwrap();
    let sink = FileSink::create(&path).unwrap();
    sink.write_at(0, b"new").unwrap();
    assert_eq!(names(&folder).len(), 2);
    drop(sink);
    assert_eq!((names(&folder), fs::read(&path).unwrap()), (vec!["a.tif".to_owned()], b"old".to_vec()));
    fs::remove_dir_all(folder).unwrap();
}

/// The default permissions would let others open the file before it gets those of the old one.
#[cfg(all(unix, not(feature = "portable")))]
#[test]
fn the_successor_of_a_private_file_is_never_open_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder("private");
    let mode = |private| {
        let (file, path) = crate::sink::unfinished::create(&folder, "mark-", private).unwrap();
        fs::remove_file(path).unwrap();
        file.metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(true), 0o600);
    // A new file has the permissions that all new files get.
    fs::write(folder.join("usual"), b"").unwrap();
    let usual = fs::metadata(folder.join("usual")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(false), usual);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let folder = folder("leftovers");
    let path = folder.join("a.tif");
    let dead = folder.join(format!("{}1-1{PART}", mark(&path)));
    let other = folder.join(format!("{}1-1{PART}", mark(&folder.join("b.tif"))));
    fs::write(&dead, b"half").unwrap();
    fs::write(&other, b"half").unwrap();
    let living = FileSink::create(&path).unwrap();
    assert!(!dead.exists() && other.exists());
    let second = Box::new(FileSink::create(&path).unwrap());
    second.write_at(0, b"2").unwrap();
    second.commit(1).unwrap();
    living.write_at(0, b"1").unwrap();
    Box::new(living).commit(1).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"1");
    fs::remove_dir_all(folder).unwrap();
}

/// In a folder that all users may write to, any user can put a pipe or a link under the name of a leftover.
#[cfg(all(unix, not(feature = "portable")))]
#[test]
fn foreign_files_under_a_leftovers_name_stay_and_block_no_writer() {
    use rustix::fs::{CWD, FileType, mknodat};
    let folder = folder("planted");
    let path = folder.join("a.tif");
    let named = |mark: &str, number: u32| folder.join(format!("{mark}1-{number}{PART}"));
    let other = folder.join("other");
    fs::write(&other, b"x").unwrap();
    let mut planted = vec![other.clone()];
    for mark in [mark(&path).as_str(), TEMPORARY] {
        let (pipe, link, foreign) = (named(mark, 1), named(mark, 2), named(mark, 3));
        mknodat(CWD, &pipe, FileType::Fifo, 0o666.into(), 0).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        planted.extend([pipe, link]);
        fs::write(&foreign, b"of another user").unwrap();
        if std::os::unix::fs::chown(&foreign, Some(12345), None).is_ok() {
            planted.push(foreign);
        } else {
            eprintln!("skipped: files cannot be given away here");
            fs::remove_file(foreign).unwrap();
        }
    }
    fs::write(named(&mark(&path), 4), b"half").unwrap();
    drop(Temporary::create_in(&folder).unwrap());
    let sink = Box::new(FileSink::create(&path).unwrap());
    sink.write_at(0, b"new").unwrap();
    sink.commit(3).unwrap();
    planted.push(path);
    planted.sort();
    let left: Vec<PathBuf> = names(&folder).iter().map(|name| folder.join(name)).collect();
    assert_eq!(left, planted);
    fs::remove_dir_all(folder).unwrap();
}

/// As a killed writer leaves them: a part belongs to the owner of the file that it was to replace.
#[cfg(unix)]
#[test]
fn leftovers_of_a_file_of_another_user_go() {
    let folder = folder("owner");
    let path = folder.join("a.tif");
    let dead = folder.join(format!("{}1-1{PART}", mark(&path)));
    for name in [&path, &dead] {
        fs::write(name, b"x").unwrap();
        if std::os::unix::fs::chown(name, Some(12345), None).is_err() {
            eprintln!("skipped: files cannot be given away here");
        }
    }
    drop(FileSink::create(&path).unwrap());
    assert_eq!(names(&folder), ["a.tif"]);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn a_file_that_takes_the_name_during_the_write_stays() {
    let folder = folder("taken");
    let path = folder.join("a.tif");
    let sink = Box::new(FileSink::create(&path).unwrap());
    sink.write_at(0, b"new").unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, 0o600.into(), 0).unwrap();
    assert!(sink.commit(3).unwrap_err().to_string().contains("other than an ordinary file"));
    assert_eq!(names(&folder), ["a.tif"]);
    assert!(!fs::symlink_metadata(&path).unwrap().is_file());
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn link_stays_a_link_and_the_mode_stays() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder("link");
    let (real, link) = (folder.join("real.tif"), folder.join("link.tif"));
    fs::write(&real, b"old").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    let sink = Box::new(FileSink::create(&link).unwrap());
    sink.write_at(0, b"new").unwrap();
    sink.commit(3).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), b"new");
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn link_to_nothing_stays_a_link_and_gets_its_file() {
    let folder = folder("dangling");
    let link = folder.join("link.tif");
    std::os::unix::fs::symlink("real.tif", &link).unwrap();
    let sink = Box::new(FileSink::create(&link).unwrap());
    sink.write_at(0, b"new").unwrap();
    sink.commit(3).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(folder.join("real.tif")).unwrap(), b"new");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn longest_name_can_be_written() {
    let folder = folder("long");
    let path = folder.join("n".repeat(255));
    let sink = Box::new(FileSink::create(&path).unwrap());
    sink.write_at(0, b"x").unwrap();
    sink.commit(1).unwrap();
    assert_eq!(names(&folder), ["n".repeat(255)]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_and_missing_folders_are_refused() {
    let folder = folder("refused");
    assert!(FileSink::create(&folder).unwrap_err().to_string().contains("folder"));
    assert_eq!(FileSink::create(folder.join("no/a.tif")).unwrap_err().io_kind(), io::ErrorKind::NotFound);
    fs::remove_dir_all(folder).unwrap();
}

/// A folder for ordinary files, and one for files in memory where there is one.
fn folders(name: &str) -> Vec<PathBuf> {
    let mut folders = vec![folder(name)];
    let memory = PathBuf::from(format!("/dev/shm/swath-io-sink-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&memory);
    match fs::create_dir(&memory) {
        Ok(()) => folders.push(memory),
        Err(error) => eprintln!("skipped in memory: /dev/shm: {error}"),
    }
    folders
}

/// Bytes that differ from place to place.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let word = |value: u64| (value ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(29).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

#[test]
fn many_threads_write_what_one_would() {
    for folder in folders("threads") {
        let path = folder.join("a.tif");
        // Ranges that touch each other, within pages and at their borders, some of them left out.
        let long = [LONG, CHUNK, CHUNK + LONG, 2 * CHUNK];
        let lens = long.iter().flat_map(|len| [len - 4096, len - 1, *len, len + 1, len + 4095]);
        let mut expected = Vec::new();
        let mut ranges = Vec::new();
        for (number, len) in [1, 4095, 4097].into_iter().chain(lens).enumerate() {
            let start = expected.len();
            if number % 5 == 3 {
                expected.resize(start + len, 0);
            } else {
                expected.extend(noise(number as u64, len));
                ranges.push(start..start + len);
            }
        }
        let sink = Box::new(FileSink::create(&path).unwrap());
        let left = Mutex::new(ranges);
        // From the end, so that the file does not simply grow.
        let take = || left.lock().unwrap().pop();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while let Some(range) = take() {
                        sink.write_at(range.start as u64, &expected[range]).unwrap();
                    }
                });
            }
        });
        sink.commit(expected.len() as u64).unwrap();
        assert!(fs::read(&path).unwrap() == expected, "{}", folder.display());
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn gaps_of_every_size_are_removed() {
    const MIB: u64 = 1 << 20;
    let cases: [&[Range<u64>]; 10] = [
        &[0..1],
        &[5..4096, 4097..4099, 10_000..30_000],
        &[0..4096],
        &[MIB..2 * MIB + 1],
        &[3..STEP as u64 + 3, 5 * MIB..5 * MIB + 100],
        &[7 * MIB - 1..11 * MIB - 2],
        // Far enough for several threads, in one wave and in several.
        &[MIB..9 * MIB],
        &[0..8 * MIB - 7, 9 * MIB..9 * MIB + 1],
        &[100..17 * MIB + 5],
        &[2 * MIB..4 * MIB, 6 * MIB..13 * MIB, 13 * MIB + 1..14 * MIB, 20 * MIB..37 * MIB],
    ];
    let size = 43 * MIB + 77;
    for folder in folders("gaps") {
        let path = folder.join("a.tif");
        for gaps in cases {
            let mut bytes = noise(1, size as usize);
            let mut sink = Box::new(FileSink::create(&path).unwrap());
            let mut start = 0;
            for gap in gaps.iter().chain([&(size..size)]) {
                sink.write_at(start, &bytes[start as usize..gap.start as usize]).unwrap();
                start = gap.end;
            }
            sink.remove(gaps, size).unwrap();
            for gap in gaps.iter().rev() {
                bytes.drain(gap.start as usize..gap.end as usize);
            }
            assert_eq!(sink.file.file().metadata().unwrap().len(), bytes.len() as u64);
            sink.commit(bytes.len() as u64).unwrap();
            assert!(fs::read(&path).unwrap() == bytes, "{gaps:?} in {}", folder.display());
        }
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn waves_do_not_overwrite_what_they_move() {
    for (range, distance) in [(10..30, 10), (10..29, 7), (5..6, 1), (100..200, 1000), (8..8, 3)] {
        let waves: Vec<_> = waves(&range, distance).collect();
        assert!(waves.iter().all(|wave| wave.end - distance.min(wave.end) <= wave.start), "{waves:?}");
        let bytes: Vec<u64> = waves.into_iter().flatten().collect();
        assert_eq!(bytes, range.collect::<Vec<_>>());
    }
}

/// A process that runs out of memory in the middle of a copy must survive and report it.
#[cfg(target_os = "linux")]
#[test]
fn full_memory_is_an_error() {
    const SMALL: &str = "SWATH_TEST_SMALL_TMPFS";
    if let Some(folder) = std::env::var_os(SMALL) {
        return fill(Path::new(&folder));
    }
    // The same test again, in a process of its own that has mounted a private tmpfs of 24 MiB.
    let folder = folder("full");
    let script = "mount -t tmpfs -o size=24m none \"$0\" || exit 1; exec \"$@\"";
    let run = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(&folder)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sink::file::tests::full_memory_is_an_error", "--nocapture"])
        .env(SMALL, &folder)
        .output();
    fs::remove_dir_all(folder).unwrap();
    match run {
        Ok(run) if run.status.code() == Some(1) => eprintln!("skipped: no tmpfs can be mounted"),
        Ok(run) => {
            let printed = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success() && printed.contains("1 passed"), "{}: {printed}", run.status);
        }
        Err(error) => eprintln!("skipped: unshare: {error}"),
    }
}

#[cfg(target_os = "linux")]
fn fill(folder: &Path) {
    const MIB: u64 = 1 << 20;
    let chunk = noise(0, CHUNK);
    for _ in 0..20 {
        let sink = FileSink::create(folder.join("a.tif")).unwrap();
        let failed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (sink, chunk, failed) = (&sink, &chunk, &failed);
                scope.spawn(move || {
                    for number in 0..3 {
                        let offset = (number * 4 + thread) * (CHUNK as u64 + 100);
                        if let Err(error) = sink.write_at(offset, chunk) {
                            failed.lock().unwrap().push(error);
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap();
        assert!(!failed.is_empty() && failed.iter().all(|error| error.io_kind() == io::ErrorKind::StorageFull));
    }
    assert_eq!(names(folder), Vec::<String>::new());
    // 16 MiB cannot be moved into a hole of 16: there is no room for both.
    let mut sink = FileSink::create(folder.join("a.tif")).unwrap();
    let bytes = noise(1, 16 << 20);
    sink.write_at(16 * MIB, &bytes).unwrap();
    let error = sink.remove(&[0..16 * MIB], 32 * MIB).unwrap_err();
    assert_eq!(error.io_kind(), io::ErrorKind::StorageFull);
    drop(sink);
    // Released memory is free again, and a smaller move fits.
    let mut sink = Box::new(FileSink::create(folder.join("b.tif")).unwrap());
    sink.write_at(7 * MIB, &bytes).unwrap();
    sink.remove(&[0..7 * MIB], 23 * MIB).unwrap();
    sink.commit(16 * MIB).unwrap();
    assert!(fs::read(folder.join("b.tif")).unwrap() == bytes);
}
