//! The predictor that a writer chooses by the samples.

use swath::{
    Blocks, Compression, Interleave, Metadata, SampleType, Shape, WriteOptions, Writer,
    io::MemorySink,
    tiff::structure::{Planar, Predictor},
    write::{PredictorChoice, PredictorRule, Written},
};

use crate::scene::{Feed, Rng, Scene, shape};

const ALL: [Predictor; 3] = [Predictor::None, Predictor::Horizontal, Predictor::FloatingPoint];

/// A raster of one value of a function for each pixel; the first `constant` rows are zero.
fn scene<const SIZE: usize>(
    sample: SampleType,
    bands: u16,
    constant: u32,
    value: impl Fn(u32, u32, &mut Rng) -> [u8; SIZE],
) -> Scene {
    scene_of(shape(300, 420, bands, sample), constant, value)
}

fn scene_of<const SIZE: usize>(shape: Shape, constant: u32, value: impl Fn(u32, u32, &mut Rng) -> [u8; SIZE]) -> Scene {
    let mut scene = Scene::new(shape, 1);
    let mut rng = Rng::new(7);
    scene.samples.clear();
    for _ in 0..shape.bands {
        for y in 0..scene.shape.height {
            for x in 0..scene.shape.width {
                let bytes = if y < constant { [0; SIZE] } else { value(x, y, &mut rng) };
                scene.samples.extend(bytes);
            }
        }
    }
    scene
}

/// Rasters with a clear answer, and the answer.
fn scenes() -> Vec<(&'static str, Scene, Predictor)> {
    let noise = |_: u32, _: u32, rng: &mut Rng| ((rng.next() >> 60) as u16 * 4099).to_ne_bytes();
    let ramp = |x: u32, y: u32, _: &mut Rng| ((x * 37 + y * 11) as u16).to_ne_bytes();
    let waves = |x: u32, y: u32, rng: &mut Rng| {
        let smooth = (x as f32 / 31.0).sin() * 400.0 + (y as f32 / 17.0).cos() * 300.0 + 1500.0;
        (smooth + (rng.next() >> 56) as f32 / 9e3).to_ne_bytes()
    };
    let steps =
        |x: u32, _: u32, rng: &mut Rng| (1000.3 + (x / 40) as f32 * 0.27 + rng.below(3) as f32 * 1.17).to_ne_bytes();
    let lines = |_: u32, y: u32, _: &mut Rng| ((y.wrapping_mul(2_654_435_761) >> 20) as u16).to_ne_bytes();
    vec![
        ("noise of few values", scene(SampleType::U16, 1, 0, noise), Predictor::None),
        ("a ramp", scene(SampleType::U16, 1, 0, ramp), Predictor::Horizontal),
        ("a ramp below constant rows", scene(SampleType::U16, 2, 173, ramp), Predictor::Horizontal),
        ("noise below constant rows", scene(SampleType::U16, 3, 300, noise), Predictor::None),
        ("noise in the last row", scene(SampleType::U16, 1, 419, noise), Predictor::None),
        ("waves", scene(SampleType::F32, 1, 0, waves), Predictor::FloatingPoint),
        ("waves below constant rows", scene(SampleType::F32, 1, 64, waves), Predictor::FloatingPoint),
        ("steps", scene(SampleType::F32, 2, 0, steps), Predictor::None),
        ("rows of one value each", scene(SampleType::U16, 1, 0, lines), Predictor::None),
    ]
}

/// A writer chooses by the samples.
fn best() -> WriteOptions {
    WriteOptions::default().with_predictor_rule(PredictorRule::BySamples)
}

fn written(scene: &Scene, options: &WriteOptions, feed: Feed) -> Written {
    let (sink, _memory) = MemorySink::new("memory");
    scene.write_to(Box::new(sink), options, feed).unwrap()
}

fn predictor_of(scene: &Scene, options: &WriteOptions, feed: Feed) -> Predictor {
    written(scene, options, feed).predictor
}

/// The smallest memory limit that is enough for a writer of rows.
fn least_memory_of_rows(shape: Shape, options: &WriteOptions) -> usize {
    let is_enough = |bytes: usize| {
        Writer::can_take_rows(shape, &Metadata::default(), &options.clone().with_max_memory(bytes)).unwrap()
    };
    let (mut too_few, mut enough) = (0, 1 << 40);
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if is_enough(middle) { enough = middle } else { too_few = middle }
    }
    enough
}

