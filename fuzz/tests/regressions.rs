//! Replays earlier findings of the fuzzer: every file in `fuzz/regressions/<target>/`, and some random inputs.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{fs, path::Path};

use swath_codec::conformance::Rng;
use swath_fuzz::TARGETS;

#[test]
fn every_earlier_finding_stays_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !entry.path().is_dir() {
            continue;
        }
        let target = swath_fuzz::target(&name).unwrap_or_else(|| panic!("{name} is not a target"));
        for input in fs::read_dir(entry.path()).unwrap() {
            let path = input.unwrap().path();
            println!("{}", path.display());
            (target.run)(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_target_takes_any_bytes() {
    let mut rng = Rng(11);
    for target in TARGETS.iter().filter(|target| !matches!(target.name, "kernels" | "remote")) {
        // Descriptions of arrays take microseconds.
        let count = if target.name == "foreign" { 20_000 } else { 300 };
        for _ in 0..count {
            let len = rng.next() as usize % 600;
            let mut input: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            // A file's first bytes, where a file is expected.
            if let Some(start) = input.get_mut(..8).filter(|_| rng.next().is_multiple_of(2)) {
                start.copy_from_slice(b"II*\0\x08\0\0\0");
            }
            (target.run)(&input);
        }
    }
}
