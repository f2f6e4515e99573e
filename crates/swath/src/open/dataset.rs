//! An open file.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use swath_codec::{Registry, Scratch};
use swath_io::{
    Source, Traffic,
    fork::{Once, PerProcess},
};
use swath_raster::memory;
use swath_tiff::{
    Limits, SampleType, TiffError,
    geo::Nodata,
    structure::{
        Entry, Header, Ifd, Layout, ParseStop, Value,
        chain::{self, Chain, Visited},
        ghost::Ghost,
    },
    tag,
};

use crate::{
    device::{DeviceOptions, DeviceReport},
    error::{Error, ErrorKind},
    fetch::Fetch,
    metadata::Metadata,
    open::{
        OpenOptions,
        image::{Image, Role},
        sidecar::Sidecars,
    },
    state::{arriving::Arriving, cache::TileCache, positions::Positions, remarks::Remarks, scratch::ScratchPool},
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
    pub(crate) remarks: Remarks,
    pub(crate) positions: Positions,
    pub(crate) device: DeviceOptions,
    pub(crate) device_log: PerProcess<Mutex<DeviceReport>>,
    main: Image,
    rest: Once<Rest>,
    metadata: Once<Metadata>,
    sidecars: Once<Sidecars>,
    nodata: Once<Option<Nodata>>,
}

/// Most problems of directories that are reported one by one.
const MAX_PROBLEMS: usize = 64;

/// The image that a directory's overviews and masks belong to.
#[derive(Debug, Clone, Copy)]
enum Parent {
    /// The main image: the first directory, or the one that the options name.
    Main,
    /// Another page.
    Page,
}

/// The directories after the first, read on first use.
#[derive(Debug)]
struct Rest {
    images: Vec<(Image, Role)>,
    /// Errors of directories that could not be parsed, and of a chain that ended early.
    problems: Vec<TiffError>,
}

