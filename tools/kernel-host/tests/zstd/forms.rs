//! Frames of every form that the format has.

use swath_codec::conformance::Rng;

use super::{
    library::{
        BLOCK_SPLITTER, Encoder, FIND_REPEATS, LITERAL_MODE, MAX_BLOCK_SIZE, Parameter, Tile, ZSTD_c_checksumFlag,
        ZSTD_c_compressionLevel, ZSTD_c_contentSizeFlag, ZSTD_c_strategy, ZSTD_c_targetCBlockSize, ZSTD_c_windowLog,
        level,
    },
    samples::{self, Woven, below, kinds, noise},
};

/// Frames whose forms are set one by one, by parameters and by sequences that no search of the library would choose.
pub(crate) fn forms(rng: &mut Rng) -> Vec<Tile> {
    let (mut encoder, mut tiles) = (Encoder::new(), Vec::new());
    let mut frame = |settings: &[(Parameter, i32)], bytes: Vec<u8>| {
        tiles.push((encoder.frame(settings, &bytes), bytes));
    };
    for len in [1000, 70_000, 300_000] {
        for (nth, bytes) in kinds(len, rng).into_iter().enumerate() {
            // Every strategy, small blocks that use tables again, literals as they are, lengths that nobody tells.
            let strategy = 1 + nth as i32 % 9;
            frame(&[(ZSTD_c_strategy, strategy), (MAX_BLOCK_SIZE, 1024 + 100 * strategy)], bytes.clone());
            frame(&[(LITERAL_MODE, 2), (ZSTD_c_checksumFlag, 1)], bytes.clone());
            frame(&[(LITERAL_MODE, 1), (ZSTD_c_contentSizeFlag, 0)], bytes.clone());
            frame(&[(ZSTD_c_targetCBlockSize, 1340), (ZSTD_c_compressionLevel, 5)], bytes.clone());
            frame(&[(BLOCK_SPLITTER, 1), (ZSTD_c_compressionLevel, 13), (ZSTD_c_windowLog, 10)], bytes);
        }
    }
    // Many blocks; the last is one that has nothing to say but that it is the last.
    let bytes = samples::text(20_000);
    let pieces: Vec<&[u8]> = bytes.chunks(100).collect();
    tiles.push((encoder.flushed(&level(1), &pieces, false), bytes.clone()));
    let halves: Vec<&[u8]> = bytes.chunks(10_000).collect();
    tiles.push((encoder.flushed(&level(3), &halves, true), bytes.clone()));
    // Large blocks with the same few bytes, as often: one tree for all, and codes of one length, so that whoever begins
    // to read amidst them never falls into step.
    for values in [4, 30, 32, 64] {
        let few: Vec<u8> = (0..300_000).map(|_| below(rng, values) as u8).collect();
        tiles.push((encoder.frame(&level(1), &few), few));
    }
    // Frames of one stream, empty ones among them.
    let three = [&bytes[..7000], &[], &bytes[7000..]].map(|part| encoder.frame(&[(ZSTD_c_checksumFlag, 1)], part));
    tiles.push((three.concat(), bytes));

    // A frame has nothing to repeat yet: 1, 4 and 8 are what its first matches repeat, whatever was before it.
    let mut fresh = (Vec::new(), Vec::new());
    for offsets in [[100, 50, 70], [1, 4, 8], [4, 8, 1], [8, 1, 4]] {
        let mut made = Woven::default();
        for offset in offsets {
            made.literals(&noise(110, rng), offset, 40);
        }
        made.end_block(&[]);
        fresh.0.extend(encoder.woven(&[(FIND_REPEATS, 1)], &made.sequences, &made.bytes));
        fresh.1.extend(made.bytes);
    }
    tiles.push(fresh);

    let mut weave = |settings: &[(Parameter, i32)], made: Woven| {
        tiles.push((encoder.woven(settings, &made.sequences, &made.bytes), made.bytes));
    };
    for repeats in [1, 2] {
        for len in [300, 20_000, 200_000] {
            weave(&[(FIND_REPEATS, repeats), (ZSTD_c_windowLog, 20)], samples::woven(len, rng));
        }
        // Always the same three codes; then more sequences than two bytes can count.
        let mut same = Woven::default();
        let mut many = Woven::default();
        same.literals(&noise(40, rng), 20, 5);
        many.literals(&noise(9, rng), 1, 3);
        for nth in 0..40_000 {
            same.literals(&noise(1, rng), 40, 5);
            many.literals(&[], 1 + nth * nth % 7, 3);
            if nth % 9000 == 8999 {
                same.end_block(&[]);
            }
        }
        same.end_block(&[]);
        many.end_block(&noise(5, rng));
        weave(&[(FIND_REPEATS, repeats), (ZSTD_c_windowLog, 19)], same);
        weave(&[(FIND_REPEATS, repeats), (ZSTD_c_windowLog, 19)], many);
        // Lengths that fill a block, and offsets that are the whole past.
        let mut long = Woven::default();
        long.literals(&[1, 2], 2, 131_070);
        long.end_block(&[]);
        long.literals(&[], 131_072, 131_072);
        long.end_block(&[]);
        let few: Vec<u8> = (0..100_000).map(|_| below(rng, 5) as u8).collect();
        long.literals(&few, 362_144, 20_000);
        long.literals(&[], 1, 3);
        long.end_block(&few[..2000]);
        long.literals(&few[..65_536], 65_536, 65_536);
        long.end_block(&[]);
        weave(&[(FIND_REPEATS, repeats), (ZSTD_c_windowLog, 20)], long);
        // Literals that are all the same, in all sizes of their header.
        let mut alike = Woven::default();
        for count in [1, 12, 31, 32, 300, 4095, 4096, 50_000] {
            alike.literals(&vec![7; count], 1, 9);
            alike.literals(&vec![7; count / 2], count, 3 + count % 100);
            alike.end_block(&[]);
            alike.literals(&noise(count, rng), count / 2 + 1, 2000);
            alike.end_block(&[]);
        }
        // The strongest search finds even few literals worth a thought.
        weave(&[(FIND_REPEATS, repeats), (ZSTD_c_windowLog, 20), (ZSTD_c_strategy, 9)], alike);
    }
    tiles
}
