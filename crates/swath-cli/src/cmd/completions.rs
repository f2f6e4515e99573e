//! `swath completions`: prints the script that completes command lines in a shell.

use std::process::ExitCode;

use anyhow::Result;

use crate::{args::Completions, console, reference};

/// Runs `swath completions`.
pub fn run(args: &Completions) -> Result<ExitCode> {
    console::print(&reference::completions(args.shell)?)?;
    Ok(ExitCode::SUCCESS)
}
