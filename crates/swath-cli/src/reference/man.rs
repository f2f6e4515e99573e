//! The reference as man pages, one for each command.

use std::{fmt::Write, io};

use clap_mangen::Man;

use super::{EXIT_STATUSES, NETWORK_VARIABLES, VARIABLES, commands, definition};

/// Returns the name and the content of every page.
pub fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let root = definition();
    let mut pages = vec![page("swath", super::without_hidden(&root))?];
    let others: Vec<String> = commands(&root).map(|command| command.get_name().to_owned()).collect();
    for command in commands(&root) {
        let name = format!("swath-{}", command.get_name());
        pages.push(page(&name, command.clone())?);
    }
    if let Some((_, first)) = pages.first_mut() {
        first.extend_from_slice(see_also(others.iter().map(|name| format!("swath-{name}"))).as_bytes());
    }
    for (_, page) in pages.iter_mut().skip(1) {
        page.extend_from_slice(see_also(["swath".to_owned()].into_iter()).as_bytes());
    }
    Ok(pages)
}

fn page(name: &str, command: clap::Command) -> io::Result<(String, Vec<u8>)> {
    let mut out = Vec::new();
    let source = format!("swath {}", env!("CARGO_PKG_VERSION"));
    // The text at the end has sections of its own: clap_mangen would make one paragraph of its lines.
    let (more, examples) = super::end_of_help(&command);
    let command = command.after_help(None::<&str>);
    // Without its own version, the page of a command has no empty section about it.
    let command = if name == "swath" { command } else { command.version(None::<&str>) };
    Man::new(command).title(name).source(source).manual("swath").render(&mut out)?;
    out.extend_from_slice(end_sections(&more, &examples).as_bytes());
    out.extend_from_slice(common_sections().as_bytes());
    Ok((format!("{name}.1"), out))
}

/// Escapes text so that roff finds no commands in it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-").replace("\n.", "\n\\&.").replace('\'', "\\(aq")
}

fn end_sections(more: &str, examples: &[String]) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    if !more.is_empty() {
        let _ = writeln!(out, ".SH NOTES\n{}", escaped(more));
    }
    if !examples.is_empty() {
        let _ = writeln!(out, ".SH EXAMPLES\n.nf\n{}\n.fi", escaped(&examples.join("\n")));
    }
    out
}

fn common_sections() -> String {
    let mut out = String::from(".SH \"EXIT STATUS\"\n");
    // Writing into a String cannot fail.
    for (status, meaning) in EXIT_STATUSES {
        let _ = writeln!(out, ".TP\n\\fB{status}\\fR\n{}", escaped(meaning));
    }
    out.push_str(".SH ENVIRONMENT\n");
    for (name, meaning) in VARIABLES {
        let _ = writeln!(out, ".TP\n\\fB{name}\\fR\n{}", escaped(meaning));
    }
    let _ = writeln!(out, ".PP\n{}", escaped(NETWORK_VARIABLES));
    out
}

fn see_also(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.map(|name| format!("\\fB{}\\fR(1)", escaped(&name))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", names.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_with_its_options() {
        let pages = pages().unwrap();
        let find = |name: &str| pages.iter().find(|(found, _)| found == name).map(|(_, page)| page.clone());
        let info = String::from_utf8(find("swath-info.1").unwrap()).unwrap();
        assert!(info.contains(".SH \"EXIT STATUS\"") && info.contains("\\-\\-json"), "{info}");
        assert!(info.contains("\n.nf\nswath info scene.tif\n") && !info.contains(".SH EXTRA"), "{info}");
        let root = String::from_utf8(find("swath.1").unwrap()).unwrap();
        assert!(root.contains("swath\\-convert") && !root.contains("generate"), "{root}");
        assert!(find("swath-generate.1").is_none() && find("swath-help.1").is_none());
        assert_eq!(pages.len(), 1 + commands(&definition()).count());
    }
}
