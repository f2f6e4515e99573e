//! Opens a file with one or two reads.

mod camera;
pub(crate) mod dataset;
mod directories;
pub(crate) mod image;
pub(crate) mod location;
pub(crate) mod metadata;
pub(crate) mod overviews;
mod sidecar;
mod tables;
mod tile;

use std::{path::Path, sync::Arc};

use swath_codec::Registry;
use swath_cuda::Gpu;
use swath_io::{RemoteOptions, Source};
use swath_tiff::{
    Limits,
    structure::{Bytes, Header, Ifd, Layout},
};

use self::{dataset::Dataset, image::Image};
use crate::{
    device::{DeviceOptions, Mode},
    error::Error,
    fetch::Fetch,
};

/// How to open a file.
///
/// ```no_run
/// # fn main() -> Result<(), swath::Error> {
/// use swath::{Limits, OpenOptions, io::RemoteOptions};
///
/// let remote = RemoteOptions::default().with_anonymous(true);
/// let options = OpenOptions::default().with_threads(4).with_limits(Limits::default()).with_remote(remote);
/// let dataset = options.open("s3://bucket/scene.tif")?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    limits: Limits,
    registry: Option<Arc<Registry>>,
    threads: Option<usize>,
    tile_cache: Option<usize>,
    ifd: usize,
    device: DeviceOptions,
    remote: RemoteOptions,
}

impl OpenOptions {
    /// Limits on the sizes that the file may claim.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Decoders other than the default ones.
    pub fn with_registry(mut self, registry: Arc<Registry>) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Threads a read may use; all cores by default.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Memory of this file's own for decoded tiles that several windows share; 0 for none. By default all files share a twentieth of
    /// the machine's memory (256 MiB at least). The cache fills from the second read of a handle on, with tiles that a window covers
    /// in part.
    pub fn with_tile_cache(mut self, bytes: usize) -> Self {
        self.tile_cache = Some(bytes);
        self
    }

    /// The directory to open as the image, as [`Dataset::images`] counts them; the first by default. Other pages have the overviews
    /// and masks of their own SubIFDs, and no side files.
    pub fn with_ifd(mut self, index: usize) -> Self {
        self.ifd = index;
        self
    }

    /// The decode mode of reads that do not set one: the CPU, a GPU, or a GPU if there is one.
    pub fn with_device(mut self, mode: Mode) -> Self {
        self.device.mode = Some(mode);
        self
    }

    /// The GPU to use; the first by default.
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.device.gpu = Some(gpu);
        self
    }

    /// Device memory for reads that do not set a limit.
    pub fn with_max_device_memory(mut self, bytes: u64) -> Self {
        self.device.max_memory = Some(bytes);
        self
    }

    /// Declares the file to be sound; see [`ReadOptions::with_trust_input`](crate::ReadOptions::with_trust_input).
    pub fn with_trust_input(mut self, trusted: bool) -> Self {
        self.device.trust_input = Some(trusted);
        self
    }

    pub(crate) fn with_device_options(mut self, device: DeviceOptions) -> Self {
        self.device = device;
        self
    }

    /// How to access servers and object stores.
    pub fn with_remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Opens a file: a path of this machine, or an address (`https://`, `s3://`, `gs://`, `az://`).
    ///
    /// # Errors
    /// When it cannot be opened or is not a TIFF file we understand.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Dataset, Error> {
        let path = path.as_ref();
        let name = location::shown(path);
        let source = location::source(path, &self.remote).map_err(|error| Error::from(error).in_source(&name))?;
        // Only local files have side files: asking a server for each that may exist would cost a request.
        let beside = location::address(path).is_none().then_some(path);
        self.open_named(source, name, beside)
    }

    /// Opens any source.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_source(&self, source: Arc<dyn Source>) -> Result<Dataset, Error> {
        let name: Arc<str> = source.name().into();
        self.open_named(source, name, None)
    }

    fn open_named(&self, source: Arc<dyn Source>, name: Arc<str>, path: Option<&Path>) -> Result<Dataset, Error> {
        let open = || {
            let fetch = Fetch::new(source)?;
            let header = fetch.parse(Header::parse)?;
            if header.first_ifd == 0 {
                return Err(Error::malformed("the header names no directory"));
            }
            let parse = |bytes: &Bytes| {
                let ifd = Ifd::parse(bytes, &header, header.first_ifd)?;
                let layout = Layout::parse(&ifd, bytes, &header, &self.limits)?;
                Ok((ifd, layout))
            };
            let (ifd, layout) = fetch.parse(parse).map_err(|error| error.in_ifd(0))?;
            let main = Image::new(0, ifd, layout, &self.limits)?;
            let dataset = Dataset::new(
                fetch,
                name.clone(),
                path.map(Path::to_path_buf),
                header,
                main,
                self.limits.clone(),
                self.registry.clone().unwrap_or_default(),
                self.threads,
                self.tile_cache,
                self.device.clone(),
            );
            if self.ifd == 0 { Ok(dataset) } else { dataset.with_main(self.ifd) }
        };
        open().map_err(|error: Error| error.in_source(&name))
    }
}
