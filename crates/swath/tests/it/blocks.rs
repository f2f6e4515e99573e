//! A file that is written from blocks, in any order, equals the file that is written from rows.

use swath::{
    Blocks, Error, ErrorKind, Interleave, Metadata, Resampling, Rows, SampleType, Window, WriteOptions, Writer,
    io::MemorySink,
};

use crate::{
    same::{self, Case},
    scene::{Feed, Rng, Scene, shape},
};

/// The samples of a part of a scene, and its mask.
fn part_of(scene: &Scene, part: Window, interleave: Interleave) -> (Vec<u8>, Option<Vec<u8>>) {
    let rows = scene.rows(part.y..part.y + part.height, interleave);
    let (size, width) = (scene.shape.sample.size(), scene.shape.width as usize);
    let pixel = if interleave == Interleave::Pixel { size * usize::from(scene.shape.bands) } else { size };
    let columns = |bytes: &[u8], size: usize| -> Vec<u8> {
        let range = part.x as usize * size..(part.x + part.width) as usize * size;
        bytes.chunks_exact(width * size).flat_map(|row| row[range.clone()].to_vec()).collect()
    };
    let mask = scene
        .mask
        .as_ref()
        .map(|mask| columns(&mask[part.y as usize * width..(part.y + part.height) as usize * width], 1));
    (columns(&rows, pixel), mask)
}

fn push(writer: &mut Writer, scene: &Scene, part: Window, interleave: Interleave) -> Result<(), Error> {
    let (samples, mask) = part_of(scene, part, interleave);
    let rows = if interleave == Interleave::Band {
        Rows::from_bytes(&samples, Interleave::Band)
    } else {
        Rows::from_bytes(&samples, Interleave::Pixel)
    };
    match &mask {
        Some(mask) => writer.push_block(part, &rows.with_mask(mask)),
        None => writer.push_block(part, &rows),
    }
}

/// Where an axis is cut: at multiples of `tile`, or anywhere.
fn cuts(rng: &mut Rng, size: u32, tile: u32) -> Vec<u32> {
    let step = if rng.chance(2) { tile } else { 1 };
    let mut cuts = vec![0];
    while let Some(last) = cuts.last().copied().filter(|last| *last < size) {
        let most = (size / 3).max(tile);
        let next = last + rng.within(1..most + 2).next_multiple_of(step);
        cuts.push(next.min(size));
    }
    cuts
}

