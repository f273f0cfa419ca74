//! The checks bite: every deliberate fault of the transport is found within a stated number of seeds.

use xroce_simulation::run_seed;
use xroce_transport::mutation::{Mutation, select};

/// Within how many seeds, from 0 on, each fault must be found. Most take fewer than ten; those that need a rare meeting of
/// faults to show are named.
fn within(mutation: Mutation) -> u64 {
    match mutation {
        // PSNs must wrap between two packets of which one is lost.
        Mutation::NoWrap => 1000,
        // Several losses in a row, or several waits, and then just as many.
        Mutation::RetriesNotRestored | Mutation::RetriesOneTooFew => 500,
        // A duplicate before a READ whose response is lost.
        Mutation::AckPastRead => 500,
        // Changed in place, and then used by a request that was posted after that.
        Mutation::QpRightsIgnored | Mutation::ReregIgnored | Mutation::SqdAttributesIgnored => 500,
        // A local fault of a UC with more behind it.
        Mutation::SqeNotFlushed => 1000,
        // A flipped bit.
        Mutation::IcrcNotChecked => 200,
        _ => 100,
    }
}

/// The first seed that finds a fault, and how.
fn found_by(mutation: Mutation) -> Option<(u64, String)> {
    select(Some(mutation));
    let found = (0..within(mutation)).find_map(|seed| Some((seed, run_seed(seed).err()?.to_string())));
    select(None);
    found
}

#[test]
fn every_mutation_is_found() {
    // A panic of the mutated transport is a find like others; its message would only drown the list.
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<_> = Mutation::ALL.iter().map(|mutation| (mutation, found_by(*mutation))).collect();
    let _ = std::panic::take_hook();
    for (mutation, find) in &found {
        match find {
            Some((seed, how)) => println!("{mutation:?}: seed {seed}: {how}"),
            None => println!("{mutation:?}: not within {} seeds", within(**mutation)),
        }
    }
    let missed: Vec<_> = found.iter().filter(|(_, find)| find.is_none()).map(|(mutation, _)| mutation).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
