//! Files that must be the same however their pixels are pushed: as rows, as encoded tile rows or as blocks.

use std::{num::NonZeroU32, rc::Rc};

use swath::{
    Band, Blocks, Compression, Metadata, Overviews, Resampling, SampleType, WriteOptions,
    codec::LercWrap,
    geo::Nodata,
    tiff::structure::{ByteOrder, Planar, Predictor},
    write::{Alpha, BigTiff},
};

use crate::scene::{Scene, shape};

/// A file to write.
pub struct Case {
    pub what: String,
    pub scene: Rc<Scene>,
    pub options: WriteOptions,
    /// Where its tiles end.
    pub tile: (u32, u32),
}

impl Case {
    fn new(what: impl Into<String>, scene: &Rc<Scene>, options: &WriteOptions, tile: (u32, u32)) -> Self {
        Self { what: what.into(), scene: scene.clone(), options: options.clone(), tile }
    }
}

fn scene(width: u32, height: u32, bands: u16, sample: SampleType, seed: u64) -> Rc<Scene> {
    Rc::new(Scene::new(shape(width, height, bands, sample), seed))
}

pub fn codecs() -> Vec<Case> {
    let rgb = scene(150, 131, 3, SampleType::U8, 1);
    let float = scene(99, 101, 2, SampleType::F32, 2);
    let even = scene(256, 192, 2, SampleType::F32, 2);
    let tile = (32, 16);
    let mut cases = Vec::new();
    for compression in [
        Compression::None,
        Compression::PackBits,
        Compression::Lzw,
        Compression::Deflate,
        Compression::Zstd,
        Compression::Jpeg,
        Compression::Lerc,
    ] {
        let plain = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(32, 16));
        let strips = plain.clone().with_blocks(Blocks::Strips(NonZeroU32::new(16)));
        for (kind, options) in [("COG", plain.clone().with_cog(true)), ("tiles", plain), ("strips", strips)] {
            for planar in [Planar::Contig, Planar::Separate] {
                let what = format!("{compression}, {kind}, {planar:?}");
                let options = options.clone().with_planar(planar);
                cases.push(Case::new(format!("rgb, {what}"), &rgb, &options, tile));
                if compression != Compression::Jpeg {
                    let options = options.with_lerc_wrap(LercWrap::Zstd).with_overviews(Overviews::Levels(3));
                    cases.push(Case::new(format!("float, {what}"), &float, &options, tile));
                    cases.push(Case::new(format!("even float, {what}"), &even, &options, tile));
                }
            }
        }
    }
    cases
}

pub fn predictors() -> Vec<Case> {
    let integers = scene(90, 70, 2, SampleType::U16, 1);
    let floats = scene(70, 90, 1, SampleType::F64, 1);
    let mut cases = Vec::new();
    for (scene, predictor) in [
        (&integers, Predictor::None),
        (&integers, Predictor::Horizontal),
        (&floats, Predictor::Horizontal),
        (&floats, Predictor::FloatingPoint),
    ] {
        let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16)).with_predictor(predictor);
        cases.push(Case::new(format!("{predictor:?}"), scene, &options, (16, 16)));
        let big = options.with_order(ByteOrder::Big);
        cases.push(Case::new(format!("{predictor:?}, big endian"), scene, &big, (16, 16)));
    }
    cases
}

/// Holes of nodata and of NaN.
fn with_holes(width: u32, height: u32) -> Rc<Scene> {
    let mut scene = Scene::new(shape(width, height, 1, SampleType::F32), 4);
    for (index, sample) in scene.samples.chunks_exact_mut(4).enumerate() {
        match (index / width as usize / 11 + index % width as usize / 7) % 5 {
            0 => sample.copy_from_slice(&(-9999_f32).to_ne_bytes()),
            1 => sample.copy_from_slice(&f32::NAN.to_ne_bytes()),
            _ => {}
        }
    }
    let band = Band { nodata: Nodata::parse(b"-9999"), ..Band::default() };
    Rc::new(Scene { metadata: Metadata { bands: vec![band], ..Metadata::default() }, ..scene })
}

