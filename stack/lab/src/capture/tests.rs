use std::net::IpAddr;

use super::*;
use crate::Scenario;

/// Where a scenario is captured.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    /// At A: what A sends is here before anything happens to it.
    AtA,
    /// At B.
    AtB,
}

/// The packets of a scenario as a capture at an end sees them.
fn captured(name: &str, point: Point) -> Vec<Captured> {
    seen_at(point, &Scenario::find(name).expect("a scenario").run())
}

fn seen_at(point: Point, ladder: &Ladder) -> Vec<Captured> {
    let addresses = ladder.ends.each_ref().map(|end| end.address.parse::<IpAddr>().expect("an address"));
    let own = if point == Point::AtA { 0 } else { 1 };
    let mut packets = Vec::new();
    for step in &ladder.steps {
        let (index, damaged) = match step.what {
            What::Sent(index) if ladder.packets[index].from == own => (index, false),
            What::Arrived { packet, .. } if ladder.packets[packet].from != own => (packet, true),
            _ => continue,
        };
        let packet = &ladder.packets[index];
        let mut bytes = packet.sent.clone();
        if let (Fate::Corrupted(bit), true) = (packet.fate, damaged) {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
        let (src, dst) = (addresses[packet.from], addresses[1 - packet.from]);
        let frame = packets.len() as u64 + 1;
        let time_ns = 1_000 + i128::from(step.at_ns);
        packets.push(Captured { frame, interface: 0, time_ns, src, dst, link: Vec::new(), bytes });
    }
    packets
}

/// A WRITE of five packets and its ACK, without what the scenario does to them.
fn clean() -> Vec<Captured> {
    let mut packets = captured("psn-wrap", Point::AtA);
    packets.drain(2..6);
    packets
}

fn ladder(packets: Vec<Captured>) -> Ladder {
    Capture::new(packets).ladder("x", 0).expect("packets")
}

fn findings(packets: Vec<Captured>) -> Vec<String> {
    ladder(packets).findings.into_iter().map(|finding| finding.text).collect()
}

/// Each of `expected` is part of one finding, in this order, and there is no other.
#[track_caller]
fn tells(packets: Vec<Captured>, expected: &[&str]) {
    let found = findings(packets);
    let fits = found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.contains(e));
    assert!(fits, "found {found:#?}, expected {expected:#?}");
}