/// The file from blocks of random sizes in a random order, with the least memory or with plenty.
fn by_blocks(scene: &Scene, options: &WriteOptions, tile: (u32, u32), rng: &mut Rng) -> Vec<u8> {
    let least = Writer::least_memory_from_blocks(scene.shape, &scene.metadata, options).unwrap() as usize;
    let options = match rng.below(3) {
        0 => options.clone().with_max_memory(least),
        1 => options.clone().with_max_memory(least + 4096).with_threads(3),
        _ => options.clone(),
    };
    let (columns, rows) = (cuts(rng, scene.shape.width, tile.0), cuts(rng, scene.shape.height, tile.1));
    let mut parts: Vec<Window> = Vec::new();
    for y in rows.windows(2) {
        for x in columns.windows(2) {
            parts.push(Window::new(x[0], y[0], x[1] - x[0], y[1] - y[0]));
        }
    }
    if rng.chance(2) {
        for at in (1..parts.len()).rev() {
            parts.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_blocks(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
    for part in parts {
        let interleave = *rng.pick(&[Interleave::Band, Interleave::Pixel]);
        push(&mut writer, scene, part, interleave).unwrap();
    }
    writer.finish().unwrap();
    memory.take().expect("a file that is complete")
}

fn check(cases: &[Case], seed: u64) {
    let mut rng = Rng::new(seed);
    for Case { what, scene, options, tile } in cases {
        let whole = scene.write(options, Feed::WholeBands).unwrap_or_else(|error| panic!("{what}: {error}"));
        for _ in 0..3 {
            let file = by_blocks(scene, options, *tile, &mut rng);
            let at = file.iter().zip(&whole).position(|(a, b)| a != b);
            assert!(file == whole, "{what}: other bytes from {at:?} on ({} and {})", file.len(), whole.len());
        }
    }
}

#[test]
fn blocks_become_the_same_file_with_any_codec() {
    check(&same::codecs(), 1);
}

#[test]
fn blocks_become_the_same_file_with_any_predictor() {
    check(&same::predictors(), 2);
}

#[test]
fn blocks_become_the_same_file_with_any_overviews() {
    check(&same::overviews(), 3);
}

#[test]
fn blocks_become_the_same_file_in_any_form() {
    check(&same::forms(), 4);
}

fn usage(error: &Error) -> String {
    assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
    error.to_string()
}

#[test]
fn blocks_that_do_not_belong_are_refused_and_change_nothing() {
    let scene = Scene::new(shape(40, 60, 1, SampleType::U16), 1);
    let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16)).with_resampling(Resampling::Cubic);
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_blocks(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
    let mut put = |x, y, width, height| push(&mut writer, &scene, Window::new(x, y, width, height), Interleave::Band);
    put(16, 16, 16, 16).unwrap();
    put(3, 5, 7, 8).unwrap();
    for again in [(16, 16, 16, 16), (20, 20, 1, 1), (9, 12, 1, 1), (0, 0, 40, 60)] {
        let error = put(again.0, again.1, again.2, again.3).unwrap_err();
        assert!(usage(&error).contains("overlaps one that was pushed before"), "{error}");
    }
    let rows = Rows::from_bytes(&[0; 80], Interleave::Pixel);
    for outside in [Window::new(39, 0, 2, 20), Window::new(0, 60, 40, 1), Window::new(0, 0, 0, 1)] {
        let error = writer.push_block(outside, &rows).unwrap_err();
        assert!(usage(&error).contains("is not inside the image"), "{error}");
    }
    usage(&writer.push_block(Window::new(0, 30, 20, 3), &rows).unwrap_err());
    let error = writer.push(&rows).unwrap_err();
    assert!(usage(&error).contains("made of blocks"), "{error}");
    let mut put = |x, y, width, height| push(&mut writer, &scene, Window::new(x, y, width, height), Interleave::Pixel);
    put(0, 32, 40, 28).unwrap();
    put(32, 0, 8, 32).unwrap();
    put(0, 16, 16, 16).unwrap();
    put(10, 0, 22, 16).unwrap();
    put(0, 0, 10, 5).unwrap();
    put(0, 13, 10, 3).unwrap();
    put(0, 5, 3, 8).unwrap();
    writer.finish().unwrap();
    assert!(memory.take().unwrap() == scene.write(&options, Feed::WholeBands).unwrap());
}

#[test]
fn a_file_with_a_missing_block_is_not_completed() {
    let scene = Scene::new(shape(40, 60, 1, SampleType::U16), 1);
    let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16));
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_blocks(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
    push(&mut writer, &scene, Window::new(0, 0, 40, 32), Interleave::Band).unwrap();
    push(&mut writer, &scene, Window::new(0, 32, 20, 28), Interleave::Band).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(usage(&error).contains("1840 of 2400 pixels were pushed"), "{error}");
    assert!(usage(&error).contains("the tile at column 16, row 32"), "{error}");
    assert!(memory.take().is_none());
    let (sink, _) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
    usage(&writer.push_block(Window::new(0, 0, 1, 1), &Rows::from_bytes(&[0; 2], Interleave::Pixel)).unwrap_err());
}

#[test]
fn too_little_memory_is_refused_before_anything_is_written() {
    let wide = shape(4_000_000, 600, 1, SampleType::F32);
    let options = WriteOptions::cog().with_max_memory(64 << 20);
    let least = Writer::least_memory_from_blocks(wide, &Metadata::default(), &options).unwrap();
    // The rows of one row of tiles alone would be 8 GB.
    assert!(least < 64 << 20, "{least}");
    let begin = |options: &WriteOptions| {
        let (sink, _) = MemorySink::new("memory");
        Writer::to_sink_from_blocks(Box::new(sink), wide, &Metadata::default(), options)
    };
    begin(&options.clone().with_max_memory(least as usize)).unwrap();
    let error = begin(&options.with_max_memory(least as usize - 1)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit(_)), "{error}");
    assert!(error.to_string().contains(&least.to_string()), "{error}");
}
