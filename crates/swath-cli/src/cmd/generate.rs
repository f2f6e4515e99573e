//! `swath generate`: writes the reference of the command line, for packages and for docs/cli.md.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result};

use crate::{
    args::{Generate, GenerateWhat, Shell},
    reference,
};

/// Runs `swath generate`.
pub fn run(args: &Generate) -> Result<ExitCode> {
    fs::create_dir_all(&args.folder).with_context(|| args.folder.display().to_string())?;
    match args.what {
        GenerateWhat::Markdown => write(&args.folder, "cli.md", reference::markdown_page().as_bytes())?,
        GenerateWhat::Man => {
            for (name, page) in reference::man_pages()? {
                write(&args.folder, &name, &page)?;
            }
        }
        GenerateWhat::Completions => {
            // The names that each shell looks for.
            for (name, shell) in [("swath", Shell::Bash), ("_swath", Shell::Zsh), ("swath.fish", Shell::Fish)] {
                write(&args.folder, name, reference::completions(shell)?.as_bytes())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, bytes).with_context(|| path.display().to_string())
}