/// The smallest memory limit that is enough for a writer of blocks.
fn least_memory_of_blocks(shape: Shape, options: &WriteOptions) -> usize {
    Writer::least_memory_from_blocks(shape, &Metadata::default(), options).unwrap() as usize
}

/// The same options with the rule by sample type.
fn by_type(options: &WriteOptions) -> WriteOptions {
    options.clone().with_predictor_rule(PredictorRule::BySampleType)
}

#[test]
fn the_smallest_is_chosen() {
    for compression in [Compression::Zstd, Compression::Deflate, Compression::Lzw] {
        let options = best().with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
        for (what, scene, expected) in scenes() {
            let size = |predictor| {
                scene
                    .write(&options.clone().with_predictor(predictor), Feed::WholeBands)
                    .map_or(usize::MAX, |file| file.len())
            };
            let best = ALL.map(size).into_iter().min().unwrap();
            let chosen = scene.write(&options, Feed::WholeBands).unwrap();
            assert!(chosen.len() as f64 <= best as f64 * 1.04, "{what}, {compression}: {} and {best}", chosen.len());
            if compression == Compression::Zstd {
                assert_eq!(predictor_of(&scene, &options, Feed::WholeBands), expected, "{what}");
            }
        }
    }
}

#[test]
fn the_choice_is_the_same_however_rows_are_pushed() {
    let plain = best().with_blocks(Blocks::Tiles(64, 32)).with_compression(Compression::Zstd);
    let forms = [
        plain.clone(),
        plain.clone().with_cog(true),
        plain.clone().with_planar(Planar::Separate),
        plain.clone().with_blocks(Blocks::Strips(None)),
    ];
    for (what, scene, _) in scenes() {
        for options in &forms {
            let whole = scene.write(options, Feed::WholeBands).unwrap();
            scene.check(whole.clone(), what);
            let feeds = [
                Feed::WholePixels,
                Feed::Rows(Interleave::Band),
                Feed::Rows(Interleave::Pixel),
                Feed::Chunks(1),
                Feed::Chunks(2),
            ];
            for feed in feeds {
                let file = scene.write(&options.clone().with_threads(3).with_batch(1), feed).unwrap();
                assert!(file == whole, "{what}, {feed:?}: other bytes");
            }
            let explicit = scene.write(&scene.with_chosen_predictor(options), Feed::WholePixels).unwrap();
            assert!(explicit == whole, "{what}: other bytes with the same predictor set");
        }
    }
}

#[test]
fn masks_take_part_in_rows_that_wait() {
    let options = best().with_cog(true).with_blocks(Blocks::Tiles(64, 64)).with_mask(true);
    for (what, scene, _) in scenes() {
        let mut scene = scene.masked(3);
        let blank = scene.mask.as_mut().unwrap();
        blank[..300 * 100].fill(0);
        let whole = scene.write(&options, Feed::WholeBands).unwrap();
        scene.check(whole.clone(), what);
        for feed in [Feed::Rows(Interleave::Pixel), Feed::Chunks(5)] {
            assert!(scene.write(&options, feed).unwrap() == whole, "{what}, {feed:?}: other bytes");
        }
    }
}

#[test]
fn without_a_sample_the_type_decides() {
    let options = best().with_blocks(Blocks::Tiles(64, 64));
    let flat = scene(SampleType::U16, 1, 420, |_, _, _| [0; 2]);
    assert_eq!(predictor_of(&flat, &options, Feed::WholeBands), Predictor::Horizontal);
    assert_eq!(predictor_of(&flat, &options, Feed::Rows(Interleave::Band)), Predictor::Horizontal);
    let flat = scene(SampleType::F32, 1, 420, |_, _, _| [0; 4]);
    assert_eq!(predictor_of(&flat, &options, Feed::Chunks(3)), Predictor::FloatingPoint);
    let packed = options.clone().with_compression(Compression::PackBits);
    assert_eq!(predictor_of(&flat, &packed, Feed::Chunks(3)), Predictor::None);
    for options in [options, packed] {
        assert!(!written(&flat, &options, Feed::Chunks(3)).predictor_by_samples);
    }
}