pub fn overviews() -> Vec<Case> {
    let (holes, even_holes) = (with_holes(83, 151), with_holes(192, 64));
    let alpha = scene(90, 77, 4, SampleType::U8, 2);
    let masked = Rc::new(Scene::new(shape(97, 75, 2, SampleType::U16), 5).masked(1));
    let even = Rc::new(Scene::new(shape(256, 128, 2, SampleType::U16), 5).masked(1));
    let complex = scene(61, 91, 1, SampleType::CF32, 9);
    let tile = (16, 16);
    let mut cases = Vec::new();
    for resampling in Resampling::ALL {
        let mut add = |what: &str, scene: &Rc<Scene>, options: &WriteOptions, tile| {
            cases.push(Case::new(format!("{resampling}, {what}"), scene, options, tile));
        };
        let options = WriteOptions::cog()
            .with_compression(Compression::Lzw)
            .with_blocks(Blocks::Tiles(16, 16))
            .with_resampling(resampling);
        let float = options.clone().with_nan_to_nodata(true).with_sparse(true);
        add("nodata", &holes, &float, tile);
        add("nodata, even", &even_holes, &float, tile);
        add("alpha", &alpha, &options.clone().with_alpha(Alpha::Unassociated), tile);
        // Levels far apart: one pixel of an overview is made of several tiles, and most tiles make none.
        add("factors", &alpha, &options.clone().with_overviews(Overviews::Factors(vec![3, 60])), tile);
        // Strips of an odd height: overview rows need rows of two strips. Factors leave levels out.
        let strips = options
            .clone()
            .with_cog(false)
            .with_blocks(Blocks::Strips(NonZeroU32::new(7)))
            .with_overviews(Overviews::Factors(vec![3, 6]))
            .with_statistics(true);
        add("strips", &alpha, &strips, (90, 7));
        let mask = options.clone().with_mask(true).with_sparse(true);
        add("mask", &masked, &mask, tile);
        add("mask, even", &even, &mask, tile);
        if matches!(resampling, Resampling::Average | Resampling::Nearest) {
            add("complex", &complex, &options, tile);
        }
    }
    cases
}

pub fn forms() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |what: &str, scene: &Rc<Scene>, options: &WriteOptions, tile| {
        cases.push(Case::new(what, scene, options, tile));
    };
    let mut half = Scene::new(shape(200, 300, 1, SampleType::U8), 3);
    half.samples[..200 * 250].fill(0);
    let mut empty = Scene::new(shape(200, 300, 1, SampleType::U8), 3);
    empty.samples.fill(0);
    let sparse = WriteOptions::cog().with_blocks(Blocks::Tiles(32, 32)).with_sparse(true);
    add("sparse", &Rc::new(half), &sparse, (32, 32));
    add("nothing at all", &Rc::new(empty), &sparse, (32, 32));
    let tall = scene(130, 257, 2, SampleType::I16, 7);
    let options = WriteOptions::default().with_blocks(Blocks::Tiles(16, 48)).with_overviews(Overviews::Levels(9));
    add("BigTIFF", &tall, &options.clone().with_bigtiff(BigTiff::Always), (16, 48));
    let statistics = options.clone().with_statistics(true).with_planar(Planar::Separate);
    add("statistics", &tall, &statistics, (16, 48));
    add("usual strips", &tall, &options.with_blocks(Blocks::Strips(None)), (130, 16));
    for (width, height) in [(1, 300), (300, 1), (17, 16), (1, 1)] {
        let small = scene(width, height, 3, SampleType::U16, 8);
        let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16)).with_compression(Compression::Zstd);
        add(&format!("{width} x {height}"), &small, &options, (16, 16));
        let strips = options.with_cog(false).with_blocks(Blocks::Strips(NonZeroU32::new(1)));
        add(&format!("{width} x {height}, strips"), &small, &strips, (width, 1));
    }
    // Too large to be held in memory until the end: tiles are streamed to the file.
    let large = scene(1500, 2900, 4, SampleType::U8, 9);
    let options = WriteOptions::cog().with_blocks(Blocks::Tiles(256, 256)).with_compression(Compression::None);
    add("large", &large, &options, (256, 256));
    cases
}
