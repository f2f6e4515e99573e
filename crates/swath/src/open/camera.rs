//! The camera model of an image: from a file beside it, else from its tag, else from GDAL's side file, in GDAL's order.

use std::path::{Path, PathBuf};

use swath_io::ordinary;
use swath_tiff::geo::{Rpc, gdal_xml::Domain, rpc_text::MAX_LEN};

/// The file that gave the model, if any, and the model or what is wrong with it.
pub(crate) type Found = (PathBuf, Result<Rpc, String>);

type Parse = fn(&[u8]) -> Result<Rpc, String>;

/// Endings that take the place of the extension, in the order in which GDAL looks for them and in the letters in use.
const ENDINGS: [(&[&str], Parse); 3] = [
    (&[".rpb", ".RPB"], Rpc::from_rpb),
    (&["_rpc.txt", "_RPC.TXT", "_RPC.txt"], Rpc::from_lines),
    (&[".rpc", ".RPC"], Rpc::from_lines),
];

/// Endings of images that come with camera models.
const IMAGES: [&str; 8] = ["tif", "tiff", "jp2", "j2k", "ntf", "nitf", "img", "vrt"];

/// The model in a file beside the one at `path`.
pub(crate) fn beside(path: &Path) -> Option<Found> {
    let stem = path.file_stem()?.to_str()?;
    let (file, parse) = ENDINGS.iter().find_map(|(endings, parse)| {
        let mut files = endings.iter().map(|ending| path.with_file_name(format!("{stem}{ending}")));
        files.find(|file| file.is_file()).map(|file| (file, parse))
    })?;
    let bytes = ordinary::read(&file, MAX_LEN as u64).map_err(|error| error.to_string());
    let model = bytes.and_then(|bytes| parse(&bytes));
    Some((file, model))
}

/// The file beside `path` that holds its model, which goes when `path` is replaced, as in GDAL. It stays if another image of the
/// folder has the same stem and may be the one it belongs to.
pub(crate) fn of_this_only(path: &Path) -> Option<PathBuf> {
    let (file, _) = beside(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shared = std::fs::read_dir(folder).ok()?.flatten().map(|entry| folder.join(entry.file_name())).any(|other| {
        let ending = other.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
        other.file_name() != path.file_name()
            && other.file_stem() == path.file_stem()
            && ending.is_some_and(|ending| IMAGES.contains(&ending.as_str()))
    });
    (!shared).then_some(file)
}

/// The model in GDAL's side file, where it is a domain of its metadata.
pub(crate) fn in_domains(domains: &[Domain]) -> Option<Rpc> {
    let domain = domains.iter().find(|domain| domain.name == "RPC")?;
    Rpc::from_items(|name| domain.get(name)).ok()
}
