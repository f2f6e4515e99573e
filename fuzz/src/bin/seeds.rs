//! Makes the first inputs of each target from files: `swath-fuzz-seeds FOLDER FILE...`.
#![allow(clippy::expect_used, reason = "a tool for developers")]

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

// Everything is compiled with coverage counters; libFuzzer defines the functions that they call.
#[cfg(feature = "libfuzzer")]
use libfuzzer_sys as _;
use swath::{Dataset, OpenOptions};
use swath_codec::TileSpec;
use swath_fuzz::{Seeds, TARGETS, limits, options, tiles::Head};

/// The longest input that is worth mutating.
const LONGEST: usize = 48 << 10;
/// Tiles of one image, and inputs of one target and kind of file.
const TILES: usize = 2;
const EACH: usize = 24;

fn main() {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().expect("usage: swath-fuzz-seeds FOLDER FILE...");
    let mut count = BTreeMap::new();
    for path in arguments {
        let Ok(bytes) = fs::read(&path) else { continue };
        let kind = path.parent().map(Path::to_path_buf).unwrap_or_default();
        for target in TARGETS {
            let made: Vec<Vec<u8>> = match target.seeds {
                Seeds::Files(head) if bytes.len() <= LONGEST => vec![[&vec![0; head][..], &bytes].concat()],
                Seeds::Texts => texts(&path, &bytes),
                Seeds::Tiles => tiles(&path, false),
                Seeds::Samples => tiles(&path, true),
                _ => Vec::new(),
            };
            for input in made {
                let written: &mut usize = count.entry((target.name, kind.clone())).or_default();
                if *written < EACH || !matches!(target.seeds, Seeds::Files(_)) {
                    *written += 1;
                    write(&folder.join(target.name), &input);
                }
            }
        }
    }
    for target in TARGETS.iter().filter(|target| target.seeds == Seeds::Numbers) {
        write(&folder.join(target.name), &(0..=255).collect::<Vec<u8>>());
    }
    for target in TARGETS.iter().filter(|target| target.seeds == Seeds::CommandLines) {
        for line in options::EXAMPLES {
            write(&folder.join(target.name), line.replace(' ', "\n").as_bytes());
        }
    }
}

fn write(folder: &Path, input: &[u8]) {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    fs::create_dir_all(folder).expect("the folder of a target");
    fs::write(folder.join(format!("{:016x}", hasher.finish())), input).expect("an input");
}

fn open(path: &Path) -> Option<Dataset> {
    OpenOptions::default().with_limits(limits().with_decoded_bytes(1 << 30)).with_threads(1).open(path).ok()
}

/// Side files, metadata and reference systems.
fn texts(path: &Path, bytes: &[u8]) -> Vec<Vec<u8>> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    if matches!(extension.as_deref(), Some("xml" | "tfw" | "wld" | "rpb" | "txt" | "vrt")) {
        return vec![bytes.to_vec()];
    }
    let Some(dataset) = open(path) else { return Vec::new() };
    let mut found = Vec::new();
    if let Ok(Some(swath::tiff::structure::Value::Text(text))) = dataset.tag(42112) {
        found.push(text.into_bytes());
    }
    let crs = dataset.metadata().georeference.crs.as_ref();
    found.extend(crs.and_then(|crs| crs.wkt2.clone()).map(String::into_bytes));
    found.retain(|text| text.len() <= LONGEST);
    found
}

/// Tiles as they are stored, or decoded.
fn tiles(path: &Path, decoded: bool) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let Some(dataset) = open(path) else { return found };
    let Ok(images) = dataset.images() else { return found };
    for (image, _) in images.take(2) {
        let layout = image.layout();
        let Ok(spec) = TileSpec::new(layout, limits()) else { continue };
        let tables = layout.jpeg_tables.clone().filter(|_| !decoded).unwrap_or_default();
        let Some(head) = Head::write(&spec, layout.tile_height, &tables) else { continue };
        for number in 0..TILES as u32 {
            let tile =
                if decoded { dataset.tile(image, number, 0, 0) } else { dataset.tile_bytes(image, number, 0, 0) };
            if let Ok(Some(tile)) = tile {
                found.push([&head[..], &tile].concat());
            }
        }
    }
    found.retain(|input| input.len() <= LONGEST);
    found
}
