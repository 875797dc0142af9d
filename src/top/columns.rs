//! How wide columns are, and which there is room for.

/// A column of a view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Column {
    pub head: &'static str,
    /// Numbers stand to the right.
    pub right: bool,
    /// Text is cut off down to this before a column is left out; numbers never are.
    pub least: usize,
    /// Where there is no room, the lowest goes first.
    pub worth: u8,
}

pub const fn text(head: &'static str, least: usize, worth: u8) -> Column {
    Column { head, right: false, least, worth }
}

pub const fn number(head: &'static str, worth: u8) -> Column {
    Column { head, right: true, least: usize::MAX, worth }
}

/// Columns that are shown, by their place, with their width.
pub type Layout = Vec<(usize, usize)>;

/// Between two columns.
pub const GAP: usize = 2;

/// Gives each column what its widest cell needs (`natural`), as far as there is room.
pub fn layout(columns: &[Column], natural: &[usize], room: usize) -> Layout {
    let mut shown: Layout = columns
        .iter()
        .zip(natural)
        .enumerate()
        .map(|(at, (column, natural))| (at, (*natural).max(column.head.len())))
        .collect();
    while 1 < shown.len() && room < total(&shown, |(at, width)| least(&columns[at], width)) {
        let worth = |place: &usize| columns[shown[*place].0].worth;
        let Some(place) = (0..shown.len()).min_by_key(worth) else { break };
        shown.remove(place);
    }
    while room < total(&shown, |(_, width)| width) {
        let widest = shown.iter_mut().filter(|(at, width)| least(&columns[*at], *width) < *width);
        let Some((_, width)) = widest.max_by_key(|(_, width)| *width) else { break };
        *width -= 1;
    }
    shown
}

fn least(column: &Column, width: usize) -> usize {
    column.least.max(column.head.len()).min(width)
}

fn total(shown: &Layout, width: impl Fn((usize, usize)) -> usize) -> usize {
    shown.iter().map(|entry| width(*entry) + GAP).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [text("NAME", 8, 9), text("COHORT", 6, 1), number("USED", 8), number("PENDING", 7)];

    #[test]
    fn columns_are_as_wide_as_their_cells_where_there_is_room() {
        assert_eq!(layout(&COLUMNS, &[20, 3, 5, 1], 80), [(0, 20), (1, 6), (2, 5), (3, 7)]);
    }

    #[test]
    fn the_widest_text_is_cut_before_a_column_goes() {
        assert_eq!(layout(&COLUMNS, &[20, 10, 5, 1], 40), [(0, 12), (1, 10), (2, 5), (3, 7)]);
        assert_eq!(layout(&COLUMNS, &[20, 10, 5, 1], 32), [(0, 8), (1, 6), (2, 5), (3, 7)]);
    }

    #[test]
    fn the_least_worth_goes_first_and_one_column_always_stays() {
        assert_eq!(layout(&COLUMNS, &[20, 10, 5, 1], 31), [(0, 15), (2, 5), (3, 7)]);
        assert_eq!(layout(&COLUMNS, &[20, 10, 5, 1], 15), [(0, 8), (2, 5)]);
        assert_eq!(layout(&COLUMNS, &[20, 10, 5, 1], 3), [(0, 8)]);
    }
}
