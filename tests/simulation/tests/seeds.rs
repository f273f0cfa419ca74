//! A share of the seeds, with the transport's own assertions on.

use xroce_simulation::run_seed;

/// The binary runs more of them: `make sim`.
const SEEDS: u64 = 10_000;

#[test]
fn ten_thousand_seeds_break_no_rule() {
    let (mut frames, mut delivered) = (0, 0);
    for seed in 0..SEEDS {
        match run_seed(seed) {
            Ok(totals) => (frames, delivered) = (frames + totals.frames, delivered + totals.delivered),
            Err(violation) => panic!("seed {seed}: {violation}\nto see it: make sim SEED={seed} SEEDS=1"),
        }
    }
    // The seeds do something.
    assert!(frames > 50 * SEEDS && delivered > 5 * SEEDS, "{frames} frames, {delivered} deliveries");
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in [3, 77, 1234] {
        let totals = [(); 2].map(|()| format!("{:?}", run_seed(seed).map_err(|violation| violation.to_string())));
        assert_eq!(totals[0], totals[1], "seed {seed}");
    }
}
