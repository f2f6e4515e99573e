//! `swath devices`: lists GPUs, the driver and optional libraries, or why they cannot be used.

use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use swath::gpu::{GpuOptions, Survey, survey};

use crate::{args::Devices, console};

/// Runs `swath devices`. A missing GPU is a result, not an error.
pub fn run(args: &Devices) -> Result<ExitCode> {
    let found = survey(&GpuOptions::default());
    if args.json {
        console::print_json(&swath::describe::devices(&found))?;
    } else {
        console::print(&report(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report(found: &Survey) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = match &found.driver {
        Ok(driver) => writeln!(out, "Driver   CUDA {} ({})", driver.version, console::safe(&driver.path)),
        Err(error) => writeln!(out, "Driver   none: {}", console::safe(&error.to_string())),
    };
    if found.driver.is_ok() && found.devices.is_empty() {
        let _ = writeln!(out, "GPU      none: the driver sees no device (CUDA_VISIBLE_DEVICES may hide them)");
    }
    for device in &found.devices {
        let facts = &device.facts;
        let (major, minor) = facts.capability;
        let memory = match &device.free {
            Ok(free) => format!("{} of {} free", console::bytes(*free), console::bytes(facts.memory)),
            Err(error) => format!("not usable: {}", console::safe(&error.to_string())),
        };
        let _ = writeln!(
            out,
            "GPU {}    {}, compute capability {major}.{minor}, {} multiprocessors, {memory}",
            facts.ordinal,
            console::safe(&facts.name),
            facts.multiprocessors,
        );
        if device.free.is_ok() {
            let _ = writeln!(out, "         kernels: {}", device.kernels);
        }
    }
    let _ = writeln!(out, "\nOptional libraries");
    for library in &found.libraries {
        let text = match &library.found {
            Ok(facts) => {
                let note = facts.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
                format!("{} ({}){note}", facts.version, facts.path)
            }
            Err(reason) => format!("not used: {reason}"),
        };
        let _ = writeln!(out, "  {:<11} {}\n  {:<11} for {}", library.name, console::safe(&text), "", library.purpose);
    }
    out
}
