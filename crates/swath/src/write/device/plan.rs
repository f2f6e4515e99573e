//! Plans a write for a GPU: how it compresses tiles, and how many at a time fit into memory.

use std::sync::Arc;

use swath_cuda::{
    DeviceError, Gpu,
    encode::{Edge, EncodePath, EncodePlan, LevelSpec, Shrinks, Slots, TileFormat, choose_encode_path},
};

use super::outbox::IN_FLIGHT;
use crate::{
    error::Error,
    threads::cores,
    write::{
        levels::Levels,
        memory::{Memory, look_back},
        options::{Shape, WriteOptions},
        plan::{LevelPlan, Plan},
        predictor::choice_len,
        shrinks::Shrinks as LevelShrinks,
        step::alpha_band,
    },
};

/// Bytes of tiles in a batch, where memory allows: enough to fill a large device and to make a copy efficient.
const BATCH: u64 = 64 << 20;
/// Bytes of rows of a level that are on the device at once, if its tile rows are smaller.
const LEVEL: u64 = 8 << 20;
/// Threads that bring bytes to the file, at most.
const THREADS: usize = 16;

/// The kind of tiles of a level on the device.
fn tile_format(level: &LevelPlan, plan: &Plan, path: EncodePath) -> TileFormat {
    let host = &level.host;
    TileFormat {
        spec: host.spec().clone(),
        path,
        edge: host.edge(),
        fill: plan.sparse.then(|| plan.fill.clone()),
        frame: plan.frame > 0 && !matches!(path, EncodePath::Host | EncodePath::Jpeg(_) | EncodePath::Jpeg2000(_)),
        rows: level.layout.tile_height,
        native: host.takes_native(),
        native_swapped: host.takes_swapped(),
    }
}

/// Chooses how the device compresses tiles. Where it cannot, the CPU compresses the tiles that the device cut.
pub(in crate::write) fn encode_path(
    gpu: &Gpu,
    level: &LevelPlan,
    with_overviews: bool,
    options: &WriteOptions,
    notices: &mut Vec<String>,
) -> Result<EncodePath, DeviceError> {
    let spec = level.host.spec();
    let nvcomp = options.nvcomp
        && match gpu.has_nvcomp() {
            Ok(()) => true,
            Err(reason) => {
                notices.push(format!("tiles are compressed by swath's own kernels: {reason}"));
                false
            }
        };
    let wanted = choose_encode_path(spec, &options.settings, nvcomp);
    let available = wanted.and_then(|path| {
        match path {
            EncodePath::PackBits | EncodePath::Jpeg(_) | EncodePath::Jpeg2000(_) if !spec.tiled && with_overviews => {
                let reason = "strips of overviews are narrower than those of the image";
                return Err(DeviceError::Declined(reason.into()));
            }
            EncodePath::Jpeg(_) => gpu.has_nvjpeg()?,
            EncodePath::Jpeg2000(_) => gpu.has_nvjpeg2000()?,
            _ => {}
        }
        Ok(path)
    });
    match available {
        Ok(path) => Ok(path),
        Err(DeviceError::Declined(reason)) => {
            notices.push(format!("tiles are compressed by the CPU: {reason}"));
            Ok(EncodePath::Host)
        }
        Err(error) => Err(error),
    }
}

/// The plan of a write, as the device sees it.
pub(in crate::write) fn encode_plan(
    plan: &Plan,
    shape: Shape,
    options: &WriteOptions,
    shrinks: &Levels<Option<LevelShrinks>>,
    nodata: Option<&[u8]>,
    path: EncodePath,
) -> Result<EncodePlan, Error> {
    let main = &plan.levels.main;
    let mut levels = Vec::new();
    for (index, level) in plan.levels.iter().enumerate() {
        let layout = &level.layout;
        let row = (level.row_len() as u64).max(1);
        let wanted = (LEVEL / row).clamp(1, u32::MAX.into()) as u32;
        let rows = wanted.max(layout.tile_height).next_multiple_of(layout.tile_height.max(1));
        let capacity = rows.saturating_add(look_back(plan, index)).min(layout.height.max(1));
        levels.push(LevelSpec {
            size: (layout.width, layout.height),
            tile: (layout.tile_width, layout.tile_height),
            capacity,
            shrink: shrinks
                .get(index)
                .and_then(Option::as_ref)
                .map(|shrinks| Shrinks { samples: shrinks.samples.clone(), mask: shrinks.mask.clone() }),
        });
    }
    let alpha = alpha_band(&main.layout).map(u16::try_from).transpose();
    let alpha = alpha.map_err(|_| Error::internal("the alpha band has a number beyond 65535"))?;
    let mask = main.mask.as_ref().map(|(layout, host)| TileFormat {
        spec: host.spec().clone(),
        path: EncodePath::Deflate(2),
        edge: Edge::Zero,
        fill: plan.sparse.then(|| vec![0]),
        frame: plan.frame > 0,
        rows: layout.tile_height,
        native: false,
        native_swapped: false,
    });
    Ok(EncodePlan {
        levels,
        bands: shape.bands,
        sample: shape.sample,
        image: tile_format(main, plan, path),
        planes: main.grid.planes,
        mask,
        alpha,
        // Nodata counts before alpha.
        alpha_counts: nodata.is_none(),
        statistics: plan.statistics.then(|| nodata.map(<[u8]>::to_vec)),
        replace_nan: options.nan_to_nodata.then(|| nodata.map(<[u8]>::to_vec)).flatten(),
    })
}