#[test]
fn a_capture_is_shown_from_the_end_that_sent_first() {
    let packets = captured("go-back-n", Point::AtA);
    let n = packets.len();
    let ladder = ladder(packets);
    assert_eq!((ladder.packets.len(), ladder.steps.len()), (n, n));
    assert_eq!(ladder.ends.each_ref().map(|e| &*e.address), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(ladder.ends.each_ref().map(|e| e.qpn.map(|q| q.value())), [Some(0x1d_0011), Some(0x1d_0022)]);
    assert_eq!(ladder.packets.iter().filter(|p| p.again).count(), 4, "the four that go-back-N sends again");
    let page = crate::page(&ladder).expect("a page");
    assert!(page.contains("captured") && crate::text(&ladder).contains("NAK sequence error PSN 103"));
}

#[test]
fn where_a_packet_was_lost_depends_on_where_one_looks() {
    // At A the lost packet was here; at B it never came.
    tells(
        captured("go-back-n", Point::AtA),
        &["It was here, as frame 4: lost, damaged or overtaken behind this point. A sends it again"],
    );
    tells(
        captured("go-back-n", Point::AtB),
        &["PSN 103 is missing before frame", "sequence NAK in frame 5. A sends it again"],
    );
}

#[test]
fn silence_and_the_same_again_is_a_timeout() {
    let found = findings(captured("lost-packet", Point::AtA));
    assert!(found.iter().any(|f| f.contains("ms of silence") && f.contains("ACK timer ran out")), "{found:#?}");
    tells(
        captured("retry-exhausted", Point::AtA),
        &["PSN 101 was sent 3 times and never answered: frame 3 (WRITE_ONLY", "2 ACK timeouts"],
    );
}

#[test]
fn refusals_are_told_with_what_they_answer() {
    tells(
        captured("rnr", Point::AtA),
        &["2 RNR NAKs: the receiver had no RECV. The first: B has no RECV for frame 1 (SEND_ONLY"],
    );
    let found = findings(captured("bad-rkey", Point::AtA));
    assert!(found[0].contains("NAK in frame") && found[0].contains("remote access error: its R_Key"), "{found:#?}");
    assert_eq!(found.len(), 1, "that the rest is never answered goes without saying: {found:#?}");
}

#[test]
fn a_read_that_is_asked_for_again_says_what_was_lost_where() {
    let rest = "asks for the rest of a READ, from PSN 101 on";
    let at_b = findings(captured("read-split", Point::AtB));
    assert!(at_b[0].contains(rest) && at_b[0].contains("was here, as frame 3: lost behind"), "{at_b:#?}");
    let at_a = findings(captured("read-split", Point::AtA));
    assert!(at_a.iter().any(|f| f.contains("READ response is missing before frame")), "{at_a:#?}");
}

#[test]
fn damage_is_told() {
    let found = findings(captured("bad-icrc", Point::AtB));
    assert!(found.iter().any(|f| f.starts_with("The ICRC of frame 1 is wrong")), "{found:#?}");
    let mut packets = captured(NAKED, Point::AtA);
    *packets[0].bytes.last_mut().expect("an ICRC") ^= 1;
    assert!(findings(packets).iter().all(|f| !f.contains("begins inside")), "its first packet is here");
    let ladder = ladder(captured("bad-icrc", Point::AtB));
    assert_eq!(ladder.steps[0].effects, [Effect::Dropped("ICRC is wrong")]);
}

#[test]
fn a_good_conversation_has_nothing_wrong() {
    for packets in [clean(), captured("life-cycle", Point::AtA), captured("life-cycle", Point::AtB)] {
        assert_eq!(findings(packets), [""; 0]);
    }
}

#[test]
fn reordered_is_not_lost() {
    let mut packets = clean();
    let (a, b) = (packets[1].time_ns, packets[2].time_ns);
    (packets[1].time_ns, packets[2].time_ns) = (b, a);
    tells(packets, &["overtaken on the way"]);
}

#[test]
fn what_only_the_capture_missed_is_not_lost() {
    let mut packets = clean();
    packets.remove(1);
    tells(packets, &["frame 10 acknowledges it: not lost, the capture missed it"]);
}

#[test]
fn twice_at_once_is_doubled() {
    let mut packets = clean();
    let mut copy = packets[1].clone();
    copy.time_ns += 10;
    packets.push(copy);
    tells(packets, &["comes twice at once"]);
}

#[test]
fn one_direction_and_a_beginning_in_the_middle_are_told() {
    let a: IpAddr = [192, 0, 2, 1].into();
    let mut packets = captured("go-back-n", Point::AtA);
    packets.retain(|packet| packet.src == a);
    let found = findings(packets);
    assert!(found.iter().any(|f| f.contains("Only what A sends was captured")), "{found:#?}");
    assert!(found.iter().any(|f| f.contains("sends PSN 103 again")), "{found:#?}");
    tells(clean().split_off(1), &["begins inside a message of A: frame 2"]);
}

#[test]
fn uc_loses_without_a_word() {
    let found = findings(captured("uc-gap", Point::AtB));
    assert!(found.len() == 1 && found[0].contains("UC sends nothing again"), "{found:#?}");
}

#[test]
fn conversations_are_told_apart_and_the_rest_is_listed() {
    let mut packets = captured("go-back-n", Point::AtA);
    let many = packets.len();
    // The same addresses, other queue pairs, and the same PSNs.
    let other = captured("go-back-n", Point::AtA).into_iter().take(5).map(|mut packet| {
        packet.time_ns += 10_000_000;
        // BTH byte 5, 6, 7: DestQP. The ICRC is then wrong, which does not matter for who talks to whom.
        packet.bytes[20 + 8 + 6] ^= 1;
        packet
    });
    packets.extend(other);
    let capture = Capture::new(packets);
    assert_eq!(capture.len(), 2);
    let ladder = capture.ladder("x", 0).expect("the first");
    assert_eq!(ladder.packets.len(), many);
    assert!(ladder.about.iter().any(|line| line.starts_with("Conversation 1 of 2")), "{:?}", ladder.about);
    assert_eq!(capture.ladder("x", 1).expect("the second").packets.len(), 5);
    assert!(capture.ladder("x", 2).is_none() && Capture::new(Vec::new()).is_empty());
}

#[test]
fn two_interfaces_that_see_the_same_are_one_place() {
    let mut packets = captured("go-back-n", Point::AtA);
    let n = packets.len();
    packets.extend(captured("go-back-n", Point::AtB).into_iter().map(|packet| Captured { interface: 1, ..packet }));
    let ladder = ladder(packets);
    assert_eq!(ladder.packets.len(), n, "what A saw: one packet more than B");
    assert!(ladder.about.iter().any(|line| line.contains("from 2 places")), "{:?}", ladder.about);
}

#[test]
fn of_a_long_conversation_what_is_worth_it_is_shown() {
    let once = captured("psn-wrap", Point::AtA);
    let mut packets = Vec::new();
    for round in 0..600 {
        packets
            .extend(once.iter().cloned().map(|packet| Captured { time_ns: packet.time_ns + round * 1_000, ..packet }));
    }
    let all = packets.len();
    let ladder = ladder(packets);
    assert!(ladder.packets.len() <= SHOWN_MAX && ladder.packets.len() > 40, "{} of {all}", ladder.packets.len());
    assert!(crate::text(&ladder).contains("are left out") || !ladder.findings.is_empty());
}

/// Packets of a scenario as A's capture has them, in another order, 1 µs apart; counted from 0, as often as one likes.
fn in_order(name: &str, order: &[usize]) -> Vec<Captured> {
    let packets = captured(name, Point::AtA);
    let again = |(i, which): (usize, &usize)| Captured {
        frame: i as u64 + 1,
        time_ns: i as i128 * 1_000,
        ..packets[*which].clone()
    };
    order.iter().enumerate().map(again).collect()
}

/// Gives a packet another PSN.
fn set_psn(packet: &mut Captured, psn: u32) {
    let bytes = &mut packet.bytes;
    // Behind an IPv4 and a UDP header; the PSN is the last three bytes of the BTH.
    bytes[20 + 8 + 9..20 + 8 + 12].copy_from_slice(&psn.to_be_bytes()[1..]);
    let icrc = bytes.len() - 4;
    let sealed = xroce_wire::Icrc::begin(&bytes[..icrc]).finish();
    bytes[icrc..].copy_from_slice(&sealed);
}

/// The same for the MSN of a response.
fn set_msn(packet: &mut Captured, msn: u8) {
    let psn = xroce_wire::dissect(&packet.bytes).packet.expect("a packet").psn().value();
    packet.bytes[20 + 8 + 12 + 1..20 + 8 + 12 + 4].copy_from_slice(&[0, 0, msn]);
    set_psn(packet, psn);
}

/// go-back-n at A: PSNs 100 to 106 are packets 0 to 6, the NAK of 103 is 7, and 103 to 106 are sent again as 8 to 11; then the ACK.
const NAKED: &str = "go-back-n";

#[test]
fn a_damaged_packet_is_not_said_to_be_missing() {
    let mut packets = captured(NAKED, Point::AtA);
    *packets[3].bytes.last_mut().expect("an ICRC") ^= 1;
    tells(
        packets,
        &["The ICRC of frame 4 is wrong", "sequence NAK in frame 8. It was here, as frame 4, but damaged. A sends"],
    );
}

#[test]
fn what_is_missing_of_a_resend_is_told_as_such() {
    // 104 is lost when it is sent again, which only the ACK timer finds.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 9, 10, 11, 12]);
    packets[10..].iter_mut().for_each(|packet| packet.time_ns += 5_000_000);
    let found = findings(packets);
    assert!(found[0].starts_with("2 times packets were lost before"), "{found:#?}");
    assert!(found.iter().all(|f| !f.contains("a reason that is not") && !f.contains("overtaken")), "{found:#?}");
    assert_eq!(found.len(), 3, "and the timeout, and the NAK: {found:#?}");
}

#[test]
fn a_resend_whose_first_packet_is_missing_is_no_timeout() {
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 8, 9, 10, 11, 12]);
    packets[7..].iter_mut().for_each(|packet| packet.time_ns += 300_000);
    packets[10..].iter_mut().for_each(|packet| packet.time_ns += 5_000_000);
    tells(
        packets,
        &["PSN 103 is missing before frame 4", "5.00 ms of silence, then A sends PSN 103", "sequence NAK in frame 7"],
    );
}

