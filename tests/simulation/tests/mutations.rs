//! The checks bite: every deliberate fault of the transport is found within a stated number of seeds.

use xroce_simulation::run_seed;
use xroce_transport::mutation::{Mutation, select};

/// Within how many seeds, from 0 on, each fault must be found.
fn within(mutation: Mutation) -> u64 {
    match mutation {
        _ => 2000,
    }
}

/// The first seed that finds a fault.
fn found_by(mutation: Mutation, seeds: u64) -> Option<u64> {
    select(Some(mutation));
    let found = (0..seeds).find(|seed| run_seed(*seed).is_err());
    select(None);
    found
}

#[test]
fn every_mutation_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let found = found_by(*mutation, within(*mutation));
        match found {
            Some(seed) => {
                select(Some(*mutation));
                let how = run_seed(seed).unwrap_err();
                select(None);
                println!("{mutation:?}: seed {seed}: {how}");
            }
            None => {
                println!("{mutation:?}: MISSED");
                missed.push(mutation);
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