/// As many slots as memory allows, on the device and on the host.
pub(in crate::write) fn fit(
    gpu: &Arc<Gpu>,
    plan: &Plan,
    encode: &EncodePlan,
    options: &WriteOptions,
    budget: u64,
) -> Result<Slots, Error> {
    let planes = encode.planes.max(1);
    let slots = |positions: u32| Slots { image: positions * planes, mask: positions };
    let tile = (encode.image.max_whole() as u64 * u64::from(planes)).max(1);
    let positions: u64 =
        plan.levels.iter().map(|level| u64::from(level.grid.across) * u64::from(level.grid.down)).sum();
    let across = u64::from(plan.levels.main.grid.across);
    let wished = options.batch.map_or(BATCH / tile, |tile_rows| u64::from(tile_rows.max(1)) * across);
    let most = wished.clamp(1, positions.clamp(1, 1 << 16)) as u32;
    let fits = |positions: u32| -> Result<bool, Error> {
        let device = encode.device_bytes(gpu, slots(positions), true)?;
        Ok(device <= budget && host_bytes(plan, encode, slots(positions), options) <= options.max_memory as u64)
    };
    if !fits(1)? {
        let required = encode.device_bytes(gpu, slots(1), true)?;
        let host = host_bytes(plan, encode, slots(1), options);
        if host > options.max_memory as u64 {
            return Err(Error::over(
                "max_memory",
                format!(
                    "writing through the GPU takes {host} bytes of host memory, {} are allowed; use smaller tiles",
                    options.max_memory
                ),
            ));
        }
        return Err(DeviceError::Memory {
            what: "writing one row of tiles".into(),
            required,
            available: budget,
            hint: "; use smaller tiles or a narrower image, or raise max_device_memory",
        }
        .into());
    }
    // One position fits. Bisection finds the most.
    let (mut found, mut too_many) = (1, most.saturating_add(1));
    while too_many - found > 1 {
        let middle = found + (too_many - found) / 2;
        if fits(middle)? { found = middle } else { too_many = middle }
    }
    Ok(slots(found))
}

/// Host memory, in bytes, of a write that a GPU encodes.
fn host_bytes(plan: &Plan, encode: &EncodePlan, slots: Slots, options: &WriteOptions) -> u64 {
    let (_, thread) = Memory::costs(plan, options);
    let tables = Memory::always(plan).saturating_add(2 * choice_len(&plan.levels.main.layout, options));
    let parcels = encode.parcel_len(slots) as u64 * IN_FLIGHT as u64;
    // A codec on the host keeps each encoded tile of a batch in memory until its turn comes.
    let codec = match encode.image.path {
        EncodePath::Host => thread * threads(options) as u64 + encode.parcel_len(slots) as u64,
        // These libraries return their streams in host memory.
        EncodePath::Jpeg(_) | EncodePath::Jpeg2000(_) => {
            (encode.image.max_whole() as u64).saturating_mul(slots.image.into()).saturating_mul(IN_FLIGHT as u64 + 1)
        }
        _ if encode.mask.is_some() => encode.parcel_len(slots) as u64,
        _ => 0,
    };
    tables.saturating_add(parcels).saturating_add(codec)
}

pub(in crate::write) fn threads(options: &WriteOptions) -> usize {
    options.threads.unwrap_or_else(cores).clamp(1, THREADS)
}