#[test]
fn what_comes_after_it_was_sent_again_was_not_lost() {
    tells(
        in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 8, 3, 9, 10, 11, 12]),
        &[
            "sequence NAK in frame 7",
            "sent again from frame 8 on, but not lost: overtaken on the way, and here at last in frame 9",
        ],
    );
}

#[test]
fn uc_packets_that_change_places_are_not_missing() {
    let n = captured("uc-gap", Point::AtA).len();
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..n).collect();
    tells(
        in_order("uc-gap", &order),
        &["PSN 101 (frame 3) comes behind frame 2, which has a later one: overtaken on the way. UC"],
    );
}

#[test]
fn read_responses_that_change_places_are_not_missing() {
    let clean = || {
        let mut packets = captured("read-split", Point::AtB);
        packets.truncate(7);
        packets
    };
    assert_eq!(findings(clean()), [""; 0]);
    let mut packets = clean();
    let (a, b) = (packets[2].time_ns, packets[4].time_ns);
    (packets[2].time_ns, packets[4].time_ns) = (b, a);
    tells(packets, &["of a READ response (frame 3) comes behind frame 5, which has a later one: overtaken"]);
}

#[test]
fn without_the_answers_nobody_knows_why_something_is_sent_again() {
    let a: IpAddr = [192, 0, 2, 1].into();
    let mut packets = captured("lost-packet", Point::AtA);
    packets.retain(|packet| packet.src == a);
    let ladder = ladder(packets);
    let notes: Vec<&str> = ladder.steps.iter().filter_map(|step| step.note.as_deref()).collect();
    assert!(notes.iter().any(|n| n.contains("or an answer that is not in the capture asked for it")), "{notes:#?}");
    assert!(notes.iter().all(|n| !n.contains("ran out. ")), "{notes:#?}");
}

