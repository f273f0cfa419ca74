//! A manual page as roff. In: a command as the parser knows it, and what [`pages`](super::pages) adds. Out: the text of the page.

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use roff::{Inline, Roff, bold, italic, roman};

use super::pages::{self, Page, Rows};

/// The section of all our pages: user commands.
pub const SECTION: &str = "1";

/// What the page of `command` is called: xroce, or xroce-stat.
pub fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The page of `command`, which is `whole` or one of its subcommands. Both are built.
pub fn page(command: &Command, whole: &Command) -> String {
    let version = format!("{} {}", whole.get_name(), whole.get_version().unwrap_or_default());
    let page = pages::of(command.get_name());
    let mut roff = Roff::new();
    // No date: the same sources make the same pages.
    roff.control("TH", [title(command), SECTION, " ", &version, "User Commands"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{} - {}", title(command), about(command)))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(synopsis(command));
    roff.control("SH", ["DESCRIPTION"]);
    let description = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    paragraphs(&mut roff, &description);
    commands(&mut roff, command);
    arguments(&mut roff, command);
    rows(&mut roff, "EXIT STATUS", &page.exit_status());
    rows(&mut roff, "ENVIRONMENT", page.environment);
    rows(&mut roff, "FILES", page.files);
    examples(&mut roff, page);
    see_also(&mut roff, command, whole, page);
    roff.render()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// What stands between backquotes is bold.
fn inlines(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty());
    pieces.map(|(i, piece)| if i % 2 == 0 { roman(piece) } else { bold(piece) }).collect()
}

fn paragraphs(roff: &mut Roff, text: &str) {
    for (i, paragraph) in text.split("\n\n").enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text(inlines(&paragraph.replace('\n', " ")));
    }
}

fn tagged(roff: &mut Roff, tag: Vec<Inline>, text: &str) {
    roff.control("TP", []);
    roff.text(tag);
    roff.text(inlines(text));
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

fn takes_values(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|count| count.takes_values())
}

/// `[WHAT]`, `FILE...` and the like: the values of an argument or option.
fn values(arg: &Arg) -> Vec<Inline> {
    let names = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    let count = arg.get_num_args().unwrap_or_default();
    let more = if count.max_values() > 1 { "..." } else { "" };
    let optional = if arg.is_positional() { !arg.is_required_set() } else { count.min_values() == 0 };
    let [left, right] = if optional { ["[", "]"] } else { ["", ""] };
    vec![roman(left), italic(names), roman(more), roman(right)]
}

fn synopsis(command: &Command) -> Vec<Inline> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(name), roman(" ["), italic("OPTION"), roman("]...")];
    for arg in shown(command).filter(|arg| arg.is_positional()) {
        line.push(roman(" "));
        line.extend(values(arg));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND")]);
    }
    line
}

fn commands(roff: &mut Roff, command: &Command) {
    if !command.has_subcommands() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for sub in command.get_subcommands() {
        tagged(roff, vec![bold(title(sub)), roman(format!("({SECTION})"))], &about(sub));
    }
}

fn arguments(roff: &mut Roff, command: &Command) {
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) = shown(command).partition(|arg| arg.is_positional());
    // What all commands take comes last.
    let (common, own): (Vec<&Arg>, Vec<&Arg>) = options.into_iter().partition(|arg| is_common(arg));
    for (heading, args) in [("ARGUMENTS", positional), ("OPTIONS", [own, common].concat())] {
        if !args.is_empty() {
            roff.control("SH", [heading]);
        }
        for arg in args {
            argument(roff, arg);
        }
    }
}

fn is_common(arg: &Arg) -> bool {
    arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version")
}

fn argument(roff: &mut Roff, arg: &Arg) {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let default = if takes_values(arg) { arg.get_default_values().first() } else { None };
    let default = default.map(|value| format!(" [default: {}]", value.to_string_lossy())).unwrap_or_default();
    tagged(roff, names(arg), &format!("{help}{default}"));
    let possible: Vec<PossibleValue> = arg.get_possible_values().into_iter().filter(|v| !v.is_hide_set()).collect();
    if possible.is_empty() || !takes_values(arg) {
        return;
    }
    roff.control("RS", []);
    if possible.iter().all(|value| value.get_help().is_none()) {
        let names: Vec<&str> = possible.iter().map(PossibleValue::get_name).collect();
        roff.control("PP", []);
        roff.text([roman(format!("One of: {}.", names.join(", ")))]);
    } else {
        let width = possible.iter().map(|value| value.get_name().len()).max().unwrap_or(0) + 2;
        for value in &possible {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            roff.control("TP", [width.to_string().as_str()]);
            roff.text([bold(value.get_name())]);
            roff.text(inlines(&help));
        }
    }
    roff.control("RE", []);
}

/// `-d, --device, --ib-dev NETDEV`, or the name of an argument.
fn names(arg: &Arg) -> Vec<Inline> {
    let shorts = arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("-{name}"));
    let longs = arg.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    let mut tag = Vec::new();
    for (i, name) in shorts.chain(longs).enumerate() {
        if i > 0 {
            tag.push(roman(", "));
        }
        tag.push(bold(name));
    }
    if takes_values(arg) {
        if !tag.is_empty() {
            tag.push(roman(" "));
        }
        tag.extend(values(arg));
    }
    tag
}

fn rows(roff: &mut Roff, heading: &str, rows: Rows<'_>) {
    if rows.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (name, meaning) in rows {
        tagged(roff, vec![bold(*name)], meaning);
    }
}

fn examples(roff: &mut Roff, page: &Page) {
    roff.control("SH", ["EXAMPLES"]);
    for (i, (what, lines)) in page.examples.iter().enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text(inlines(what));
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.control("nf", []);
        for line in *lines {
            roff.text([bold(*line)]);
        }
        roff.control("fi", []);
        roff.control("RE", []);
    }
}

fn see_also(roff: &mut Roff, command: &Command, whole: &Command, page: &Page) {
    let ours: Vec<&str> = std::iter::once(whole).chain(whole.get_subcommands()).map(title).collect();
    let ours = ours.into_iter().filter(|name| *name != title(command)).map(|name| (name, SECTION));
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (name, section) in ours.chain(page.see_also.iter().copied()) {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(format!("({section})"))]);
    }
    roff.text(line);
}
