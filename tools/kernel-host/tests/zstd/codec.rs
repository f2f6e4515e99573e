//! The kernel's verdict on damaged streams beside that of the CPU's codec, which is what users of both devices see.

use std::collections::BTreeMap;

use swath_codec::{
    Fill, Registry, Scratch,
    conformance::{self, Rng},
};
use swath_kernel_host::{
    KernelHost,
    decode::{Status, Stream, decode_with, zstd_needs},
};
use swath_tiff::{Compression, SampleType};

use super::{
    anatomy::{self, Block, COMPRESSED},
    damage::{Case, Sources},
    huffman,
    library::{Decoder, Rest},
    verdict::{BATCH, DecodeSetup},
};

/// How kernel and codec may judge a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Both decode it, to the same bytes.
    BothDecode,
    /// Both refuse it.
    BothRefuse,
    /// The kernel passes it to the CPU, which decodes it.
    Unusual,
    /// The stream is sound and holds more than the tile. The codec returns the first bytes and reports the surplus.
    Surplus,
    /// The kernel refuses Huffman streams that do not end with their last code; libzstd does not look there.
    LooseLiterals,
    /// libzstd refuses the stream in one call and accepts it step by step, which is how the codec decodes when the call fails:
    /// step by step it skips empty compressed blocks, and compares no declared length after an empty last block.
    OnlyStepByStep,
    /// The damage lies behind the bytes that fill the tile. The codec returns them and reports a surplus.
    DamageBehindTile,
    /// The stream ends early, behind the bytes that fill the tile. The codec returns them and reports a surplus.
    CutBehindTile,
}

fn judge(
    library: &mut Decoder,
    status: Status,
    got: &[u8],
    fill: Option<(Fill, &[u8])>,
    (stream, len): &Case,
) -> Verdict {
    match (status, fill) {
        (Status::Ok, Some((Fill::Exact, bytes))) if got == bytes => Verdict::BothDecode,
        (Status::Ok, fill) => panic!("the kernel decodes {len} bytes of {stream:02x?}, the codec says {fill:?}"),
        (_, None) => Verdict::BothRefuse,
        (Status::Unusual, Some(_)) => Verdict::Unusual,
        (_, Some((Fill::Exact, _))) if library.tile(stream, *len).is_some() => {
            assert_eq!(huffman::leaves_bits(stream), Some(true), "{status:?}: {len} bytes of {stream:02x?}");
            Verdict::LooseLiterals
        }
        (_, Some((fill, _))) => match (fill, library.rest(stream, *len)) {
            (Fill::Surplus, Rest::Sound) if status == Status::Long => Verdict::Surplus,
            (Fill::Surplus, Rest::Damaged) => Verdict::DamageBehindTile,
            (Fill::Surplus, Rest::Cut) => Verdict::CutBehindTile,
            _ if accepted_step_by_step(stream) => Verdict::OnlyStepByStep,
            (_, Rest::Sound) if huffman::leaves_bits(stream) == Some(true) => Verdict::LooseLiterals,
            (fill, rest) => panic!("{status:?}, {fill:?}, {rest:?}: {len} bytes of {stream:02x?}"),
        },
    }
}

/// Whether a frame has an empty compressed block, or declares its length and ends with an empty block.
fn accepted_step_by_step(stream: &[u8]) -> bool {
    anatomy::frames(stream).iter().any(|frame| {
        let empty = |block: &Block| block.kind == COMPRESSED && block.size == 0;
        frame.blocks.iter().any(empty)
            || frame.content_len.is_some() && frame.blocks.last().is_some_and(|b| b.size == 0)
    })
}

impl DecodeSetup {
    /// Decodes so many damaged streams by the kernel and by the CPU's codec, and counts how they are judged.
    pub(crate) fn beside_the_codec(self, count: usize, seed: u64) -> BTreeMap<(Verdict, String), usize> {
        let (mut decoder, mut rng, mut tally) = (Decoder::new(), Rng(seed), BTreeMap::new());
        let codec = Registry::default().decoder(Compression::Zstd).unwrap().clone();
        let spec = conformance::spec(Compression::Zstd, 50_000, SampleType::U8, 1, 64);
        let (mut scratch, mut host) = (Scratch::default(), KernelHost::start(self.build).unwrap());
        let mut sources = Sources::new(100, self.largest, &mut rng);
        for batch in 0..count.div_ceil(BATCH) {
            if batch % 40 == 39 {
                sources = Sources::new(100, self.largest, &mut rng);
            }
            let size = BATCH.min(count - batch * BATCH);
            let cases: Vec<Case> = (0..size).map(|_| sources.case(&mut decoder, &mut rng)).collect();
            let tiles: Vec<_> = cases.iter().map(|(stream, len)| Stream { bytes: stream, len: *len }).collect();
            let longest = cases.iter().map(|(_, len)| *len).max().unwrap();
            let room = self.scratch.max(longest / 2).next_multiple_of(256);
            let done =
                decode_with(&mut host, self.kernel, 3, self.lanes, zstd_needs(self.kernel, room), &tiles).unwrap();
            for ((status, got), case) in done.iter().zip(&cases) {
                let mut bytes = vec![0; case.1];
                let fill = codec.decode(&spec, 1, &case.0, &mut bytes, &mut scratch).ok();
                let verdict = judge(&mut decoder, *status, got, fill.map(|fill| (fill, &bytes[..])), case);
                let status = if verdict == Verdict::BothRefuse { String::new() } else { format!("{status:?}") };
                *tally.entry((verdict, status)).or_default() += 1;
            }
        }
        println!("{self:?}: {tally:#?}");
        tally
    }
}
