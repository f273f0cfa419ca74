//! Captures of long streams whose packets overtake each other: what came late was not lost.

use std::net::IpAddr;

use super::diagnosis::diagnose;
use super::trouble::{Kind, Trouble};
use super::*;
use crate::world::stream::{Stream, Weather, writes};

/// Where it is captured: nanoseconds from A, and from B.
const AT_A: [u64; 2] = [0, 20_000];
const AT_B: [u64; 2] = [20_000, 0];
const BETWEEN: [u64; 2] = [10_000, 10_000];

fn captured(stream: &Stream) -> Vec<Captured> {
    let ends: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let packet = |(frame, (at, from, bytes)): (u64, &(u64, usize, Vec<u8>))| Captured {
        frame,
        interface: 0,
        time_ns: i128::from(*at),
        src: ends[*from],
        dst: ends[1 - from],
        link: Vec::new(),
        bytes: bytes.clone(),
    };
    (1..).zip(&stream.passed).map(packet).collect()
}

fn troubles(stream: &Stream) -> Vec<Trouble> {
    let capture = Capture::new(captured(stream));
    assert_eq!(capture.len(), 1);
    diagnose(&capture.packets, &capture.pairings[0]).troubles
}

/// What is told of many captures.
#[derive(Debug, Default)]
struct Told {
    packets: usize,
    /// That packets were lost before the capture point, and behind it: told, and true.
    before: [usize; 2],
    behind: [usize; 2],
    /// That they came twice at once, and that something unknown made them be sent again: nothing doubles them, and every NAK is here.
    doubled: usize,
    resent: usize,
}

fn told(weather: Weather, point: [u64; 2]) -> Told {
    let mut sum = Told::default();
    for seed in 0..20 {
        let stream = writes(seed, 100, weather, point);
        let troubles = troubles(&stream);
        let told = |kind| troubles.iter().filter(|trouble| trouble.kind == kind).count();
        sum.packets += stream.passed.len();
        sum.before = [sum.before[0] + told(Kind::LostBefore), sum.before[1] + stream.lost_before];
        sum.behind = [sum.behind[0] + told(Kind::LostBehind), sum.behind[1] + stream.lost_behind];
        sum.doubled += told(Kind::Doubled);
        sum.resent += told(Kind::Resent);
    }
    sum
}

#[test]
fn what_came_late_was_not_lost() {
    let weather = Weather { overtaken: 0.05, ..Weather::default() };
    for point in [AT_A, AT_B, BETWEEN] {
        let told = told(weather, point);
        // A resend that is cut off by the next, and whose last packets come late, cannot always be told from one with a hole.
        let false_ones = told.before[0] + told.behind[0];
        assert!(false_ones * 4_000 < told.packets, "{point:?}: {told:?}");
        assert!(told.doubled * 1_000 < told.packets && told.resent * 300 < told.packets, "{point:?}: {told:?}");
    }
}

#[test]
fn what_was_lost_is_told() {
    for point in [AT_A, AT_B, BETWEEN] {
        let before = told(Weather { lost_before: 0.01, ..Weather::default() }, point);
        assert!(before.before[0] * 10 > before.before[1] * 9 && before.behind[0] == 0, "{point:?}: {before:?}");
        // The others show as timeouts, or stand behind another that is lost.
        let behind = told(Weather { lost_behind: 0.01, ..Weather::default() }, point);
        assert!(behind.behind[0] * 10 > behind.behind[1] * 7 && behind.before[0] == 0, "{point:?}: {behind:?}");
        let both = told(Weather { lost_before: 0.01, overtaken: 0.02, ..Weather::default() }, point);
        assert!(both.before[0] * 10 > both.before[1] * 8, "{point:?}: {both:?}");
    }
}
