//! kill -9 under load, a few times; `make kill` does it a hundred times.

use std::path::Path;

use xroce_hostile::field::Field;
use xroce_hostile::kill;

#[test]
fn nothing_is_left_of_a_peer_that_is_killed() {
    let Some(field) = Field::new("nothing_is_left_of_a_peer_that_is_killed", 1500) else { return };
    let peer = Path::new(env!("CARGO_BIN_EXE_xroce-hostile-peer"));
    let killed = kill::run(&field, peer, 5, |_| {}).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(killed.rounds, 5);
    // A program, its maps and a link each: what was looked for was there.
    assert!(killed.objects >= 5 * 3, "{killed:?}");
}
