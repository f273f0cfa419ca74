//! The plot: a bar a row, with the range over it and the goal across it, as SVG.

use std::fmt::Write;

use super::{Goal, Row};
use crate::machine::Machine;

const ROW: usize = 22;
const TOP: usize = 40;
const LABEL: usize = 520;
const WIDTH: usize = 480;

/// The whole picture. Ratios beyond the right edge are cut there; their number stands beside the bar.
pub fn svg(machine: &Machine, rows: &[Row]) -> String {
    let right = rows.iter().map(|row| row.ratio.ratio.max).fold(2.0, f64::max).min(5.0);
    let x = |ratio: f64| LABEL as f64 + ratio.min(right) / right * WIDTH as f64;
    let height = TOP + ROW * rows.len() + 20;
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // A String takes everything.
        let _ = writeln!(out, "{text}");
    };
    line(format_args!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{height}" font-family="sans-serif" font-size="12">"#,
        LABEL + WIDTH + 80
    ));
    line(format_args!(r#"<rect width="100%" height="100%" fill="white"/>"#));
    let Machine { cpu, kernel, commit, .. } = machine;
    line(format_args!(
        r#"<text x="8" y="20">{}</text>"#,
        escape(&format!("ours / theirs; {cpu}, Linux {kernel}, commit {commit}; red line: goal"))
    ));
    for (i, row) in rows.iter().enumerate() {
        let (y, ratio) = (TOP + i * ROW, &row.ratio.ratio);
        let color = match row.goal.met(ratio.median) {
            Some(true) => "#4c9f70",
            Some(false) => "#d1813a",
            None => "#7a8fb0",
        };
        line(format_args!(r#"<text x="8" y="{}">{}</text>"#, y + 14, escape(&format!("{} {}", row.id, row.name))));
        line(format_args!(
            r#"<rect x="{LABEL}" y="{}" width="{:.1}" height="14" fill="{color}"/>"#,
            y + 3,
            x(ratio.median) - LABEL as f64
        ));
        line(format_args!(
            r#"<line x1="{:.1}" x2="{:.1}" y1="{}" y2="{}" stroke="black"/>"#,
            x(ratio.min),
            x(ratio.max),
            y + 10,
            y + 10
        ));
        if let Goal::AtMost(goal) | Goal::AtLeast(goal) = row.goal {
            let at = x(goal);
            line(format_args!(
                r#"<line x1="{at:.1}" x2="{at:.1}" y1="{}" y2="{}" stroke="red" stroke-width="2"/>"#,
                y + 1,
                y + 19
            ));
        }
        line(format_args!(r#"<text x="{}" y="{}">{:.2}</text>"#, LABEL + WIDTH + 12, y + 14, ratio.median));
    }
    line(format_args!("</svg>"));
    out
}

/// Text as it may stand in SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Ratio;

    #[test]
    fn every_row_has_a_bar_and_names_are_escaped() {
        let row = |name: &str, ratio: f64| Row {
            id: "S1".to_owned(),
            name: name.to_owned(),
            unit: String::new(),
            ratio: Ratio::of(&[(ratio, 1.0)]),
            goal: Goal::AtMost(1.0),
            load: 0.0,
        };
        let picture = svg(&Machine::here(), &[row("a < b", 0.5), row("far out", 1e9)]);
        assert_eq!(picture.matches("height=\"14\"").count(), 2);
        assert!(picture.contains("a &lt; b") && !picture.contains("a < b"));
        assert!(picture.contains(&format!("width=\"{WIDTH}.0\"")), "a bar beyond the edge ends at the edge");
    }
}
