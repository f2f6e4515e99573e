//! Compares the kernel's verdict on damaged streams with the library's.

use swath_codec::conformance::Rng;
use swath_kernel_host::{
    Build, KernelHost,
    decode::{Status, Stream, decode_with, zstd_needs},
};

use super::{
    damage::{Case, Sources},
    huffman,
    library::Decoder,
};

/// Tiles of a launch.
pub(crate) const BATCH: usize = 128;

/// The flag that makes the kernels verify checksums.
pub(crate) const VERIFY: u32 = 1;

/// Counts of the verdicts of kernel and library.
#[derive(Debug, Default)]
struct Tally {
    whole: usize,
    refused: usize,
    /// The library accepts literals that do not end with their last code.
    lenient: usize,
    unusual: usize,
}

/// How damaged streams are decoded, and the length of their tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeSetup {
    pub(crate) build: Build,
    pub(crate) kernel: &'static str,
    pub(crate) lanes: u32,
    pub(crate) largest: usize,
    /// Scratch bytes for each tile, or half its length if that is more.
    pub(crate) scratch: usize,
}

fn compare(host: &mut KernelHost, setup: DecodeSetup, cases: &[Case], tally: &mut Tally) {
    let mut decoder = Decoder::new();
    let tiles: Vec<_> = cases.iter().map(|(stream, len)| Stream { bytes: stream, len: *len }).collect();
    let longest = cases.iter().map(|(_, len)| *len).max().unwrap();
    let scratch = setup.scratch.max(longest / 2).next_multiple_of(256);
    let done = match decode_with(host, setup.kernel, 3, setup.lanes, zstd_needs(setup.kernel, scratch), &tiles) {
        Ok(done) => done,
        Err(error) => {
            let kept = std::env::temp_dir().join(format!("swath-zstd-batch-{:?}", std::thread::current().id()));
            let lines: Vec<String> = cases.iter().map(|(stream, len)| format!("{len} {stream:02x?}")).collect();
            std::fs::write(&kept, lines.join("\n")).unwrap();
            panic!("{error}; the streams are in {}", kept.display());
        }
    };
    for ((status, got), (stream, len)) in done.into_iter().zip(cases) {
        match (status, decoder.tile(stream, *len)) {
            (Status::Ok, Some(bytes)) => {
                assert!(got == bytes, "other bytes; {len} of {stream:02x?}");
                tally.whole += 1;
            }
            (Status::Ok, None) => panic!("the library refuses this; {len} bytes of {stream:02x?}"),
            (Status::Unusual, Some(_)) => tally.unusual += 1,
            (_, None) => tally.refused += 1,
            (status, Some(_)) => {
                assert!(
                    status == Status::Corrupt && huffman::leaves_bits(stream) == Some(true),
                    "the library reads this, the kernel says {status:?}; {len} bytes of {stream:02x?}"
                );
                tally.lenient += 1;
            }
        }
    }
}

impl DecodeSetup {
    /// Decodes `count` damaged streams and compares.
    pub(crate) fn damaged(self, count: usize, seed: u64) {
        let (mut decoder, mut rng, mut tally) = (Decoder::new(), Rng(seed), Tally::default());
        let mut host = KernelHost::start(self.build).unwrap();
        let (batch, mut done) = (BATCH.min((16 << 20) / self.scratch), 0);
        let mut sources = Sources::new(100, self.largest, &mut rng);
        for nth in 0.. {
            let size = batch.min(count - done);
            if size == 0 {
                break;
            }
            if nth % 40 == 39 {
                sources = Sources::new(100, self.largest, &mut rng);
            }
            let cases: Vec<Case> = (0..size).map(|_| sources.case(&mut decoder, &mut rng)).collect();
            compare(&mut host, self, &cases, &mut tally);
            done += size;
        }
        println!("{self:?}: {tally:?}");
        assert!(tally.whole * 20 > count && tally.refused * 20 > count, "too much of one kind: {tally:?}");
        assert!(tally.unusual * 50 <= count + 100 && tally.lenient * 50 <= count + 100, "{tally:?}");
    }
}
