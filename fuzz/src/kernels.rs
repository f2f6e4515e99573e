//! The GPU's decoding kernels on the host, beside the CPU's decoders: both accept a tile, or both refuse it.

use std::cell::RefCell;

use swath_codec::{Decode, Fill, Registry, Scratch};
use swath_kernel_host::{Build, KernelDecoder, decode};
use swath_tiff::Compression;

use crate::{Input, tiles::Head};

/// Compressions that kernels decode, and the kernels.
const KERNELS: [(Compression, &str); 6] = [
    (Compression::Deflate, "swath_inflate"),
    (Compression::Deflate, "swath_inflate_few"),
    (Compression::Lzw, decode::LZW_PARTS),
    (Compression::PackBits, "swath_packbits"),
    (Compression::Zstd, decode::ZSTD),
    (Compression::Zstd, decode::ZSTD_FEW),
];

thread_local! {
    static DECODERS: Vec<(Compression, KernelDecoder)> = KERNELS
        .iter()
        .map(|(compression, kernel)| {
            let decoder = KernelDecoder::new(Build::Asan, kernel, 1).expect("tools/kernel-host/build.sh has run");
            (*compression, decoder)
        })
        .collect();
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A tile through the kernels and through the CPU. A kernel may refuse a tile that the CPU decodes; the engine then uses
/// the CPU. If both decode a tile, the samples are equal.
pub fn kernels(data: &[u8]) {
    let mut input = Input(data);
    let Some(Head { spec, rows, .. }) = Head::read(&mut input) else { return };
    let len = spec.stored_len(rows);
    SCRATCH.with_borrow_mut(|scratch| {
        let mut by_cpu = vec![0; len];
        let registry = Registry::default();
        let Ok(cpu) = registry.decoder(spec.compression) else { return };
        let taken = cpu.decode(&spec, rows, input.0, &mut by_cpu, scratch);
        DECODERS.with(|decoders| {
            for (_, kernel) in decoders.iter().filter(|(compression, _)| *compression == spec.compression) {
                let mut by_kernel = vec![0; len];
                match kernel.decode(&spec, rows, input.0, &mut by_kernel, scratch) {
                    Ok(_) if matches!(taken, Ok(Fill::Exact)) => {
                        assert!(by_kernel == by_cpu, "samples differ: {spec:?}")
                    }
                    Ok(_) => assert!(taken.is_ok(), "the CPU refuses what {kernel:?} decodes: {taken:?}"),
                    // The kernel host ends with the first fault that the sanitizer found.
                    Err(error) => assert!(error.to_string().contains("Some("), "{error}"),
                }
            }
        });
    });
}
