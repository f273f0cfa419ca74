//! Packet scripts against the guest: `xroce script` on our netdev, by the agent that is there. Enters: the command, the kernel.
//! Leaves: nothing; a script that fails, or a list of known deviations that is wrong, is a panic with what the command said.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Station;
use crate::rxe::Kernel;

/// How long all of them may take, in seconds.
const LIMIT_S: u32 = 300;

/// Some of each kind, that take next to no time; the last four are known deviations. `make conformance` plays all there are.
pub const SOME: &[&str] = &[
    "rc/ack_completes_all_before_it",
    "rc/ack_stale_is_dropped",
    "rc/ack_by_a_read_response",
    "rc/ack_by_an_atomic_response",
    "rc/nak_access",
    "rc/nak_invalid",
    "rc/nak_sequence_goes_back",
    "rc/psn_counts_packets",
    "rc/psn_of_reads",
    "rc/psn_wraps",
    "rc/segment_send",
    "rc/segment_send_variants",
    "rc/segment_write_imm",
    "rc/fence_waits_for_reads_and_atomics",
    "rc/retry_zero",
    "rc/rnr_retry_zero",
    "rc/rnr_waits_the_coded_time",
    "rc/resp_atomics",
    "rc/resp_duplicate_atomic",
    "rc/resp_duplicate_read",
    "rc/resp_duplicate_send",
    "rc/resp_duplicate_write",
    "rc/resp_gap_is_naked_once",
    "rc/resp_key_range_end",
    "rc/resp_key_right_write",
    "rc/resp_key_unknown",
    "rc/resp_length_pad",
    "rc/resp_msn_counts_messages",
    "rc/resp_order_middle_first",
    "rc/resp_psn_wraps",
    "rc/resp_qp_right_read",
    "rc/resp_read_lengths",
    "rc/resp_recv_imm",
    "rc/resp_rnr_write_imm_only",
    "rc/rx_icrc",
    "rc/rx_pkey",
    "rc/rx_version",
    "rc/tx_pad",
    "uc/any_psn_begins_a_message",
    "uc/done_when_sent",
    "uc/large_messages",
    "uc/no_recv",
    "uc/recv_completions",
    "uc/segmentation",
    "uc/rx_icrc",
    "uc/orphans",
    "rc/ack_ghost_is_dropped",
    "rc/max_rd_atomic_bounds_what_is_outstanding",
    "uc/send_lost_middle",
    "uc/write_lost_middle",
];

/// What the guest's kernel is known to do otherwise; none for a kernel that nobody has looked at.
pub fn known(kernel: Kernel) -> Option<PathBuf> {
    let of = match kernel {
        Kernel::V6_1 => "6.1",
        Kernel::V6_12 | Kernel::UserMode => "6.12",
        Kernel::Backports => return None,
    };
    Some(folder().join(format!("known/rxe-{of}.txt")))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// Plays scripts. To be called in the netdev's namespace, without a device of ours on it.
///
/// # Panics
/// See the head of this file.
pub fn play(station: &Station, xroce: &Path, known: &Path, names: &[&str]) {
    let files = names.iter().map(|name| folder().join(format!("{name}.roce")));
    let agent = format!("{}:2502", station.guest.addresses().0);
    let output = Command::new("timeout")
        .arg(LIMIT_S.to_string())
        .arg(xroce)
        .arg("script")
        .args(files)
        .args([
            "-d",
            &station.guest.interface(),
            "--peer",
            &agent,
            "--peer-device",
            "rxe0",
            "--patience",
            "2",
            "--known",
        ])
        .arg(known)
        .output()
        .expect("xroce can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // None may have been left out: these are for any device, and for the MTU that the guest has.
    assert!(!said.contains("cannot run "), "{said}");
    println!("{}", said.lines().last().unwrap_or_default());
}
