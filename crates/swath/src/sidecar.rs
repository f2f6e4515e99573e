//! Files beside a file that add to it: `.ovr`, `.msk`, `.aux.xml` and world files.

use std::path::{Path, PathBuf};

use swath_tiff::geo::world;

use crate::dataset::Dataset;

/// What was found beside a file. Only local files have sidecars here.
#[derive(Debug, Default)]
pub(crate) struct Sidecars {
    overviews: Option<Box<Dataset>>,
    mask: Option<Box<Dataset>>,
    pub(crate) pam: Option<Vec<u8>>,
    pub(crate) world: Option<Vec<u8>>,
    /// Names of the files that were used.
    pub(crate) files: Vec<String>,
    pub(crate) problems: Vec<String>,
}

/// Longest side file that is read: they hold metadata, not pixels.
const MAX_LEN: u64 = 16 << 20;

impl Sidecars {
    pub(crate) fn find(dataset: &Dataset) -> Self {
        let Some(path) = &dataset.path else { return Self::default() };
        let mut found = Self::default();
        found.overviews = found.dataset(path, "ovr", dataset);
        found.mask = found.dataset(path, "msk", dataset);
        found.pam = found.text(&appended(path, "aux.xml"));
        let names = world::side_names(&path.to_string_lossy());
        found.world = names.world.iter().find_map(|candidate| found.text(Path::new(candidate)));
        found
    }

    pub(crate) fn overviews(&self) -> Option<&Dataset> {
        self.overviews.as_deref()
    }

    pub(crate) fn mask(&self) -> Option<&Dataset> {
        self.mask.as_deref()
    }

    fn dataset(&mut self, path: &Path, extension: &str, owner: &Dataset) -> Option<Box<Dataset>> {
        // A side file has no side files: `a.tif.ovr.ovr` would lead on for ever.
        if path.extension().is_some_and(|known| known == extension) {
            return None;
        }
        let beside = appended(path, extension);
        if !beside.is_file() {
            return None;
        }
        match owner.open_options().open(&beside) {
            Ok(dataset) => {
                self.files.push(beside.display().to_string());
                Some(Box::new(dataset))
            }
            Err(error) => {
                self.problems.push(format!("side file left aside: {error}"));
                None
            }
        }
    }

    fn text(&mut self, path: &Path) -> Option<Vec<u8>> {
        let len = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
        if len > MAX_LEN {
            self.problems.push(format!("side file left aside: {} has {len} bytes", path.display()));
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        self.files.push(path.display().to_string());
        Some(bytes)
    }
}

fn appended(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}
