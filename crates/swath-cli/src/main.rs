//! The `swath` command.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod job;

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
