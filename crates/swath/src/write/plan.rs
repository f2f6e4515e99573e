//! From shape, metadata and options to the layout of every level: what is decided before the first byte is written.

use std::sync::Arc;

use swath_codec::{TileSpec, encode::Settings, host::encode::HostEncoder, pre::moments::Moments, shrink};
use swath_io::sink::BLOCK;
use swath_tiff::{
    Compression, Limits, SampleFormat, SampleType,
    geo::Nodata,
    plan::Grid,
    structure::{
        Layout, Planar, Predictor,
        emit::{self, Directory, Field, Style, Values},
        tag,
        value::FieldType,
    },
    words::photometric::Photometric,
};

use super::{
    device_plan,
    lane::Lane,
    layout::main_layout,
    options::{BigTiff, Blocks, Overviews, Shape, WriteOptions},
    tags,
};
use crate::{
    error::{Error, ErrorKind},
    metadata::Metadata,
};

/// Levels that are surely no larger than this together are kept in memory until the end: they lie without gaps, and a small
/// file is written in one go.
const HELD: u64 = 16 << 20;
/// Offsets of a classic TIFF file end here.
const CLASSIC: u64 = u32::MAX as u64;

/// One level of a file: the image or an overview, and its mask.
#[derive(Debug)]
pub(super) struct LevelPlan {
    pub layout: Layout,
    pub grid: Grid,
    pub host: HostEncoder,
    pub mask: Option<(Layout, HostEncoder)>,
    /// Bytes that a tile cannot exceed where a GPU compresses it, all that stands around it included.
    pub device_whole: u64,
    /// The same of a tile of its mask.
    pub device_mask_whole: u64,
    /// Pieces that a GPU cuts its tiles into, where their sizes are noted; else 0.
    pub pieces: u32,
}

impl LevelPlan {
    /// Tiles at each position of the grid: one for all bands or one for each, and the mask's.
    pub fn parts(&self) -> u32 {
        self.grid.planes + u32::from(self.mask.is_some())
    }

    /// Bytes of a row of all bands in memory, the mask's included.
    pub fn row_len(&self) -> usize {
        let samples = self.layout.width as usize * usize::from(self.layout.samples) * self.layout.sample.size();
        samples + if self.mask.is_some() { self.layout.width as usize } else { 0 }
    }

    /// Bytes that its tiles, each with a frame of `frame` bytes, cannot exceed.
    fn worst(&self, frame: u64) -> u64 {
        let positions = u64::from(self.grid.across) * u64::from(self.grid.down);
        let [tile, mask] = self.worst_tiles(frame);
        positions.saturating_mul(tile * u64::from(self.grid.planes) + mask)
    }