#[test]
fn a_writer_says_whether_the_samples_decided() {
    let options = best().with_blocks(Blocks::Tiles(64, 64));
    for (what, scene, _) in scenes() {
        for feed in [Feed::WholeBands, Feed::Chunks(2)] {
            assert!(written(&scene, &options, feed).predictor_by_samples, "{what}");
            let given = options.clone().with_predictor(Predictor::None);
            assert!(!written(&scene, &given, feed).predictor_by_samples, "{what}");
        }
    }
}

#[test]
fn a_single_column_is_compared_too() {
    let smooth = scene_of(shape(1, 3000, 1, SampleType::U16), 0, |_, y, _| ((y * 37) as u16).to_ne_bytes());
    let steps = scene_of(shape(1, 3000, 1, SampleType::F32), 0, |_, y, rng| {
        (1000.3 + (y / 9) as f32 * 0.27 + rng.below(3) as f32).to_ne_bytes()
    });
    for scene in [smooth, steps] {
        for blocks in [Blocks::Tiles(64, 64), Blocks::Strips(None)] {
            let what = format!("{}, {blocks:?}", scene.shape.sample);
            let options = best().with_blocks(blocks).with_compression(Compression::Zstd);
            assert!(written(&scene, &options, Feed::WholeBands).predictor_by_samples, "{what}");
            let whole = scene.write(&options, Feed::WholeBands).unwrap();
            let size = |predictor| {
                let options = options.clone().with_predictor(predictor);
                scene.write(&options, Feed::WholeBands).map_or(usize::MAX, |file| file.len())
            };
            let best = ALL.map(size).into_iter().min().unwrap();
            assert!(whole.len() as f64 <= best as f64 * 1.05, "{what}: {} and {best}", whole.len());
            assert!(scene.write(&options, Feed::Chunks(4)).unwrap() == whole, "{what}: other bytes");
        }
    }
}

#[test]
fn where_rows_are_too_long_the_type_decides() {
    let wide = shape((6 << 20) + 1, 600, 1, SampleType::F32);
    let options = best();
    let chosen = |shape| PredictorChoice::new(shape, &Metadata::default(), &options).unwrap().chosen();
    assert_eq!(chosen(wide), Some(Predictor::FloatingPoint));
    assert_eq!(chosen(Shape { width: 6 << 20, ..wide }), None);
    for width in [wide.width, 2 * wide.width] {
        let shape = Shape { width, ..wide };
        assert_eq!(least_memory_of_blocks(shape, &options), least_memory_of_blocks(shape, &by_type(&options)));
        assert_eq!(least_memory_of_rows(shape, &options), least_memory_of_rows(shape, &by_type(&options)));
    }
}

#[test]
fn the_rows_that_wait_count_in_the_memory() {
    let shape = shape(20_000, 600, 2, SampleType::U16);
    let tiles = best().with_blocks(Blocks::Tiles(128, 128));
    let cases =
        [(tiles.clone(), 20_000 * 4), (tiles.clone().with_mask(true), 20_000 * 5), (tiles.with_cog(true), 20_000 * 4)];
    for (options, row_len) in cases {
        // A limit that is set counts the working memory of codecs.
        let options = options.with_max_memory(1 << 30);
        // Rows wait before there are tile rows, and blocks are copied to rows beside their cells: as many rows as a tile has.
        let more = |least: fn(Shape, &WriteOptions) -> usize| least(shape, &options) - least(shape, &by_type(&options));
        assert_eq!(more(least_memory_of_rows), 1 << 20);
        assert_eq!(more(least_memory_of_blocks), 128 * row_len);
    }
}

#[test]
fn the_least_memory_gives_the_same_file() {
    for (what, scene, _) in scenes() {
        let options = best().with_cog(true).with_blocks(Blocks::Tiles(64, 64));
        let whole = scene.write(&options, Feed::WholeBands).unwrap();
        let least = least_memory_of_rows(scene.shape, &options);
        let tight = options.with_max_memory(least);
        assert!(scene.write(&tight, Feed::Chunks(3)).unwrap() == whole, "{what}: other bytes");
        assert!(scene.write(&tight.with_max_memory(least - 1), Feed::Chunks(3)).is_err(), "{what}");
    }
}

#[test]
fn a_predictor_that_is_asked_for_is_used() {
    for (what, scene, _) in scenes() {
        let predictor = if scene.shape.sample == SampleType::F32 { Predictor::Horizontal } else { Predictor::None };
        let options = best().with_predictor(predictor);
        assert_eq!(predictor_of(&scene, &options, Feed::Chunks(1)), predictor, "{what}");
    }
}
