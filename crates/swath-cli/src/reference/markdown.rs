//! The reference as a page of Markdown.

use std::fmt::Write;

use clap::{Arg, Command};

use super::{EXIT_STATUSES, NETWORK_VARIABLES, VARIABLES, commands, definition, end_of_help, sentence};

/// The heading under which clap lists the options for servers and stores, which many commands share.
const REMOTE: &str = "Remote";
/// The section that has them.
const REMOTE_SECTION: &str = "Options for servers and stores";

/// Returns the page.
pub fn page() -> String {
    let root = definition();
    let mut out = String::from(
        "# Command line reference\n\n<!-- `make cli-docs` writes this page from crates/swath-cli/src/args.rs. Change the help texts \
         there. -->\n\n`swath COMMAND --help` shows the same on the terminal. [cli-json.md](cli-json.md) lists the keys of JSON \
         output.\n\n",
    );
    // Writing into a String cannot fail.
    for command in commands(&root) {
        let name = command.get_name();
        let _ = writeln!(out, "- [swath {name}](#swath-{name}): {}", about(command));
    }
    for section in [REMOTE_SECTION, "Exit statuses", "Environment variables"] {
        let _ = writeln!(out, "- [{section}](#{})", section.to_lowercase().replace(' ', "-"));
    }
    for command in commands(&root) {
        section(command, &mut out);
    }
    let _ = writeln!(out, "\n## {REMOTE_SECTION}\n");
    let shared = commands(&root).find(|command| under(command, Some(REMOTE)).next().is_some());
    for option in shared.into_iter().flat_map(|command| under(command, Some(REMOTE))) {
        entry(option, &mut out);
    }
    out.push_str("\n## Exit statuses\n\n");
    for (status, meaning) in EXIT_STATUSES {
        let _ = writeln!(out, "- `{status}`: {meaning}");
    }
    out.push_str("\n## Environment variables\n\n");
    for (name, meaning) in VARIABLES {
        let _ = writeln!(out, "- `{name}`: {meaning}");
    }
    let _ = writeln!(out, "\n{NETWORK_VARIABLES}");
    out
}

fn about(command: &Command) -> String {
    command.get_about().map(|about| sentence(&about.to_string())).unwrap_or_default()
}

/// Returns the options and arguments of a command under a heading.
fn under<'a>(command: &'a Command, heading: Option<&'a str>) -> impl Iterator<Item = &'a Arg> {
    command.get_arguments().filter(move |arg| !arg.is_hide_set() && !is_help(arg) && arg.get_help_heading() == heading)
}

/// Whether this is the option that clap adds to every command.
fn is_help(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

fn section(command: &Command, out: &mut String) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    // Writing into a String cannot fail.
    let _ = writeln!(out, "\n## swath {}\n\n{}\n\n```text\n{usage}\n```\n", command.get_name(), about(command));
    let mut headings: Vec<Option<&str>> = vec![None];
    for arg in command.get_arguments() {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let args: Vec<&Arg> = under(command, heading).collect();
        if args.is_empty() {
            continue;
        }
        if heading == Some(REMOTE) {
            let anchor = REMOTE_SECTION.to_lowercase().replace(' ', "-");
            let _ = writeln!(out, "\nAnd the [{}](#{anchor}).", REMOTE_SECTION.to_lowercase());
            continue;
        }
        if let Some(heading) = heading {
            let _ = writeln!(out, "\n{heading}:\n");
        }
        for arg in args {
            entry(arg, out);
        }
    }
    let (more, examples) = end_of_help(command);
    if !more.is_empty() {
        let _ = writeln!(out, "\n{more}");
    }
    if !examples.is_empty() {
        let _ = writeln!(out, "\nExamples:\n\n```sh\n{}\n```", examples.join("\n"));
    }
}

/// Adds one option or argument, with its default and its possible values.
fn entry(arg: &Arg, out: &mut String) {
    let help = arg.get_help().map(|help| sentence(&help.to_string())).unwrap_or_default();
    // Writing into a String cannot fail.
    let _ = write!(out, "- `{}`: {}", spelled(arg), escaped(&help));
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && takes_value(arg) {
        let _ = write!(out, " Default: {}.", defaults.join(", "));
    }
    out.push('\n');
    for value in arg.get_possible_values().iter().filter(|value| takes_value(arg) && !value.is_hide_set()) {
        let _ = match value.get_help() {
            Some(help) => writeln!(out, "    - `{}`: {}", value.get_name(), escaped(&sentence(&help.to_string()))),
            None => writeln!(out, "    - `{}`", value.get_name()),
        };
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns an option as people type it.
fn spelled(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if arg.is_positional() {
        let more = if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
        return format!("{values}{more}");
    }
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let long = arg.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    if takes_value(arg) { format!("{short}{long} {values}") } else { format!("{short}{long}") }
}

/// Returns text in which Markdown sees no markup.
fn escaped(text: &str) -> String {
    text.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_share_the_options_for_servers() {
        let root = definition();
        let listed = |command: &Command| -> String {
            let mut out = String::new();
            under(command, Some(REMOTE)).for_each(|arg| entry(arg, &mut out));
            out
        };
        let lists: Vec<String> = commands(&root).map(listed).filter(|list| !list.is_empty()).collect();
        assert!(lists.len() > 5 && lists.iter().all(|list| Some(list) == lists.first()));
    }

    #[test]
    fn each_command_and_option_is_on_the_page() {
        let (root, page) = (definition(), page());
        for command in commands(&root) {
            assert!(page.contains(&format!("\n## swath {}\n", command.get_name())), "{}", command.get_name());
            for long in command.get_arguments().filter(|arg| !is_help(arg)).filter_map(Arg::get_long) {
                assert!(page.contains(&format!("--{long}")), "{long}");
            }
        }
        assert!(!page.contains("generate"), "hidden commands stay hidden");
        assert!(page.contains("- `--size N`: Longest side of the picture, in pixels. Default: `1024`.\n"), "{page}");
    }
}
