//! Plans a file from shape, metadata and options, before the first byte is written.

use std::sync::Arc;

use swath_codec::{TileSpec, encode::Settings, host::encode::HostEncoder};
use swath_cuda::encode::{Edge, EncodePath, TileFormat, choose_encode_path};
use swath_io::sink::BLOCK;
use swath_raster::shrink;
use swath_tiff::{
    Compression, Grid, Limits, Photometric, SampleFormat, SampleType,
    geo::Nodata,
    structure::{
        Layout, Planar, Predictor,
        emit::{self, Field, Style, Values},
        value::FieldType,
    },
    tag,
};

use super::{
    layout::main_layout,
    level_writer::LevelWriter,
    levels::Levels,
    options::{BigTiff, Blocks, Overviews, Shape, WriteOptions},
    tags,
};
use crate::{
    error::{Error, ErrorKind},
    metadata::Metadata,
};

/// Levels that together cannot become larger than this are kept in memory until the end. They lie without gaps, and a small file is
/// written at once.
const MOST_BUFFERED: u64 = 16 << 20;
/// Largest offset of a classic TIFF file.
const CLASSIC: u64 = u32::MAX as u64;

/// One level of a file: the image or an overview, and its mask.
#[derive(Debug)]
pub(super) struct LevelPlan {
    pub layout: Layout,
    pub grid: Grid,
    pub host: HostEncoder,
    pub mask: Option<(Layout, HostEncoder)>,
    /// Most bytes of a tile that a GPU compresses, its frame included.
    pub device_whole: u64,
    /// The same for a tile of its mask.
    pub device_mask_whole: u64,
    /// Pieces that a GPU cuts its tiles into, where the file lists their sizes; else 0.
    pub pieces: u32,
}

impl LevelPlan {
    /// Tiles at each position of the grid: one for all bands or one for each, and the mask's.
    pub fn tiles_per_position(&self) -> u32 {
        self.grid.planes + u32::from(self.mask.is_some())
    }

    /// Sizes of pieces that the file lists for its tiles in so many tile rows.
    pub fn piece_sizes(&self, tile_rows: u32) -> usize {
        let tiles = tile_rows as usize * self.grid.across as usize * self.grid.planes as usize;
        tiles * self.listed_pieces()
    }

    /// Sizes of pieces that the file lists for a tile; a tile of one piece needs no list.
    pub fn listed_pieces(&self) -> usize {
        if self.pieces > 1 { self.pieces as usize } else { 0 }
    }

    /// The codec of the tiles of the image, or of its mask.
    pub fn host_of(&self, mask: bool) -> Result<&HostEncoder, Error> {
        match (mask, &self.mask) {
            (false, _) => Ok(&self.host),
            (true, Some((_, host))) => Ok(host),
            (true, None) => Err(Error::internal("a mask is encoded for a level without one")),
        }
    }

    /// Bytes of a row of all bands in memory, the mask's included.
    pub fn row_len(&self) -> usize {
        let samples = self.layout.width as usize * usize::from(self.layout.samples) * self.layout.sample.size();
        samples + if self.mask.is_some() { self.layout.width as usize } else { 0 }
    }

    /// Bytes of a row of each plane in memory: its bands, then its mask.
    pub fn plane_row_lens(&self) -> Vec<usize> {
        let width = self.layout.width as usize;
        let mut planes = vec![width * self.layout.sample.size(); self.layout.samples.into()];
        if self.mask.is_some() {
            planes.push(width);
        }
        planes
    }

    /// Most bytes of all its tiles, each with a frame of `frame` bytes.
    fn worst(&self, frame: u64) -> u64 {
        let positions = u64::from(self.grid.across) * u64::from(self.grid.down);
        let [tile, mask] = self.worst_tiles(frame);
        positions.saturating_mul(tile * u64::from(self.grid.planes) + mask)
    }

