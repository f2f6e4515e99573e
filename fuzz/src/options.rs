//! Command lines of `swath convert`: each is refused, or converts a small raster.

use std::{
    ffi::OsString,
    sync::{Arc, LazyLock},
};

use swath::{
    Band, Dataset, Interleave, Metadata, Mode, OpenOptions, Rows, SampleType, Shape, WriteOptions, Writer,
    io::{MemorySink, MemorySource, Sink},
};

/// Command lines that the fuzzer starts from: our options, and those of `gdal_translate`.
pub const EXAMPLES: &[&str] = &[
    "--cog --compress zstd --level 3 --predictor 2 --overviews 2 --resampling average",
    "--window 1,2,3,4 --bands 3,1 --tile 16,32 --nodata -9999 --dtype float32",
    "--bbox 500010,4599900,500030,4599990 --crs EPSG:32633 --strips 7 --interleave band",
    "--scale auto --dtype uint8 --bigtiff yes --big-endian --statistics yes",
    "--scale 0,100,1,255 --compress jpeg --quality 70 --photometric ycbcr --subsampling 422",
    "--compress lerc --max-z-error 0.5 --nan-to-nodata --sparse --max-memory 32M",
    "--compress deflate --nbits 12 --overviews 2,4 --overview 0 --threads 2 --nodata none",
    "-of COG -co COMPRESS=LZW -co PREDICTOR=YES -co BLOCKSIZE=128 -co OVERVIEWS=NONE",
    "-b 2 -b 1 -srcwin 0 0 8 8 -ot Int16 -a_nodata 7 -a_srs EPSG:4326 -r cubic",
    "-projwin 500010 4599990 500030 4599900 -scale 0 10 -co TILED=YES -co BLOCKXSIZE=32 -co BLOCKYSIZE=16",
];

/// A georeferenced raster of three bands of 16 bits.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let shape = Shape { width: 40, height: 30, bands: 3, sample: SampleType::U16 };
    let samples: Vec<u8> = (0..40 * 30 * 3 * 2_u32).map(|at| (at * 7 % 251) as u8).collect();
    let mut metadata = Metadata { bands: vec![Band::default(); 3], ..Metadata::default() };
    metadata.georeference.crs = swath::geo::parse_user("EPSG:32633").ok();
    metadata.georeference.transform = Some(swath::geo::GeoTransform([500_000.0, 10.0, 0.0, 4_600_000.0, 0.0, -10.0]));
    let (sink, memory) = MemorySink::new("made.tif");
    let mut writer =
        Writer::to_sink(Box::new(sink), shape, &metadata, &WriteOptions::default()).expect("a small raster");
    writer.push(&Rows::from_bytes(&samples, Interleave::Band)).expect("its rows");
    writer.finish().expect("its end");
    memory.take().expect("the file")
});

fn open() -> Dataset {
    let source = MemorySource::new("fuzz.tif", FILE.as_slice());
    OpenOptions::default().with_threads(1).with_tile_cache(0).open_source(Arc::new(source)).expect("our own file")
}

/// One argument a line.
pub fn options(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A path given as a reference system is read, whatever it is.
    if text.contains('/') || text.len() > 4096 {
        return;
    }
    let args = ["swath", "convert", "in.tif", "out.tif"].into_iter().chain(text.lines()).map(OsString::from).collect();
    let dataset = open();
    let Some((convert, write)) = swath_cli::conversion(args, &dataset) else { return };
    let write = write.with_threads(1_usize).with_device(Mode::Cpu);
    let (sink, memory) = MemorySink::new("out.tif");
    if dataset.convert_to(|| Ok(Box::new(sink) as Box<dyn Sink>), &convert, &write).is_err() {
        assert!(memory.take().is_none(), "a conversion that failed left a file");
        return;
    }
    let made = Arc::new(MemorySource::new("out.tif", memory.take().expect("the file was committed")));
    let written = OpenOptions::default().open_source(made).expect("what we write can be opened");
    written.read(&swath::ReadOptions::default().with_threads(1)).expect("what we write can be read");
}
