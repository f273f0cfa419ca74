//! Several values of one figure, and the two sides of a ratio.
//!
//! In: one value a round. Out: median and range. Ratios are made round by round, from measurements that stood side by side,
//! so that what the machine does besides falls on both.

use serde::Serialize;

/// Median, smallest and largest of some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of one value or more.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(values: &[f64]) -> Spread {
        assert!(!values.is_empty(), "a spread of no values");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// A figure of ours, what it is measured against, and the one divided by the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The stack.
    pub ours: Spread,
    /// The yardstick.
    pub theirs: Spread,
    /// Round by round, `ours / theirs`.
    pub ratio: Spread,
}

impl Ratio {
    /// From the pairs of some rounds.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(pairs: &[(f64, f64)]) -> Ratio {
        let column = |f: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(f).collect::<Vec<_>>());
        Ratio { ours: column(|p| p.0), theirs: column(|p| p.1), ratio: column(|p| p.0 / p.1) }
    }
}

/// Measures both sides in each of `rounds` rounds; which one goes first changes from round to round.
///
/// # Errors
/// The first error of either side.
pub fn alternate<E>(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64, E>,
    mut theirs: impl FnMut() -> Result<f64, E>,
) -> Result<Ratio, E> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        pairs.push(if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        });
    }
    Ok(Ratio::of(&pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn a_ratio_is_made_within_a_round() {
        // A machine that is half as fast in the second round: the ratio does not see it.
        let ratio = Ratio::of(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).ratio;
        assert_eq!(ratio, Spread { median: 2.0, min: 2.0, max: 2.0 });
    }

    #[test]
    fn both_sides_go_first_in_turn() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: char| {
            order.borrow_mut().push(name);
            Ok::<f64, ()>(1.0)
        };
        alternate(3, || side('o'), || side('t')).unwrap();
        assert_eq!(*order.borrow(), "ottoot");
    }
}