    /// Most bytes of a tile of the image, and of a tile of its mask.
    pub fn worst_tiles(&self, frame: u64) -> [u64; 2] {
        let rows = self.layout.tile_height;
        let tile = (self.host.max_encoded_len(rows) as u64 + frame).max(self.device_whole);
        let mask = self.mask.as_ref().map_or(0, |(_, host)| host.max_encoded_len(rows) as u64 + frame);
        [tile, mask.max(self.device_mask_whole)]
    }

    /// Bytes that one thread needs for a tile: samples, scratch and result.
    pub fn thread_len(&self) -> usize {
        let rows = self.layout.tile_height;
        let spec = self.host.spec();
        spec.native_row_len() * rows as usize + self.host.scratch_len(rows) + self.host.max_encoded_len(rows)
    }
}

/// Everything that is planned before the first byte is written.
#[derive(Debug)]
pub(super) struct Plan {
    pub levels: Levels<LevelPlan>,
    /// Whether the whole file has overviews, even where this plan of some of its rows has none.
    pub with_overviews: bool,
    /// Whether a GPU makes the tiles.
    pub on_device: bool,
    pub style: Style,
    /// Leader and trailer of each tile.
    pub frame: u64,
    pub resampling: shrink::Resampling,
    pub ghost: Option<String>,
    /// Tags of the first directory that do not describe its layout.
    pub fields: Vec<Field>,
    /// Room for metadata that is known only at the end.
    pub metadata_reserve: u64,
    pub statistics: bool,
    pub nodata: Option<Field>,
    /// The sample that readers use for a tile that is left out.
    pub fill: Vec<u8>,
    /// Whether the file leaves out tiles that hold only that sample.
    pub sparse: bool,
}

impl Plan {
    /// Plans a file; `on_device` says that a GPU makes the tiles.
    pub fn new(shape: Shape, metadata: &Metadata, options: &WriteOptions, on_device: bool) -> Result<Self, Error> {
        check_shape(shape)?;
        options.check_settings()?;
        let statistics = options.wants_statistics() && !shape.sample.is_complex();
        let main = main_layout(shape, metadata, options)?;
        let mut levels = Levels { main: level(main.clone(), options, on_device)?, overviews: Vec::new() };
        for (width, height) in overview_sizes(shape, options)? {
            let mut layout = Layout { width, height, subfile_type: 1, ..main.clone() };
            if !layout.tiled {
                layout.tile_width = width;
                layout.tile_height = layout.tile_height.min(height);
            }
            levels.overviews.push(level(layout, options, on_device)?);
        }
        let palette = main.photometric == Some(Photometric::Palette);
        let usual = if palette { shrink::Resampling::Nearest } else { shrink::Resampling::Average };
        // Indices of a palette have no mean.
        let resampling = options.resampling.filter(|asked| !(palette && asked.mixes())).unwrap_or(usual);
        let with_overviews = levels.has_overviews();
        let text = tags::Text { metadata, options, layout: &main, resampling: with_overviews.then_some(resampling) };
        let mut fields = text.fields()?;
        // Only our own tags reserve room.
        fields.extend(options.tags.iter().cloned().map(|field| field.with_reserve(0)));
        tags::check(&fields)?;
        check_tables(&levels, options)?;
        let nodata = fields.iter().find(|field| field.tag == tag::GDAL_NODATA).cloned();
        let mut plan = Self {
            levels,
            with_overviews,
            on_device,
            style: Style { order: options.order, big: options.bigtiff == BigTiff::Always },
            frame: if options.cog { 8 } else { 0 },
            resampling,
            ghost: None,
            fields,
            metadata_reserve: if statistics { text.reserve() } else { 0 },
            statistics,
            fill: fill(nodata.as_ref(), shape.sample),
            sparse: options.sparse && !is_whole_only(&main),
            nodata,
        };
        if options.cog {
            plan.ghost = Some(plan.ghost_text());
        }
        plan.choose_offsets(options.bigtiff)?;
        let long = plan
            .fields
            .iter()
            .find(|field| matches!(field.kind, FieldType::Long8 | FieldType::SLong8 | FieldType::Ifd8));
        if let Some(field) = long.filter(|_| !plan.style.big) {
            return Err(Error::usage(format!("tag {} has numbers of 64 bits, which are for BigTIFF", field.tag)));
        }
        Ok(plan)
    }

