//! A figure over a number that was varied, as lines: the second kind of plot.
//!
//! In: points with their ranges. Out: SVG, one panel under another.

use std::fmt::Write;

use serde::Serialize;

use super::plot::escape;
use crate::machine::Machine;
use crate::spread::Spread;

/// Lines over one x axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// S1 to S10.
    pub id: &'static str,
    /// What is shown.
    pub name: &'static str,
    /// What was varied.
    pub x: &'static str,
    /// What was measured, and who with.
    pub panels: Vec<(&'static str, Vec<Line>)>,
}

/// One of the lines.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Whose it is.
    pub name: &'static str,
    /// Where it goes through, and how far the rounds lay apart.
    pub points: Vec<(f64, Spread)>,
}

impl Line {
    /// Without points.
    pub fn new(name: &'static str) -> Line {
        Line { name, points: Vec::new() }
    }
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const GAP: f64 = 60.0;
const COLORS: [&str; 3] = ["#31688e", "#d1813a", "#4c9f70"];

/// The whole picture. Points stand one beside the other, whatever the distance of their numbers: these mostly go by factors.
pub fn svg(machine: &Machine, curve: &Curve) -> String {
    let height = TOP + curve.panels.len() as f64 * (HEIGHT + GAP);
    let width = LEFT + WIDTH + 100.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let Machine { cpu, kernel, commit, .. } = machine;
    text(&mut out, 8.0, 18.0, "start", "black", curve.name);
    let place = format!("{cpu}, Linux {kernel}, commit {commit}; medians, bars: range of the rounds");
    text(&mut out, 8.0, 34.0, "start", "#666", &place);
    for (i, (title, lines)) in curve.panels.iter().enumerate() {
        panel(&mut out, TOP + i as f64 * (HEIGHT + GAP), title, curve.x, lines);
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, top: f64, title: &str, x_title: &str, lines: &[Line]) {
    let points = lines.iter().flat_map(|line| &line.points);
    let most = points.clone().map(|(_, spread)| spread.max).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let step = step_of(most);
    let scale = (most / step).ceil() * step;
    let mut xs: Vec<f64> = points.map(|(x, _)| *x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let bottom = top + HEIGHT;
    let y = |value: f64| bottom - value / scale * HEIGHT;
    let x = |value: f64| {
        let at = xs.iter().position(|x| *x == value).unwrap_or(0) as f64;
        LEFT + (at + 0.5) * WIDTH / xs.len().max(1) as f64
    };
    text(out, LEFT, top - 6.0, "start", "black", title);
    for tick in 0..=(scale / step).round() as usize {
        let value = tick as f64 * step;
        stroke(out, (LEFT, y(value)), (LEFT + WIDTH, y(value)), "#ddd", 1.0);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        text(out, LEFT - 6.0, y(value) + 4.0, "end", "#444", &format!("{value:.digits$}"));
    }
    for value in &xs {
        text(out, x(*value), bottom + 16.0, "middle", "#444", &value.to_string());
    }
    text(out, LEFT + WIDTH + 6.0, bottom + 16.0, "start", "#444", x_title);
    for ((line, color), aside) in lines.iter().zip(COLORS.iter().cycle()).zip([-3.0, 3.0, 0.0].iter().cycle()) {
        let at = |(value, spread): &(f64, Spread)| (x(*value) + aside, y(spread.median));
        for pair in line.points.windows(2) {
            stroke(out, at(&pair[0]), at(&pair[1]), color, 2.0);
        }
        for point in &line.points {
            let (left, middle) = at(point);
            stroke(out, (left, y(point.1.min)), (left, y(point.1.max)), color, 1.0);
            let _ = writeln!(out, r#"<circle cx="{left:.1}" cy="{middle:.1}" r="3" fill="{color}"/>"#);
        }
    }
    // Names at the right, one under another, in the order of the lines' ends.
    let mut names: Vec<_> =
        lines.iter().zip(COLORS.iter().cycle()).filter(|(line, _)| !line.points.is_empty()).collect();
    names.sort_by(|(a, _), (b, _)| end(b).total_cmp(&end(a)));
    let mut last = f64::MIN;
    for (line, color) in names {
        let at = (y(end(line)) + 4.0).max(last + 14.0);
        text(out, LEFT + WIDTH + 6.0, at, "start", color, line.name);
        last = at;
    }
}

/// Where a line ends.
fn end(line: &Line) -> f64 {
    line.points.last().map_or(0.0, |(_, spread)| spread.median)
}

/// The distance of grid lines: 1, 2 or 5 times a power of ten, four to eight of them.
fn step_of(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|n| n * power).find(|step| most / step >= 4.0).unwrap_or(power)
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, color: &str, what: &str) {
    let what = escape(what);
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{color}">{what}</text>"#);
}

fn stroke(out: &mut String, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}" stroke-width="{width}"/>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, values: &[f64]) -> Line {
        let point = |(i, v): (usize, &f64)| (i as f64, Spread { median: *v, min: v * 0.5, max: v * 1.5 });
        Line { name, points: values.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn every_point_is_drawn_and_every_line_named() {
        let lines = vec![line("first", &[1.0, 2.0]), line("a < b", &[3.0, 1.0])];
        let curve = Curve { id: "S0", name: "n", x: "% lost", panels: vec![("p", lines)] };
        let picture = svg(&Machine::here(), &curve);
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(picture.contains(">first<") && picture.contains(">a &lt; b<"));
    }

    #[test]
    fn the_grid_has_four_to_ten_lines() {
        for most in [0.013, 0.99, 1.0, 3.3, 7.0, 40.0, 123_456.0] {
            let count = (most / step_of(most)).ceil();
            assert!((4.0..=10.0).contains(&count), "{most}: {count}");
        }
    }
}