    /// Bytes that a tile of the image, and one of its mask, cannot exceed.
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

/// Everything that is decided before the first byte is written.
#[derive(Debug)]
pub(super) struct Plan {
    /// The image, then overviews from the largest.
    pub levels: Vec<LevelPlan>,
    /// Whether the file has overviews, though the plan of some of its rows has none.
    pub with_overviews: bool,
    /// Whether a GPU makes the tiles.
    pub on_device: bool,
    pub style: Style,
    /// Leader and trailer of each tile.
    pub frame: u64,
    pub resampling: shrink::Resampling,
    ghost: Option<String>,
    /// Tags of the first directory that do not describe its layout.
    fields: Vec<Field>,
    /// Room for what is known at the end only.
    metadata_reserve: u64,
    pub statistics: bool,
    nodata: Option<Field>,
    /// The sample that readers put where a tile was left out.
    pub fill: Vec<u8>,
    /// Whether tiles that hold nothing but that sample are left out.
    pub sparse: bool,
}

impl Plan {
    /// `on_device`: a GPU makes the tiles.
    pub fn new(shape: Shape, metadata: &Metadata, options: &WriteOptions, on_device: bool) -> Result<Self, Error> {
        check_shape(shape)?;
        let statistics = options.wants_statistics() && !shape.sample.is_complex();
        let main = main_layout(shape, metadata, options)?;
        let mut levels = vec![level(main.clone(), options, on_device)?];
        for (width, height) in overview_sizes(shape, options)? {
            let mut layout = Layout { width, height, subfile_type: 1, ..main.clone() };
            if !layout.tiled {
                layout.tile_width = width;
                layout.tile_height = layout.tile_height.min(height);
            }
            levels.push(level(layout, options, on_device)?);
        }
        let palette = main.photometric == Some(Photometric::Palette);
        let usual = if palette { shrink::Resampling::Nearest } else { shrink::Resampling::Average };
        let resampling = options.resampling.unwrap_or(usual);
        let with_overviews = levels.len() > 1;
        let text = tags::Text { metadata, options, layout: &main, resampling: with_overviews.then_some(resampling) };
        let mut fields = text.fields()?;
        // Room is ours to keep: a caller's tag has its length.
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

    /// The plan of an image of its own with the tiles of level `index`, and with a first overview of half its size where that
    /// is asked for: its tiles come out as those of a part of the whole.
    pub fn of_part(
        &self,
        index: usize,
        (width, height): (u32, u32),
        with_overview: bool,
        options: &WriteOptions,
    ) -> Result<Self, Error> {
        let missing = || Error::usage("there is no such level to write");
        let main = self.levels.get(index).ok_or_else(missing)?;
        let mut levels = vec![level(Layout { width, height, ..main.layout.clone() }, options, self.on_device)?];
        if with_overview {
            let below = self.levels.get(index + 1).ok_or_else(missing)?;
            let layout = Layout { width: width / 2, height: height / 2, ..below.layout.clone() };
            levels.push(level(layout, options, self.on_device)?);
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

    /// What GDAL's readers may rely on.
    fn ghost_text(&self) -> String {
        let main = self.levels.first();
        let planes = main.map_or(1, |level| level.grid.planes);
        let interleave = if planes > 1 { "INTERLEAVE=BAND\n" } else { "" };
        // With tiles of each band the mask follows the last one, which is not what GDAL means by this.
        let mask = main.is_some_and(|level| level.mask.is_some()) && planes == 1;
        emit::ghost_text(&format!(
            "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n\
             BLOCK_TRAILER=LAST_4_BYTES_REPEATED\n{interleave}KNOWN_INCOMPATIBLE_EDITION=NO\n {}",
            if mask { "MASK_INTERLEAVED_WITH_IMAGERY=YES\n" } else { "" }
        ))
    }

    /// Classic offsets only where the largest file that could come of this has them.
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

    /// Puts what `write` appends to `bytes`, which are empty, between leader and trailer where the file has them.
    pub fn framed(
        &self,
        bytes: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        bytes.clear();
        if self.frame == 0 {
            return write(bytes);
        }
        bytes.extend_from_slice(&[0; 4]);
        write(bytes)?;
        let len = bytes.len() as u32 - 4;
        if let Some(leader) = bytes.first_chunk_mut::<4>() {
            *leader = len.to_le_bytes();
        }
        let trailer = bytes.last_chunk::<4>().copied().unwrap_or_default();
        bytes.extend_from_slice(&trailer);
        Ok(())
    }

    /// Where every level's tiles are streamed to: `None` of them moves while the file is written.
    pub fn lanes(&self) -> Vec<Lane> {
        let mut room = HELD;
        let mut position = self.head_len();
        let mut lanes = Vec::new();
        for (index, level) in self.levels.iter().enumerate().rev() {
            let worst = level.worst(self.frame);
            let held = worst <= room && lanes.iter().all(Lane::is_held);
            room = room.saturating_sub(worst);
            let bands = if index == 0 && self.statistics { level.layout.samples } else { 0 };
            // A single level needs no gap before it.
            if !held && self.levels.len() > 1 {
                position = position.next_multiple_of(BLOCK);
            }
            lanes.push(Lane::new(position, self.frame, held, bands));
            position = position.saturating_add(worst);
        }
        lanes.reverse();
        lanes
    }

    /// The first byte that no tile can reach, were none to shrink. The image lies last.
    pub fn reach(&self, lanes: &[Lane]) -> u64 {
        let main = lanes.first().map_or(0, Lane::start);
        self.levels.first().map_or(main, |level| main.saturating_add(level.worst(self.frame)))
    }

    /// Length of the head.
    pub fn head_len(&self) -> u64 {
        let empty: Vec<Vec<(u64, u32)>> = self.levels.iter().map(|_| Vec::new()).collect();
        self.head(&empty, &[], &[]).len() as u64
    }

    /// The head, with the tiles of each level, and the sizes of their pieces, in the order they were numbered.
    pub fn head(&self, tiles: &[Vec<(u64, u32)>], pieces: &[Vec<u32>], moments: &[Moments]) -> Vec<u8> {
        let mut images = Vec::new();
        let mut masks = Vec::new();
        for (index, (level, tiles)) in self.levels.iter().zip(tiles).enumerate() {
            let parts = level.parts() as usize;
            let planes = level.grid.planes as usize;
            let positions = level.grid.across as usize * level.grid.down as usize;
            let at = |position: usize, part: usize| tiles.get(position * parts + part).copied().unwrap_or_default();
            let mut fields = emit::layout_fields(&level.layout);
            if index == 0 {
                fields.extend(self.fields.iter().cloned().map(|field| match field.tag {
                    tag::GDAL_METADATA => self.with_statistics(field, moments),
                    _ => field,
                }));
            } else {
                // Who opens an overview alone has to know what its holes hold.
                fields.extend(self.nodata.clone());
                fields.extend(self.fields.iter().find(|field| field.tag == tag::COLOR_MAP).cloned());
            }
            let order = (0..planes).flat_map(|plane| (0..positions).map(move |position| (position, plane)));
            let found: Vec<(u64, u32)> = order.map(|(position, plane)| at(position, plane)).collect();
            let mut tables = self.tables(&level.layout, &found);
            if level.pieces > 1 {
                let sizes = pieces.get(index).map_or(&[][..], Vec::as_slice);
                let order = (0..planes).flat_map(|plane| (0..positions).map(move |at| at * planes + plane));
                tables.push(pieces_field(level.pieces as usize, sizes, order));
            }
            images.push(Directory { fields, tables });
            if let Some((layout, _)) = &level.mask {
                let found: Vec<(u64, u32)> = (0..positions).map(|position| at(position, planes)).collect();
                masks.push(Directory { fields: emit::layout_fields(layout), tables: self.tables(layout, &found) });
            }
        }
        // As GDAL has them: the image, its mask, overviews, their masks.
        let mut directories = Vec::new();
        let (mut images, mut masks) = (images.into_iter(), masks.into_iter());
        directories.extend(images.next());
        directories.extend(masks.next());
        directories.extend(images);
        directories.extend(masks);
        emit::head(self.style, self.ghost.as_deref(), &directories)
    }

    fn with_statistics(&self, field: Field, moments: &[Moments]) -> Field {
        let room = field.len() + self.metadata_reserve;
        if moments.is_empty() {
            return field.with_reserve(room);
        }
        tags::add_statistics(field, moments).with_reserve(room)
    }

    fn tables(&self, layout: &Layout, tiles: &[(u64, u32)]) -> Vec<Field> {
        let (offsets, counts) = if layout.tiled {
            (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS)
        } else {
            (tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS)
        };
        let places: Vec<u64> = tiles.iter().map(|(offset, _)| *offset).collect();
        let lengths: Vec<u32> = tiles.iter().map(|(_, len)| *len).collect();
        let places = if self.style.big {
            Field::long8(offsets, places)
        } else {
            Field::long(offsets, places.into_iter().map(|offset| offset as u32).collect::<Vec<_>>())
        };
        vec![places, Field::long(counts, lengths)]
    }
}

/// How the tiles of a level are cut into pieces that stand for themselves: the bytes of a piece before compression, then for
/// each tile the bytes of its pieces but the last, or zeros where it has none.
fn pieces_field(each: usize, sizes: &[u32], order: impl Iterator<Item = usize>) -> Field {
    let mut values = vec![swath_cuda::press::PIECE as u32];
    for tile in order {
        let found = sizes.get(tile * each..(tile + 1) * each).unwrap_or_default();
        values.extend((0..each - 1).map(|piece| found.get(piece).copied().unwrap_or(0)));
    }
    Field::long(tag::SWATH_PIECES, values)
}

/// What readers make of the nodata tag, which is not always a value that the type has: 300 among bytes becomes 255.
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

impl super::Writer {
    /// Whether tiles that hold nothing are left out.
    pub(crate) fn is_sparse(&self) -> bool {
        self.plan.sparse
    }
}

/// Whether libtiff makes colours of these samples for GDAL, which it cannot where tiles are left out.
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
        return Err(Error::usage(format!("{} x {} pixels are more than {limit} a side", shape.width, shape.height)));
    }
    Ok(())
}

/// Where tiles are is kept in memory, several times over; this is known before the first of these tables is made.
fn check_tables(levels: &[LevelPlan], options: &WriteOptions) -> Result<(), Error> {
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

/// Sizes for factors that rise, each a multiple of the one before; those that would leave nothing more to halve are cut.
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
        return Err(Error::usage(format!("a tile of {max_tile} bytes is more than a reader can take; cut it smaller")));
    }
    let spec = Arc::new(TileSpec::new(&layout, Limits::none())?);
    let host = HostEncoder::new(spec, &options.settings, &options.registry)?;
    layout.jpeg_tables = host.jpeg_tables();
    let grid = Grid::new(&layout).map_err(|error| Error::new(ErrorKind::Limit(error.to_string())))?;
    let mask = options.mask.then(|| mask_level(&layout, options)).transpose()?;
    let mut level = LevelPlan { layout, grid, host, mask, device_whole: 0, device_mask_whole: 0, pieces: 0 };
    if on_device {
        device_plan::set_bounds(&mut level, options);
    }
    Ok(level)
}

/// The mask of a level: one bit a pixel, or eight where it is soft, Deflate, cut like the image.
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