    /// Plans an image of its own with the tiles of level `index`, and with a first overview of half its size where `with_overview` says
    /// so. Its tiles have the bytes of the same part of the whole file.
    pub fn of_part(
        &self,
        index: usize,
        (width, height): (u32, u32),
        with_overview: bool,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let main = Layout { width, height, ..self.levels.at(index)?.layout.clone() };
        let mut levels = Levels { main: level(main, options, self.on_device)?, overviews: Vec::new() };
        if with_overview {
            let below = self.levels.at(index + 1)?;
            let layout = Layout { width: width / 2, height: height / 2, ..below.layout.clone() };
            levels.overviews.push(level(layout, options, self.on_device)?);
        }
        Ok(Self {
            levels,
            with_overviews: self.with_overviews,
            on_device: self.on_device,
            style: self.style,
            frame: self.frame,
            resampling: self.resampling,
            ghost: None,
            fields: Vec::new(),
            metadata_reserve: 0,
            statistics: self.statistics && index == 0,
            nodata: None,
            fill: self.fill.clone(),
            sparse: self.sparse,
        })
    }

    /// The layout guarantees for GDAL's readers.
    fn ghost_text(&self) -> String {
        let main = &self.levels.main;
        let planes = main.grid.planes;
        let interleave = if planes > 1 { "INTERLEAVE=BAND\n" } else { "" };
        // With tiles of each band the mask follows the last one, which is not what GDAL means by this.
        let mask = main.mask.is_some() && planes == 1;
        emit::ghost_text(&format!(
            "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n\
             BLOCK_TRAILER=LAST_4_BYTES_REPEATED\n{interleave}KNOWN_INCOMPATIBLE_EDITION=NO\n {}",
            if mask { "MASK_INTERLEAVED_WITH_IMAGERY=YES\n" } else { "" }
        ))
    }

