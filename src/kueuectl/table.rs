//! Columns as kubectl's printer lays them out: as wide as their widest cell and three blanks, the last without padding.

#[derive(Default)]
pub struct Table {
    text: String,
    begun: bool,
    /// Of what was rendered: what comes later stands below it.
    widest: Vec<usize>,
}

/// kubectl's tabwriter: no column is narrower, and this much stands between two.
const NARROWEST: usize = 6;
const GAP: usize = 3;

impl Table {
    /// Rows as [`line`] makes them. The header comes with the first.
    pub fn rows(&mut self, columns: &[String], lines: &str) {
        if !std::mem::replace(&mut self.begun, true) {
            self.text = columns.join("\t").to_uppercase() + "\n";
        }
        self.text += lines;
    }

    /// The rows since the last time.
    pub fn render(&mut self) -> String {
        aligned_below(&std::mem::take(&mut self.text), &mut self.widest)
    }
}

/// A row that is not laid out yet: all that is kept of an object.
pub fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| shown(cell)).collect();
    cells.join("\t") + "\n"
}

/// Text whose cells end with tabs. Lines below each other that have a column share its width; a line without tabs ends a block,
/// but a column never becomes narrower again.
pub fn aligned(text: &str) -> String {
    aligned_below(text, &mut Vec::new())
}

fn aligned_below(text: &str, widest: &mut Vec<usize>) -> String {
    if !text.contains('\t') {
        return text.to_owned();
    }
    let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
    let mut widths = vec![Vec::new(); lines.len()];
    // A line of one cell is written at once, with what came before it.
    let mut offset = 0;
    for block in lines.chunk_by(|line, _| 1 < line.len()) {
        column(block, offset, 0, &mut widths, widest);
        offset += block.len();
    }
    let padded = lines.iter().zip(&widths).map(|(line, widths)| padded(line, widths));
    padded.collect::<Vec<_>>().join("\n")
}

/// Gives every line of `block` that has `column` its width, and then the columns after it theirs.
fn column(block: &[Vec<&str>], offset: usize, at: usize, widths: &mut [Vec<usize>], widest: &mut Vec<usize>) {
    let mut line = 0;
    while line < block.len() {
        let has = |line: &Vec<&str>| at + 1 < line.len();
        if !has(&block[line]) {
            line += 1;
            continue;
        }
        let count = block[line..].iter().take_while(|line| has(line)).count();
        let part = &block[line..line + count];
        let own = part.iter().map(|line| line[at].chars().count() + GAP).fold(NARROWEST, usize::max);
        if widest.len() <= at {
            widest.push(0);
        }
        widest[at] = widest[at].max(own);
        for each in &mut widths[offset + line..offset + line + count] {
            each.push(widest[at]);
        }
        column(part, offset + line, at + 1, widths, widest);
        line += count;
    }
}

fn padded(line: &[&str], widths: &[usize]) -> String {
    let mut text = String::new();
    for (index, cell) in line.iter().enumerate() {
        text.push_str(cell);
        let blanks = widths.get(index).map_or(0, |width| width.saturating_sub(cell.chars().count()));
        text.extend(std::iter::repeat_n(' ', blanks));
    }
    text
}

/// One line, without what a terminal would obey.
fn shown(cell: &str) -> String {
    let line = cell.split(['\n', '\r', '\u{c}']).next().unwrap_or_default();
    let more = if line.len() < cell.len() { "..." } else { "" };
    format!("{}{more}", line.replace('\u{1b}', "^["))
}
