//! Whole files: opened, described, read and converted.

use std::sync::Arc;

use swath::{
    Blocks, ConvertOptions, Dataset, Interleave, OpenOptions, ReadOptions, Window, WriteOptions,
    io::{MemorySink, MemorySource, Sink},
    read::ColorView,
};
use swath_tiff::{Compression, Photometric, structure::Planar};

use crate::{Input, limits};

/// Opens bytes as a file, with one thread and little memory.
fn open(data: &[u8]) -> Option<Dataset> {
    let source = MemorySource::new("fuzz.tif", data);
    OpenOptions::default().with_limits(limits()).with_threads(1).with_tile_cache(0).open_source(Arc::new(source)).ok()
}

/// All metadata of a file, without its samples.
pub fn metadata(data: &[u8]) {
    let Some(dataset) = open(data) else { return };
    let _ = dataset.metadata();
    let _ = dataset.overviews();
    let _ = swath::describe::file(&dataset, true);
    let _ = dataset.validate(swath::validate::Check::Structure);
    let _ = dataset.take_warnings();
}

/// A window of the file and of each overview: it equals the same part of the whole.
pub fn read(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.bytes::<8>();
    let Some(dataset) = open(input.0) else { return };
    let interleave = if choice[0] & 1 == 0 { Interleave::Band } else { Interleave::Pixel };
    let options = ReadOptions::default().with_threads(1).with_interleave(interleave);
    for level in 0..dataset.overviews().map_or(0, |found| found.len().min(2)) {
        let _ = dataset.read(&options.clone().with_overview(level));
    }
    let _ = dataset.read_mask(&options);
    let (width, height) = (dataset.width(), dataset.height());
    let (x, y) = (u32::from(choice[2]) % width, u32::from(choice[3]) % height);
    let window = Window::new(x, y, 1 + u32::from(choice[4]) % (width - x), 1 + u32::from(choice[5]) % (height - y));
    let part = dataset.read(&options.clone().with_window(window));
    let Ok(whole) = dataset.read(&options) else { return };
    let part = part.expect("the whole can be read");
    let pixel = whole.bytes().len() / (width as usize * height as usize);
    let (planes, step) = match interleave {
        Interleave::Band => (whole.bands() as usize, whole.sample().size()),
        Interleave::Pixel => (1, pixel),
    };
    let (across, wide) = (window.width as usize * step, width as usize * step);
    for plane in 0..planes {
        for row in 0..window.height as usize {
            let from = (plane * height as usize + y as usize + row) * wide + x as usize * step;
            let at = (plane * window.height as usize + row) * across;
            assert_eq!(part.bytes()[at..at + across], whole.bytes()[from..from + across], "row {row} of {window:?}");
        }
    }
}

/// A file becomes another one whose samples are the same.
pub fn convert(data: &[u8]) {
    let mut input = Input(data);
    let compression = input.pick(&[
        Compression::None,
        Compression::Lzw,
        Compression::Deflate,
        Compression::Zstd,
        Compression::PackBits,
        Compression::Lz4,
        Compression::Lerc,
        Compression::Lzma,
    ]);
    let [blocks, planar, flags, band, ..] = input.bytes::<7>();
    let Some(dataset) = open(input.0) else { return };
    let blocks = match blocks % 4 {
        0 => Blocks::Tiles(16, 16),
        1 => Blocks::Tiles(64, 32),
        2 => Blocks::Strips(std::num::NonZeroU32::new(7)),
        _ => Blocks::Tiles(512, 512),
    };
    let write = WriteOptions::default()
        .with_compression(compression)
        .with_blocks(blocks)
        .with_planar(if planar & 1 == 0 { Planar::Contig } else { Planar::Separate })
        .with_cog(flags & 1 != 0)
        .with_sparse(flags & 2 != 0)
        .with_max_memory(64 << 20)
        .with_threads(1_usize);
    let bands: Vec<u32> = match flags & 4 {
        0 => (1..=dataset.bands()).collect(),
        _ => vec![1 + u32::from(band) % dataset.bands()],
    };
    let (sink, memory) = MemorySink::new("out.tif");
    let convert = ConvertOptions::default().with_bands(bands.clone());
    if dataset.convert_to(|| Ok(Box::new(sink) as Box<dyn Sink>), &convert, &write).is_err() {
        assert!(memory.take().is_none(), "a conversion that failed left a file");
        return;
    }
    // A conversion turns planes of YCbCr into RGB.
    let color = match dataset.main().layout().photometric {
        Some(Photometric::YCbCr) => ColorView::Shown,
        _ => ColorView::Stored,
    };
    let options = ReadOptions::default().with_threads(1).with_color(color);
    let Ok(before) = dataset.read(&options.clone().with_bands(bands)) else { return };
    let made = memory.take().expect("the file was committed");
    let source = Arc::new(MemorySource::new("out.tif", made));
    let written = OpenOptions::default().open_source(source).expect("what we write can be opened");
    let after = written.read(&options).expect("what we write can be read");
    assert_eq!((before.sample(), before.shape()), (after.sample(), after.shape()));
    // LERC has one bit pattern for NaN.
    if !(compression == Compression::Lerc && before.sample().is_float()) {
        assert!(before.bytes() == after.bytes(), "samples changed: {write:?}");
    }
}
