//! Features: all crates must pass the lints without features, and a crate that offers a choice of them with each alone.
//!
//! The lints of the workspace check the crates with every feature. A feature that turns on features of other crates has no code of
//! its own, and neither has one that turns on nothing. A crate with a single feature is checked without it here and with it there.

use serde_json::Value;

use crate::graph::{self, Outcome};

/// One run of the lints, without default features.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Combination {
    packages: Vec<String>,
    feature: Option<String>,
}

impl Combination {
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["clippy", "--release", "--quiet", "--no-default-features"].map(str::to_owned).into();
        arguments.extend(self.packages.iter().flat_map(|package| ["-p".to_owned(), package.clone()]));
        arguments.extend(self.feature.iter().flat_map(|feature| ["--features".to_owned(), feature.clone()]));
        arguments.extend(["--", "-D", "warnings"].map(str::to_owned));
        arguments
    }

    fn name(&self) -> String {
        match &self.feature {
            None => format!("{} without features", self.packages.join(", ")),
            Some(feature) => format!("{} with {feature} alone", self.packages.join(", ")),
        }
    }
}

/// Lints every combination.
pub fn check() -> Outcome {
    let all = combinations(&graph::metadata(&["--no-deps"])?);
    if all.is_empty() {
        return Err(vec!["cargo metadata lists no workspace crate with features".to_owned()]);
    }
    let mut faults = Vec::new();
    for combination in &all {
        let status = graph::cargo()
            .args(combination.arguments())
            .status()
            .map_err(|fault| vec![format!("cargo clippy did not start: {fault}")])?;
        if !status.success() {
            faults.push(format!("{} does not pass: cargo {}", combination.name(), combination.arguments().join(" ")));
        }
    }
    if faults.is_empty() { Ok(format!("{} combinations pass the lints", all.len())) } else { Err(faults) }
}

/// The combinations to check of the crates under `crates/`.
fn combinations(metadata: &Value) -> Vec<Combination> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut without = Combination { packages: Vec::new(), feature: None };
    let mut alone = Vec::new();
    for package in packages {
        let in_crates = package["manifest_path"].as_str().is_some_and(|path| path.contains("/crates/"));
        let (Some(name), Some(features)) = (package["name"].as_str(), package["features"].as_object()) else {
            continue;
        };
        if !in_crates || features.is_empty() {
            continue;
        }
        without.packages.push(name.to_owned());
        let own: Vec<&String> =
            features.iter().filter(|(_, leads_to)| has_dependency(leads_to)).map(|(feature, _)| feature).collect();
        if own.len() > 1 {
            let one =
                |feature: &&String| Combination { packages: vec![name.to_owned()], feature: Some((*feature).clone()) };
            alone.extend(own.iter().map(one));
        }
    }
    if without.packages.is_empty() {
        return alone;
    }
    alone.insert(0, without);
    alone
}

/// Whether a feature brings an optional dependency.
fn has_dependency(leads_to: &Value) -> bool {
    let leads_to = leads_to.as_array().map(Vec::as_slice).unwrap_or_default();
    leads_to.iter().any(|entry| entry.as_str().is_some_and(|entry| entry.starts_with("dep:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_features_is_checked_one_by_one() {
        let metadata = serde_json::json!({"packages": [
            {"name": "swath-codec", "manifest_path": "/a/crates/swath-codec/Cargo.toml",
             "features": {"conformance": [], "default": ["lz4"], "lerc": ["dep:lerc-rs"], "lz4": ["dep:lz4_flex"]}},
            {"name": "swath", "manifest_path": "/a/crates/swath/Cargo.toml",
             "features": {"lz4": ["swath-codec/lz4"], "ndarray": ["dep:ndarray"]}},
            {"name": "swath-cli", "manifest_path": "/a/crates/swath-cli/Cargo.toml",
             "features": {"default": ["swath/default", "lz4"], "lz4": ["swath/lz4"]}},
            {"name": "swath-crs", "manifest_path": "/a/crates/swath-crs/Cargo.toml", "features": {}},
            {"name": "swath-fuzz", "manifest_path": "/a/fuzz/Cargo.toml", "features": {"libfuzzer": []}},
        ]});
        let names: Vec<String> = combinations(&metadata).iter().map(Combination::name).collect();
        let expected = [
            "swath-codec, swath, swath-cli without features",
            "swath-codec with lerc alone",
            "swath-codec with lz4 alone",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_single_feature_is_asked_for_without_the_defaults() {
        let one = Combination { packages: vec!["a".to_owned()], feature: Some("b".to_owned()) };
        let arguments = one.arguments().join(" ");
        assert_eq!(arguments, "clippy --release --quiet --no-default-features -p a --features b -- -D warnings");
    }
}
