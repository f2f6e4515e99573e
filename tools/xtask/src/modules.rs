//! Modules inside a crate: their imports must not form a cycle.
//!
//! The check reads `use` declarations and inline paths that begin with `crate::`, `super::` or `self::`. It leaves out test modules,
//! and follows names that a parent module re-exports. Method calls are not imports: an `impl` block may add methods to a type of a
//! lower module.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::graph::Outcome;

/// Checked crates: the folder of their sources, and the modules inside whose own modules are checked too.
const CHECKED: &[(&str, &[&str])] = &[
    ("crates/swath-crs/src", &[]),
    ("crates/swath-tiff/src", &[]),
    ("crates/swath-io/src", &["remote", "remote/enabled", "remote/enabled/object", "sink"]),
    ("crates/swath-raster/src", &[]),
    ("crates/swath-codec/src", &["codec", "jpeg", "jpeg/decode", "jpeg/encode"]),
    ("crates/swath-cuda/src", &["decode", "encode", "driver"]),
    ("crates/swath/src", &["convert", "open", "read", "read/device", "write", "write/device"]),
    ("crates/swath-cli/src", &[]),
    ("crates/swath-python/src", &[]),
];

/// One source file of a crate.
struct Source {
    /// Path of its module, empty for the crate's root.
    module: Vec<String>,
    text: String,
}

/// For each module, the modules it imports, each with the file that does.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Checks the modules of every crate in [`CHECKED`].
pub fn check(root: &Path) -> Outcome {
    let mut faults = Vec::new();
    let mut count = 0;
    for (folder, inside) in CHECKED {
        let sources = load(&root.join(folder)).map_err(|error| vec![format!("{folder}: {error}")])?;
        let levels = std::iter::once(Vec::new())
            .chain(inside.iter().map(|module| module.split('/').map(str::to_owned).collect()));
        for parent in levels {
            let imports = imports(&sources, &parent);
            count += imports.len();
            let place = std::iter::once((*folder).to_owned()).chain(parent).collect::<Vec<_>>().join("/");
            faults.extend(cycles(&imports).iter().map(|cycle| describe(&place, &imports, cycle)));
        }
    }
    if faults.is_empty() {
        Ok(format!("{count} modules of {} crates import each other without a cycle", CHECKED.len()))
    } else {
        Err(faults)
    }
}

fn describe(place: &str, imports: &Imports, cycle: &[String]) -> String {
    let mut text = format!("{place}: these modules form an import cycle: {}", cycle.join(", "));
    for from in cycle {
        for (to, file) in imports.get(from).into_iter().flatten().filter(|(to, _)| cycle.contains(to)) {
            text += &format!("\n  {from} -> {to} ({file})");
        }
    }
    text
}

fn load(folder: &Path) -> std::io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), Vec::new())];
    while let Some((path, module)) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        entries.sort();
        for entry in entries {
            let stem = entry.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            if entry.is_dir() {
                folders.push((entry, [&module[..], &[stem]].concat()));
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let own = matches!(stem.as_str(), "mod" | "lib" | "main");
                let module = if own { module.clone() } else { [&module[..], &[stem]].concat() };
                sources.push((module, fs::read_to_string(&entry)?));
            }
        }
    }
    Ok(without_tests(sources))
}

/// Removes comments and tests: the files of modules that only tests have, and test modules inside files.
fn without_tests(files: Vec<(Vec<String>, String)>) -> Vec<Source> {
    let mut tests = Vec::new();
    let mut sources: Vec<Source> = files
        .into_iter()
        .map(|(module, text)| {
            let (text, names) = without_comments_and_tests(&text);
            tests.extend(names.into_iter().map(|name| [&module[..], &[name]].concat()));
            Source { module, text }
        })
        .collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    sources
}

