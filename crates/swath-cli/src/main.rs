//! The `swath` command.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod blocks;
mod cmd;
mod console;
mod job;
mod mask;
mod number;
mod sample;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match cmd::run(args.command) {
        Ok(code) => code,
        Err(error) => {
            // Chains are one line: what, then why.
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
