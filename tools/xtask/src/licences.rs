//! Which licences and which origins may enter the graph.

use crate::graph::{Graph, Outcome, Package};

/// Permissive terms only; a copyleft licence may be in an expression that also offers another choice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "IJG",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
    "libtiff",
];

/// Exceptions only widen what a licence grants, but an unknown one may be anything.
const ALLOWED_EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// The registry, by either of its two protocols.
const REGISTRIES: &[&str] =
    &["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// Every package needs a licence that can be satisfied from [`ALLOWED`] and must come from the registry or the workspace.
pub fn check(graph: &Graph) -> Outcome {
    let faults: Vec<String> = graph.packages.iter().filter_map(fault).collect();
    if faults.is_empty() {
        Ok(format!("{} packages, all under permissive licences", graph.packages.len()))
    } else {
        Err(faults)
    }
}

fn fault(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    match &package.source {
        Some(source) if !REGISTRIES.iter().any(|registry| source.starts_with(registry)) => {
            return Some(format!("{name}: comes from {source}, not from the registry"));
        }
        None if !package.member => return Some(format!("{name}: comes from a path outside the workspace")),
        _ => {}
    }
    let Some(expression) = &package.licence else {
        return Some(format!("{name}: states no licence expression"));
    };
    match satisfied(expression) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: `{expression}` cannot be satisfied with the allowed licences")),
        Err(reason) => Some(format!("{name}: `{expression}` is not a licence expression: {reason}")),
    }
}

/// Whether an SPDX expression can be met with allowed licences alone. `/` is the old spelling of `OR`.
fn satisfied(expression: &str) -> Result<bool, String> {
    let mut parser = Parser { tokens: tokens(expression), at: 0 };
    let verdict = parser.any()?;
    match parser.peek() {
        None => Ok(verdict),
        Some(token) => Err(format!("unexpected `{token}`")),
    }
}

fn tokens(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Recursive descent: `OR` binds loosest, then `AND`, then `WITH`.
struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn take(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.eq_ignore_ascii_case(keyword));
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut verdict = self.all()?;
        while self.take("OR") {
            // Not `||`: the right side has to be parsed even when the left one is enough.
            verdict |= self.all()?;
        }
        Ok(verdict)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let verdict = self.any()?;
            return if self.take(")") { Ok(verdict) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let licence = self.word()?;
        let allowed = ALLOWED.contains(&licence.as_str());
        if !self.take("WITH") {
            return Ok(allowed);
        }
        let exception = self.word()?;
        Ok(allowed && ALLOWED_EXCEPTIONS.contains(&exception.as_str()))
    }

    fn word(&mut self) -> Result<String, String> {
        let token = self.peek().ok_or("it ends too early")?;
        if ["(", ")"].contains(&token) || ["AND", "OR", "WITH"].iter().any(|word| token.eq_ignore_ascii_case(word)) {
            return Err(format!("unexpected `{token}`"));
        }
        let token = token.to_owned();
        self.at += 1;
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn permissive_expressions_are_satisfied() {
        for expression in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "MIT / Apache-2.0",
            "Unlicense/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "(MIT OR Apache-2.0) AND BSD-3-Clause",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
            "0BSD OR MIT OR Apache-2.0",
            "BSD-3-Clause AND Zlib AND IJG",
            "((MIT))",
        ] {
            assert_eq!(satisfied(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn copyleft_is_refused_unless_another_choice_is_given() {
        for expression in [
            "GPL-3.0-only",
            "LGPL-2.1-or-later",
            "AGPL-3.0",
            "MPL-2.0",
            "MIT AND GPL-2.0-only",
            "GPL-2.0-only WITH Classpath-exception-2.0",
            "MIT AND (GPL-3.0-only OR MPL-2.0)",
            "MIT WITH Something-unknown",
        ] {
            assert_eq!(satisfied(expression), Ok(false), "{expression}");
        }
        assert_eq!(satisfied("MIT OR GPL-3.0-only"), Ok(true));
        assert_eq!(satisfied("Apache-2.0 OR LGPL-2.1-or-later OR MIT"), Ok(true));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(satisfied("MIT OR GPL-3.0-only AND MPL-2.0"), Ok(true));
        assert_eq!(satisfied("GPL-3.0-only AND MIT OR MPL-2.0"), Ok(false));
        assert_eq!(satisfied("(MIT OR GPL-3.0-only) AND MPL-2.0"), Ok(false));
    }

    #[test]
    fn a_broken_expression_is_an_error_and_not_a_pass() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Apache-2.0", "MIT WITH", "()"] {
            assert!(satisfied(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn origin_is_checked_before_the_licence() {
        let package = |source: Option<&str>, member| Package {
            name: "p".to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT".to_owned()),
            source: source.map(str::to_owned),
            member,
            builds_c: false,
            dependencies: BTreeSet::new(),
        };
        assert!(fault(&package(Some("git+https://example.org/p"), false)).is_some());
        assert!(fault(&package(None, false)).is_some());
        assert!(fault(&package(None, true)).is_none());
        assert!(fault(&package(Some(REGISTRIES[0]), false)).is_none());
        let unstated = Package { licence: None, ..package(None, true) };
        assert!(fault(&unstated).is_some_and(|text| text.contains("no licence")));
    }
}
