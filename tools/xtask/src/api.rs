//! The public names and signatures of the crate `swath`, compared with a snapshot: no change of them goes unnoticed.
//!
//! The list comes from the pages that rustdoc writes, since its JSON needs a nightly toolchain. The pages hold the same
//! declarations; what is documented in prose is left out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    graph::{self, Outcome},
    workspace,
};

/// The features that the tests use, so that the dependencies that the lints have checked are not checked again.
const FEATURES: &str = "conformance,ndarray";

fn snapshot() -> PathBuf {
    workspace().join("crates/swath/api.txt")
}

/// Writes the snapshot.
pub fn write() -> Outcome {
    let found = list()?;
    fs::write(snapshot(), &found).map_err(|fault| vec![format!("{}: {fault}", snapshot().display())])?;
    Ok(format!("{} lines in crates/swath/api.txt", found.lines().count()))
}

/// Fails where the public names or signatures are not those of the snapshot.
pub fn check() -> Outcome {
    let found = list()?;
    let expected = fs::read_to_string(snapshot()).map_err(|fault| vec![format!("crates/swath/api.txt: {fault}")])?;
    let faults = differences(&expected, &found);
    if faults.is_empty() {
        return Ok(format!("{} lines, as in crates/swath/api.txt", found.lines().count()));
    }
    let advice = "the public API has changed: if that is intended, run `cargo xtask api` and say so in CHANGELOG.md";
    Err(faults.into_iter().chain([advice.to_owned()]).collect())
}

/// Lines that are only in one of the lists.
fn differences(expected: &str, found: &str) -> Vec<String> {
    let missing = expected.lines().filter(|line| !found.lines().any(|other| other == *line));
    let new = found.lines().filter(|line| !expected.lines().any(|other| other == *line));
    missing.map(|line| format!("- {line}")).chain(new.map(|line| format!("+ {line}"))).collect()
}

/// Documents the crate, fails where a link is broken or rustdoc warns of anything else, and lists every public item with its members.
fn list() -> Result<String, Vec<String>> {
    let metadata = graph::metadata(&["--no-deps"])?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    let root = Path::new(target).join("doc/swath");
    let status = graph::cargo()
        .args(["rustdoc", "--quiet", "--release", "-p", "swath", "--lib", "--features", FEATURES])
        .env("RUSTDOCFLAGS", "-D warnings")
        .status()
        .map_err(|fault| vec![format!("cargo rustdoc did not start: {fault}")])?;
    if !status.success() {
        return Err(vec![format!("cargo rustdoc failed: {status}")]);
    }
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).map_err(|fault| vec![format!("{}: {fault}", path.display())])
    };
    let mut lines = Vec::new();
    for page in pages(&read("all.html")?) {
        let path = item_path(&page);
        lines.extend(declarations(&read(&page)?).into_iter().map(|declaration| format!("{path}: {declaration}")));
    }
    if lines.is_empty() {
        return Err(vec!["rustdoc lists no public item".to_owned()]);
    }
    lines.sort();
    lines.dedup();
    Ok(lines.join("\n") + "\n")
}

