//! A ladder as text, for a terminal and for tests.
//!
//! In: a [`Ladder`]. Out: lines: time, the two ends as rails, an arrow where a packet leaves or arrives, and what followed.

use std::fmt::Write;

use crate::ladder::{Fate, Finding, Ladder, Step, What, time};
use crate::words;

/// Characters between the two rails.
const WIDTH: usize = 58;

/// The whole ladder: heading, explanation, steps.
pub fn text(ladder: &Ladder) -> String {
    let mut out = format!("{}\n{}\n\n", ladder.title, "=".repeat(ladder.title.chars().count()));
    for paragraph in &ladder.about {
        wrap(&mut out, "", paragraph);
        out.push('\n');
    }
    if !ladder.findings.is_empty() {
        out.push_str("What went wrong\n");
        for Finding { text, step } in &ladder.findings {
            let at = step.map_or(String::new(), |step| format!(" [{} µs]", time(ladder.steps[step].at_ns)));
            wrap(&mut out, "! ", &format!("{text}{at}"));
        }
        out.push('\n');
    }
    for point in &ladder.look {
        wrap(&mut out, "* ", point);
    }
    if !ladder.look.is_empty() {
        out.push('\n');
    }
    if !ladder.facts.is_empty() {
        let facts: Vec<String> = ladder.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        wrap(&mut out, "", &facts.join(" · "));
        out.push('\n');
    }
    out.push_str(&steps(ladder));
    out
}

/// The steps alone.
pub fn steps(ladder: &Ladder) -> String {
    let mut out = String::new();
    let end = |i: usize| {
        let end = &ladder.ends[i];
        let qpn = end.qpn.map_or(String::new(), |qpn| format!("QP {qpn}"));
        let words = [&*end.name, &*end.address, &*qpn];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let widest = ladder.steps.last().map_or(0, |step| time(step.at_ns).chars().count());
    let margin = widest.max(12);
    let _ = writeln!(out, "{:>margin$}  {:<half$}{:>half$}", "µs", end(0), end(1), half = WIDTH / 2 + 1);
    for step in &ladder.steps {
        line(&mut out, margin, ladder, step);
    }
    out
}

/// One step: an arrow or a mark, then the effects, each on a line of its own. Times have `margin` characters.
fn line(out: &mut String, margin: usize, ladder: &Ladder, step: &Step) {
    let right = step.end == 1;
    let (body, beside) = match &step.what {
        What::Call(text) | What::Timer(text) => {
            let dot = if matches!(step.what, What::Timer(_)) { "⏲" } else { "●" };
            (if right { format!("│{:WIDTH$}{dot}", "") } else { format!("{dot}{:WIDTH$}│", "") }, text.clone())
        }
        What::Sent(index) => (rails(&leaving(ladder, *index), right), String::new()),
        What::Arrived { packet, copy } => (rails(&arriving(ladder, *packet, *copy), right), String::new()),
        What::Captured(index) => (crossing(ladder, *index), String::new()),
    };
    let beside = if beside.is_empty() { beside } else { format!("  {}: {beside}", ladder.ends[step.end].name) };
    let _ = writeln!(out, "{}", format!("{:>margin$}  {body}{beside}", time(step.at_ns)).trim_end());
    for effect in &step.effects {
        let name = &ladder.ends[step.end].name;
        let _ = writeln!(out, "{:>margin$}  │{:WIDTH$}│  {name}: {}", "", "", effect.words());
    }
    if let Some(note) = &step.note {
        let _ = writeln!(out, "{:>margin$}  │{:WIDTH$}│  » {note}", "", "");
    }
}

fn rails((text, from_rail): &(String, bool), right: bool) -> String {
    let line = if *from_rail { "─" } else { " " };
    let room = WIDTH.saturating_sub(text.chars().count());
    let fill = line.repeat(room);
    match (right, *from_rail) {
        (false, true) => format!("├{text}{:room$}│", ""),
        (true, true) => format!("│{:room$}{text}┤", ""),
        (_, false) if right => format!("│{fill}{text}┤"),
        _ => format!("├{text}{fill}│"),
    }
}

/// The arrow of a packet that leaves, from the rail to about the middle.
fn leaving(ladder: &Ladder, index: usize) -> (String, bool) {
    let packet = &ladder.packets[index];
    let label = words::label(&packet.sent);
    let again = if packet.again { " again" } else { "" };
    let end = match packet.fate {
        Fate::Lost => "╳ lost",
        Fate::Corrupted(_) => "≁▶ corrupted",
        Fate::Duplicated => "▶▶ doubled",
        Fate::Delivered | Fate::Captured => "▶",
    };
    let number = ladder.number(index);
    if packet.from == 0 {
        (format!("─#{number} {label}{again} ─{end}"), true)
    } else {
        let end = match packet.fate {
            Fate::Lost => "lost ╳",
            Fate::Corrupted(_) => "corrupted ◀≁",
            Fate::Duplicated => "doubled ◀◀",
            Fate::Delivered | Fate::Captured => "◀",
        };
        (format!("{end}─ {label}{again} #{number}─"), true)
    }
}

/// A packet that crosses in no time: the whole arrow.
fn crossing(ladder: &Ladder, index: usize) -> String {
    let packet = &ladder.packets[index];
    let again = if packet.again { " again" } else { "" };
    let (number, label) = (ladder.number(index), words::label(&packet.sent));
    let text = if packet.from == 0 {
        format!("─#{number} {label}{again} ")
    } else {
        format!(" {label}{again} #{number}─")
    };
    let line = "─".repeat(WIDTH.saturating_sub(text.chars().count() + 1));
    if packet.from == 0 { format!("├{text}{line}▶│") } else { format!("│◀{line}{text}┤") }
}

/// The head of the arrow, at the other rail.
fn arriving(ladder: &Ladder, index: usize, copy: bool) -> (String, bool) {
    let number = ladder.number(index);
    let copy = if copy { " copy" } else { "" };
    if ladder.packets[index].from == 0 {
        (format!("─▶ #{number}{copy} "), false)
    } else {
        (format!(" #{number}{copy} ◀─"), false)
    }
}

/// Words in lines of at most 100 characters, those behind the first indented like `mark`.
fn wrap(out: &mut String, mark: &str, text: &str) {
    let indent = " ".repeat(mark.len());
    let mut line = mark.to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clone_from(&indent);
        }
        if !line.trim().is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
