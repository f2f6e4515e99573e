//! Side files, which add to a file: `.ovr`, `.msk`, `.aux.xml` and world files.

use std::path::{Path, PathBuf};

use swath_io::{ordinary, sink::side_files::Stale};
use swath_tiff::{
    geo::{GeoTransform, world},
    tag,
};

use crate::open::dataset::{Dataset, Sidecars};

/// Longest side file that is read: they hold metadata, not pixels.
const MAX_LEN: u64 = 16 << 20;

impl Sidecars {
    pub(crate) fn find(dataset: &Dataset) -> Self {
        let Some(path) = &dataset.path else { return Self::default() };
        let world = world::side_names(&path.to_string_lossy()).world.into_iter().map(PathBuf::from);
        let world = world.into_iter().find(|candidate| candidate.is_file());
        let sides = [appended(path, "ovr"), appended(path, "msk"), appended(path, "aux.xml")];
        let mut sides = sides.map(|side| Some(side).filter(|side| side.is_file()));
        let mut found = Self::default();
        if let Err(error) = dataset.source().check_name() {
            found.too_late = true;
            found.problems.push(format!("side files are ignored: {error}"));
            return found;
        }
        if sides.iter().all(Option::is_none) && world.is_none() {
            return found;
        }
        // The writer of this file may not have finished removing the side files of the file before.
        let stale = Stale::beside(path, dataset.source().as_file());
        let [overviews, mask, pam] = sides.each_mut().map(|side| side.take().filter(|side| !stale.has(side)));
        found.overviews = overviews.and_then(|side| found.dataset(path, &side, dataset));
        found.mask = mask.and_then(|side| found.dataset(path, &side, dataset));
        found.pam = pam.and_then(|side| found.text(&side));
        found.world = world.filter(|side| !stale.has(side)).and_then(|side| found.text(&side));
        found
    }

    pub(crate) fn overviews(&self) -> Option<&Dataset> {
        self.overviews.as_deref()
    }

    pub(crate) fn mask(&self) -> Option<&Dataset> {
        self.mask.as_deref()
    }

    fn dataset(&mut self, path: &Path, beside: &Path, owner: &Dataset) -> Option<Box<Dataset>> {
        // A side file has no side files of its own kind: otherwise `a.tif.ovr.ovr` and so on would be looked up forever.
        if path.extension() == beside.extension() {
            return None;
        }
        match owner.open_options().open(beside) {
            Ok(dataset) => {
                self.files.push(beside.display().to_string());
                Some(Box::new(dataset))
            }
            Err(error) => {
                self.problems.push(format!("side file ignored: {error}"));
                None
            }
        }
    }

    /// Reads a side file. Records its name, or the problem where it is too long or cannot be read.
    fn text(&mut self, path: &Path) -> Option<Vec<u8>> {
        match ordinary::read(path, MAX_LEN) {
            Ok(bytes) => {
                self.files.push(path.display().to_string());
                Some(bytes)
            }
            // It was there a moment ago.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                self.problems.push(format!("side file ignored: {}: {error}", path.display()));
                None
            }
        }
    }
}

fn appended(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// The world file that places the file at `path`, which goes when that is replaced. One that also belongs to another file
/// stays, and so does one that places nothing because the file has a transform of its own: GDAL keeps those, too.
pub(crate) fn placing(path: &Path) -> Option<PathBuf> {
    let worlds = |path: &Path| world::side_names(&path.to_string_lossy()).world.into_iter().map(PathBuf::from);
    let candidate = worlds(path).find(|candidate| candidate.is_file())?;
    let dataset = Dataset::open(path).ok()?;
    let own = [tag::MODEL_PIXEL_SCALE, tag::MODEL_TIEPOINT, tag::MODEL_TRANSFORMATION];
    if own.iter().any(|number| dataset.main().ifd().entry(*number).is_some()) {
        return None;
    }
    let transform = world::parse(dataset.sidecars().world.as_ref()?).ok().map(GeoTransform)?;
    if dataset.metadata().georeference.transform != Some(transform) {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shared = std::fs::read_dir(folder).ok()?.flatten().any(|entry| {
        let other = folder.join(entry.file_name());
        let same = other.file_name() == path.file_name() || other.file_name() == candidate.file_name();
        !same && other.extension().is_some() && worlds(&other).any(|world| world.file_name() == candidate.file_name())
    });
    (!shared).then_some(candidate)
}
