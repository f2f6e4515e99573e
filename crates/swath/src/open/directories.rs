//! Finds the overviews, masks and pages of a file in its chain of directories.

use swath_tiff::{
    Limits, Place, TiffError,
    structure::{
        Header, Ifd, Layout, ParseStop,
        chain::{self, Chain, Visited},
    },
};

use super::image::{Image, Role};
use crate::{error::Error, fetch::Fetch};

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

/// All directories but the main image's.
#[derive(Debug, Default)]
pub(super) struct Directories {
    pub(super) images: Vec<(Image, Role)>,
    /// Errors of directories that could not be parsed, and of a chain that ended early.
    pub(super) problems: Vec<TiffError>,
}

impl Directories {
    /// Reads the whole chain of directories, with their SubIFDs.
    pub(super) fn read(fetch: &Fetch, header: &Header, limits: &Limits, main: &Image) -> Result<Self, Error> {
        let mut chain = Chain::starting_at(header.first_ifd);
        let mut visited = Visited::default();
        fetch.load_and_parse(|bytes| chain.walk(&mut visited, bytes, header, limits))?;
        let (ifds, problem) = chain.into_parts();
        let mut reader = Reader { fetch, header, limits, main, visited, found: Self::default() };
        reader.found.problems.extend(problem);
        // Directories of the chain and below it share one limit, and none is visited twice.
        let mut next_sub = ifds.len() as u32;
        for (index, ifd) in ifds.into_iter().enumerate() {
            let index = index as u32;
            let subs = reader.sub_ifds(&ifd)?;
            if index != main.index {
                // The chain lists the overviews and masks of the first image.
                let parent = if main.index == 0 { Parent::Main } else { Parent::Page };
                reader.add(index, ifd, parent)?;
            }
            // SubIFDs of another page belong to that page, however alike the sizes.
            let parent = if index == main.index { Parent::Main } else { Parent::Page };
            for sub in subs {
                if next_sub != main.index {
                    reader.add(next_sub, sub, parent)?;
                }
                next_sub += 1;
            }
        }
        Ok(reader.found)
    }
}

/// Reads directories one by one and collects them.
struct Reader<'a> {
    fetch: &'a Fetch,
    header: &'a Header,
    limits: &'a Limits,
    main: &'a Image,
    visited: Visited,
    found: Directories,
}

impl Reader<'_> {
    /// The SubIFDs of `ifd`, with their own chains.
    fn sub_ifds(&mut self, ifd: &Ifd) -> Result<Vec<Ifd>, Error> {
        let offsets =
            self.fetch.load_and_parse(|bytes| match chain::sub_ifds(ifd, bytes, self.header, self.limits) {
                Ok(offsets) => Ok(Ok(offsets)),
                Err(ParseStop::Fault(error)) => Ok(Err(error)),
                Err(ParseStop::NotLoaded(range)) => Err(range),
            })?;
        let offsets = match offsets {
            Ok(offsets) => offsets,
            Err(error) => {
                self.found.problems.push(error);
                return Ok(Vec::new());
            }
        };
        let mut ifds = Vec::new();
        for offset in offsets {
            if self.visited.contains(offset) {
                continue;
            }
            let mut chain = Chain::starting_at(offset);
            let visited = &mut self.visited;
            self.fetch.load_and_parse(|bytes| chain.walk(visited, bytes, self.header, self.limits))?;
            let (below, problem) = chain.into_parts();
            ifds.extend(below);
            // A hostile file has as many problems as directories.
            if self.found.problems.len() < MAX_PROBLEMS {
                self.found.problems.extend(problem);
            }
        }
        Ok(ifds)
    }

    fn add(&mut self, index: u32, ifd: Ifd, parent: Parent) -> Result<(), Error> {
        let layout = self.fetch.load_and_parse(|bytes| match Layout::parse(&ifd, bytes, self.header, self.limits) {
            Ok(layout) => Ok(Ok(layout)),
            Err(ParseStop::Fault(error)) => Ok(Err(error)),
            Err(ParseStop::NotLoaded(range)) => Err(range),
        })?;
        let place = Place { ifd: Some(index), ..Place::default() };
        match layout.and_then(|layout| Image::new(index, ifd, layout, self.limits)) {
            Ok(image) => {
                let role = match parent {
                    Parent::Main => role(&image, self.main),
                    Parent::Page => Role::Page,
                };
                self.found.images.push((image, role));
            }
            // A damaged page must not hide the others, nor the first image.
            Err(error) if self.found.problems.len() < MAX_PROBLEMS => self.found.problems.push(error.at(&place)),
            Err(_) => {}
        }
        Ok(())
    }
}

/// The role of a directory that belongs to the main image.
fn role(image: &Image, main: &Image) -> Role {
    let (layout, main) = (&image.layout, &main.layout);
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