/// The pages that the list of all items links to, relative to the crate's folder.
fn pages(all: &str) -> Vec<String> {
    let list = all.split_once("<ul class=\"all-items\">").map_or("", |(_, list)| list);
    let links = list.split("<a href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut pages: Vec<String> = links.filter(|link| link.ends_with(".html")).map(str::to_owned).collect();
    pages.sort();
    pages.dedup();
    pages
}

/// The Rust path of an item by its page: `io/struct.Traffic.html` is `swath::io::Traffic`.
fn item_path(page: &str) -> String {
    let page = page.trim_end_matches(".html");
    let (modules, file) = page.rsplit_once('/').unwrap_or(("", page));
    let name = file.split_once('.').map_or(file, |(_, name)| name);
    let modules = modules.split('/').filter(|module| !module.is_empty());
    ["swath"].into_iter().chain(modules).chain([name]).collect::<Vec<_>>().join("::")
}

/// The declaration of a page's item, its own methods and constants, and the traits that it implements.
fn declarations(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let declaration = between(page, "<pre class=\"rust item-decl\"><code>", "</code></pre>");
    found.extend(declaration.map(text));
    for list in ["implementations-list", "trait-implementations-list"] {
        let start = format!("<div id=\"{list}\">");
        // The next heading begins another list: automatic implementations, or those for all types.
        let Some((_, rest)) = page.split_once(&start) else { continue };
        let own = rest.split("<h2 ").next().unwrap_or_default();
        let (open, close) = match list {
            "implementations-list" => ("<h4 class=\"code-header\">", "</h4>"),
            _ => ("<h3 class=\"code-header\">", "</h3>"),
        };
        let headers = own.split(open).skip(1).filter_map(|rest| rest.split(close).next());
        found.extend(headers.map(text));
    }
    found
}

fn between<'a>(page: &'a str, start: &str, end: &str) -> Option<&'a str> {
    page.split_once(start)?.1.split(end).next()
}

/// The text of a piece of HTML: without tags, without the captions of folded parts, and with single spaces.
fn text(html: &str) -> String {
    let mut plain = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        rest = if tag.starts_with("summary") {
            tag.split_once("</summary>").map_or("", |(_, after)| after)
        } else {
            // An attribute such as `#[non_exhaustive]` is a block of its own.
            if tag.starts_with("/div") {
                plain.push(' ');
            }
            tag.split_once('>').map_or("", |(_, after)| after)
        };
    }
    plain.push_str(rest);
    let plain = plain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    plain.replace("&nbsp;", " ").replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r##"<pre class="rust item-decl"><code><div class="code-attribute">#[non_exhaustive]</div>pub enum <a href="x">Mode</a>&lt;'a&gt; {
<details class="toggle"><summary class="hideme"><span>Show 2 variants</span></summary>    Cpu,
    Cuda,
</details>}</code></pre><div class="docblock"><pre>fn example() {}</pre></div>
<div id="implementations-list"><section id="impl-Mode"><h3 class="code-header">impl Mode</h3></section>
<h4 class="code-header">pub fn <a href="#method.is_gpu" class="fn">is_gpu</a>(&amp;self) -&gt; <a href="b">bool</a></h4></div>
<h2 id="trait-implementations">Trait Implementations</h2><div id="trait-implementations-list">
<h3 class="code-header">impl <a>Clone</a> for Mode</h3><h4 class="code-header">fn clone(&amp;self) -&gt; Mode</h4></div>
<h2 id="synthetic">Auto</h2><div id="synthetic-implementations-list"><h3 class="code-header">impl Send for Mode</h3></div>"##;

    #[test]
    fn a_page_gives_its_declaration_methods_and_traits_and_nothing_else() {
        let expected = [
            "#[non_exhaustive] pub enum Mode<'a> { Cpu, Cuda, }",
            "pub fn is_gpu(&self) -> bool",
            "impl Clone for Mode",
        ];
        assert_eq!(declarations(PAGE), expected);
    }

    #[test]
    fn items_are_found_by_their_pages() {
        let all = r#"<nav><a href="../index.html">x</a></nav><h3>Structs</h3><ul class="all-items"><li>
            <a href="io/struct.Traffic.html">io::Traffic</a></li><li><a href="fn.survey.html">survey</a></li></ul>"#;
        let found = pages(all);
        assert_eq!(found, ["fn.survey.html", "io/struct.Traffic.html"]);
        let paths: Vec<String> = found.iter().map(|page| item_path(page)).collect();
        assert_eq!(paths, ["swath::survey", "swath::io::Traffic"]);
    }

    #[test]
    fn new_and_missing_lines_are_reported() {
        assert_eq!(differences("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(differences("a\n", "a\n").is_empty());
    }
}
