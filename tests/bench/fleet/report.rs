//! The figures as a table, as JSON and as a page with curves.

mod chart;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::json;

use super::figures::{Curve, Figures};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}\
    section{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:1.5rem;margin:2rem 0}\
    h2{grid-column:1/-1;margin:0;font-size:1.05rem}h2 small{color:#666;font-weight:400}\
    svg text{font-size:11px;fill:#555}.grid{stroke:#ddd}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{text-align:right;padding:.1rem .7rem}";

pub fn write(figures: &Figures) -> Result<()> {
    print(figures);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
    std::fs::create_dir_all(folder).context(folder)?;
    let curves: Vec<_> = figures.0.iter().map(Curve::json).collect();
    let json = json!({"curves": curves});
    std::fs::write(format!("{folder}/fleet.json"), format!("{json:#}\n"))?;
    std::fs::write(format!("{folder}/fleet.html"), page(figures))?;
    println!("\n{folder}/fleet.json\n{folder}/fleet.html");
    Ok(())
}

fn print(figures: &Figures) {
    for curve in &figures.0 {
        let goal = goal(curve);
        println!("\n{}, {}{goal}", curve.name, curve.who);
        for point in &curve.points {
            let [median, min, max] = [point.median(), point.min(), point.max()].map(text);
            let (x, unit) = (text(point.x), curve.unit);
            println!("{x:>12} {:<12}{median:>12} {unit:<6} {min} to {max}", curve.x);
        }
        if curve.is_slope {
            println!("{:>12} more: {} {}", "each one", text(curve.slope()), curve.unit);
        }
    }
}

fn goal(curve: &Curve) -> String {
    if curve.goal.is_empty() { String::new() } else { format!(" (goal: {})", curve.goal) }
}

fn page(figures: &Figures) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>What one hub carries</title><style>{STYLE}</style>\
         <h1>What one hub carries</h1>\n"
    );
    let mut names: Vec<&str> = Vec::new();
    for curve in &figures.0 {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    for name in names {
        let curves: Vec<&Curve> = figures.0.iter().filter(|curve| curve.name == name).collect();
        let goals: String = curves.iter().map(|curve| goal(curve)).collect();
        let (chart, legend) = (chart::svg(&curves), chart::legend(&curves));
        let tables: String = curves.iter().map(|curve| table(curve)).collect();
        let _ = writeln!(
            page,
            "<section><h2>{name}<small>{goals}</small></h2><div>{chart}<p>{legend}</p></div><div>{tables}</div></section>"
        );
    }
    page
}

fn table(curve: &Curve) -> String {
    let unit = curve.unit;
    let mut rows = format!("<table><tr><th>{}<th>{} {unit}<th>least<th>most</tr>", curve.x, curve.who);
    for point in &curve.points {
        let [x, median, min, max] = [point.x, point.median(), point.min(), point.max()].map(text);
        let _ = write!(rows, "<tr><td>{x}<td>{median}<td>{min}<td>{max}</tr>");
    }
    if curve.is_slope {
        let _ = write!(rows, "<tr><th>each more<td>{}<td><td></tr>", text(curve.slope()));
    }
    rows + "</table>"
}

/// With as many digits as say something.
pub fn text(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e9 => format!("{:.2} G", value / 1e9),
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 1e4 => format!("{:.1} k", value / 1e3),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 1.0 && value.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 1e-3 => format!("{:.2} m", value * 1e3),
        _ if size > 0.0 => format!("{:.2} µ", value * 1e6),
        _ => "0".to_owned(),
    }
}
