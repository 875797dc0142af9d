//! One measure as a picture: a line for each client, medians with their spread.

use std::fmt::Write as _;

use super::{amount, escape, text};
use crate::figures::Curve;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 20.0;
/// Classes of the page's style, which knows what can be read on light and on dark.
const COLORS: [&str; 4] = ["c0", "c1", "c2", "c3"];

/// Where values are along a side of the picture.
struct Scale {
    from: f64,
    to: f64,
    /// By powers of ten, where values differ by more than one and none is nothing.
    powers: bool,
    start: f64,
    end: f64,
}

impl Scale {
    fn of(values: &[f64], start: f64, end: f64) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers = 0.0 < low && low * 20.0 < high;
        let from = if powers { low } else { low.min(0.0) };
        Self { from, to: if from < high { high } else { from + 1.0 }, powers, start, end }
    }

    fn place(&self, value: f64) -> f64 {
        let along = if self.powers {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + along * (self.end - self.start)
    }

    /// Ends at round numbers, which are its marks.
    fn rounded(self) -> (Self, Vec<f64>) {
        if self.powers {
            let (from, to) = (self.from.log10().floor(), self.to.log10().ceil());
            let marks = std::iter::successors(Some(from), |power| Some(power + 1.0));
            let marks = marks.take_while(|power| *power <= to).map(|power| 10_f64.powf(power)).collect();
            return (Self { from: 10_f64.powf(from), to: 10_f64.powf(to), ..self }, marks);
        }
        let rough = (self.to - self.from) / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|step| rough <= *step);
        let step = step.unwrap_or(10.0 * power);
        let (first, last) = ((self.from / step).floor(), (self.to / step).ceil());
        let turns = std::iter::successors(Some(first), |turn| Some(turn + 1.0));
        let marks = turns.take_while(|turn| *turn <= last).map(|turn| turn * step).collect();
        (Self { from: first * step, to: last * step, ..self }, marks)
    }
}

/// A round number with its unit: `20 ms`, `0.5`.
fn mark(value: f64, unit: &str) -> String {
    // Only seconds have thousandths of their own.
    if unit != "s" && value < 1e4 {
        // As many digits as a step of a round number has.
        let digits = format!("{value:.6}");
        return format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
            .trim_end()
            .to_owned();
    }
    amount(value, unit).replace(".00 ", " ").replace(".0 ", " ")
}

/// The curves have one name, and are of one client each.
pub fn svg(curves: &[&Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let xs: Vec<f64> = points().map(|point| point.x).collect();
    let ys: Vec<f64> = points().flat_map(|point| [point.min(), point.max()]).collect();
    let x = Scale::of(&xs, LEFT, WIDTH - RIGHT);
    let (y, marks) = Scale::of(&ys, HEIGHT - BOTTOM, TOP).rounded();
    let (unit, along) = curves.first().map_or(("", ""), |curve| (&*curve.unit, &*curve.x));
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-hidden=true>\n");
    for value in marks {
        let at = y.place(value);
        let _ = writeln!(
            svg,
            "<path class=grid d=\"M{LEFT} {at:.1}H{}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=end>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            mark(value, unit)
        );
    }
    let mut seen: Vec<f64> = xs;
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    // More than a handful would run into each other.
    let every = seen.len().div_ceil(8);
    for value in seen.iter().step_by(every) {
        let at = x.place(*value);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=middle>{}</text>",
            HEIGHT - BOTTOM + 18.0,
            text(*value)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=end>{}</text>",
        WIDTH - RIGHT,
        HEIGHT - BOTTOM + 34.0,
        escape(along)
    );
    for (curve, color) in curves.iter().zip(COLORS.iter().cycle()) {
        line(&mut svg, curve, color, (&x, &y));
    }
    svg.push_str("</svg>");
    svg
}

fn line(svg: &mut String, curve: &Curve, color: &str, (x, y): (&Scale, &Scale)) {
    let mut points = curve.points.clone();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let at = |x_value: f64, y_value: f64| format!("{:.1} {:.1}", x.place(x_value), y.place(y_value));
    let along: Vec<String> = points.iter().map(|point| at(point.x, point.median())).collect();
    let _ = writeln!(
        svg,
        "<g class={color}><path d=\"M{}\" fill=none stroke=currentColor stroke-width=2 />",
        along.join("L")
    );
    for point in &points {
        let spread = [point.min(), point.max()].map(|value| at(point.x, value));
        let _ = writeln!(
            svg,
            "<path d=\"M{}L{}\" stroke=currentColor stroke-width=5 stroke-linecap=round opacity=0.4 />\
             <circle cx={:.1} cy={:.1} r=3 fill=currentColor />",
            spread[0],
            spread[1],
            x.place(point.x),
            y.place(point.median())
        );
    }
    svg.push_str("</g>\n");
}

pub fn legend(curves: &[&Curve]) -> String {
    let one = |(curve, color): (&&Curve, &&str)| format!("<span class={color}>■ {}</span>", curve.who);
    curves.iter().zip(COLORS.iter().cycle()).map(one).collect::<Vec<_>>().join(" ")
}
