//! `swath dump`: decoded samples to a file.

use std::{fs::File, io::Write, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use swath::{ColorView, Limits, OpenOptions, Raster, SampleType, samples::half_to_float};

use crate::{args::Dump, device, job, remote};

/// Runs `swath dump`.
pub fn run(args: &Dump) -> Result<ExitCode> {
    remote::check_local(&args.out)?;
    let color = if args.stored { ColorView::Stored } else { ColorView::Shown };
    let options = job::read_options(&args.selection)?.with_upright(args.upright).with_color(color);
    let limits = if args.unlimited { Limits::none() } else { Limits::default() };
    let open = job::on_device(OpenOptions::default().with_limits(limits), &args.device)?;
    let dataset = job::open_as(open, &args.file, &args.remote)?;
    let raster = if args.mask { dataset.read_mask(&options)? } else { dataset.read(&options)? };
    let npy = args.out.extension().is_some_and(|extension| extension == "npy");
    write(&raster, &args.out, npy).with_context(|| format!("cannot write {}", args.out.display()))?;
    device::tell(&args.device, [&dataset]);
    Ok(ExitCode::SUCCESS)
}

fn write(raster: &Raster, path: &Path, npy: bool) -> Result<()> {
    let mut file = File::create(path)?;
    if npy {
        file.write_all(&npy_header(raster))?;
    }
    // NumPy has no complex integers: the pairs become complex64, as in rasterio.
    match raster.sample() {
        SampleType::CI16 => write_pairs(&mut file, raster.samples::<i16>()?.iter().map(|value| f32::from(*value)))?,
        SampleType::CI32 => write_pairs(&mut file, raster.samples::<i32>()?.iter().map(|value| *value as f32))?,
        SampleType::CF16 => write_pairs(&mut file, raster.samples::<u16>()?.iter().map(|bits| half_to_float(*bits)))?,
        _ => file.write_all(raster.bytes())?,
    }
    Ok(file.flush()?)
}

fn write_pairs(file: &mut File, words: impl Iterator<Item = f32>) -> Result<()> {
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    for word in words {
        out.write_all(&word.to_ne_bytes())?;
    }
    Ok(out.flush()?)
}

fn npy_header(raster: &Raster) -> Vec<u8> {
    let code = match raster.sample() {
        SampleType::U8 => "u1",
        SampleType::I8 => "i1",
        SampleType::U16 => "u2",
        SampleType::I16 => "i2",
        SampleType::U32 => "u4",
        SampleType::I32 => "i4",
        SampleType::U64 => "u8",
        SampleType::I64 => "i8",
        SampleType::F16 => "f2",
        SampleType::F32 => "f4",
        SampleType::F64 => "f8",
        SampleType::CF64 => "c16",
        _ => "c8",
    };
    let order = match (code.ends_with('1') && !code.starts_with('c'), cfg!(target_endian = "little")) {
        (true, _) => '|',
        (false, true) => '<',
        (false, false) => '>',
    };
    let [first, second, third] = raster.shape();
    let mut text =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({first}, {second}, {third}), }}");
    // The format wants the data to start on a multiple of 64.
    const FIXED: usize = 10;
    let padding = (FIXED + text.len() + 1).next_multiple_of(64) - FIXED - text.len() - 1;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