/// Removes comments, string literals and `#[cfg(test)]` modules. Returns the rest, and the names of those modules.
fn without_comments_and_tests(text: &str) -> (String, Vec<String>) {
    let mut kept = String::with_capacity(text.len());
    let mut tests = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.find(['/', '"', '#']) {
        let (before, from) = rest.split_at(next);
        kept.push_str(before);
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if let Some(quoted) = from.strip_prefix('"') {
            let mut escaped = false;
            let end = quoted.find(|letter| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            });
            end.map_or("", |end| &quoted[end + 1..])
        } else if let Some((name, after)) = from.strip_prefix("#[cfg(test)]").and_then(test_module) {
            tests.push(name);
            after
        } else {
            kept.push_str(&from[..1]);
            &from[1..]
        };
    }
    (kept + rest, tests)
}

/// Reads a module after its `#[cfg(test)]`: its name, and the text after it.
fn test_module(text: &str) -> Option<(String, &str)> {
    let mut item = text.trim_start();
    while let Some(attribute) = item.strip_prefix("#[") {
        item = attribute.split_once(']')?.1.trim_start();
    }
    let item = item.strip_prefix("pub(crate) ").unwrap_or(item).strip_prefix("mod ")?;
    let name = item.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    Some((name.to_owned(), after_item(item)))
}

/// Returns the text after a module: after its semicolon, or after its closing brace.
fn after_item(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            ';' if depth == 0 => return &text[at + 1..],
            '{' => depth += 1,
            '}' if depth == 1 => return &text[at + 1..],
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    ""
}

/// Collects which children of module `parent` import which others.
fn imports(sources: &[Source], parent: &[String]) -> Imports {
    let inside = |module: &[String]| module.len() > parent.len() && module.starts_with(parent);
    let children: BTreeSet<String> = sources
        .iter()
        .filter(|source| inside(&source.module))
        .map(|source| source.module[parent.len()].clone())
        .collect();
    let mut reexports: BTreeMap<String, String> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.module == parent) {
        for (path, name) in uses(&source.text).filter(|found| found.public).map(|found| (found.path, found.name)) {
            let target = resolve(&path, &source.module, &children).filter(|target| inside(target));
            if let Some(target) = target {
                reexports.insert(name, target[parent.len()].clone());
            }
        }
    }
    let mut imports: Imports = children.iter().map(|child| (child.clone(), BTreeMap::new())).collect();
    for source in sources.iter().filter(|source| inside(&source.module)) {
        let from = &source.module[parent.len()];
        for path in uses(&source.text).map(|found| found.path).chain(inline_paths(&source.text)) {
            let Some(target) = resolve(&path, &source.module, &BTreeSet::new()) else { continue };
            if !inside(&target) {
                continue;
            }
            let name = &target[parent.len()];
            let to = if children.contains(name) { Some(name) } else { reexports.get(name) };
            if let Some(to) = to.filter(|to| *to != from) {
                imports.entry(from.clone()).or_default().entry(to.clone()).or_insert_with(|| source.module.join("/"));
            }
        }
    }
    imports
}

/// Turns a path as written in `module` into one from the crate's root; `None` for paths into other crates.
fn resolve(path: &[String], module: &[String], children: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut base = match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" | "super" => module.to_vec(),
        first if children.contains(first) => return Some([module, path].concat()),
        _ => return None,
    };
    let mut rest = path;
    while let Some((first, later)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => {
                base.pop()?;
            }
            _ => break,
        }
        rest = later;
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// One name that a `use` declaration brings in.
struct Use {
    public: bool,
    path: Vec<String>,
    /// The name it has afterwards.
    name: String,
}

fn uses(text: &str) -> impl Iterator<Item = Use> + '_ {
    text.match_indices("use ")
        .filter_map(|(at, _)| {
            let before = text[..at].trim_end_matches(' ');
            let starts = before.is_empty() || before.ends_with(['\n', ';', '}', '{', ')']) || before.ends_with("pub");
            let end = text[at..].find(';')?;
            let public = before.ends_with("pub") || before.ends_with(')');
            starts.then(|| (public, text[at + 4..at + end].to_owned()))
        })
        .flat_map(|(public, tree)| {
            expand(&tree).into_iter().map(move |path| {
                let (path, alias) = path
                    .split_once(" as ")
                    .map_or((path.clone(), None), |(path, alias)| (path.to_owned(), Some(alias.trim().to_owned())));
                let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
                if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
                Use { public, path, name }
            })
        })
}

