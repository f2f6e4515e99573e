//! The bytes of a file depend on its pixels and options, not on how they are pushed; impossible files are refused.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Instant,
};

use swath::{
    Band, Blocks, Compression, ErrorKind, Interleave, Metadata, Overviews, Resampling, Rows, SampleType, Shape,
    WriteOptions, Writer,
    codec::LercWrap,
    geo::{GeoTransform, Nodata, gdal_xml::Domain},
    io::{FileSink, MemorySink},
    tiff::{
        Photometric,
        structure::{
            ByteOrder, Planar, Predictor,
            emit::{Field, Values},
        },
    },
    write::{Alpha, BigTiff},
};

use crate::scene::{Feed, Rng, Scene, open, shape};

/// A folder of one test's own.
pub fn folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(format!("swath-write-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn tiles(side: u32) -> Blocks {
    Blocks::Tiles(side, side)
}

fn nodata(text: &str) -> Metadata {
    let band = Band { nodata: Nodata::parse(text.as_bytes()), ..Band::default() };
    Metadata { bands: vec![band], ..Metadata::default() }
}

/// Writes the scene in every way; all files have to be the same.
fn same_bytes(scene: &Scene, options: &WriteOptions, tile: u32, what: &str) -> Vec<u8> {
    let one = options.clone().with_threads(1);
    let first = scene.write(&one, Feed::WholeBands).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut feeds = vec![
        Feed::WholeBands,
        Feed::WholePixels,
        Feed::Rows(Interleave::Band),
        Feed::Rows(Interleave::Pixel),
        Feed::Chunks(1),
        Feed::Chunks(2),
        Feed::Chunks(3),
    ];
    if scene.mask.is_none() {
        feeds.push(Feed::Tiles(tile, tile));
    }
    for (number, feed) in feeds.into_iter().enumerate() {
        let options = options.clone().with_threads([1, 2, 8][number % 3]);
        let options = match number % 5 {
            0 => options.with_batch(1),
            1 => options.with_batch(2).with_max_memory(usize::MAX),
            2 => options.with_batch(7),
            // The head, the tables and one tile row fit, and little else.
            3 => options.with_max_memory(16 << 20),
            _ => options.with_max_memory(1 << 30),
        };
        let other = scene.write(&options, feed).unwrap_or_else(|error| panic!("{what}, {feed:?}: {error}"));
        assert!(other == first, "{what}, {feed:?}: other bytes ({} and {})", other.len(), first.len());
    }
    first
}

#[test]
fn bytes_do_not_depend_on_how_rows_are_pushed() {
    let palette = Metadata { palette: (0..256).map(|at| [at * 3, at, 65535 - at]).collect(), ..Metadata::default() };
    let bands2 = Scene::new(shape(97, 75, 2, SampleType::U16), 5);
    let scenes: Vec<(&str, Scene)> = vec![
        ("rgb", Scene::new(shape(150, 131, 3, SampleType::U8), 1)),
        ("rgba", Scene::new(shape(90, 77, 4, SampleType::U8), 2)),
        ("u16", Scene::new(shape(131, 150, 1, SampleType::U16), 3)),
        ("f32 with nodata", Scene { metadata: nodata("3.25"), ..Scene::new(shape(99, 163, 1, SampleType::F32), 4) }),
        ("two bands with a mask", bands2.masked(1)),
        ("a band with a mask", Scene::new(shape(70, 64, 1, SampleType::U8), 6).masked(2)),
        ("rgb with a mask", Scene::new(shape(70, 90, 3, SampleType::U8), 7).masked(3)),
        ("palette", Scene { metadata: palette, ..Scene::new(shape(100, 50, 1, SampleType::U8), 8) }),
        ("complex", Scene::new(shape(61, 47, 1, SampleType::CF32), 9)),
        ("one row", Scene::new(shape(300, 1, 3, SampleType::U16), 10)),
        ("one column", Scene::new(shape(1, 300, 3, SampleType::U16), 11)),
    ];
    let mut files = 0;
    for (name, scene) in &scenes {
        let resamplings: &[Resampling] = match () {
            () if scene.shape.sample.is_complex() => &[Resampling::Average, Resampling::Nearest],
            () => &[Resampling::Average, Resampling::Lanczos, Resampling::Nearest, Resampling::Cubic],
        };
        for planar in [Planar::Contig, Planar::Separate] {
            let plain = WriteOptions::default()
                .with_blocks(tiles(32))
                .with_planar(planar)
                .with_mask(scene.mask.is_some())
                .with_compression(Compression::Zstd);
            let what = format!("{name}, {planar:?}");
            scene.check(same_bytes(scene, &plain, 32, &what), &what);
            for resampling in resamplings {
                let cog = plain.clone().with_cog(true).with_resampling(*resampling).with_blocks(tiles(16));
                let what = format!("{what}, COG, {resampling}");
                let bytes = same_bytes(scene, &cog, 16, &what);
                let dataset = scene.check(bytes, &what);
                let report = dataset.validate(swath::validate::Check::Full).unwrap();
                // A single column cannot be halved, and the validator counts columns: only that finding is accepted.
                let narrow = |error: &&String| scene.shape.width == 1 && error.starts_with("Invalid Decimation 1 ");
                let errors: Vec<_> = report.errors.iter().filter(|error| !narrow(error)).collect();
                assert!(errors.is_empty() && report.warnings.is_empty(), "{what}: {report:?}");
                files += 9;
            }
        }
    }
    assert!(files > 500);
}

#[test]
fn bytes_do_not_depend_on_how_rows_are_pushed_with_any_codec() {
    let rgb = Scene::new(shape(150, 131, 3, SampleType::U8), 1);
    let float = Scene::new(shape(99, 101, 2, SampleType::F32), 2);
    for compression in [
        Compression::None,
        Compression::PackBits,
        Compression::Lzw,
        Compression::Deflate,
        Compression::Zstd,
        Compression::Lzma,
        Compression::Lz4,
        Compression::Jpeg,
        Compression::WebP,
        Compression::Lerc,
    ] {
        let options = WriteOptions::cog().with_compression(compression).with_blocks(tiles(64));
        let bytes = same_bytes(&rgb, &options, 64, &format!("rgb, {compression}"));
        if compression != Compression::Jpeg {
            rgb.check(bytes, &format!("rgb, {compression}"));
        }
        if matches!(compression, Compression::Jpeg | Compression::WebP) {
            continue;
        }
        let wrapped = options.with_lerc_wrap(LercWrap::Zstd).with_resampling(Resampling::Lanczos);
        let bytes = same_bytes(&float, &wrapped, 64, &format!("float, {compression}"));
        float.check(bytes, &format!("float, {compression}"));
    }
}

#[test]
fn bytes_do_not_depend_on_where_they_go() {
    // Large enough for a level to be streamed, so that its gap is closed: by the file system where it can, by moving
    // elsewhere.
    let scene = Scene::new(shape(3072, 3072, 2, SampleType::U8), 12);
    let options = WriteOptions::cog().with_compression(Compression::Lz4).with_blocks(tiles(256));
    let expected = scene.write(&options, Feed::WholeBands).unwrap();
    let shm = Path::new("/dev/shm");
    let parents = [Some(std::env::temp_dir()), shm.is_dir().then(|| shm.to_owned())];
    for parent in parents.into_iter().flatten() {
        let folder = folder(&parent, "where");
        let path = folder.join("a.tif");
        scene.write_to(Box::new(FileSink::create(&path).unwrap()), &options, Feed::Chunks(9)).unwrap();
        assert!(std::fs::read(&path).unwrap() == expected, "{}", folder.display());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn random_files_are_read_back() {
    let started = Instant::now();
    let mut rng = Rng::new(20);
    let mut done = 0;
    while done < 2500 && started.elapsed().as_secs() < 12 {
        let sample = *rng.pick(&[
            SampleType::U8,
            SampleType::I8,
            SampleType::U16,
            SampleType::I16,
            SampleType::U32,
            SampleType::I64,
            SampleType::F32,
            SampleType::F64,
            SampleType::CI16,
        ]);
        let side = |rng: &mut Rng| if rng.chance(4) { rng.within(1..4) } else { rng.within(1..120) };
        let shape = shape(side(&mut rng), side(&mut rng), rng.within(1..6) as u16, sample);
        let mut scene = Scene::new(shape, rng.next());
        if rng.chance(3) {
            scene = scene.masked(rng.next());
        }
        if rng.chance(3) {
            // Rows of nodata, so that whole tiles can be left out.
            let row = shape.width as usize * sample.size();
            let empty = row * rng.within(0..shape.height + 1) as usize;
            for band in scene.samples.chunks_exact_mut(row * shape.height as usize) {
                band[..empty].fill(0);
            }
        }
        if rng.chance(3) {
            let text: &&str = rng.pick(&["0", "3", "-9999", "nan", "1e300"]);
            scene.metadata = nodata(text);
        }
        let bits = (sample == SampleType::U8 && rng.chance(2)).then(|| rng.within(1..9) as u16);
        if let Some(bits) = bits {
            scene.samples.iter_mut().for_each(|sample| *sample &= ((1_u16 << bits) - 1) as u8);
        }
        let (across, down) = (16 * rng.within(1..5), 16 * rng.within(1..5));
        let cog = rng.chance(2);
        let blocks = match rng.chance(3) && !cog {
            true => Blocks::Strips(NonZeroU32::new(rng.within(0..40))),
            false => Blocks::Tiles(across, down),
        };
        let overviews = match rng.below(4) {
            0 => Overviews::Auto,
            1 => Overviews::None,
            2 => Overviews::Levels(rng.within(1..6)),
            _ => Overviews::Factors(rng.pick(&[vec![3, 9], vec![2, 64], vec![16], vec![7, 14], vec![2, 4, 8]]).clone()),
        };
        let resampling = match sample.is_complex() {
            true => Resampling::Average,
            false => *rng.pick(&Resampling::ALL),
        };
        let compression = *rng.pick(&[
            Compression::None,
            Compression::Deflate,
            Compression::Lzw,
            Compression::Zstd,
            Compression::Lz4,
        ]);
        let options = WriteOptions::default()
            .with_cog(cog)
            .with_blocks(blocks)
            .with_compression(compression)
            .with_mask(scene.mask.is_some())
            .with_planar(*rng.pick(&[Planar::Contig, Planar::Separate]))
            .with_order(*rng.pick(&[ByteOrder::Little, ByteOrder::Big]))
            .with_bigtiff(*rng.pick(&[BigTiff::Auto, BigTiff::Always, BigTiff::Never]))
            .with_sparse(rng.chance(3))
            .with_statistics(rng.chance(2))
            .with_overviews(overviews.clone())
            .with_resampling(resampling)
            .with_threads(1 + rng.below(3) as usize)
            .with_batch(rng.within(1..5));
        let options = bits.into_iter().fold(options, WriteOptions::with_bits);
        let options = match rng.below(4) {
            0 => options.with_alpha(Alpha::Premultiplied),
            1 => options.with_alpha(Alpha::Unassociated),
            _ => options,
        };
        let feed = match rng.below(4) {
            0 => Feed::WholeBands,
            1 => Feed::WholePixels,
            _ => Feed::Chunks(rng.next()),
        };
        let what = format!(
            "{shape:?} mask {} bits {bits:?} {overviews:?} {resampling} {options:?} {feed:?}",
            scene.mask.is_some()
        );
        let bytes = scene.write(&options, feed).unwrap_or_else(|error| panic!("{what}: {error}"));
        let dataset = scene.check(bytes, &what);
        for level in 0..dataset.overviews().unwrap().len() {
            dataset.read(&swath::ReadOptions::default().with_overview(level)).unwrap();
        }
        if cog {
            let report = dataset.validate(swath::validate::Check::Full).unwrap();
            // An overview as wide as a one-column image was requested, and is not a fault of the layout.
            let errors: Vec<_> =
                report.errors.iter().filter(|error| !error.starts_with("Invalid Decimation 1 ")).collect();
            assert!(errors.is_empty(), "{what}: {errors:?}");
        }
        done += 1;
    }
    assert!(done > 100, "only {done} files");
}

#[test]
fn tiles_are_left_out_only_where_readers_put_the_same_samples_back() {
    for sample in [SampleType::U8, SampleType::I16, SampleType::F32, SampleType::CI16] {
        // Values that the type has, and values that readers round to the nearest one it has.
        for text in ["0", "3", "255", "300", "-9999", "1e300", "nan", "0.4", "2.5"] {
            for value in [0, 3, 255] {
                let mut scene = Scene { metadata: nodata(text), ..Scene::new(shape(40, 40, 1, sample), 1) };
                scene.samples.fill(value);
                let bytes = scene.write(&small().with_sparse(true), Feed::WholeBands).unwrap();
                scene.check(bytes, &format!("{value} as {sample} with nodata {text}"));
            }
        }
    }
    // The tag may come from the caller as well.
    let mut scene = Scene::new(shape(40, 40, 1, SampleType::U8), 1);
    scene.samples.fill(0);
    let options = small().with_sparse(true).with_tags(vec![Field::ascii(42113, "9")]);
    scene.check(scene.write(&options, Feed::WholeBands).unwrap(), "a tag");
}

// ------------------------------------------------------------------------------------------------------------- misuse

fn begin(shape: Shape, metadata: &Metadata, options: &WriteOptions) -> Result<Writer, swath::Error> {
    Writer::to_sink(Box::new(MemorySink::new("memory").0), shape, metadata, options)
}

/// The message of a usage error.
fn usage<T: std::fmt::Debug>(result: Result<T, swath::Error>) -> String {
    let error = result.expect_err("this cannot be written");
    assert!(matches!(error.kind(), ErrorKind::Usage(_) | ErrorKind::Limit(_)), "{error:?}");
    error.to_string()
}

fn small() -> WriteOptions {
    WriteOptions::default().with_blocks(tiles(16)).with_compression(Compression::None)
}

#[test]
fn missing_rows_and_rows_too_many_are_counted_in_the_message() {
    let shape = shape(20, 10, 2, SampleType::U16);
    let writer = || begin(shape, &Metadata::default(), &small()).unwrap();
    let row = vec![0; 20 * 2 * 2];
    assert!(usage(writer().finish()).contains("0 of 10 rows"));
    let mut few = writer();
    few.push(&Rows::from_bytes(&row, Interleave::Pixel)).unwrap();
    assert_eq!(few.rows(), 1);
    assert!(usage(few.finish()).contains("1 of 10 rows"));
    let mut many = writer();
    many.push(&Rows::from_bytes(&row.repeat(9), Interleave::Band)).unwrap();
    assert!(usage(many.push(&Rows::from_bytes(&row.repeat(2), Interleave::Band))).contains("1 of 10 are missing"));
    // The mistake did no harm: the right row completes the file.
    many.push(&Rows::from_bytes(&row, Interleave::Band)).unwrap();
    assert!(usage(many.push(&Rows::from_bytes(&row, Interleave::Band))).contains("0 of 10"));
    many.push(&Rows::from_bytes(&[], Interleave::Band)).unwrap();
    assert_eq!(many.finish().unwrap().overviews, 0);
}

#[test]
fn parts_of_rows_are_refused() {
    let mut writer = begin(shape(20, 10, 2, SampleType::U16), &Metadata::default(), &small()).unwrap();
    for len in [1, 79, 81, 40] {
        assert!(
            usage(writer.push(&Rows::from_bytes(&vec![0; len], Interleave::Pixel)))
                .contains("not whole rows of 80 bytes"),
            "{len}"
        );
    }
    assert_eq!(writer.rows(), 0);
}

#[test]
fn masks_that_are_missing_too_many_or_too_short_are_refused() {
    let shape = shape(20, 10, 1, SampleType::U8);
    let row = [0; 20];
    let mut masked = begin(shape, &Metadata::default(), &small().with_mask(true)).unwrap();
    assert!(usage(masked.push(&Rows::from_bytes(&row, Interleave::Pixel))).contains("mask"));
    assert!(usage(masked.push(&Rows::from_bytes(&row, Interleave::Pixel).with_mask(&[0; 19]))).contains("19 bytes"));
    assert!(usage(masked.push_tile_bytes(&[0; 160])).contains("mask"));
    let mut bare = begin(shape, &Metadata::default(), &small()).unwrap();
    assert!(usage(bare.push(&Rows::from_bytes(&row, Interleave::Pixel).with_mask(&row))).contains("mask"));
}

#[test]
fn tiles_between_rows_are_refused() {
    // 4 rows, then a tile of 16: as many as the image has, but at the wrong position.
    let mut writer = begin(shape(16, 20, 1, SampleType::U8), &Metadata::default(), &small()).unwrap();
    writer.push(&Rows::from_bytes(&[1; 16 * 4], Interleave::Pixel)).unwrap();
    assert!(usage(writer.push_tile_bytes(&[2; 16 * 16])).contains("row"));
    writer.push(&Rows::from_bytes(&[1; 16 * 16], Interleave::Pixel)).unwrap();
    writer.finish().unwrap();
}

#[test]
fn tiles_of_other_sizes_and_rows_between_tiles_are_refused() {
    let mut writer = begin(shape(40, 20, 1, SampleType::U8), &Metadata::default(), &small()).unwrap();
    assert!(usage(writer.push_tile_bytes(&[0; 255])).contains("16 x 16"));
    writer.push_tile_bytes(&[1; 256]).unwrap();
    assert!(usage(writer.push_tile_bytes(&[0; 8])).contains("(1, 0)"));
    assert!(usage(writer.push(&Rows::from_bytes(&[0; 40], Interleave::Pixel))).contains("row of tiles"));
    writer.push_tile_bytes(&[2; 256]).unwrap();
    writer.push_tile_bytes(&[3; 128]).unwrap();
    assert_eq!(writer.rows(), 16);
    for len in [64, 64, 32] {
        writer.push_tile_bytes(&vec![4; len]).unwrap();
    }
    assert!(usage(writer.push_tile_bytes(&[0; 256])).contains("tile"));
    writer.finish().unwrap();
}

#[test]
fn half_a_tile_row_is_no_file() {
    let mut writer = begin(shape(40, 16, 1, SampleType::U8), &Metadata::default(), &small()).unwrap();
    writer.push_tile_bytes(&[1; 256]).unwrap();
    assert!(usage(writer.finish()).contains("0 of 16 rows"));
}

#[test]
fn shapes_and_options_that_contradict_are_refused_before_anything_is_made() {
    let good = shape(40, 20, 3, SampleType::U8);
    let plain = WriteOptions::default;
    let folder = folder(&std::env::temp_dir(), "contradict");
    let path = folder.join("a.tif");
    std::fs::write(&path, b"old").unwrap();
    let rows = |rows| Blocks::Strips(NonZeroU32::new(rows));
    let cases: Vec<(&str, Shape, WriteOptions)> = vec![
        ("no columns", shape(0, 20, 3, SampleType::U8), plain()),
        ("no rows", shape(40, 0, 3, SampleType::U8), plain()),
        ("no bands", shape(40, 20, 0, SampleType::U8), plain()),
        ("too wide", shape(u32::MAX, 20, 3, SampleType::U8), plain()),
        ("too high", shape(40, 1 << 31, 3, SampleType::U8), plain()),
        ("tile of 0", good, plain().with_blocks(Blocks::Tiles(0, 16))),
        ("tile of 17", good, plain().with_blocks(Blocks::Tiles(16, 17))),
        ("tile of 2^31", good, plain().with_blocks(Blocks::Tiles(1 << 31, 16))),
        ("tile of 2^20", good, plain().with_blocks(tiles(1 << 20))),
        ("COG in strips", good, WriteOptions::cog().with_blocks(rows(1))),
        ("JPEG strips of 3", good, plain().with_compression(Compression::Jpeg).with_blocks(rows(3))),
        ("predictor 3 of bytes", good, plain().with_predictor(Predictor::FloatingPoint)),
        ("predictor without a codec", good, small().with_predictor(Predictor::Horizontal)),
        ("JPEG of floats", shape(40, 20, 1, SampleType::F32), plain().with_compression(Compression::Jpeg)),
        ("WebP of 16 bits", shape(40, 20, 3, SampleType::U16), plain().with_compression(Compression::WebP)),
        ("fax of bytes", good, plain().with_compression(Compression::CcittT6)),
        ("9 bits of a byte", good, plain().with_bits(9)),
        ("0 bits", good, plain().with_bits(0)),
        ("24 bits", shape(40, 20, 1, SampleType::U32), plain().with_bits(24)),
        ("3 bits of LERC", good, plain().with_bits(3).with_compression(Compression::Lerc)),
        ("palette of floats", shape(40, 20, 1, SampleType::F32), plain().with_photometric(Photometric::Palette)),
        ("palette without colours", shape(40, 20, 1, SampleType::U8), plain().with_photometric(Photometric::Palette)),
        ("RGB of one band", shape(40, 20, 1, SampleType::U8), plain().with_photometric(Photometric::Rgb)),
        ("YCbCr of Deflate", good, plain().with_photometric(Photometric::YCbCr)),
        ("factors that fall", good, plain().with_overviews(Overviews::Factors(vec![4, 2]))),
        ("factor 1", good, plain().with_overviews(Overviews::Factors(vec![1]))),
        ("factor 0", good, plain().with_overviews(Overviews::Factors(vec![0]))),
        ("factors apart", good, plain().with_overviews(Overviews::Factors(vec![2, 3]))),
        ("no memory", good, plain().with_max_memory(0)),
        (
            "lanczos of complex samples",
            shape(40, 20, 1, SampleType::CF32),
            WriteOptions::cog().with_blocks(tiles(16)).with_resampling(Resampling::Lanczos),
        ),
    ];
    for (what, shape, options) in cases {
        let result = Writer::create(&path, shape, &Metadata::default(), &options);
        let error = result.err().unwrap_or_else(|| panic!("{what} was accepted"));
        let kind = error.kind();
        let clear =
            matches!(kind, ErrorKind::Usage(_) | ErrorKind::Limit(_) | ErrorKind::Codec(_) | ErrorKind::Unsupported(_));
        assert!(clear, "{what}: {error:?}");
        assert!(error.to_string().contains("a.tif"), "{what}: {error}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "{what}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old", "{what}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn too_little_memory_is_an_error_with_bytes_that_are_enough() {
    let shape = shape(4000, 300, 1, SampleType::U16);
    let options = WriteOptions::cog().with_threads(1);
    let message = usage(begin(shape, &Metadata::default(), &options.clone().with_max_memory(100_000)));
    assert!(message.contains("100000 are allowed"), "{message}");
    let words: Vec<&str> = message.split(' ').collect();
    let needed: usize = words[words.iter().position(|word| *word == "takes").unwrap() + 1].parse().unwrap();
    assert!(usage(begin(shape, &Metadata::default(), &options.clone().with_max_memory(needed - 1))).contains("bytes"));
    let scene = Scene::new(shape, 3);
    let tight = scene.write(&options.clone().with_max_memory(needed), Feed::Chunks(4)).unwrap();
    assert!(tight == scene.write(&options, Feed::WholeBands).unwrap());
}

#[test]
fn offsets_have_64_bits_exactly_where_the_largest_file_needs_them() {
    // Uncompressed tiles always have their largest size, so the largest file is known: 32 MiB for each tile row.
    let below = shape(65536, 127 * 512, 1, SampleType::U8);
    let above = shape(65536, 128 * 512, 1, SampleType::U8);
    let options = WriteOptions::default().with_compression(Compression::None).with_sparse(true);
    let never = options.clone().with_bigtiff(BigTiff::Never);
    assert!(begin(below, &Metadata::default(), &never).is_ok());
    assert!(usage(begin(above, &Metadata::default(), &never)).contains("4 GiB"));
    // Zeros are left out of the file, so both can be written for real.
    let rows = vec![0; 65536 * 512];
    for (shape, big) in [(below, false), (above, true)] {
        let mut writer = begin(shape, &Metadata::default(), &options).unwrap();
        for _ in 0..shape.height / 512 {
            writer.push(&Rows::from_bytes(&rows, Interleave::Pixel)).unwrap();
        }
        let written = writer.finish().unwrap();
        assert_eq!(written.big, big);
        assert!(written.size < 1 << 20, "{written:?}");
    }
}

#[test]
fn largest_shapes_are_refused_or_begun_at_once_in_little_memory() {
    let side = i32::MAX as u32;
    for (what, shape, options) in [
        ("2^62 pixels", shape(side, side, 1, SampleType::U8), WriteOptions::default()),
        ("2^62 pixels as a COG", shape(side, side, 1, SampleType::U8), WriteOptions::cog()),
        ("2^82 bytes", shape(side, side, u16::MAX, SampleType::CF64), WriteOptions::cog().with_blocks(tiles(16))),
        ("2^54 small tiles", shape(side, side, 1, SampleType::U8), small()),
        ("2^31 strips", shape(16, side, 1, SampleType::U8), small().with_blocks(Blocks::Strips(NonZeroU32::new(1)))),
        (
            "2^31 rows and an overview of two",
            shape(16, side, 1, SampleType::U8),
            WriteOptions::default().with_overviews(Overviews::Factors(vec![1 << 30])),
        ),
        ("threads without end", shape(2000, 2000, 1, SampleType::U8), small().with_threads(usize::MAX)),
        ("batches without end", shape(16, side / 8, 1, SampleType::U8), small().with_batch(u32::MAX)),
        ("a narrow column", shape(16, side / 64, 1, SampleType::U8), WriteOptions::cog().with_blocks(tiles(16))),
    ] {
        for memory in [64 << 20, 256 << 20, usize::MAX] {
            // Without a memory limit, only shapes that no memory could hold are refused.
            if memory == usize::MAX && shape.bands == 1 && !what.contains("threads") {
                continue;
            }
            let started = Instant::now();
            if let Err(error) = begin(shape, &Metadata::default(), &options.clone().with_max_memory(memory)) {
                assert!(matches!(error.kind(), ErrorKind::Limit(_) | ErrorKind::Usage(_)), "{what}: {error:?}");
            }
            assert!(started.elapsed().as_secs() < 3, "{what}: {:?}", started.elapsed());
        }
    }
}

#[test]
fn writes_work_with_fewer_threads_than_requested() {
    let scene = Scene::new(shape(1024, 1024, 1, SampleType::U8), 1);
    let bytes = scene.write(&small().with_threads(1 << 20), Feed::WholeBands).unwrap();
    assert!(bytes == scene.write(&small().with_threads(1), Feed::WholeBands).unwrap());
}

// --------------------------------------------------------------------------------------------------- hostile metadata

fn domain(items: &[(&str, &str)]) -> Vec<Domain> {
    let items = items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    vec![Domain { name: String::new(), items }]
}

#[test]
fn text_of_any_kind_comes_back_or_is_refused() {
    let long = "ä<&>\"'".repeat(70_000) + &"x".repeat(600_000);
    for text in ["", "a\0b", "\0", "a\u{1}b\u{7f}", "]]>", "</GDALMetadata>\n", " lead", "\u{fffe}", "a\nb", &long] {
        let band = Band { description: Some(text.to_owned()), ..Band::default() };
        // The reader takes 4 MiB of XML in all, so the longest text is there once.
        let key = if text.len() > 1 << 20 { "key" } else { text };
        let metadata = Metadata {
            bands: vec![band],
            domains: domain(&[("key", key), ("TIFFTAG_SOFTWARE", text), (key, "value")]),
            ..Metadata::default()
        };
        let scene = Scene { metadata, ..Scene::new(shape(40, 40, 1, SampleType::U8), 1) };
        for options in [small(), small().with_cog(true), small().with_bigtiff(BigTiff::Always)] {
            let shown: String = text.chars().take(20).collect();
            let bytes = match scene.write(&options, Feed::WholeBands) {
                Ok(bytes) => bytes,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{shown:?}: {error:?}");
                    continue;
                }
            };
            let dataset = scene.check(bytes, &shown);
            // XML cannot hold control characters; they are left out, as by GDAL.
            let kept: String =
                text.chars().filter(|c| *c >= ' ' && *c != '\u{fffe}' || matches!(c, '\t' | '\n' | '\r')).collect();
            let found = &dataset.metadata().bands[0];
            assert!(found.description.clone().unwrap_or_default() == kept, "{shown:?}: {:?}", found.description);
            let software = dataset.metadata().domains.iter().find_map(|domain| domain.get("TIFFTAG_SOFTWARE"));
            assert!(software.unwrap_or_default() == text, "{shown:?}: {software:?}");
        }
    }
}

#[test]
fn nan_in_metadata_does_no_harm() {
    for value in [f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, 1e300, -1e-300] {
        let mut metadata = nodata("nan");
        metadata.georeference.transform = Some(GeoTransform([value, 1.0, value, value, value, -1.0]));
        metadata.bands[0].scale = Some(value);
        metadata.bands[0].offset = Some(value);
        metadata.domains = domain(&[
            ("TIFFTAG_XRESOLUTION", &value.to_string()),
            ("TIFFTAG_YRESOLUTION", "0"),
            ("TIFFTAG_RESOLUTIONUNIT", "99999 (x)"),
        ]);
        for sample in [SampleType::U8, SampleType::F32] {
            let scene = Scene { metadata: metadata.clone(), ..Scene::new(shape(40, 40, 1, sample), 1) };
            scene.check(scene.write(&small().with_cog(true), Feed::WholeBands).unwrap(), &format!("{value} {sample}"));
        }
    }
}

#[test]
fn nan_samples_do_no_harm() {
    let mut scene = Scene::new(shape(40, 40, 1, SampleType::F32), 1);
    for (pixel, value) in scene.samples.as_chunks_mut::<4>().0.iter_mut().zip(
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, -0.0, f32::from_bits(0x7f80_0001)]
            .into_iter()
            .cycle(),
    ) {
        *pixel = value.to_ne_bytes();
    }
    for resampling in Resampling::ALL {
        let options = small().with_cog(true).with_resampling(resampling).with_compression(Compression::Deflate);
        let bytes = same_bytes(&scene, &options, 16, &format!("{resampling}"));
        scene.check(bytes, &format!("{resampling}"));
    }
}

#[test]
fn palettes_of_any_length_give_a_file_with_all_its_entries_or_none() {
    for (len, bits) in [(1_u16, 8), (255, 8), (256, 8), (16, 4), (2, 1)] {
        let palette: Vec<[u16; 3]> = (0..len).map(|at| [at, 2 * at, 65535 - at]).collect();
        let metadata = Metadata { palette: palette.clone(), ..Metadata::default() };
        let mut scene = Scene { metadata, ..Scene::new(shape(40, 40, 1, SampleType::U8), 1) };
        scene.samples.iter_mut().for_each(|sample| *sample &= ((1_u16 << bits) - 1) as u8);
        let bytes = scene.write(&small().with_cog(true).with_bits(bits), Feed::WholeBands).unwrap();
        let found = scene.check(bytes, "palette").metadata().palette.clone();
        assert_eq!(found[..len.into()], palette);
        assert!(found[len.into()..].iter().all(|color| *color == [0; 3]));
    }
    // Colours that no sample can name are left out.
    let metadata = Metadata { palette: vec![[1; 3]; 300], ..Metadata::default() };
    let scene = Scene { metadata, ..Scene::new(shape(40, 40, 1, SampleType::U8), 1) };
    let dataset = scene.check(scene.write(&small(), Feed::WholeBands).unwrap(), "palette");
    assert_eq!(dataset.metadata().palette, vec![[1; 3]; 256]);
}

#[test]
fn as_many_bands_as_a_file_can_have() {
    let shape = shape(3, 2, u16::MAX, SampleType::U8);
    let scene = Scene::new(shape, 1);
    for (planar, cog) in [(Planar::Contig, true), (Planar::Separate, false)] {
        let options = small().with_planar(planar).with_cog(cog);
        scene.check(scene.write(&options, Feed::WholeBands).unwrap(), &format!("{planar:?} {cog}"));
    }
}

#[test]
fn tags_that_would_contradict_the_file_are_refused_and_others_kept() {
    let grey = shape(40, 40, 1, SampleType::U8);
    let rgb = shape(40, 40, 3, SampleType::U8);
    let twice = vec![Field::short(65000, [1]), Field::short(65000, [2])];
    assert!(usage(begin(grey, &Metadata::default(), &small().with_tags(twice))).contains("twice"));
    for number in [
        254, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 288, 289, 292, 293, 317, 322, 323, 324, 325, 330,
        338, 339, 347, 512, 513, 514, 519, 520, 521, 529, 530, 531, 532, 50674,
    ] {
        let options = small().with_tags(vec![Field::long(number, [1])]);
        assert!(usage(begin(grey, &Metadata::default(), &options)).contains(&number.to_string()), "{number}");
        let jpeg = options.with_compression(Compression::Jpeg);
        assert!(usage(begin(rgb, &Metadata::default(), &jpeg)).contains(&number.to_string()), "{number}");
    }
    // Set twice, once as metadata and once as a tag.
    let options = small().with_tags(vec![Field::ascii(42113, "7")]);
    assert!(usage(begin(grey, &nodata("5"), &options)).contains("42113"));
    let scene = Scene::new(grey, 1);
    for field in [
        Field::short(65000, [1, 2, 3]),
        Field::undefined(65001, vec![0; 100_000]),
        Field::ascii(65002, ""),
        Field::double(65535, [f64::NAN]),
        Field::long(0, [7]),
        Field::short(65003, [1]).with_reserve(u64::MAX),
    ] {
        let number = field.tag;
        let bytes = scene.write(&small().with_cog(true).with_tags(vec![field]), Feed::WholeBands).unwrap();
        assert!(scene.check(bytes, "tag").tag(number).unwrap().is_some(), "{number}");
    }
    // The writer leaves out a tag without values. Only BigTIFF has types of 64 bits.
    for wrong in [Field::short(65000, []), Field { values: Values::Bytes(vec![1; 3]), ..Field::double(65000, [1.0]) }] {
        usage(begin(grey, &Metadata::default(), &small().with_tags(vec![wrong])));
    }
    let long8 = small().with_tags(vec![Field::long8(65000, [1 << 40])]);
    assert!(usage(begin(grey, &Metadata::default(), &long8)).contains("BigTIFF"));
    let bytes = scene.write(&long8.with_bigtiff(BigTiff::Always), Feed::WholeBands).unwrap();
    scene.check(bytes, "LONG8 in a BigTIFF");
}

#[test]
fn more_bands_described_than_there_are_do_no_harm() {
    let metadata = Metadata { bands: vec![Band::default(); 9], ..Metadata::default() };
    let scene = Scene { metadata, ..Scene::new(shape(20, 20, 2, SampleType::U8), 1) };
    scene.check(scene.write(&small().with_cog(true), Feed::WholeBands).unwrap(), "bands");
    let alpha = small().with_alpha(Alpha::Unassociated);
    assert_eq!(open(scene.write(&alpha, Feed::WholeBands).unwrap()).bands(), 2);
}
