//! The commands.

pub mod bench;
pub mod compare;
pub mod completions;
pub mod convert;
pub mod devices;
pub mod dump;
pub mod generate;
pub mod info;
pub mod preview;
pub mod stats;
pub mod validate;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::Preview(args) => preview::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Generate(args) => generate::run(&args),
    }
}
