//! The figures as a table, as JSON and as a page with curves.

mod chart;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figures::{Curve, Figures};

const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--faint:#666;--grid:#ddd;--paper:#fff}\
    .c0{color:#0b6e4f}.c1{color:#c8553d}.c2{color:#3a6ea5}.c3{color:#8d6b94}\
    @media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--faint:#a0a0a0;--grid:#3a3a3a;--paper:#161616}\
    .c0{color:#4cc79a}.c1{color:#f08a70}.c2{color:#7fb2ea}.c3{color:#c7a3cf}}\
    body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:var(--ink);\
    background:var(--paper)}\
    section{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:.5rem 1.5rem;margin:2.5rem 0}\
    h2{grid-column:1/-1;margin:0;font-size:1.05rem}small{color:var(--faint);font-weight:400}p{margin:0}\
    svg{width:100%}svg text{font-size:11px;fill:var(--faint)}.grid{stroke:var(--grid)}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin-bottom:1rem}\
    td,th{text-align:right;padding:.1rem .7rem}.all{width:100%}.all td:first-child,.all td:last-child,\
    .all th:first-child,.all th:last-child{text-align:left}.all td+td{white-space:nowrap}.all tr+tr{border-top:1px solid var(--grid)}\
    @media(max-width:50rem){section{grid-template-columns:minmax(0,1fr)}}";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");

/// Beside what was measured before: one command need not measure everything.
pub fn write(figures: Figures) -> Result<()> {
    print(&figures);
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let file = format!("{FOLDER}/fleet.json");
    let figures = figures.after(earlier(&file)?);
    let curves: Vec<_> = figures.0.iter().map(Curve::json).collect();
    let json = json!({"curves": curves});
    std::fs::write(&file, format!("{json:#}\n"))?;
    std::fs::write(format!("{FOLDER}/fleet.html"), page(&figures))?;
    println!("\n{file}\n{FOLDER}/fleet.html");
    Ok(())
}

fn earlier(file: &str) -> Result<Vec<Curve>> {
    if !std::fs::exists(file)? {
        return Ok(Vec::new());
    }
    let json: Value = serde_json::from_str(&std::fs::read_to_string(file)?).context(file.to_owned())?;
    Ok(json["curves"].as_array().into_iter().flatten().filter_map(Curve::read).collect())
}

fn print(figures: &Figures) {
    for curve in &figures.0 {
        let goal = goal(curve);
        println!("\n{}, {}{goal}", curve.name, curve.who);
        for point in &curve.points {
            let [median, min, max] =
                [point.median(), point.min(), point.max()].map(|value| amount(value, &curve.unit));
            println!("{:>12} {:<12}{median:>16}   {min} to {max}", text(point.x), curve.x);
        }
        if curve.has_slope() {
            println!("{:>12} more: {}", "each one", amount(curve.slope(), &curve.unit));
        }
    }
}

fn goal(curve: &Curve) -> String {
    if curve.goal.is_empty() { String::new() } else { format!(" (goal: {})", curve.goal) }
}

fn page(figures: &Figures) -> String {
    let mut names: Vec<&str> = Vec::new();
    for curve in &figures.0 {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>What one hub carries</title>\
         <style>{STYLE}</style>\n<h1>What one hub carries</h1>\n{}",
        summary(figures)
    );
    for name in names {
        let curves: Vec<&Curve> = figures.0.iter().filter(|curve| curve.name == name).collect();
        let goals: String = curves.iter().map(|curve| escape(&goal(curve))).collect();
        let (chart, legend) = (chart::svg(&curves), chart::legend(&curves));
        let tables: String = curves.iter().map(|curve| table(curve)).collect();
        let (name, measured) = (escape(name), curves.first().map_or("", |curve| &curve.measured));
        let _ = writeln!(
            page,
            "<section><h2>{name}<small>{goals}</small></h2><div>{chart}<p>{legend} <small>{measured}</small></p></div>\
             <div>{tables}</div></section>"
        );
    }
    page
}

/// What there is a goal for, at the largest size.
fn summary(figures: &Figures) -> String {
    let mut rows = String::from("<table class=all><tr><th>goal<th>at<th>measured<th>aim</tr>\n");
    for curve in figures.0.iter().filter(|curve| !curve.goal.is_empty()) {
        let last = curve.points.iter().max_by(|a, b| a.x.total_cmp(&b.x));
        let Some(last) = last else { continue };
        if curve.is_slope && !curve.has_slope() {
            continue;
        }
        let (at, value) = if curve.is_slope {
            (format!("one more ({})", curve.x), curve.slope())
        } else {
            (format!("{} {}", text(last.x), curve.x), last.median())
        };
        let [name, goal] = [&curve.name, &curve.goal].map(|text| escape(text));
        let value = amount(value, &curve.unit);
        let _ = writeln!(rows, "<tr><td>{name}<td>{at}<td>{value}<td>{goal}</tr>");
    }
    rows + "</table>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn table(curve: &Curve) -> String {
    let unit = &curve.unit;
    let mut rows = format!("<table><tr><th>{}<th>{} {unit}<th>least<th>most</tr>", curve.x, curve.who);
    // Of a long run not each moment.
    let every = curve.points.len().div_ceil(16).max(1);
    for point in curve.points.iter().step_by(every) {
        let [x, median, min, max] = [point.x, point.median(), point.min(), point.max()].map(text);
        let _ = write!(rows, "<tr><td>{x}<td>{median}<td>{min}<td>{max}</tr>");
    }
    if curve.has_slope() {
        let _ = write!(rows, "<tr><th>each more<td>{}<td><td></tr>", text(curve.slope()));
    }
    rows + "</table>"
}

/// `315.5 k bytes`, but `1.20 ms`.
fn amount(value: f64, unit: &str) -> String {
    let number = text(value);
    let joined = unit == "s" && number.ends_with(char::is_alphabetic);
    if joined { number + unit } else { format!("{number} {unit}").trim_end().to_owned() }
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