/// Place and size of an overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Directory of the overview.
    pub ifd: u32,
    /// Whether it is in the `.ovr` file beside this one.
    pub external: bool,
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
            remarks: Remarks::default(),
            positions: Positions::default(),
            device,
            device_log: PerProcess::new(),
            main,
            rest: Once::new(),
            metadata: Once::new(),
            sidecars: Once::new(),
            nodata: Once::new(),
        }
    }

    /// The same file with another directory as its image.
    pub(crate) fn with_main(mut self, index: usize) -> Result<Self, Error> {
        let images = self.read_rest().map_err(|error| error.in_source(&self.name))?.images;
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
        files.filter_map(|file| file.remarks.take(&file.name)).collect()
    }

    /// Identifies this content among others of the same name: an ETag, or a time and size; for a local file its time of change.
    pub fn version(&self) -> Option<String> {
        self.fetch.source.version()
    }

    /// Checks that the name still leads to the file that was opened. A handle never mixes two files: a file that is replaced stays
    /// open, and reads of one that is written to fail.
    ///
    /// # Errors
    /// When the name leads to another file, or the file was written to.
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
        let rest = self.rest()?;
        Ok(std::iter::once((&self.main, Role::Main)).chain(rest.images.iter().map(|(image, role)| (image, *role))))
    }

    /// Errors of directories that could not be parsed, and of a chain that ended early.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn chain_problems(&self) -> Result<&[TiffError], Error> {
        Ok(&self.rest()?.problems)
    }

    pub(crate) fn image(&self, index: usize) -> Result<&Image, Error> {
        let found = self.images()?.map(|(image, _)| image).find(|image| image.index as usize == index);
        found.ok_or_else(|| self.no_directory(index))
    }

    /// Overviews of the first image, largest first: those in the file, else those in an `.ovr` file beside it.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn overviews(&self) -> Result<Vec<Overview>, Error> {
        let list = |dataset: &Dataset, external: bool| -> Result<Vec<Overview>, Error> {
            let mut found: Vec<Overview> = dataset
                .images()?
                .filter(|(_, role)| *role == Role::Overview || (external && *role == Role::Main))
                .map(|(image, _)| Overview {
                    width: image.layout.width,
                    height: image.layout.height,
                    ifd: image.index,
                    external,
                })
                .collect();
            found.sort_by_key(|overview| std::cmp::Reverse((overview.width, overview.height)));
            Ok(found)
        };
        let internal = list(self, false)?;
        if !internal.is_empty() {
            return Ok(internal);
        }
        match self.found_sidecars()?.overviews() {
            Some(beside) => list(beside, true),
            None => Ok(internal),
        }
    }

    /// Overview `level`, counted from 0 for the largest.
    ///
    /// # Errors
    /// When there is no such overview, or bytes cannot be read.
    pub fn overview(&self, level: usize) -> Result<Overview, Error> {
        let overviews = self.overviews()?;
        overviews.get(level).copied().ok_or_else(|| {
            Error::usage(format!("there is no overview {level}; the file has {}", overviews.len()))
                .in_source(&self.name)
        })
    }

    pub(crate) fn overview_image(&self, overview: &Overview) -> Result<(&Dataset, &Image), Error> {
        let dataset = match self.sidecars().overviews() {
            Some(beside) if overview.external => beside,
            _ => self,
        };
        dataset.image(overview.ifd as usize).map(|image| (dataset, image))
    }

    /// The smallest overview that still has at least `width` by `height` pixels; `None` when only the full image does.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn best_overview(&self, width: u32, height: u32) -> Result<Option<usize>, Error> {
        let overviews = self.overviews()?;
        Ok(overviews.iter().rposition(|overview| overview.width >= width && overview.height >= height))
    }

    /// Rows and columns of the tiles or strips of an overview, counted from 0 for the largest.
    ///
    /// # Errors
    /// When there is no such overview, or bytes cannot be read.
    pub fn overview_block(&self, level: usize) -> Result<(u32, u32), Error> {
        let (_, image) = self.overview_image(&self.overview(level)?)?;
        Ok((image.grid.tile_height.min(image.layout.height), image.layout.tile_width))
    }

    /// GDAL's notes on the layout, where the file begins with them.
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

    /// The stored bytes of a tile; `None` for a sparse one.
    ///
    /// # Errors
    /// When the tile does not exist or cannot be read.
    pub fn tile_bytes(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<Option<Vec<u8>>, Error> {
        let index = self.tile_index(image, column, row, plane)?;
        let range = image.locate(index..index + 1, &self.fetch).map_err(|error| error.in_source(&self.name))?;
        let Some(Some(range)) = range.into_iter().next() else { return Ok(None) };
        let bytes = self.unchanged(self.fetch.bytes(range));
        bytes.map(Some).map_err(|error| error.at(&image.place_of(index)).in_source(&self.name))
    }

    /// A tile decoded to native samples, pixel by pixel, padding included; `None` for a sparse one.
    ///
    /// # Errors
    /// When the tile does not exist, cannot be read or is damaged.
    pub fn tile(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<Option<Vec<u8>>, Error> {
        let Some(bytes) = self.tile_bytes(image, column, row, plane)? else { return Ok(None) };
        let decode = || {
            let host = image.host(&self.registry, &self.limits)?;
            let rows = image.grid.stored_rows(row);
            let mut out: Vec<u8> = memory::zeroed(host.spec().native_row_len().saturating_mul(rows as usize))?;
            host.decode_native(rows, &bytes, &mut out, &mut Scratch::default())?;
            Ok(Some(out))
        };
        let place = image.place_of(image.grid.index(column, row, plane));
        decode().map_err(|error: Error| error.at(&place).in_source(&self.name))
    }

    fn tile_index(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<u64, Error> {
        let grid = &image.grid;
        if column >= grid.across || row >= grid.down || plane >= grid.planes {
            let detail = format!(
                "there is no tile ({column}, {row}) in plane {plane}; the grid is {}x{} with {} planes",
                grid.across, grid.down, grid.planes
            );
            return Err(Error::usage(detail).in_ifd(image.index).in_source(&self.name));
        }
        Ok(grid.index(column, row, plane))
    }

    fn rest(&self) -> Result<&Rest, Error> {
        if let Some(rest) = self.rest.get() {
            return Ok(rest);
        }
        let rest = self.read_rest().map_err(|error| error.in_source(&self.name))?;
        Ok(self.rest.get_or_init(|| rest))
    }

    fn read_rest(&self) -> Result<Rest, Error> {
        let mut chain = Chain::starting_at(self.header.first_ifd);
        let mut visited = Visited::default();
        self.fetch.step(|bytes| chain.walk(&mut visited, bytes, &self.header, &self.limits))?;
        let (ifds, problem) = chain.into_parts();
        let mut problems: Vec<TiffError> = problem.into_iter().collect();
        let mut images: Vec<(Image, Role)> = Vec::new();
        // Directories of the chain and below it share one limit, and none is visited twice.
        let mut next_sub = ifds.len() as u32;
        for (index, ifd) in ifds.into_iter().enumerate() {
            let index = index as u32;
            let subs = self.sub_ifds(&ifd, &mut visited, &mut problems)?;
            if index != self.main.index {
                // The chain lists the overviews and masks of the first image.
                let parent = if self.main.index == 0 { Parent::Main } else { Parent::Page };
                self.add_image(index, ifd, parent, &mut images, &mut problems)?;
            }
            // SubIFDs of another page belong to that page, however alike the sizes.
            let parent = if index == self.main.index { Parent::Main } else { Parent::Page };
            for sub in subs {
                if next_sub != self.main.index {
                    self.add_image(next_sub, sub, parent, &mut images, &mut problems)?;
                }
                next_sub += 1;
            }
        }
        Ok(Rest { images, problems })
    }

    /// The SubIFDs of `ifd`, with their own chains.
    fn sub_ifds(&self, ifd: &Ifd, visited: &mut Visited, problems: &mut Vec<TiffError>) -> Result<Vec<Ifd>, Error> {
        let offsets = self.fetch.step(|bytes| match chain::sub_ifds(ifd, bytes, &self.header, &self.limits) {
            Ok(offsets) => Ok(Ok(offsets)),
            Err(ParseStop::Fault(error)) => Ok(Err(error)),
            Err(ParseStop::NotLoaded(range)) => Err(range),
        })?;
        let mut found = Vec::new();
        match offsets {
            Ok(offsets) => {
                for offset in offsets {
                    if visited.contains(offset) {
                        continue;
                    }
                    let mut chain = Chain::starting_at(offset);
                    self.fetch.step(|bytes| chain.walk(visited, bytes, &self.header, &self.limits))?;
                    let (ifds, problem) = chain.into_parts();
                    found.extend(ifds);
                    // A hostile file has as many problems as directories.
                    if problems.len() < MAX_PROBLEMS {
                        problems.extend(problem);
                    }
                }
            }
            Err(error) => problems.push(error),
        }
        Ok(found)
    }

    fn add_image(
        &self,
        index: u32,
        ifd: Ifd,
        parent: Parent,
        images: &mut Vec<(Image, Role)>,
        problems: &mut Vec<TiffError>,
    ) -> Result<(), Error> {
        let layout = self.fetch.step(|bytes| match Layout::parse(&ifd, bytes, &self.header, &self.limits) {
            Ok(layout) => Ok(Ok(layout)),
            Err(ParseStop::Fault(error)) => Ok(Err(error)),
            Err(ParseStop::NotLoaded(range)) => Err(range),
        })?;
        let place = swath_tiff::Place { ifd: Some(index), ..Default::default() };
        match layout.and_then(|layout| Image::new(index, ifd, layout, &self.limits)) {
            Ok(image) => {
                let role = match parent {
                    Parent::Main => self.role(&image),
                    Parent::Page => Role::Page,
                };
                images.push((image, role));
            }
            // A damaged page must not hide the others, nor the first image.
            Err(error) if problems.len() < MAX_PROBLEMS => problems.push(error.at(&place)),
            Err(_) => {}
        }
        Ok(())
    }

    fn role(&self, image: &Image) -> Role {
        let (layout, main) = (&image.layout, &self.main.layout);
        if layout.is_mask() {
            Role::Mask
        } else if layout.is_reduced()
            && layout.samples == main.samples
            && (layout.width < main.width || layout.height < main.height)
        {
            Role::Overview
        } else {
            Role::Page
        }
    }
}
