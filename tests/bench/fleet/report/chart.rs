//! One measure as a picture: a line for each client, medians with their spread.

use std::fmt::Write as _;

use super::text;
use crate::figures::Curve;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 20.0;
const COLORS: [&str; 4] = ["#0b6e4f", "#c8553d", "#3a6ea5", "#8d6b94"];

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

    fn marks(&self) -> Vec<f64> {
        let steps = [0.0, 0.25, 0.5, 0.75, 1.0];
        let at = |step: f64| {
            if self.powers {
                self.from * (self.to / self.from).powf(step)
            } else {
                self.from + step * (self.to - self.from)
            }
        };
        steps.map(at).to_vec()
    }
}

/// The curves have one name, and are of one client each.
pub fn svg(curves: &[&Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let xs: Vec<f64> = points().map(|point| point.x).collect();
    let ys: Vec<f64> = points().flat_map(|point| [point.min(), point.max()]).collect();
    let x = Scale::of(&xs, LEFT, WIDTH - RIGHT);
    let y = Scale::of(&ys, HEIGHT - BOTTOM, TOP);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-hidden=true>\n");
    for mark in y.marks() {
        let at = y.place(mark);
        let _ = writeln!(
            svg,
            "<path class=grid d=\"M{LEFT} {at:.1}H{}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=end>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            text(mark)
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
    let _ = writeln!(svg, "<path d=\"M{}\" fill=none stroke=\"{color}\" stroke-width=2 />", along.join("L"));
    for point in &points {
        let spread = [point.min(), point.max()].map(|value| at(point.x, value));
        let _ = writeln!(
            svg,
            "<path d=\"M{}L{}\" stroke=\"{color}\" stroke-width=5 stroke-linecap=round opacity=0.4 />",
            spread[0], spread[1]
        );
    }
}

pub fn legend(curves: &[&Curve]) -> String {
    let one =
        |(curve, color): (&&Curve, &&str)| format!("<span style=\"color:{color}\">■ {}</span>", curve.who);
    curves.iter().zip(COLORS.iter().cycle()).map(one).collect::<Vec<_>>().join(" ")
}
