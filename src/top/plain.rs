//! The view as text, for what is no terminal.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    draw::{Look, draw},
    shown::counted,
    state::State,
};

/// Title, heads and all lines of the queues, as wide as asked for; trouble comes last.
pub fn text(state: &mut State, width: u16) -> String {
    state.arrange();
    let troubles = state.links().iter().filter(|(_, link)| link.trouble.is_some()).count();
    // A list without entries says so on a line.
    let lines = 2 + state.queues.lines().max(1) + troubles;
    let height = u16::try_from(lines).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(state, Look { color: false, interactive: false }, area, &mut buffer);
    let line = |y: u16| -> String {
        let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    let mut text: String = (0..area.height).map(line).collect();
    // A buffer has no more lines than that.
    match lines - usize::from(height) {
        0 => {}
        left => text.extend(["and ", &counted(left, "line"), " more\n"]),
    }
    text
}
