//! A list that is walked through: order, filter, what is chosen, and which lines the screen shows.

/// How entries are ordered, in turn.
pub struct Order {
    /// As people call it.
    pub name: &'static str,
    /// The greatest first, unless it is turned round.
    pub falling: bool,
}

pub struct List<K> {
    entries: Vec<K>,
    /// The line at which each entry begins, and at the end the number of lines.
    starts: Vec<usize>,
    at: usize,
    /// Somebody chose it.
    walked: bool,
    /// The first line on the screen.
    top: usize,
    /// Lines of the screen, as they were drawn last.
    pub height: usize,
    /// The place in the view's orders.
    pub order: usize,
    pub reverse: bool,
    pub filter: String,
    /// What is shown is not what there is any more.
    pub stale: bool,
}

/// A way through the list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Walk {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl<K: Clone + Eq> List<K> {
    pub fn new() -> Self {
        let (entries, starts, filter) = (Vec::new(), vec![0], String::new());
        Self {
            entries,
            starts,
            at: 0,
            walked: false,
            top: 0,
            height: 1,
            order: 0,
            reverse: false,
            filter,
            stale: true,
        }
    }

    pub fn chosen(&self) -> Option<&K> {
        self.entries.get(self.at)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes entries in their order, each with its number of lines. What was chosen stays where it is on the screen, wherever
    /// it is in the list now; until somebody walks, that is whatever comes first.
    pub fn fill(&mut self, entries: Vec<(K, usize)>) {
        let chosen = self.chosen().filter(|_| self.walked).cloned();
        let above = self.start().saturating_sub(self.top);
        let hidden = self.top.saturating_sub(self.start());
        self.starts.clear();
        let mut lines = 0;
        for (_, height) in &entries {
            self.starts.push(lines);
            lines += height;
        }
        self.starts.push(lines);
        self.entries = entries.into_iter().map(|(entry, _)| entry).collect();
        let again = chosen.and_then(|chosen| self.entries.iter().position(|entry| *entry == chosen));
        self.at = again.unwrap_or(self.at).min(self.entries.len().saturating_sub(1));
        self.top = (self.start() + hidden).saturating_sub(above);
        self.stale = false;
        self.bound();
    }

    /// The screen has so many lines.
    pub fn fit(&mut self, height: usize) {
        if self.height != height.max(1) {
            self.height = height.max(1);
            self.reveal();
        }
        self.bound();
    }

    pub fn walk(&mut self, walk: Walk) {
        let last = self.entries.len().saturating_sub(1);
        self.walked = walk != Walk::First;
        match walk {
            // An entry that is higher than the screen is walked through by lines.
            Walk::Down if self.bottom() < self.end() => self.top += 1,
            Walk::Up if self.start() < self.top => self.top -= 1,
            Walk::Down => self.choose((self.at + 1).min(last)),
            Walk::Up => self.choose(self.at.saturating_sub(1)),
            Walk::PageDown => {
                self.choose(self.entry_at(self.start() + self.height).max(self.at + 1).min(last));
            }
            Walk::PageUp => {
                let to = self.entry_at(self.start().saturating_sub(self.height));
                self.choose(to.min(self.at.saturating_sub(1)));
            }
            Walk::First => {
                self.top = 0;
                self.at = 0;
            }
            Walk::Last => self.choose(last),
        }
        self.bound();
    }

    /// Forgets what was chosen, as for another order.
    pub fn rewind(&mut self) {
        (self.at, self.top, self.walked, self.stale) = (0, 0, false, true);
    }

    /// Lines on the screen: the entry, whether it is the chosen one, and which of its lines.
    pub fn visible(&self) -> impl Iterator<Item = (&K, bool, usize)> {
        let lines = self.top..self.bottom().min(self.lines());
        let mut at = self.entry_at(self.top);
        lines.map(move |line| {
            while self.starts[at + 1] <= line {
                at += 1;
            }
            (&self.entries[at], at == self.at, line - self.starts[at])
        })
    }

    /// The place of the chosen entry, from 1.
    pub fn place(&self) -> usize {
        if self.entries.is_empty() { 0 } else { self.at + 1 }
    }

    pub fn lines(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn start(&self) -> usize {
        self.starts.get(self.at).copied().unwrap_or(0)
    }

    fn end(&self) -> usize {
        self.starts.get(self.at + 1).copied().unwrap_or(0)
    }

    fn bottom(&self) -> usize {
        self.top + self.height
    }

    /// The entry to which a line belongs.
    fn entry_at(&self, line: usize) -> usize {
        self.starts.partition_point(|start| *start <= line).saturating_sub(1)
    }

    fn choose(&mut self, at: usize) {
        self.at = at;
        self.reveal();
    }

    /// Brings what is chosen onto the screen: of what is higher than that, the end where one comes from.
    fn reveal(&mut self) {
        let last = self.end().saturating_sub(self.height);
        if self.start() < self.top {
            self.top = self.start().max(last);
        } else if self.bottom() < self.end() {
            self.top = self.start().min(last);
        }
    }

    fn bound(&mut self) {
        self.top = self.top.min(self.lines().saturating_sub(self.height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of entries with these heights, on a screen of five lines.
    fn list(heights: &[usize]) -> List<usize> {
        let mut list = List::new();
        list.fit(5);
        list.fill(heights.iter().copied().enumerate().collect());
        list
    }

    fn seen(list: &List<usize>) -> Vec<(usize, usize)> {
        list.visible().map(|(entry, _, line)| (*entry, line)).collect()
    }

    #[test]
    fn the_screen_follows_what_is_chosen() {
        let mut list = list(&[2, 2, 2, 2]);
        assert_eq!(seen(&list), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        list.walk(Walk::Down);
        assert_eq!(seen(&list)[0], (0, 0));
        list.walk(Walk::Down);
        assert_eq!((list.chosen(), seen(&list)[0]), (Some(&2), (0, 1)));
        list.walk(Walk::Last);
        assert_eq!((list.chosen(), seen(&list)[0]), (Some(&3), (1, 1)));
        list.walk(Walk::Up);
        list.walk(Walk::Up);
        assert_eq!((list.chosen(), seen(&list)[0]), (Some(&1), (1, 0)));
        list.walk(Walk::First);
        assert_eq!((list.chosen(), seen(&list)[0]), (Some(&0), (0, 0)));
    }

    #[test]
    fn an_entry_higher_than_the_screen_is_walked_through_by_lines() {
        let mut list = list(&[1, 7, 1]);
        list.walk(Walk::Down);
        assert_eq!(seen(&list), [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]);
        list.walk(Walk::Down);
        list.walk(Walk::Down);
        assert_eq!((list.chosen(), seen(&list)[4]), (Some(&1), (1, 6)));
        list.walk(Walk::Down);
        assert_eq!((list.chosen(), seen(&list)[4]), (Some(&2), (2, 0)));
        list.walk(Walk::Up);
        assert_eq!((list.chosen(), seen(&list)[4]), (Some(&1), (1, 6)), "its end comes first");
        list.walk(Walk::Up);
        list.walk(Walk::Up);
        assert_eq!(seen(&list)[0], (1, 0));
    }

    #[test]
    fn pages_go_by_the_screen_and_stop_at_the_ends() {
        let mut list = list(&[1; 12]);
        list.walk(Walk::PageDown);
        assert_eq!(list.chosen(), Some(&5));
        list.walk(Walk::PageDown);
        list.walk(Walk::PageDown);
        list.walk(Walk::PageDown);
        assert_eq!((list.chosen(), seen(&list)[4]), (Some(&11), (11, 0)));
        list.walk(Walk::PageUp);
        assert_eq!(list.chosen(), Some(&6));
        list.walk(Walk::PageUp);
        list.walk(Walk::PageUp);
        assert_eq!((list.chosen(), seen(&list)[0]), (Some(&0), (0, 0)));
    }

    #[test]
    fn what_was_chosen_stays_where_it_is_on_the_screen() {
        let mut list = list(&[1; 12]);
        for _ in 0..7 {
            list.walk(Walk::Down);
        }
        let before = seen(&list).iter().position(|line| line.0 == 7);
        list.fill((0..12).rev().map(|entry| (entry, 1)).collect());
        assert_eq!(list.chosen(), Some(&7));
        assert_eq!(seen(&list).iter().position(|line| line.0 == 7), before);
        list.fill(vec![(3, 1), (9, 1)]);
        assert_eq!(list.chosen(), Some(&9), "it is gone: what stands in its place, or the last");
    }

    #[test]
    fn the_first_stays_chosen_until_somebody_walks() {
        let mut list = list(&[1; 12]);
        list.fill((0..12).rev().map(|entry| (entry, 1)).collect());
        assert_eq!(list.chosen(), Some(&11));
    }

    #[test]
    fn an_empty_list_and_a_screen_without_lines_are_no_trouble() {
        let mut list = list(&[]);
        list.fit(0);
        for walk in [Walk::Up, Walk::Down, Walk::PageUp, Walk::PageDown, Walk::First, Walk::Last] {
            list.walk(walk);
            assert_eq!((list.chosen(), list.place(), seen(&list).len()), (None, 0, 0));
        }
    }

    #[test]
    fn a_smaller_screen_still_shows_what_is_chosen() {
        let mut list = list(&[1; 12]);
        for _ in 0..4 {
            list.walk(Walk::Down);
        }
        list.fit(2);
        assert_eq!(seen(&list), [(3, 0), (4, 0)]);
    }
}