#[test]
fn that_nothing_is_wrong_is_said_and_that_nothing_can_be_read_too() {
    let nothing = |ladder: &Ladder| ladder.about.iter().any(|line| line.starts_with("Nothing went wrong"));
    assert!(nothing(&ladder(clean())) && !nothing(&ladder(captured(NAKED, Point::AtA))));
    let mut packets = clean();
    packets.iter_mut().for_each(|packet| packet.bytes.truncate(36));
    assert!(!nothing(&ladder(packets.clone())));
    tells(packets, &["packets cannot be read: malformed, or cut short by the capture"]);
}

#[test]
fn packets_have_the_numbers_of_their_frames() {
    let packets: Vec<Captured> =
        clean().into_iter().map(|packet| Captured { frame: packet.frame + 1_000, ..packet }).collect();
    let text = crate::text(&ladder(packets));
    assert!(text.contains("#1001 WRITE_FIRST") && !text.contains("#1 "), "{text}");
}

#[test]
fn a_nak_that_crosses_a_resend_still_explains_the_next() {
    // The resend of 103 is lost behind A, and 104 is missing of it: what comes next goes on with it, for all that NAK.
    let packets = in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 8, 7, 10, 11, 8, 9, 10, 11, 12]);
    let found = findings(packets);
    assert!(found.iter().all(|f| !f.contains("a reason that is not") && !f.contains("overtaken on")), "{found:#?}");
}

#[test]
fn a_resend_long_after_is_not_the_first_that_was_late() {
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3]);
    packets[11].time_ns += 50_000_000;
    packets[12].time_ns += 50_000_000;
    let found = findings(packets);
    assert!(found.iter().all(|f| !f.contains("not lost")), "{found:#?}");
}

#[test]
fn a_resend_that_goes_on_after_a_silence_without_its_next_packet_is_no_timeout() {
    // 104 is missing of the resend, and 105 comes late: the timer would have begun with 103, which is not acknowledged.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 7, 8, 9, 10, 11, 12]);
    packets[8..].iter_mut().for_each(|packet| packet.time_ns += 500_000);
    let found = findings(packets);
    assert!(found.iter().all(|f| !f.contains("silence")), "{found:#?}");
}

/// A text whose PSNs are so much further back.
fn back(text: &str, by: u32) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for i in 1..words.len() {
        let psn = ["PSN", "PSNs"].contains(&&*words[i - 1]) || i > 2 && words[i - 1] == "to" && words[i - 3] == "PSNs";
        let digits = words[i].bytes().take_while(u8::is_ascii_digit).count();
        if let (true, Ok(n)) = (psn, words[i][..digits].parse::<u32>()) {
            words[i] = format!("{}{}", n.wrapping_sub(by) & 0xFF_FFFF, &words[i][digits..]);
        }
    }
    words.join(" ")
}