/// Expands the braces of a `use` declaration into single paths.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, list)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|part| format!("{}{part}", prefix.trim())).collect()
}

/// Paths in expressions and types that begin with `crate::`, `super::` or `self::`.
fn inline_paths(text: &str) -> impl Iterator<Item = Vec<String>> + '_ {
    ["crate::", "super::", "self::"].into_iter().flat_map(move |start| {
        text.match_indices(start).filter_map(move |(at, _)| {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || matches!(letter, '_' | ':' | '$')) {
                return None;
            }
            let end = text[at..].find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | ':'));
            let path = &text[at..end.map_or(text.len(), |end| at + end)];
            Some(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        })
    })
}

/// Returns the groups of modules that reach each other.
fn cycles(imports: &Imports) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut found = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(module) = open.pop() {
            let next = imports.get(&module).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.filter(|to| found.insert((*to).clone())).cloned().collect::<Vec<_>>());
        }
        found
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|module| (module, reach(module))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, found) in &reached {
        if found.contains(*module) {
            let group = found.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)));
            groups.insert(group.cloned().collect());
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        without_tests(files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect())
    }

    fn cycles_of(files: &[(&str, &str)], parent: &[&str]) -> Vec<Vec<String>> {
        let parent: Vec<String> = parent.iter().map(|part| (*part).to_owned()).collect();
        cycles(&imports(&sources(files), &parent))
    }

    #[test]
    fn accepts_modules_that_flow_one_way() {
        let files = [
            ("", "mod a; mod b; pub use a::{Error, Kind};"),
            ("a", "pub struct Error; // use crate::b::B;\npub struct Kind;"),
            (
                "b",
                "use crate::{a::Kind, Error};\n#[cfg(test)]\nmod tests { use crate::c::C; }\nconst C: &str = \"crate::c::C\";",
            ),
            ("c", "use crate::b::{self, B};\nfn f() -> crate::a::Kind { todo!() }"),
        ];
        assert!(cycles_of(&files, &[]).is_empty());
    }

    #[test]
    fn refuses_a_cycle_of_use_lines_and_inline_paths() {
        let files =
            [("a", "use crate::{b::{deep::B, C}};"), ("b", "fn f() { crate::c::run() }"), ("c", "use super::a::A;")];
        assert_eq!(cycles_of(&files, &[]), [["a", "b", "c"]]);
    }

    #[test]
    fn follows_names_that_the_root_re_exports() {
        let files = [("", "pub use a::Error;"), ("a", "use crate::b::B;"), ("b", "use crate::Error;")];
        assert_eq!(cycles_of(&files, &[]), [["a", "b"]]);
    }

    #[test]
    fn leaves_out_modules_of_tests_in_files_and_beside_them() {
        let files = [
            ("a", "#[cfg(test)]\nmod a_tests;\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests { use crate::b::B; }"),
            ("a::a_tests", "use crate::b::B;"),
            ("a::a_tests::deep", "use crate::b::B;"),
            ("b", "use crate::a::A;"),
        ];
        assert!(cycles_of(&files, &[]).is_empty());
        // The same imports outside tests are a cycle.
        let files = [("a", "mod a_tests;"), ("a::a_tests", "use crate::b::B;"), ("b", "use crate::a::A;")];
        assert_eq!(cycles_of(&files, &[]), [["a", "b"]]);
    }

    #[test]
    fn looks_inside_a_module_where_asked() {
        let files = [
            ("read", "mod plan; mod job; pub use job::Job;"),
            ("read::plan", "use super::job::Job; use crate::open::Image;"),
            ("read::job", "use crate::read::plan::Plan;"),
            ("open", "pub struct Image;"),
        ];
        assert!(cycles_of(&files, &[]).is_empty());
        assert_eq!(cycles_of(&files, &["read"]), [["job", "plan"]]);
    }
}
