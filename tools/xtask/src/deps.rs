//! Checks that crates of the workspace depend on each other only as `DESIGN.md` allows.

use crate::graph::{Graph, Outcome};

/// A crate and the workspace crates it may depend on. A stage never knows those above it.
const ALLOWED: &[(&str, &[&str])] = &[
    ("swath-crs", &[]),
    ("swath-tiff", &["swath-crs"]),
    ("swath-io", &[]),
    ("swath-raster", &["swath-tiff"]),
    ("swath-codec", &["swath-tiff", "swath-raster"]),
    ("swath-cuda", &["swath-tiff", "swath-raster", "swath-codec"]),
    ("swath", &["swath-tiff", "swath-io", "swath-raster", "swath-codec", "swath-cuda"]),
    ("swath-cli", &["swath"]),
    ("swath-python", &["swath"]),
    ("swath-bench-worker", &["swath"]),
    ("swath-gpu-worker", &["swath", "swath-codec", "swath-cuda"]),
    ("swath-kernel-host", &["swath-tiff", "swath-raster", "swath-codec"]),
    ("swath-fuzz", &["swath-tiff", "swath-codec", "swath", "swath-cli", "swath-kernel-host"]),
    ("xtask", &[]),
];

/// Compares the graph with [`ALLOWED`]; a crate that is not listed there is a fault too, so that the table stays whole.
pub fn check(graph: &Graph) -> Outcome {
    let members: Vec<_> = graph.packages.iter().filter(|package| package.member).collect();
    let mut faults = Vec::new();
    let mut arrows = 0;
    for member in &members {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
            faults.push(format!("{}: not in the table of crates (tools/xtask/src/deps.rs)", member.name));
            continue;
        };
        for dependency in &member.dependencies {
            if !members.iter().any(|other| other.name == *dependency) {
                continue;
            }
            arrows += 1;
            if !allowed.contains(&dependency.as_str()) {
                faults.push(format!(
                    "{} -> {dependency}: this arrow is not in the architecture ({} stands on: {})",
                    member.name,
                    member.name,
                    if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") }
                ));
            }
        }
    }
    if faults.is_empty() {
        Ok(format!("{} workspace crates, {arrows} arrows, all as drawn", members.len()))
    } else {
        Err(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Package;

    fn graph(arrows: &[(&str, &[&str])]) -> Graph {
        let packages = arrows
            .iter()
            .map(|(name, dependencies)| Package {
                name: (*name).to_owned(),
                version: "0.1.0".to_owned(),
                licence: None,
                source: None,
                member: true,
                builds_c: false,
                dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
            })
            .collect();
        Graph { packages }
    }

    #[test]
    fn accepts_the_drawn_arrows() {
        let graph = graph(&[
            ("swath-tiff", &["thiserror"]),
            ("swath-io", &[]),
            ("swath-codec", &["swath-tiff"]),
            ("swath", &["swath-io", "swath-codec"]),
            ("swath-cli", &["swath"]),
        ]);
        assert!(check(&graph).is_ok_and(|summary| summary.contains("4 arrows")));
    }

    #[test]
    fn refuses_an_arrow_upwards_or_past_the_engine() {
        let up = graph(&[("swath-tiff", &["swath-io"]), ("swath-io", &[])]);
        assert!(check(&up).is_err_and(|faults| faults[0].starts_with("swath-tiff -> swath-io")));
        let past = graph(&[("swath-cli", &["swath-tiff"]), ("swath-tiff", &[])]);
        assert!(check(&past).is_err_and(|faults| faults.len() == 1));
    }

    #[test]
    fn refuses_an_unlisted_crate() {
        assert!(check(&graph(&[("swath-extra", &[])])).is_err());
    }
}
