//! What `-o` asks for, and objects printed that way.

use serde_json::Value;

use crate::{
    cause::reason,
    error::Error,
    flags::Given,
    gotemplate, jsonpath,
    kyaml::kyaml,
    resource::DryRun,
    session::{Session, Tools},
    typed,
    yaml::yaml,
};

pub struct Printer<'w> {
    tools: Tools<'w>,
    format: Format,
    /// What was done, after an object's name.
    operation: String,
    managed_fields: bool,
    printed: usize,
}

enum Format {
    /// `kind.group/name operation`.
    Done,
    Name,
    Json,
    Yaml,
    Kyaml,
    Path {
        text: String,
        template: jsonpath::Template,
    },
    Go(gotemplate::Template),
}

const TEMPLATES: [&str; 7] = [
    "go-template",
    "go-template-file",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "template",
    "templatefile",
];

const FORMATS: &str = "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml";

impl<'w> Printer<'w> {
    pub fn new(session: &Session<'_, 'w>, operation: &str, dry_run: DryRun) -> Result<Self, Error> {
        let (given, tools) = (&session.given, session.tools());
        let operation = match dry_run {
            DryRun::None => operation.to_owned(),
            DryRun::Client => format!("{operation} (client dry run)"),
            DryRun::Server => format!("{operation} (server dry run)"),
        };
        let managed_fields = given.is("show-managed-fields");
        Ok(Self { tools, format: Format::of(given)?, operation, managed_fields, printed: 0 })
    }

    /// The text for `object`, which has the form of Go's type `kind`.
    pub fn print(&mut self, kind: &str, object: &Value) -> Result<String, Error> {
        let mut object = typed::normal(kind, object);
        if !self.managed_fields && !matches!(self.format, Format::Name | Format::Done) {
            omit_managed_fields(&mut object);
        }
        self.printed += 1;
        match &self.format {
            Format::Done => Ok(format!("{}{}\n", named(kind, &object)?, after_blank(&self.operation))),
            Format::Name => Ok(format!("{}\n", named(kind, &object)?)),
            Format::Json => Ok(indented(&object)),
            Format::Yaml if self.printed == 1 => Ok(yaml(&object)),
            Format::Yaml => Ok(format!("---\n{}", yaml(&object))),
            Format::Kyaml => Ok(kyaml(&object)),
            Format::Path { text, template } => template.render(&object).map_err(|reason| {
                Error::said(format!(
                    "error executing jsonpath {text:?}: Error executing template: {reason}. Printing more information for \
                     debugging the template:\n\ttemplate was:\n\t\t{text}\n\tobject given to jsonpath engine was:\n\t\t{object}\n\n\n"
                ))
            }),
            Format::Go(template) => template.render(&object, self.tools),
        }
    }
}

impl Format {
    fn of(given: &Given) -> Result<Self, Error> {
        let asked = given.text("output");
        match asked.to_lowercase().as_str() {
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "kyaml" => Ok(Self::Kyaml),
            "name" => Ok(Self::Name),
            "" if given.has("output") || given.text("template").is_empty() => Ok(Self::Done),
            _ => Self::template(given, asked),
        }
    }

    /// The template stands in `--template`, or behind the format's name and `=`.
    fn template(given: &Given, asked: &str) -> Result<Self, Error> {
        let apart = given.text("template");
        let (name, text) = match asked.split_once('=') {
            _ if !apart.is_empty() => (if given.has("output") { asked } else { "go-template" }, apart),
            Some((name, text)) => (name, text),
            None => (asked, ""),
        };
        if !TEMPLATES.contains(&name) {
            return Err(Error::said(format!(
                "unable to match a printer suitable for the output format {asked:?}, allowed formats are: {FORMATS}"
            )));
        }
        if text.is_empty() {
            return Err(Error::said("template format specified but no template given"));
        }
        let file = name.ends_with("file").then(|| {
            let unreadable =
                |error| format!("error reading --template {text}, open {text}: {}", reason(&error));
            std::fs::read_to_string(text).map_err(|error| Error::said(unreadable(error)))
        });
        let text = file.transpose()?.unwrap_or_else(|| text.to_owned());
        let missing_is_fine = given.is("allow-missing-template-keys");
        if name.starts_with("jsonpath") {
            let template = jsonpath::Template::new(&text, missing_is_fine, name == "jsonpath-as-json")
                .map_err(|reason| Error::said(format!("error parsing jsonpath {text}, {reason}")))?;
            return Ok(Self::Path { text, template });
        }
        Ok(Self::Go(gotemplate::Template::new(text, missing_is_fine)))
    }
}

fn named(kind: &str, object: &Value) -> Result<String, Error> {
    if object["items"].is_array() {
        return Err(Error::said(format!("list types are not supported by name printing: *v1beta2.{kind}")));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("<unknown>");
    let kind = object["kind"].as_str().unwrap_or(kind).to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    Ok(group.map_or_else(|| format!("{kind}/{name}"), |(group, _)| format!("{kind}.{group}/{name}")))
}

fn after_blank(operation: &str) -> String {
    if operation.is_empty() { String::new() } else { format!(" {operation}") }
}

fn omit_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        omit_managed_fields(item);
    }
}

/// As Go's `MarshalIndent` writes JSON: indented by four, with `<`, `>` and `&` escaped.
pub fn indented(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(value, &mut serializer).expect("a value is JSON, and memory takes it");
    html_safe(&String::from_utf8_lossy(&text)) + "\n"
}

/// What Go's JSON escapes, so that it can stand in a page.
pub fn html_safe(text: &str) -> String {
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