#[test]
fn where_psns_wrap_makes_no_difference() {
    for scenario in crate::SCENARIOS {
        let plain = scenario.run_further(0);
        let first = plain.packets.iter().find(|packet| packet.from == 0).map(|packet| &packet.sent).expect("a packet");
        let psn = xroce_wire::dissect(first).packet.expect("a packet").psn();
        for point in [Point::AtA, Point::AtB] {
            let expected = findings(seen_at(point, &plain));
            for before in 0..12 {
                let by = xroce_wire::Psn::new(0).sub(psn.value() + before).value();
                let found = findings(seen_at(point, &scenario.run_further(by)));
                let found: Vec<String> = found.iter().map(|text| back(text, by)).collect();
                assert_eq!(found, expected, "{}: {before} PSNs before 2^24", scenario.name);
            }
        }
    }
}

/// What both ends see of a scenario, in one capture with one interface. `told` is whether the link layer tells them apart.
fn twofold(name: &str, told: bool) -> Vec<Captured> {
    let mut packets = captured(name, Point::AtA);
    let mut others = captured(name, Point::AtB);
    if told {
        others.iter_mut().for_each(|packet| packet.link = vec![1]);
    }
    packets.append(&mut others);
    packets.sort_by_key(|packet| packet.time_ns);
    packets.iter_mut().zip(1..).for_each(|(packet, frame)| packet.frame = frame);
    packets
}

#[test]
fn what_two_places_of_one_interface_saw_is_one_packet() {
    for name in ["go-back-n", "lost-packet", "rnr", "read-split", "psn-wrap", "uc-gap"] {
        for told in [true, false] {
            let sent = Scenario::find(name).expect("a scenario").run().packets.len();
            let ladder = ladder(twofold(name, told));
            // Of few packets nobody can say that most have copies, unless places are told apart.
            if !told && ["rnr", "uc-gap"].contains(&name) {
                continue;
            }
            assert_eq!(ladder.packets.len(), sent, "{name}, places told apart: {told}");
            let line = |line: &&String| line.contains("captured at 2 places at once");
            assert_eq!(ladder.about.iter().filter(line).count(), 1, "{name}: {:?}", ladder.about);
            let found: Vec<&str> = ladder.findings.iter().map(|finding| finding.text.as_str()).collect();
            assert!(
                found.iter().all(|f| !f.contains("twice") && !f.contains("not in the capture")),
                "{name}: {found:#?}"
            );
        }
    }
}

#[test]
fn what_is_sent_again_is_no_copy() {
    for told in [true, false] {
        tells(
            twofold("go-back-n", told),
            &["It was here, as frame 5: lost, damaged or overtaken behind this point. A sends it again"],
        );
    }
    let found = findings(twofold("lost-packet", true));
    assert!(found.iter().any(|f| f.contains("ms of silence") && f.contains("ACK timer ran out")), "{found:#?}");
    assert_eq!(found.len(), findings(captured("lost-packet", Point::AtA)).len(), "{found:#?}");
}

#[test]
fn places_that_see_other_packets_are_not_one() {
    // Two links of a bond, say: each packet on one of them.
    let mut packets = clean();
    let n = packets.len();
    packets.iter_mut().step_by(2).for_each(|packet| packet.interface = 1);
    assert_eq!(ladder(packets).packets.len(), n);
    // And a whole window that is sent again at once has no copies.
    let again: Vec<usize> = (0..7).chain([7]).chain(0..7).chain([12]).collect();
    assert_eq!(ladder(in_order(NAKED, &again)).packets.len(), again.len());
}

