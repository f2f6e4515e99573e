//! An open file.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use swath_codec::Registry;
use swath_io::{
    Source, Traffic,
    fork::{Once, PerProcess},
};
use swath_tiff::{
    Limits, SampleType, TiffError,
    geo::Nodata,
    structure::{Entry, Header, Value, ghost::Ghost},
    tag,
};

use crate::{
    device::{DeviceOptions, DeviceReport},
    error::{Error, ErrorKind},
    fetch::Fetch,
    metadata::Metadata,
    open::{
        OpenOptions,
        directories::Directories,
        image::{Image, Role},
    },
    state::{
        arriving::Arriving, cache::TileCache, positions::Positions, scratch::ScratchPool, tile_warnings::TileWarnings,
    },
};

/// An open file. It is cheap to make and safe to share between threads; each read may use several threads of its own.
///
/// ```no_run
/// # fn main() -> Result<(), swath::Error> {
/// use swath::{Dataset, ReadOptions, Window};
///
/// let dataset = Dataset::open("scene.tif")?;
/// println!("{} x {} pixels, {} bands of {}", dataset.width(), dataset.height(), dataset.bands(), dataset.sample());
/// if let Some(crs) = &dataset.metadata().georeference.crs {
///     println!("in {}", crs.name);
/// }
/// let corner = dataset.read(&ReadOptions::default().with_window(Window::new(0, 0, 256, 256)))?;
/// let small = dataset.best_overview(800, 600)?; // the overview that fits a screen
/// println!("{:?}, overview {small:?}", corner.shape());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Dataset {
    pub(crate) fetch: Fetch,
    pub(crate) name: Arc<str>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) header: Header,
    pub(crate) limits: Limits,
    pub(crate) registry: Arc<Registry>,
    pub(crate) threads: Option<usize>,
    pub(crate) pool: ScratchPool,
    pub(crate) cache: TileCache,
    pub(crate) arriving: Arriving,
    pub(crate) reads: AtomicU64,
    pub(crate) warnings: TileWarnings,
    pub(crate) positions: Positions,
    pub(crate) device: DeviceOptions,
    pub(crate) device_log: PerProcess<Mutex<DeviceReport>>,
    main: Image,
    directories: Once<Directories>,
    metadata: Once<Metadata>,
    sidecars: Once<Sidecars>,
    nodata: Once<Option<Nodata>>,
}

/// The side files of a file, which are datasets too. Only local files have them here.
#[derive(Debug, Default)]
pub(crate) struct Sidecars {
    pub(super) overviews: Option<Box<Dataset>>,
    pub(super) mask: Option<Box<Dataset>>,
    pub(crate) pam: Option<Vec<u8>>,
    pub(crate) world: Option<Vec<u8>>,
    /// Names of the files that were used.
    pub(crate) files: Vec<String>,
    pub(crate) problems: Vec<String>,
    /// Whether the file was replaced before we looked for them: then the side files belong to the new file.
    pub(crate) too_late: bool,
}

