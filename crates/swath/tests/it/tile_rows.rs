//! A file that is assembled from tile rows encoded elsewhere equals the file that is written from rows.

use std::{ops::Range, sync::Mutex};

use swath::{
    Band, Blocks, Compression, Error, ErrorKind, Interleave, Metadata, Overviews, Resampling, Rows, SampleType,
    WriteOptions, Writer,
    geo::Nodata,
    io::MemorySink,
    tiff::structure::{ByteOrder, Predictor},
    write::{BigTiff, EncodedTileRows, TileRowEncoder},
};

use crate::{
    same::{self, Case},
    scene::{Feed, Rng, Scene, shape},
};

fn nodata(text: &str) -> Metadata {
    let band = Band { nodata: Nodata::parse(text.as_bytes()), ..Band::default() };
    Metadata { bands: vec![band], ..Metadata::default() }
}

fn encode(
    scene: &Scene,
    encoder: &TileRowEncoder,
    tile_rows: Range<u32>,
    given: Range<u32>,
    interleave: Interleave,
) -> Result<EncodedTileRows, Error> {
    let samples = scene.rows(given.clone(), interleave);
    let rows = if interleave == Interleave::Band {
        Rows::from_bytes(&samples, Interleave::Band)
    } else {
        Rows::from_bytes(&samples, Interleave::Pixel)
    };
    let width = scene.shape.width as usize;
    match &scene.mask {
        Some(mask) => {
            let mask = &mask[given.start as usize * width..given.end as usize * width];
            encoder.encode(tile_rows, given.start, &rows.with_mask(mask))
        }
        None => encoder.encode(tile_rows, given.start, &rows),
    }
}

fn put_together(scene: &Scene, options: &WriteOptions, groups: &[EncodedTileRows]) -> Result<Vec<u8>, Error> {
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), scene.shape, &scene.metadata, options)?;
    for group in groups {
        writer.push_encoded(group)?;
    }
    writer.finish()?;
    Ok(memory.take().expect("a file that is complete"))
}

