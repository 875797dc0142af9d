// Lines that programs wrote, made safe to look at: colours become classes, every other command to a terminal is left out, and
// what would be invisible or turn text around is shown as a sign.

// Commands to a terminal: CSI; OSC and the like up to their end; two characters.
const COMMAND = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]/g;
const COLOURS = /^\x1b\[([\d;]*)m$/;
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

function sign(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

/** Without commands: what is searched. A line that is written over is told as its last form. */
export function plain(line) {
  let text = line.endsWith("\r") ? line.slice(0, -1) : line;
  if (text.includes("\x1b") || text.includes("\x9b")) text = text.replace(COMMAND, "");
  const over = text.lastIndexOf("\r");
  return over < 0 ? text : text.slice(over + 1);
}

/** Pieces with their classes, at most so many characters of it. */
export function pieces(line, most) {
  const all = [];
  const style = { colour: null, bold: false };
  let left = most;
  let at = 0;
  const push = (text) => {
    const shown = text.slice(0, left);
    left -= shown.length;
    if (!shown) return;
    const classes = [style.colour !== null && `c${style.colour}`, style.bold && "bold"].filter(Boolean).join(" ");
    all.push({ text: shown.replace(UNSEEN, sign), classes });
  };
  const from = line.slice(0, most * 4);
  const over = from.replace(/\r$/, "").lastIndexOf("\r");
  const text = over < 0 ? from.replace(/\r$/, "") : from.slice(over + 1).replace(/\r$/, "");
  for (const match of text.matchAll(COMMAND)) {
    push(text.slice(at, match.index));
    at = match.index + match[0].length;
    const colours = COLOURS.exec(match[0]);
    if (colours) dress(style, colours[1]);
    if (left <= 0) return all;
  }
  push(text.slice(at));
  return all;
}

function dress(style, codes) {
  const numbers = codes.split(";").map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) Object.assign(style, { colour: null, bold: false });
    else if (code === 1) style.bold = true;
    else if (code === 22) style.bold = false;
    else if (code === 39) style.colour = null;
    else if (30 <= code && code <= 37) style.colour = code - 30;
    else if (90 <= code && code <= 97) style.colour = code - 90;
    // Of the larger palettes, only how long they are.
    else if (code === 38 || code === 48) at += numbers[at + 1] === 2 ? 4 : 2;
  }
}
