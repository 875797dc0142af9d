//! The state as a screen. Only the lines that are seen are made.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use crate::{
    columns::{Column, GAP, Layout, layout},
    detail::{self, Line},
    list::{List, Order},
    queues,
    shown::{age, counted},
    state::{Opened, Row, State},
    table::Link,
    workloads,
};

/// Before every line of a list: what is chosen, and its mark.
const MARGIN: usize = 3;

/// From this height on there is room for more than one line of trouble.
const TALL: u16 = 16;
const TROUBLES: usize = 3;

/// How things look beside their text, which says everything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    pub color: bool,
    /// Somebody walks through it: what is chosen is marked, and the keys are told.
    pub interactive: bool,
}

impl Look {
    fn alarm(self) -> Style {
        if self.color { Style::new().fg(Color::Red) } else { Style::new() }
    }

    fn quiet(self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub fn draw(state: &mut State, look: Look, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    state.arrange();
    let mut screen = Screen { buffer, area, look };
    if state.help {
        return screen.help();
    }
    let troubles = troubles(state);
    let most = if area.height < TALL { 1 } else { TROUBLES };
    let below = troubles.len().min(most);
    // On a low screen trouble takes the place of the keys.
    let keys = usize::from(look.interactive && (troubles.is_empty() || TALL <= area.height));
    let height = usize::from(area.height).saturating_sub(1 + below + keys);
    screen.title(state);
    match state.opened.as_mut() {
        None => screen.queues(state, height),
        Some(opened) if opened.inspected.is_none() => {
            screen.workloads(opened, height, state.now);
        }
        Some(opened) => screen.workload(opened, height, state.now),
    }
    let bottom = usize::from(area.height) - below - keys;
    for (line, text) in troubles.iter().take(below).enumerate() {
        let more = troubles.len() - below;
        let last = line + 1 == below && 0 < more;
        let text =
            if last { format!("{text} (and {} more)", counted(more, "cluster")) } else { text.clone() };
        screen.put(0, bottom + line, usize::MAX, &text, look.alarm());
    }
    if keys == 1 {
        screen.keys(state, bottom + below);
    }
}

/// A line for each cluster of which what is shown may be old.
fn troubles(state: &State) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for (name, link) in state.links() {
        let Some(trouble) = &link.trouble else { continue };
        let old = if link.complete {
            format!("shown as it was {} ago", age(trouble.since, state.now))
        } else {
            "nothing is known yet".to_owned()
        };
        let wait = trouble.again.duration_since(state.now).as_secs();
        let next = if wait < 1 { "asking again".to_owned() } else { format!("asking again in {wait}s") };
        // The reason comes last: a narrow screen cuts it off.
        let text = format!("{name}: {old}, {next}: {}", trouble.reason);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

struct Screen<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    look: Look,
}

impl Screen<'_> {
    fn width(&self) -> usize {
        self.area.width.into()
    }

    /// Writes text, cut off where it does not fit.
    #[expect(clippy::too_many_arguments, reason = "where, how wide, what and how: each is one thing")]
    fn put(&mut self, x: usize, y: usize, width: usize, text: &str, style: Style) {
        let room = width.min(self.width().saturating_sub(x));
        if usize::from(self.area.height) <= y || room == 0 {
            return;
        }
        let at = |offset: usize, from: u16| from + u16::try_from(offset).unwrap_or(u16::MAX);
        let text = cut(text, room);
        self.buffer.set_stringn(at(x, self.area.x), at(y, self.area.y), text, room, style);
    }

    fn title(&mut self, state: &State) {
        let (what, filter, order) = match &state.opened {
            None => (queues_title(state), &state.queues.filter, order(&queues::ORDERS, &state.queues)),
            Some(opened) => {
                let cluster = &state.clusters[opened.queue.0].name;
                let queue = &opened.queue.1.1;
                match &opened.inspected {
                    Some(inspected) => (
                        format!("{}/{} in {queue} of {cluster}", inspected.key.0, inspected.key.1),
                        &String::new(),
                        String::new(),
                    ),
                    None => (
                        format!("{queue} of {cluster}: {}", counted(opened.list.len(), "workload")),
                        &opened.list.filter,
                        order(&workloads::ORDERS, &opened.list),
                    ),
                }
            }
        };
        let right = if filter.is_empty() || state.typing { order } else { format!("/{filter}  {order}") };
        let room = self.width().saturating_sub(right.width() + GAP);
        if what.width() <= room {
            self.put(self.width() - right.width(), 0, usize::MAX, &right, Style::new());
        }
        self.put(0, 0, usize::MAX, &what, BOLD);
    }

    fn queues(&mut self, state: &mut State, height: usize) {
        let several = 1 < state.clusters.len();
        let mut widths = state.queue_widths;
        if !several {
            widths[0] = 0;
        }
        let shown = self.layout(&queues::COLUMNS, &widths, |column| several || column != 0);
        self.heads(&queues::COLUMNS, &shown, queues::ORDERS[state.queues.order].name);
        let lines = height.saturating_sub(1);
        state.queues.fit(lines);
        if state.queues.len() == 0 {
            let links = state.clusters.iter().map(|cluster| (cluster.name.as_str(), &cluster.queues.link));
            self.nothing(&state.queues.filter, "ClusterQueues", links);
        }
        for (place, (key, chosen, line)) in state.queues.visible().enumerate() {
            let row = queues::row(&state.clusters, key, line, place == 0, state.now);
            self.row(2 + place, &queues::COLUMNS, &shown, row, chosen, line == 0 || place == 0);
        }
    }

    fn workloads(&mut self, opened: &mut Opened, height: usize, now: jiff::Timestamp) {
        let shown = self.layout(&workloads::COLUMNS, &opened.widths, |_| true);
        self.heads(&workloads::COLUMNS, &shown, workloads::ORDERS[opened.list.order].name);
        opened.list.fit(height.saturating_sub(1));
        if opened.list.len() == 0 {
            let links = [("workloads", &opened.workloads.link), ("local queues", &opened.local_queues.link)];
            self.nothing(&opened.list.filter, "workloads", links.into_iter());
        }
        let old = opened.workloads.link.trouble.is_some();
        for (place, (key, chosen, _)) in opened.list.visible().enumerate() {
            let row = workloads::row(&opened.workloads.rows, key, old, now);
            self.row(2 + place, &workloads::COLUMNS, &shown, row, chosen, true);
        }
    }

    fn workload(&mut self, opened: &mut Opened, height: usize, now: jiff::Timestamp) {
        let Some(inspected) = opened.inspected.as_mut() else { return };
        let lines = detail::lines(inspected, self.width(), now);
        inspected.height = height;
        inspected.beyond = lines.len().saturating_sub(height);
        inspected.top = inspected.top.min(inspected.beyond);
        for (place, line) in lines.iter().skip(inspected.top).take(height).enumerate() {
            match line {
                Line::Head(text) => self.put(0, 1 + place, usize::MAX, text, BOLD),
                Line::Plain(text) => self.put(0, 1 + place, usize::MAX, text, Style::new()),
            }
        }
    }

    fn layout(&self, columns: &[Column], widths: &[usize], wanted: impl Fn(usize) -> bool) -> Layout {
        let places: Vec<usize> = (0..columns.len()).filter(|place| wanted(*place)).collect();
        let columns: Vec<Column> = places.iter().map(|place| columns[*place]).collect();
        let widths: Vec<usize> = places.iter().map(|place| widths[*place]).collect();
        let shown = layout(&columns, &widths, self.width().saturating_sub(MARGIN));
        shown.into_iter().map(|(at, width)| (places[at], width)).collect()
    }

    fn heads(&mut self, columns: &[Column], shown: &Layout, ordered: &str) {
        let mut x = MARGIN;
        for (at, width) in shown {
            let column = &columns[*at];
            let style = if column.head == ordered { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
            let indent = if column.right { width.saturating_sub(column.head.len()) } else { 0 };
            self.put(x + indent, 1, *width, column.head, style);
            x += width + GAP;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "where, its columns and how it stands: each is one thing")]
    fn row(
        &mut self,
        y: usize,
        columns: &[Column],
        shown: &Layout,
        row: Option<Row<'_>>,
        chosen: bool,
        first: bool,
    ) {
        let Some(row) = row else { return };
        let chosen = chosen && self.look.interactive;
        let style = if row.alarming || row.mark != ' ' { self.look.alarm() } else { Style::new() };
        let style = if chosen { style.add_modifier(Modifier::REVERSED) } else { style };
        if chosen {
            self.put(0, y, usize::MAX, &" ".repeat(self.width()), style);
        }
        let arrow = if chosen && first { '>' } else { ' ' };
        let mark = if first { row.mark } else { ' ' };
        self.put(0, y, MARGIN, &format!("{arrow}{mark}"), style);
        let mut x = MARGIN;
        for (at, width) in shown {
            let cell = &row.cells[*at];
            let indent = if columns[*at].right { width.saturating_sub(cell.width()) } else { 0 };
            self.put(x + indent, y, *width, cell, style);
            x += width + GAP;
        }
    }

    /// Why a list is empty.
    fn nothing<'l>(&mut self, filter: &str, what: &str, links: impl Iterator<Item = (&'l str, &'l Link)>) {
        let awaited: Vec<&str> = links.filter(|(_, link)| !link.complete).map(|(name, _)| name).collect();
        let text = if !awaited.is_empty() {
            let more = awaited.len().saturating_sub(TROUBLES);
            let named = awaited[..awaited.len() - more].join(", ");
            let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("Waiting for {named}{rest}.")
        } else if filter.is_empty() {
            format!("There are no {what}.")
        } else {
            format!("Of the {what} none has {filter:?}. Esc shows all.")
        };
        self.put(MARGIN, 2, usize::MAX, &text, Style::new());
    }

    fn keys(&mut self, state: &State, y: usize) {
        let filter = state.opened.as_ref().map_or(&state.queues.filter, |opened| &opened.list.filter);
        if state.typing {
            return self.put(0, y, usize::MAX, &format!("/{filter}_   Enter keeps it, Esc drops it"), BOLD);
        }
        let keys = match &state.opened {
            None => "Enter workloads   / filter   < > order   r reverse   ? help   q quit",
            Some(opened) if opened.inspected.is_none() => {
                "Enter conditions and events   Esc back   / filter   < > order   ? help   q quit"
            }
            Some(_) => "Esc back   ? help   q quit",
        };
        self.put(0, y, usize::MAX, keys, self.look.quiet());
    }

    fn help(&mut self) {
        for (y, line) in include_str!("help.txt").lines().enumerate() {
            let style = if y == 0 { BOLD } else { Style::new() };
            self.put(0, y, usize::MAX, line, style);
        }
    }
}

fn queues_title(state: &State) -> String {
    let queues: usize = state.clusters.iter().map(|cluster| cluster.queues.rows.len()).sum();
    let all = || state.clusters.iter().flat_map(|cluster| cluster.queues.rows.values());
    let (pending, admitted) =
        all().fold((0, 0), |(pending, admitted), queue| (pending + queue.pending, admitted + queue.admitted));
    let place = match &state.clusters[..] {
        [only] => only.name.clone(),
        several => counted(several.len(), "cluster"),
    };
    format!("{place}: {}, {pending} pending, {admitted} admitted", counted(queues, "queue"))
}

/// Which entry is chosen, and by what they are ordered.
fn order<K: Clone + Eq>(orders: &[Order], list: &List<K>) -> String {
    let order = &orders[list.order];
    let arrow = if order.falling == list.reverse { "up" } else { "down" };
    format!("{}/{}  by {} {arrow}", list.place(), list.len(), order.name)
}

/// Cut off with a mark where it is too wide.
fn cut(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if room < kept.width() + unicode_width::UnicodeWidthChar::width(letter).unwrap_or(0) + 1 {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}