#[test]
fn what_came_before_its_turn_was_not_lost_behind() {
    // 103 overtakes 102: the responder drops it, and has 102 when 104 comes.
    tells(
        in_order(NAKED, &[0, 1, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        &[
            "sequence NAK in frame 8. It came before its turn (frame 3), so that B dropped it. A sends it again",
            "PSN 102 (frame 4) comes behind frame 3, which has a later one: overtaken on the way.",
        ],
    );
    // Of what is sent again, what is lost behind is told as such.
    let found = findings(in_order(NAKED, &[0, 1, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 10, 11, 12]));
    assert!(found.iter().any(|f| f.contains("It was here, as frame 9: lost")), "{found:#?}");
}

#[test]
fn what_comes_late_behind_another_resend_was_not_lost_either() {
    // 103 is sent again as a NAK asks, then 106 comes for the first time, and 104 again as the next NAK asks; then the first 103.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 5, 7, 8, 6, 7, 9, 10, 11, 3, 12]);
    set_psn(&mut packets[8], 104);
    let found = findings(packets);
    assert!(
        found.iter().any(|f| f.contains("not lost: overtaken on the way, and here at last in frame 13")),
        "{found:#?}"
    );
}

#[test]
fn two_naks_on_their_way_are_answered_one_after_the_other() {
    // 103 comes late, so that 104 is asked for too, before 103 is sent again.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 3, 5, 6, 7, 7, 8, 9, 10, 9, 10, 11, 12]);
    set_psn(&mut packets[8], 104);
    let found = findings(packets);
    assert!(
        found[0].starts_with("2 sequence NAKs") && found[0].contains("A sends it again 2.0 µs later, in frame 10"),
        "{found:#?}"
    );
    assert!(found.len() == 2 && found[1].contains("overtaken on the way"), "{found:#?}");
}

#[test]
fn what_comes_late_though_it_may_be_left_out_was_not_doubled() {
    // 104 is acknowledged when it is sent again, and 105 overtakes it.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 3, 5, 6, 7, 8, 12, 10, 9, 11, 12]);
    set_psn(&mut packets[9], 104);
    let found = findings(packets);
    assert!(found.iter().all(|f| !f.contains("twice") && !f.contains("lost before")), "{found:#?}");
    assert!(found.iter().any(|f| f.starts_with("2 packets came later")), "{found:#?}");
    // It may not come at all.
    let mut packets = in_order(NAKED, &[0, 1, 2, 4, 3, 5, 6, 7, 8, 12, 10, 11, 12]);
    set_psn(&mut packets[9], 104);
    let found = findings(packets);
    assert!(found.iter().all(|f| !f.contains("missing in what is sent again")), "{found:#?}");
}

#[test]
fn a_responder_that_was_told_another_psn_is_found_out() {
    for (packet, psn, expected) in [(12, 299, "B expects PSN 300 (frame 2)"), (7, 50, "B expects PSN 50 (frame 2)")] {
        let mut packets = in_order(NAKED, &[0, packet, 0, packet, 0]);
        for i in [1, 3] {
            set_psn(&mut packets[i], psn);
            set_msn(&mut packets[i], 0);
        }
        packets[2..].iter_mut().for_each(|packet| packet.time_ns += 5_000_000);
        packets[4].time_ns += 5_000_000;
        let found = findings(packets.clone());
        assert!(found[0].starts_with(expected), "{found:#?}");
        assert!(
            found[0].contains("begins with PSN 100 (frame 1): the rq_psn of B is not the sq_psn of A"),
            "{found:#?}"
        );
        assert!(found.iter().all(|f| !f.contains("lost") && !f.contains("missing")), "{found:#?}");
        // A responder that has carried out messages was told the right one.
        [1, 3].into_iter().for_each(|i| set_msn(&mut packets[i], 1));
        assert!(findings(packets).iter().all(|f| !f.contains("rq_psn")));
    }
}

#[test]
fn without_a_recv_it_is_rnr_retry_that_is_spent() {
    let packets = captured("rnr", Point::AtA);
    let nak = packets.iter().position(|packet| packet.src != packets[0].src).expect("an RNR NAK");
    // The second SEND asks for an answer.
    let mut packets = in_order("rnr", &[1, nak, 1, nak, 1, nak]);
    packets.iter_mut().skip(1).step_by(2).for_each(|nak| set_psn(nak, 101));
    let found = findings(packets);
    assert!(found[0].contains("PSN 101 was sent 3 times and there was never a RECV for it"), "{found:#?}");
    assert!(found[0].contains("gives up when rnr_retry is spent"), "{found:#?}");
    let gone = findings(captured("retry-exhausted", Point::AtA));
    assert!(gone[0].contains("never answered") && gone[0].contains("retry_cnt is spent"), "{gone:#?}");
}

#[test]
fn a_full_packet_that_is_refused_calls_for_a_look_at_the_path_mtu() {
    let mut refusal = captured("bad-rkey", Point::AtA);
    let nak = refusal.iter().position(|packet| packet.src != refusal[0].src).expect("a NAK");
    let mut nak = refusal.swap_remove(nak);
    // NAK 1, invalid request.
    nak.bytes[20 + 8 + 12] = 0x61;
    for (psn, said) in [(100, true), (101, false)] {
        let mut packets = in_order(NAKED, &[0, 1]);
        set_psn(&mut nak, psn);
        (nak.frame, nak.time_ns) = (3, 5_000);
        packets.push(nak.clone());
        let found = findings(packets);
        assert!(found[0].contains("invalid request"), "{found:#?}");
        let told = found[0].contains("a full packet of 1024 B: if the path MTU of B is another");
        assert_eq!(told, said, "{found:#?}");
    }
}