/// The file from groups of tile rows of random sizes, encoded in any order by two threads, each twice.
fn by_tile_rows(scene: &Scene, options: &WriteOptions, rng: &mut Rng) -> Vec<u8> {
    let encoder = TileRowEncoder::new(scene.shape, &scene.metadata, options).unwrap();
    let mut groups = Vec::new();
    let most = rng.within(1..6);
    while let start = groups.last().map_or(0, |group: &Range<u32>| group.end)
        && start < encoder.tile_rows()
    {
        groups.push(start..(start + rng.within(1..most + 1)).min(encoder.tile_rows()));
    }
    // The rows that belong to the groups follow each other and are complete.
    let rows: Vec<_> = groups.iter().map(|group| encoder.rows_of(group.clone())).collect();
    assert_eq!((rows[0].start, rows[rows.len() - 1].end), (0, scene.shape.height));
    assert!(rows.windows(2).all(|pair| pair[0].end == pair[1].start));
    let overview: Vec<_> = groups.iter().map(|group| encoder.overview_rows(group.clone())).collect();
    assert!(overview[0].start == 0 && overview.windows(2).all(|pair| pair[0].end == pair[1].start));

    let mut order: Vec<usize> = (0..groups.len()).chain(0..groups.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let interleaves: Vec<_> = order.iter().map(|_| *rng.pick(&[Interleave::Band, Interleave::Pixel])).collect();
    let extra = rng.within(0..3);
    let jobs = Mutex::new(order.into_iter().zip(interleaves));
    let done: Mutex<Vec<Option<Vec<u8>>>> = Mutex::new(vec![None; groups.len()]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let job = jobs.lock().unwrap().next();
                    let Some((number, interleave)) = job else { break };
                    let needed = encoder.needed(groups[number].clone());
                    // More rows than needed do no harm.
                    let given = needed.start.saturating_sub(extra)..(needed.end + extra).min(scene.shape.height);
                    let group = encode(scene, &encoder, groups[number].clone(), given, interleave).unwrap();
                    let bytes = group.to_bytes();
                    assert_eq!(bytes.len(), group.byte_len());
                    let mut done = done.lock().unwrap();
                    match &done[number] {
                        Some(first) => assert!(*first == bytes, "encoded twice, tile rows have other bytes"),
                        None => done[number] = Some(bytes),
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let groups: Vec<_> =
        done.iter().map(|group| EncodedTileRows::from_bytes(group.as_ref().unwrap()).unwrap()).collect();
    put_together(scene, options, &groups).unwrap()
}

fn check(cases: &[Case], seed: u64) {
    let mut rng = Rng::new(seed);
    for Case { what, scene, options, .. } in cases {
        let whole = scene.write(options, Feed::WholeBands).unwrap_or_else(|error| panic!("{what}: {error}"));
        let options = scene.with_chosen_predictor(options);
        let options = match rng.below(4) {
            0 => options.clone().with_threads(1),
            1 => options.clone().with_threads(3).with_batch(1),
            2 => options.clone().with_max_memory(20 << 20),
            _ => options.clone(),
        };
        let file = by_tile_rows(scene, &options, &mut rng);
        let at = file.iter().zip(&whole).position(|(a, b)| a != b);
        assert!(file == whole, "{what}: other bytes from {at:?} on ({} and {})", file.len(), whole.len());
    }
}

#[test]
fn tile_rows_become_the_same_file_with_any_codec() {
    check(&same::codecs(), 1);
}

#[test]
fn tile_rows_become_the_same_file_with_any_predictor() {
    check(&same::predictors(), 2);
}

#[test]
fn tile_rows_become_the_same_file_with_any_overviews() {
    check(&same::overviews(), 3);
}

#[test]
fn tile_rows_become_the_same_file_in_any_form() {
    check(&same::forms(), 4);
}

fn small() -> (Scene, WriteOptions, Vec<EncodedTileRows>) {
    let scene = Scene::new(shape(40, 60, 1, SampleType::U16), 1);
    let options = WriteOptions::cog().with_blocks(Blocks::Tiles(16, 16)).with_resampling(Resampling::Cubic);
    let encoder = TileRowEncoder::new(scene.shape, &scene.metadata, &options).unwrap();
    assert_eq!(encoder.tile_rows(), 4);
    let groups = (0..4)
        .map(|row| encode(&scene, &encoder, row..row + 1, encoder.needed(row..row + 1), Interleave::Band).unwrap());
    let groups = groups.collect();
    (scene, options, groups)
}

fn usage(error: &Error) -> String {
    assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
    error.to_string()
}

#[test]
fn tile_rows_out_of_order_are_refused() {
    let (scene, options, groups) = small();
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap();
    // A refused group leaves the file as it was.
    let error = writer.push_encoded(&groups[1]).unwrap_err();
    assert!(usage(&error).contains("tile rows 1..2"), "{error}");
    writer.push_encoded(&groups[0]).unwrap();
    assert_eq!(writer.rows(), 16);
    usage(&writer.push_encoded(&groups[0]).unwrap_err());
    let error = writer.push(&Rows::from_bytes(&[0; 80], Interleave::Pixel)).unwrap_err();
    assert!(usage(&error).contains("encoded tile rows"), "{error}");
    usage(&writer.push_tile_bytes(&[0; 512]).unwrap_err());
    for group in &groups[1..] {
        writer.push_encoded(group).unwrap();
    }
    usage(&writer.push_encoded(&groups[3]).unwrap_err());
    writer.finish().unwrap();
    assert!(memory.take().unwrap() == scene.write(&options, Feed::WholeBands).unwrap());

    let begin = || {
        let (sink, _) = MemorySink::new("memory");
        Writer::to_sink(Box::new(sink), scene.shape, &scene.metadata, &options).unwrap()
    };
    let mut writer = begin();
    writer.push(&Rows::from_bytes(&scene.samples[..80 * 16], Interleave::Pixel)).unwrap();
    let error = writer.push_encoded(&groups[1]).unwrap_err();
    assert!(usage(&error).contains("either rows or encoded tile rows"), "{error}");
    let mut writer = begin();
    writer.push_tile_bytes(&[0; 512]).unwrap();
    usage(&writer.push_encoded(&groups[0]).unwrap_err());
    let mut writer = begin();
    writer.push_encoded(&groups[0]).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(usage(&error).contains("16 of 60 rows"), "{error}");
}

#[test]
fn tile_rows_of_other_files_are_refused() {
    let (scene, options, groups) = small();
    let refused = |shape, metadata: &Metadata, options: &WriteOptions| {
        let (sink, _) = MemorySink::new("memory");
        let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), shape, metadata, options).unwrap();
        let error = writer.push_encoded(&groups[0]).unwrap_err();
        assert!(usage(&error).contains("for another file"), "{error}");
    };
    let plain = Metadata::default();
    for other in [
        options.clone().with_level(3),
        options.clone().with_compression(Compression::Lzw),
        options.clone().with_predictor(Predictor::None),
        options.clone().with_resampling(Resampling::Average),
        options.clone().with_blocks(Blocks::Tiles(32, 16)),
        options.clone().with_sparse(true),
        options.clone().with_statistics(false),
        options.clone().with_overviews(Overviews::None),
        options.clone().with_order(ByteOrder::Big),
        options.clone().with_cog(false).with_statistics(true),
        options.clone().with_mask(true),
        options.clone().with_bits(12).with_predictor(Predictor::None),
    ] {
        refused(scene.shape, &plain, &other);
    }
    refused(scene.shape, &nodata("7"), &options);
    refused(swath::Shape { height: 61, ..scene.shape }, &plain, &options);
    refused(swath::Shape { sample: SampleType::I16, ..scene.shape }, &plain, &options);
    // Options that do not change tile rows do not matter.
    let other = options.clone().with_threads(1).with_batch(3).with_max_memory(100 << 20).with_bigtiff(BigTiff::Always);
    put_together(&scene, &other, &groups).unwrap();
}

#[test]
fn missing_rows_are_named() {
    let (scene, options, _) = small();
    let encoder = TileRowEncoder::new(scene.shape, &scene.metadata, &options).unwrap();
    let needed = encoder.needed(1..2);
    assert!(needed.start < 16 && needed.end > 32, "a cubic looks around: {needed:?}");
    assert_eq!((encoder.rows_of(1..2), encoder.overview_rows(1..2)), (16..32, 8..16));
    assert_eq!((encoder.rows_of(3..4), encoder.needed(0..4)), (48..60, 0..60));
    for given in [needed.start + 1..needed.end, needed.start..needed.end - 1, 16..32, 0..0] {
        let error = encode(&scene, &encoder, 1..2, given, Interleave::Band).unwrap_err();
        assert!(usage(&error).contains(&format!("{needed:?}")), "{error}");
    }
    for tile_rows in [0..5, 4..5, 2..2, 5..9] {
        usage(&encode(&scene, &encoder, tile_rows, 0..60, Interleave::Band).unwrap_err());
    }
    usage(&encoder.encode(0..1, 0, &Rows::from_bytes(&[0; 81], Interleave::Pixel)).unwrap_err());
    usage(&encoder.encode(0..1, u32::MAX, &Rows::from_bytes(&[0; 800], Interleave::Pixel)).unwrap_err());
    usage(
        &encoder
            .encode(0..1, 0, &Rows::from_bytes(&[0; 80 * 60], Interleave::Pixel).with_mask(&[0; 40 * 60]))
            .unwrap_err(),
    );
}

#[test]
fn hostile_bytes_are_no_tile_rows() {
    let (_, _, groups) = small();
    let bytes = groups[1].to_bytes();
    assert_eq!(EncodedTileRows::from_bytes(&bytes).unwrap(), groups[1]);
    for len in 0..bytes.len() {
        let error = EncodedTileRows::from_bytes(&bytes[..len]).unwrap_err();
        assert!(error.to_string().contains("not encoded tile rows"), "{error}");
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        EncodedTileRows::from_bytes(&other).unwrap_err();
    }
}

#[test]
fn progress_is_reported_group_by_group() {
    let (scene, options, groups) = small();
    let reports = std::sync::Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let options = options.with_progress(std::sync::Arc::new(move |step: swath::write::Progress| {
        sink.lock().unwrap().push((step.rows, step.of));
    }) as swath::write::OnProgress);
    put_together(&scene, &options, &groups).unwrap();
    let mut reports = reports.lock().unwrap().clone();
    assert!(reports.is_sorted());
    reports.dedup();
    assert_eq!(reports, [(16, 60), (32, 60), (48, 60), (60, 60)]);
}
