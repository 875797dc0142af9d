//! Sharing out what is not enough: all cells rise together, each at a rate proportional to what it
//! asks for; where a limit is full its cells stop and the others go on.
//!
//! Cells of one flavor are under the same limits, so they stop together: the filling runs over flavors
//! and only the rounding over cells.

/// Σ of the cells of these flavors ≤ `room`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit<'a> {
    /// Flavor positions, ascending.
    pub flavors: &'a [u16],
    pub room: i64,
}

/// What a cell asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub flavor: u16,
    pub units: i64,
}

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Filled {
    /// What each cell gets, in the order of the asks.
    pub units: Vec<i64>,
    /// The limit that stopped each flavor, if one did.
    pub stopped_by: Vec<Option<usize>>,
}

/// Shares `limits` out among `asks`, whose order breaks ties. `flavors` is how many there are; a `whole`
/// is what people count the resource in, such as a core.
///
/// A part is rounded to wholes, and only below one whole to units: nobody writes 14490m cores or
/// 62236507232 bytes. First everybody is rounded down. Then what is left goes by the largest fraction,
/// one more to each where every limit has room. So of a limit that stopped somebody less than a whole
/// stays unassigned, and of one that stopped a part below a whole nothing.
pub(super) fn fill(asks: &[Ask], limits: &[Limit<'_>], flavors: usize, whole: i64) -> Filled {
    let mut wanted = vec![0_i128; flavors];
    for ask in asks {
        wanted[usize::from(ask.flavor)] += i128::from(ask.units);
    }
    // One, as a fixed-point number: the finest for which nothing below overflows.
    let bits = i128::BITS - wanted.iter().sum::<i128>().leading_zeros();
    let one_at = 60.min(i128::BITS - 2 - bits.max(63));
    let levels = levels(&wanted, limits, 1 << one_at);
    let mut units = Vec::with_capacity(asks.len());
    let mut fractions = Vec::with_capacity(asks.len());
    for ask in asks {
        let exact = i128::from(ask.units) * levels.reached[usize::from(ask.flavor)];
        let down = i64::try_from(exact >> one_at).expect("a level is at most one");
        let step = if down < whole || down == ask.units { 1 } else { whole };
        let down = down - down % step;
        let lost = exact - (i128::from(down) << one_at);
        units.push(down);
        // Less than one, of what is given next; the shift leaves room for it.
        fractions.push((lost << FRACTION_BITS) / (i128::from(step) << one_at));
    }
    round(&mut units, &fractions, asks, limits, whole);
    Filled { units, stopped_by: levels.stopped_by }
}

/// As exact as fractions are compared: more than any amount of hardware needs.
const FRACTION_BITS: u32 = 40;

struct Levels {
    /// How far each flavor's cells rise, of `one`.
    reached: Vec<i128>,
    stopped_by: Vec<Option<usize>>,
}

fn levels(wanted: &[i128], limits: &[Limit<'_>], one: i128) -> Levels {
    let mut reached = vec![one; wanted.len()];
    let mut stopped_by = vec![None; wanted.len()];
    let mut rising = vec![true; wanted.len()];
    loop {
        // The level at which the next limit is full: what is left of it over what still rises in it.
        let full_at = |limit: &Limit<'_>| {
            let mut left = i128::from(limit.room.max(0)) * one;
            let mut rate = 0;
            for flavor in limit.flavors.iter().map(|flavor| usize::from(*flavor)) {
                if rising[flavor] {
                    rate += wanted[flavor];
                } else {
                    left -= wanted[flavor] * reached[flavor];
                }
            }
            (0 < rate).then(|| left / rate)
        };
        let levels = limits.iter().enumerate().filter_map(|(i, limit)| Some((full_at(limit)?, i)));
        let Some((level, limit)) = levels.min().filter(|(level, _)| *level < one) else {
            return Levels { reached, stopped_by };
        };
        for flavor in limits[limit].flavors.iter().map(|flavor| usize::from(*flavor)) {
            if rising[flavor] {
                rising[flavor] = false;
                reached[flavor] = level;
                stopped_by[flavor] = Some(limit);
            }
        }
    }
}

/// Gives what rounding down left over, by the largest fraction, where every limit has room. Repeated,
/// since another limit may have kept more than a step from its own cells, and since amounts beyond 2^60
/// lose more than a unit to the fixed point.
fn round(units: &mut [i64], fractions: &[i128], asks: &[Ask], limits: &[Limit<'_>], whole: i64) {
    let mut room: Vec<i128> = limits.iter().map(|limit| i128::from(limit.room.max(0))).collect();
    for (ask, units) in asks.iter().zip(&*units) {
        for (limit, room) in limits.iter().zip(&mut room) {
            if limit.flavors.binary_search(&ask.flavor).is_ok() {
                *room -= i128::from(*units);
            }
        }
    }
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by_key(|cell| std::cmp::Reverse(fractions[*cell]));
    for turn in 0..MAX_ROUNDS {
        let mut given = false;
        for cell in &order {
            let of_cell = |limit: &Limit<'_>| limit.flavors.binary_search(&asks[*cell].flavor).is_ok();
            let open = limits.iter().zip(&room).filter(|(limit, _)| of_cell(limit)).map(|(_, room)| *room);
            let (has, asked) = (units[*cell], asks[*cell].units);
            let step = step(has, asked, open.min().unwrap_or(i128::MAX), whole, turn);
            if 0 < step {
                units[*cell] += step;
                given = true;
                for (limit, room) in limits.iter().zip(&mut room) {
                    *room -= i128::from(if of_cell(limit) { step } else { 0 });
                }
            }
        }
        if !given {
            return;
        }
    }
}

/// What a cell is given next: a whole, or what it still asks for. Below a whole it is a unit, and once
/// everybody had one, all there is.
fn step(has: i64, asked: i64, room: i128, whole: i64, turn: usize) -> i64 {
    let next = (whole - has % whole).min(asked - has);
    match i64::try_from(room).unwrap_or(i64::MAX) {
        room if has < whole && turn == 0 => next.min(room).min(1),
        room if has < whole => next.min(room),
        room if next <= room => next,
        _ => 0,
    }
}

/// Enough for every amount that hardware can have; beyond it some units of 2^60 stay unassigned.
const MAX_ROUNDS: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asks(cells: &[(u16, i64)]) -> Vec<Ask> {
        cells.iter().map(|(flavor, units)| Ask { flavor: *flavor, units: *units }).collect()
    }

    fn limit(flavors: &[u16], room: i64) -> Limit<'_> {
        Limit { flavors, room }
    }

    #[test]
    fn what_fits_is_given_whole() {
        let filled = fill(&asks(&[(0, 3), (0, 4)]), &[limit(&[0], 7)], 1, 1);
        assert_eq!(filled, Filled { units: vec![3, 4], stopped_by: vec![None] });
    }

    #[test]
    fn what_does_not_fit_is_shared_in_proportion_and_exactly() {
        let filled = fill(&asks(&[(0, 10), (0, 20), (0, 30)]), &[limit(&[0], 30)], 1, 1);
        assert_eq!(filled.units, [5, 10, 15]);
        assert_eq!(filled.stopped_by, [Some(0)]);
        let filled = fill(&asks(&[(0, 1), (0, 1), (0, 1)]), &[limit(&[0], 2)], 1, 1);
        assert_eq!(filled.units, [1, 1, 0], "ties go to the first");
        let filled = fill(&asks(&[(0, 5), (0, 3), (0, 1)]), &[limit(&[0], 7)], 1, 1);
        assert_eq!(filled.units, [4, 2, 1], "3.89, 2.33, 0.78: the largest remainders");
    }

    #[test]
    fn shares_come_in_wholes_and_the_rest_goes_by_the_largest_fraction() {
        let cores = |cells: &[(u16, i64)], room| fill(&asks(cells), &[limit(&[0], room)], 1, 1000).units;
        assert_eq!(cores(&[(0, 40_000), (0, 40_000)], 28_980), [14_000, 14_000], "14490m each");
        assert_eq!(cores(&[(0, 10_000), (0, 20_000), (0, 30_000)], 20_000), [3000, 7000, 10_000]);
        assert_eq!(cores(&[(0, 1000), (0, 1000), (0, 1000)], 2000), [667, 667, 666], "less than one each");
        assert_eq!(cores(&[(0, 2500), (0, 2500)], 4600), [2500, 2000], "never more than it asks for");
        assert_eq!(cores(&[(0, 100_000), (0, 2000)], 14_490), [14_000, 490], "nothing is left over");
        assert_eq!(cores(&[(0, 1500), (0, 700)], 2200), [1500, 700], "what fits is not rounded");
    }

    #[test]
    fn where_one_limit_is_full_the_others_go_on() {
        let limits = [limit(&[0], 2), limit(&[1], 100), limit(&[0, 1], 10)];
        let filled = fill(&asks(&[(0, 10), (1, 10)]), &limits, 2, 1);
        assert_eq!(filled.units, [2, 8]);
        assert_eq!(filled.stopped_by, [Some(0), Some(2)]);
    }

    #[test]
    fn without_room_there_is_nothing() {
        assert_eq!(fill(&asks(&[(0, 5)]), &[limit(&[0], 0)], 1, 1).units, [0]);
        assert_eq!(fill(&asks(&[(0, 5)]), &[limit(&[0], -5)], 1, 1).units, [0]);
    }

    #[test]
    fn enormous_asks_do_not_overflow() {
        let many = vec![(0, i64::MAX); 1000];
        let filled = fill(&asks(&many), &[limit(&[0], 1000)], 1, 1);
        assert!(filled.units.iter().all(|units| *units == 1));
        let filled = fill(&asks(&many), &[limit(&[0], i64::MAX)], 1, 1);
        assert!(filled.units.iter().map(|units| i128::from(*units)).sum::<i128>() <= i128::from(i64::MAX));
    }

    proptest! {
        #[test]
        fn filling_keeps_every_limit_and_leaves_no_room_that_a_cell_wants(
            cells in prop::collection::vec((0_u16..4, 0_i64..1000), 1..12),
            rooms in prop::collection::vec(-5_i64..1500, 15),
            whole in prop_oneof![Just(1_i64), Just(10), Just(100)],
        ) {
            let sets: Vec<Vec<u16>> =
                (1_u32..16).map(|bits| (0..4).filter(|f| bits & (1 << f) != 0).collect()).collect();
            let limits: Vec<_> =
                sets.iter().zip(&rooms).map(|(set, room)| Limit { flavors: set, room: *room }).collect();
            let asks = asks(&cells);
            let filled = fill(&asks, &limits, 4, whole);
            let sum = |limit: &Limit<'_>| -> i64 {
                let of_limit = asks.iter().zip(&filled.units).filter(|(ask, _)| limit.flavors.contains(&ask.flavor));
                of_limit.map(|(_, units)| *units).sum()
            };
            for limit in &limits {
                prop_assert!(sum(limit) <= limit.room.max(0));
            }
            for (ask, units) in asks.iter().zip(&filled.units) {
                prop_assert!(*units <= ask.units);
                let mut of_cell = limits.iter().filter(|limit| limit.flavors.contains(&ask.flavor));
                let step = if *units < whole { 1 } else { whole };
                let full = of_cell.any(|limit| limit.room.max(0) < sum(limit) + step.min(ask.units - units));
                prop_assert!(*units == ask.units || full);
                prop_assert!(*units == ask.units || *units < whole || units % whole == 0);
            }
        }
    }
}
