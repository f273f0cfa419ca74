//! S7: UC beside RC, first bare, then by loss, with the application sending again what UC lost.
//!
//! In: the bench. Out: rows, and the curve of throughput and CPU time by loss.

use xroce::{PathMtu, QpType};

use super::resend::{Done, Load, transfer};
use super::stack;
use super::{Bench, LARGE, net::Setup};
use crate::pair::Result;
use crate::report::{Curve, Goal, Line, Report};
use crate::spread::{Ratio, Spread};

/// Percent of frames lost each way.
const LOSSES: [f64; 6] = [0.0, 0.01, 0.05, 0.1, 0.5, 1.0];

/// That share of 65536.
pub fn per_64k(percent: f64) -> u16 {
    (percent * 655.36).round() as u16
}

/// Measures it.
///
/// # Errors
/// When a transfer fails.
pub fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    bench.net.set_up(Setup::Plain)?;
    bare(bench, report)?;
    let mut curve = Curve {
        id: "S7",
        name: "RC and UC with what was lost sent again by the application, WRITE 64 KiB, MTU 1024, by loss each way",
        x: "% lost",
        panels: vec![
            ("Gbit/s that arrived", vec![Line::new("RC"), Line::new("UC")]),
            ("ns of CPU a byte, both ends", vec![Line::new("RC"), Line::new("UC")]),
            ("packets sent, for each needed", vec![Line::new("RC"), Line::new("UC")]),
        ],
    };
    for percent in LOSSES {
        let pairs = at(bench, percent)?;
        for panel in 0..curve.panels.len() {
            let value = |done: &Done| [done.gbit_per_s, done.cpu_ns_per_byte, done.packets_per_needed][panel];
            let ratio = Ratio::of(&pairs.iter().map(|(uc, rc)| (value(uc), value(rc))).collect::<Vec<_>>());
            let mut row = |what, unit| {
                report.row(
                    "S7",
                    &format!("UC + repeats, {percent} % lost each way, {what}vs RC"),
                    unit,
                    ratio,
                    Goal::None,
                )
            };
            match panel {
                0 => row("", "Gbit/s"),
                1 => row("CPU a byte, ", "ns"),
                _ => {}
            }
            let sides: [Spread; 2] = [ratio.theirs, ratio.ours];
            for (line, spread) in curve.panels[panel].1.iter_mut().zip(sides) {
                line.points.push((percent, spread));
            }
        }
    }
    report.curve(curve);
    Ok(())
}

/// All rounds at one loss: UC and RC.
fn at(bench: &Bench, percent: f64) -> Result<Vec<(Done, Done)>> {
    let side = |kind| {
        let load = Load { kind, mtu: PathMtu::Mtu1024, drop_per_64k: per_64k(percent) };
        transfer(&bench.net, load, bench.length.time).map_err(|e| format!("{kind:?}, {percent} % lost: {e}"))
    };
    let mut pairs = Vec::new();
    for round in 0..bench.length.rounds {
        pairs.push(if round % 2 == 0 {
            let uc = side(QpType::Uc)?;
            (uc, side(QpType::Rc)?)
        } else {
            let rc = side(QpType::Rc)?;
            (side(QpType::Uc)?, rc)
        });
    }
    Ok(pairs)
}

/// Without loss, and without an application that would notice any.
fn bare(bench: &Bench, report: &mut Report) -> Result<()> {
    let rc = stack::Load::rc(PathMtu::Mtu1024, LARGE);
    let uc = stack::Load { kind: QpType::Uc, ..rc };
    let write = |load| Ok(stack::write(&bench.net, load, bench.length.time)?.gbit_per_s);
    let ratio = bench.alternate(|| write(uc), || write(rc))?;
    report.row("S7", "UC WRITE 64 KiB, MTU 1024, nobody looks for losses, vs RC", "Gbit/s", ratio, Goal::None);
    Ok(())
}