impl Dataset {
    /// Opens a file with the default options: a path of this machine, or an address (`https://`, `s3://`, `gs://`, `az://`).
    /// [`OpenOptions::open`] takes others.
    ///
    /// # Errors
    /// When it cannot be opened or is not a TIFF file we understand.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        OpenOptions::default().open(path)
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        fetch: Fetch,
        name: Arc<str>,
        path: Option<PathBuf>,
        header: Header,
        main: Image,
        limits: Limits,
        registry: Arc<Registry>,
        threads: Option<usize>,
        tile_cache: Option<usize>,
        device: DeviceOptions,
    ) -> Self {
        Self {
            fetch,
            name,
            path,
            header,
            limits,
            registry,
            threads,
            pool: ScratchPool::default(),
            cache: TileCache::new(tile_cache),
            arriving: Arriving::default(),
            reads: AtomicU64::new(0),
            warnings: TileWarnings::default(),
            positions: Positions::default(),
            device,
            device_log: PerProcess::new(),
            main,
            directories: Once::new(),
            metadata: Once::new(),
            sidecars: Once::new(),
            nodata: Once::new(),
        }
    }

    /// The same file with another directory as its image.
    pub(crate) fn with_main(mut self, index: usize) -> Result<Self, Error> {
        let images = self.read_directories()?.images;
        let found = images.into_iter().map(|(image, _)| image).find(|image| image.index as usize == index);
        self.main = found.ok_or_else(|| self.no_directory(index))?;
        // Files beside this one describe the first image.
        self.path = None;
        Ok(self)
    }

    fn no_directory(&self, index: usize) -> Error {
        Error::usage(format!("there is no readable directory {index}")).in_source(&self.name)
    }

    /// Options that open another file as this one was opened.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let options = OpenOptions::default()
            .with_limits(self.limits.clone())
            .with_registry(self.registry.clone())
            .with_device_options(self.device.clone());
        let options = match self.cache.own_budget() {
            Some(bytes) => options.with_tile_cache(bytes),
            None => options,
        };
        match self.threads {
            Some(threads) => options.with_threads(threads),
            None => options,
        }
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes behind the file.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.fetch.source
    }

    /// Requests and bytes so far, for a remote file.
    pub fn traffic(&self) -> Option<Traffic> {
        self.fetch.source.traffic()
    }

    /// Number of decoded tiles that reads found in the cache so far.
    pub fn cache_hits(&self) -> u64 {
        self.cache.hits()
    }

    /// Returns the warnings of the CPU's decoders since the last call, one sentence for each file. A decoder warns where it reads on
    /// after damage, as GDAL does, and where GDAL decodes other samples from the stream.
    pub fn take_warnings(&self) -> Vec<String> {
        let sidecars = self.sidecars.get();
        let side_files = sidecars.into_iter().flat_map(|sidecars| [sidecars.overviews(), sidecars.mask()]);
        let files = std::iter::once(self).chain(side_files.flatten());
        files.filter_map(|file| file.warnings.take(&file.name)).collect()
    }

    /// Identifies this content among others of the same name: an ETag, or a time and size; for a local file its time of change.
    pub fn version(&self) -> Option<String> {
        self.fetch.source.version()
    }

    /// Checks that the name still refers to the file that was opened. A handle never mixes two files: a file that is replaced stays
    /// open, and reads of one that is written to fail.
    ///
    /// # Errors
    /// When the name refers to another file, or the file was written to.
    pub fn check_current(&self) -> Result<(), Error> {
        self.fetch.source.check_name().map_err(|error| Error::from(error).in_source(&self.name))
    }

    /// Passes on the result of a read, or fails if the file was written to since it was opened: then its tiles may be of two files.
    pub(crate) fn unchanged<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        self.fetch.source.check().map_err(|error| Error::from(error).in_source(&self.name))?;
        result
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.fetch.size()
    }

    /// Byte order, and whether it is a BigTIFF.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The first image.
    pub fn main(&self) -> &Image {
        &self.main
    }

    /// Columns of the first image.
    pub fn width(&self) -> u32 {
        self.main.layout.width
    }

    /// Rows of the first image.
    pub fn height(&self) -> u32 {
        self.main.layout.height
    }

    /// Bands of the first image.
    pub fn bands(&self) -> u32 {
        self.main.layout.samples.into()
    }

    /// Type of a sample of the first image.
    pub fn sample(&self) -> SampleType {
        self.main.layout.sample
    }

    /// Every directory of the chain that describes pixels, SubIFDs after the one that names them.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn images(&self) -> Result<impl Iterator<Item = (&Image, Role)>, Error> {
        let directories = self.directories()?;
        Ok(std::iter::once((&self.main, Role::Main))
            .chain(directories.images.iter().map(|(image, role)| (image, *role))))
    }

    /// Errors of directories that could not be parsed, and of a chain that ended early.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn chain_problems(&self) -> Result<&[TiffError], Error> {
        Ok(&self.directories()?.problems)
    }

    pub(crate) fn image(&self, index: usize) -> Result<&Image, Error> {
        let found = self.images()?.map(|(image, _)| image).find(|image| image.index as usize == index);
        found.ok_or_else(|| self.no_directory(index))
    }

    /// GDAL's description of the layout, where the file begins with one.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn ghost(&self) -> Result<Option<Ghost>, Error> {
        self.fetch.parse(|bytes| Ghost::parse(bytes, &self.header)).map_err(|error| error.in_source(&self.name))
    }

    /// The value of a tag.
    ///
    /// # Errors
    /// When it lies beyond the file, exceeds the limit, or bytes cannot be read.
    pub fn value(&self, entry: &Entry) -> Result<Value, Error> {
        self.fetch
            .parse(|bytes| entry.value(bytes, self.header.order, &self.limits))
            .map_err(|error| error.in_source(&self.name))
    }

    /// The value of a tag of the first image, if it has the tag.
    ///
    /// # Errors
    /// As [`Dataset::value`].
    pub fn tag(&self, number: u16) -> Result<Option<Value>, Error> {
        self.main.ifd.entry(number).map(|entry| self.value(entry)).transpose()
    }

    /// The raw bytes of a tag's value.
    pub(crate) fn raw_tag(&self, number: u16) -> Option<Result<Vec<u8>, Error>> {
        let entry = self.main.ifd.entry(number)?;
        Some(self.fetch.parse(|bytes| entry.raw(bytes, &self.limits).map(<[u8]>::to_vec)))
    }

    /// One sentence for each tag that describes the first image but whose value lies beyond the end of the file. Reads ignore these
    /// tags.
    pub fn lost_tags(&self) -> Vec<String> {
        let lost = self.main.ifd.entries.iter().filter(|entry| {
            let end = entry.len().and_then(|len| entry.offset.checked_add(len));
            tag::describes(entry.tag) && end.is_none_or(|end| end > self.size())
        });
        lost.map(|entry| {
            let name = tag::name(entry.tag).unwrap_or("a tag");
            format!("{name} (tag {}) lies beyond the end of the file and is ignored", entry.tag)
        })
        .collect()
    }

    /// One sentence for each file beside this one that cannot be used, such as a damaged `.ovr`, `.msk` or `.aux.xml`. Reads go on
    /// without it.
    pub fn unusable_side_files(&self) -> Vec<String> {
        let sidecars = self.sidecars();
        if sidecars.pam.is_none() && sidecars.world.is_none() {
            return sidecars.problems.clone();
        }
        // Whether these can be used shows only when they are parsed.
        self.metadata().side_problems.clone()
    }

    /// Georeferencing, nodata, band and other metadata; read on first use.
    pub fn metadata(&self) -> &Metadata {
        self.metadata.get_or_init(|| Metadata::read(self))
    }

    /// Files beside this one that add to it.
    pub(crate) fn sidecars(&self) -> &Sidecars {
        self.sidecars.get_or_init(|| Sidecars::find(self))
    }

    /// The same, but fails where side files may be missing because the file was replaced.
    pub(crate) fn found_sidecars(&self) -> Result<&Sidecars, Error> {
        let sidecars = self.sidecars();
        if sidecars.too_late { self.check_current().map(|()| sidecars) } else { Ok(sidecars) }
    }

    /// The file's own nodata value.
    pub(crate) fn nodata(&self) -> Option<&Nodata> {
        self.nodata
            .get_or_init(|| match self.tag(tag::GDAL_NODATA) {
                Ok(Some(Value::Text(text))) => Nodata::parse(text.as_bytes()),
                _ => None,
            })
            .as_ref()
    }

    /// One sample of what the sparse tiles of a directory hold, from its own nodata value or the first directory's.
    pub(crate) fn nodata_fill(&self, image: &Image, sample: SampleType) -> Result<Option<Vec<u8>>, Error> {
        let own = match image.ifd.entry(tag::GDAL_NODATA) {
            Some(entry) => self.value(entry).map(Some),
            None => self.tag(tag::GDAL_NODATA),
        };
        // A damaged nodata tag is ignored; `lost_tags` reports it.
        let own = match own {
            Err(error) if matches!(error.kind(), ErrorKind::Malformed(_) | ErrorKind::Limit(_)) => None,
            other => other?,
        };
        let Some(Value::Text(text)) = own else { return Ok(None) };
        Ok(Nodata::parse(text.as_bytes()).map(|nodata| {
            let mut bytes = nodata.fill(sample).as_slice().to_vec();
            // The imaginary part of a complex nodata value is 0.
            bytes.resize(sample.size(), 0);
            bytes
        }))
    }

    /// The directories other than the main image's, read on first use.
    fn directories(&self) -> Result<&Directories, Error> {
        if let Some(directories) = self.directories.get() {
            return Ok(directories);
        }
        let directories = self.read_directories()?;
        Ok(self.directories.get_or_init(|| directories))
    }

    fn read_directories(&self) -> Result<Directories, Error> {
        let directories = Directories::read(&self.fetch, &self.header, &self.limits, &self.main);
        directories.map_err(|error| error.in_source(&self.name))
    }
}
