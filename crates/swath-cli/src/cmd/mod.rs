//! What the commands do.

pub mod dump;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dump(args) => dump::run(&args),
    }
}
