//! The reference of the command line, made from the definitions that parse it: a page of Markdown, man pages, completions.

mod man;
mod markdown;

use anyhow::Result;
use clap::CommandFactory;

use crate::args::{Args, Shell};

pub use man::pages as man_pages;
pub use markdown::page as markdown_page;

/// Exit statuses of all commands.
const EXIT_STATUSES: [(&str, &str); 4] = [
    ("0", "The command did what was asked; for compare, the files are equal; for validate, the file is a valid COG."),
    ("1", "The files of compare differ, or the file of validate is not a valid COG."),
    (
        "2",
        "An error: wrong arguments, a file that cannot be read or written. One line on standard error says what to change.",
    ),
    ("130", "Ctrl-C or SIGTERM ended the command; unfinished files are removed."),
];

/// Environment variables that the command reads, beside those of networks and stores.
const VARIABLES: [(&str, &str); 5] = [
    ("SWATH_CUDA_DRIVER", "File to load instead of the NVIDIA driver libcuda.so.1."),
    ("SWATH_CUDA_LIBRARIES", "Folders, separated by colons, that are searched first for NVIDIA's optional libraries."),
    (
        "SWATH_CUFILE",
        "Words, separated by commas, about reads from storage straight to a GPU: always, never, batch, async, threads, serial.",
    ),
    (
        "SWATH_CUDA_KERNELS",
        "With ptx the driver compiles the GPU kernels, even where there is machine code for the chip.",
    ),
    ("TMPDIR", "Folder for temporary files: those of bench, and of convert to standard output."),
];

/// What the reference says about variables of networks and stores.
const NETWORK_VARIABLES: &str = "Credentials, regions, endpoints, proxies and certificates are read from the variables that \
                                 other tools of S3, Google Cloud Storage and Azure read, such as AWS_PROFILE, \
                                 GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT and https_proxy.";

/// Returns the definition of the command line, complete, without the command `help`.
fn definition() -> clap::Command {
    let mut root = Args::command().disable_help_subcommand(true);
    root.build();
    root
}

/// Returns the commands that users should know.
fn commands(root: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    root.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns a help text as sentences: clap drops the last full stop.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '…', ':', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// The line before the examples in the text at the end of a command's help. Each example is a line of its own below it.
const EXAMPLES: &str = "Examples:\n";

/// Returns the text at the end of a command's help, and its examples.
fn end_of_help(command: &clap::Command) -> (String, Vec<String>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (text, examples) = text.split_once(EXAMPLES).unwrap_or((&text, ""));
    (sentence(text), examples.lines().map(|line| line.trim().to_owned()).collect())
}

/// Returns the script that completes command lines in a shell.
pub fn completions(shell: Shell) -> Result<String> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut root = without_hidden(&Args::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "swath", &mut script);
    Ok(String::from_utf8(script)?)
}

/// Returns the command line without its hidden commands, which completions would offer.
fn without_hidden(root: &clap::Command) -> clap::Command {
    clap::Command::new("swath")
        .version(env!("CARGO_PKG_VERSION"))
        .about(root.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .subcommands(commands(root).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_help_text() {
        for command in definition().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }

    #[test]
    fn every_command_has_examples_of_itself() {
        for command in commands(&definition()) {
            let (_, examples) = end_of_help(command);
            assert!((2..=4).contains(&examples.len()), "{}: {examples:?}", command.get_name());
            let name = format!("swath {}", command.get_name());
            assert!(examples.iter().any(|line| line.contains(&name)), "{}: {examples:?}", command.get_name());
        }
    }

    #[test]
    fn completions_offer_every_command_and_no_hidden_one() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell).unwrap();
            for command in ["info", "convert", "bench", "completions"] {
                assert!(script.contains(command), "{shell:?}: {command}");
            }
            assert!(!script.contains("generate"), "{shell:?}");
        }
    }
}
