//! Checks that the workspace compiles with the toolchain of its `rust-version`, where rustup has that toolchain.
//!
//! The check downloads nothing. Clippy's `incompatible_msrv` compares the standard library's items with `rust-version` everywhere.

use std::process::Command;

use crate::graph::{self, Outcome};

/// Runs `cargo check` with the toolchain, in a build folder of its own.
pub fn check() -> Outcome {
    let metadata = graph::metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let version = packages.iter().find_map(|package| package["rust_version"].as_str());
    let Some(version) = version else { return Err(vec!["no crate of the workspace states a rust-version".to_owned()]) };
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let Some(toolchain) = toolchain(&listed, version) else {
        return Ok(format!("skipped: toolchain {version} is not installed"));
    };
    let folder = metadata["target_directory"].as_str().unwrap_or("target");
    let status = Command::new("rustup")
        .args(["run", toolchain, "cargo", "check", "--quiet", "--workspace", "--all-targets", "--target-dir"])
        .arg(format!("{folder}/msrv"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .status()
        .map_err(|fault| vec![format!("rustup did not start: {fault}")])?;
    if status.success() {
        Ok(format!("the workspace compiles with {toolchain}"))
    } else {
        Err(vec![format!("the workspace does not compile with {toolchain}; raise rust-version or mend the code")])
    }
}

/// The installed toolchain of a version: `1.92` is also `1.92.0-x86_64-unknown-linux-gnu`.
fn toolchain<'a>(listed: &'a str, version: &str) -> Option<&'a str> {
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names
        .into_iter()
        .find(|name| name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_is_found_by_its_minor_version() {
        let listed =
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.9.0-x86_64\n1.91.1-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain(listed, "1.91"), Some("1.91.1-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain("1.91-x86_64\n", "1.91"), Some("1.91-x86_64"));
        assert_eq!(toolchain("1.910.0-x86_64\n1.95.0-x86_64\n", "1.91"), None);
        assert_eq!(toolchain("", "1.91"), None);
    }
}