    /// Chooses classic offsets only if the largest possible file fits them.
    fn choose_offsets(&mut self, wish: BigTiff) -> Result<(), Error> {
        let worst = |plan: &Self| -> u64 {
            let levels = plan.levels.iter().map(|level| level.worst(plan.frame).saturating_add(BLOCK));
            levels.fold(plan.head_len(), u64::saturating_add)
        };
        match wish {
            BigTiff::Always => {}
            BigTiff::Auto => {
                self.style.big = worst(self) > CLASSIC;
            }
            BigTiff::Never => {
                let worst = worst(self);
                if worst > CLASSIC {
                    return Err(Error::usage(format!(
                        "the file could become {worst} bytes long, more than the 4 GiB of a classic TIFF; \
                         let BigTIFF be chosen (auto) or always used"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Clears `bytes`, lets `write` append a tile, and adds leader and trailer where the file has them.
    pub fn framed(
        &self,
        bytes: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        const LEADER: usize = 4;
        bytes.clear();
        let before = if self.frame == 0 { 0 } else { LEADER };
        bytes.resize(before, 0);
        write(bytes)?;
        // Without bytes it would be a tile that is left out.
        if bytes.len() <= before {
            return Err(Error::internal("a tile was encoded to no bytes"));
        }
        if self.frame == 0 {
            return Ok(());
        }
        let too_long = || Error::internal(format!("a tile was encoded to {} bytes", bytes.len()));
        let len = u32::try_from(bytes.len() - LEADER).map_err(|_| too_long())?;
        let lost = || Error::internal("a tile lost its leader");
        *bytes.first_chunk_mut::<LEADER>().ok_or_else(lost)? = len.to_le_bytes();
        let trailer = *bytes.last_chunk::<LEADER>().ok_or_else(lost)?;
        bytes.extend_from_slice(&trailer);
        Ok(())
    }

    /// Where the tiles of each level are written. No tile moves while the file is written.
    pub fn level_writers(&self) -> Levels<LevelWriter> {
        let (mut room, mut position, mut all_buffered) = (MOST_BUFFERED, self.head_len(), true);
        let mut place = |level: &LevelPlan, bands: u16| {
            let worst = level.worst(self.frame);
            all_buffered = worst <= room && all_buffered;
            room = room.saturating_sub(worst);
            // A single level needs no gap before it.
            if !all_buffered && self.levels.has_overviews() {
                position = position.next_multiple_of(BLOCK);
            }
            let writer = LevelWriter::new(position, self.frame, all_buffered, bands, worst);
            position = position.saturating_add(worst);
            writer
        };
        // The smallest overview lies first in the file, the image last.
        let mut overviews: Vec<LevelWriter> = self.levels.overviews.iter().rev().map(|level| place(level, 0)).collect();
        overviews.reverse();
        let bands = if self.statistics { self.levels.main.layout.samples } else { 0 };
        Levels { main: place(&self.levels.main, bands), overviews }
    }

    /// The first byte that no tile can reach, even if none is compressed. The image is last.
    pub fn reach(&self, writers: &Levels<LevelWriter>) -> u64 {
        writers.main.start().saturating_add(self.levels.main.worst(self.frame))
    }
}

/// Returns the sample that readers derive from the nodata tag, whose value need not fit the type: 300 among bytes becomes 255.
fn fill(nodata: Option<&Field>, sample: SampleType) -> Vec<u8> {
    let mut bytes = match nodata.map(|field| &field.values) {
        Some(Values::Bytes(text)) => {
            Nodata::parse(text).map_or_else(Vec::new, |nodata| nodata.fill(sample).as_slice().to_vec())
        }
        _ => Vec::new(),
    };
    bytes.resize(sample.size(), 0);
    bytes
}

/// Whether libtiff converts these samples to colours for GDAL, which fails where tiles are left out.
fn is_whole_only(layout: &Layout) -> bool {
    matches!(layout.photometric, Some(Photometric::Separated | Photometric::CieLab)) && layout.bits == 8
}

fn check_shape(shape: Shape) -> Result<(), Error> {
    let limit = i32::MAX as u32;
    if shape.width == 0 || shape.height == 0 || shape.bands == 0 {
        let Shape { width, height, bands, .. } = shape;
        return Err(Error::usage(format!("a raster of {width} x {height} pixels and {bands} bands has no samples")));
    }
    if shape.width > limit || shape.height > limit {
        return Err(Error::usage(format!(
            "an image of {} x {} pixels has more than {limit} pixels on a side",
            shape.width, shape.height
        )));
    }
    Ok(())
}

/// Checks that the tables of tiles, which memory holds several times, fit into the limit.
fn check_tables(levels: &Levels<LevelPlan>, options: &WriteOptions) -> Result<(), Error> {
    let tiles: u64 = levels.iter().map(|level| level.grid.count()).sum();
    let (needed, budget) = (tiles.saturating_mul(48), options.max_memory);
    if needed > budget as u64 {
        return Err(Error::over(
            "max_memory",
            format!(
                "the tables of {tiles} tiles take {needed} bytes of memory, {budget} are allowed; use larger tiles"
            ),
        ));
    }
    Ok(())
}

fn overview_sizes(shape: Shape, options: &WriteOptions) -> Result<Vec<(u32, u32)>, Error> {
    let (width, height) = (shape.width, shape.height);
    let tile = match options.blocks {
        Blocks::Tiles(across, down) => across.max(down),
        Blocks::Strips(_) => 512,
    };
    Ok(match &options.overviews {
        Overviews::None => Vec::new(),
        Overviews::Auto if options.cog => shrink::levels(width, height, tile),
        Overviews::Auto => Vec::new(),
        // As GDAL's COG driver: each half of the one before, rounded down.
        Overviews::Levels(count) if options.cog => {
            let half = |(width, height): &(u32, u32)| {
                (*width > 1 || *height > 1).then_some(((width / 2).max(1), (height / 2).max(1)))
            };
            std::iter::successors(Some((width, height)), half).skip(1).take(*count as usize).collect()
        }
        Overviews::Levels(count) => {
            let factors: Vec<u32> = (1..=*count).map_while(|level| 1_u32.checked_shl(level)).collect();
            sizes_by_factor(width, height, &factors)?
        }
        Overviews::Factors(factors) => sizes_by_factor(width, height, factors)?,
    })
}

/// Sizes for rising factors, each a multiple of the one before. Factors that would not reduce the image further are dropped.
fn sizes_by_factor(width: u32, height: u32, factors: &[u32]) -> Result<Vec<(u32, u32)>, Error> {
    let befores = std::iter::once(&1).chain(factors);
    if factors.iter().zip(befores).any(|(factor, before)| factor <= before || factor % before != 0) {
        let list = factors.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        return Err(Error::usage(format!(
            "overview factors rise from 2, each a multiple of the one before, as in 2,4,8: not {list}"
        )));
    }
    let mut sizes = shrink::levels_by_factors(width, height, factors);
    sizes.dedup();
    sizes.retain(|size| *size != (width, height));
    Ok(sizes)
}

fn level(mut layout: Layout, options: &WriteOptions, on_device: bool) -> Result<LevelPlan, Error> {
    let max_tile = layout_tile_len(&layout);
    if max_tile > i32::MAX as u64 {
        return Err(Error::usage(format!(
            "a tile of {max_tile} bytes is larger than readers accept; use smaller tiles"
        )));
    }
    let spec = Arc::new(TileSpec::new(&layout, Limits::none())?);
    let host = HostEncoder::new(spec, &options.settings, &options.registry)?;
    layout.jpeg_tables = host.jpeg_tables();
    let grid = Grid::new(&layout).map_err(|error| Error::new(ErrorKind::Limit(error.to_string())))?;
    let mask = options.mask.then(|| mask_level(&layout, options)).transpose()?;
    let mut level = LevelPlan { layout, grid, host, mask, device_whole: 0, device_mask_whole: 0, pieces: 0 };
    if on_device {
        set_device_bounds(&mut level, options);
    }
    Ok(level)
}

/// Plans the mask of a level: Deflate, cut like the image, one bit a pixel, or eight for a soft mask.
fn mask_level(image: &Layout, options: &WriteOptions) -> Result<(Layout, HostEncoder), Error> {
    let layout = Layout {
        bits: if options.soft_mask { 8 } else { 1 },
        format: SampleFormat::Uint,
        sample: SampleType::U8,
        samples: 1,
        planar: Planar::Contig,
        compression: Compression::Deflate,
        compression_code: Compression::Deflate.code(),
        predictor: Predictor::None,
        photometric: Some(Photometric::Mask),
        extra_samples: Vec::new(),
        subfile_type: image.subfile_type | 4,
        ycbcr: None,
        lerc: Vec::new(),
        jpeg_tables: None,
        ..image.clone()
    };
    let spec = Arc::new(TileSpec::new(&layout, Limits::none())?);
    let host = HostEncoder::new(spec, &Settings::default(), &options.registry)?;
    Ok((layout, host))
}

fn layout_tile_len(layout: &Layout) -> u64 {
    u64::from(layout.tile_width)
        .saturating_mul(layout.tile_height.into())
        .saturating_mul(layout.samples_per_tile().into())
        .saturating_mul(layout.sample.size() as u64)
}

/// Sets how large a level's tiles can become where a GPU compresses them, and how many pieces they have.
fn set_device_bounds(level: &mut LevelPlan, options: &WriteOptions) {
    let spec = level.host.spec();
    let path = choose_encode_path(spec, &options.settings, options.nvcomp).unwrap_or(EncodePath::Host);
    let format = |host: &HostEncoder, path: EncodePath, rows: u32| TileFormat {
        spec: host.spec().clone(),
        path,
        edge: Edge::Zero,
        fill: None,
        frame: true,
        rows,
        native: host.takes_native(),
        native_swapped: false,
    };
    let image = format(&level.host, path, level.layout.tile_height);
    level.device_whole = image.max_whole() as u64;
    level.pieces = if path.has_pieces() { image.pieces() } else { 0 };
    level.device_mask_whole = level
        .mask
        .as_ref()
        .map_or(0, |(layout, host)| format(host, EncodePath::Deflate(2), layout.tile_height).max_whole() as u64);
}
