//! The document as a page for people. It has no script, so it works under the strictest policy and on paper: the
//! renderers that come as crates load theirs from a CDN, or bring megabytes of it.

use std::fmt::{self, Display, Write};

use axum::{
    Router,
    http::{HeaderName, header},
    response::{Html, IntoResponse},
    routing::get,
};
use serde_json::{Map, Value};

use super::State;

const PATH: &str = "/api/v1/docs";
const STYLE_PATH: &str = "/api/v1/docs/style.css";
const STYLE: &str = include_str!("reference.css");
const POLICY: [(HeaderName, &str); 2] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// How whoever asks is known.
const ACCESS: &str = "Every request but `/version` takes `Authorization: Bearer TOKEN`.";

pub fn router(document: &Value) -> Router<State> {
    let page = page(document, "/api/v1/openapi.json", ACCESS);
    let style = [(header::CONTENT_TYPE, "text/css")];
    Router::new()
        .route(PATH, get(async move || page))
        .route(STYLE_PATH, get(async move || (POLICY, style, STYLE)))
}

/// Of a document that is served at `place`.
pub fn page(document: &Value, place: &str, access: &str) -> impl IntoResponse + Clone + use<> {
    (POLICY, Html(Page { document, place, access }.to_string()))
}

struct Page<'a> {
    document: &'a Value,
    place: &'a str,
    access: &'a str,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { document, place, access } = self;
        let info = &document["info"];
        let title = Text(&info["title"]);
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}: API</title>\
             <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" href=\"{STYLE_PATH}\"></head>\n\
             <body><h1>{title}: API, version {}</h1>{}\
             <p>For programs: <a href=\"{}\">openapi.json</a>.</p>{}\n",
            Text(&info["version"]),
            Words(&info["description"]),
            Escaped(place),
            Words(&Value::from(*access)),
        )?;
        self.contents(f)?;
        for tag in items(&self.document["tags"]) {
            writeln!(f, "<h2>{}</h2>{}", Text(&tag["name"]), Words(&tag["description"]))?;
            self.of_tag(tag).try_for_each(|operation| operation.write(f, self.document))?;
        }
        f.write_str("<h2 id=\"schemas\">Schemas</h2>\n")?;
        for (name, schema) in fields(&self.document["components"]["schemas"]) {
            write!(f, "<section id=\"schema-{0}\"><h3>{0}</h3>", Escaped(name))?;
            writeln!(f, "{}{}</section>", Words(&schema["description"]), Shape(schema))?;
        }
        f.write_str("</body></html>\n")
    }
}

impl<'a> Page<'a> {
    fn operations(&self) -> impl Iterator<Item = Operation<'a>> {
        let paths = fields(&self.document["paths"]);
        paths.flat_map(|(path, item)| {
            fields(item).map(move |(method, described)| Operation { path, method, described })
        })
    }

    fn of_tag(&self, tag: &'a Value) -> impl Iterator<Item = Operation<'a>> {
        self.operations().filter(|operation| operation.described["tags"][0] == tag["name"])
    }

    fn contents(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<nav>")?;
        for tag in items(&self.document["tags"]) {
            write!(f, "<h4>{}</h4><ul>", Text(&tag["name"]))?;
            for Operation { path, method, described } in self.of_tag(tag) {
                let (id, method) = (Text(&described["operationId"]), method.to_uppercase());
                write!(f, "<li><a href=\"#{id}\">{method} {}</a></li>", Escaped(path))?;
            }
            f.write_str("</ul>")?;
        }
        f.write_str("<h4><a href=\"#schemas\">schemas</a></h4></nav>\n")
    }
}

struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    described: &'a Value,
}

impl Operation<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>, document: &Value) -> fmt::Result {
        let Self { path, method, described } = self;
        let id = Text(&described["operationId"]);
        let (method, path) = (method.to_uppercase(), Escaped(path));
        write!(f, "<section id=\"{id}\"><h3><code>{method} {path}</code> <small>{id}</small></h3>")?;
        write!(f, "{}{}", Words(&described["summary"]), Words(&described["description"]))?;
        self.parameters(f)?;
        if let Some(body) = described.get("requestBody") {
            write!(f, "<h4>Body</h4>{}", Words(&body["description"]))?;
            contents(f, body)?;
        }
        f.write_str(
            "<h4>Answers</h4><table><tr><th>Status</th><th>What</th><th>Headers</th><th>Body</th></tr>",
        )?;
        for (status, response) in fields(&described["responses"]) {
            let response = resolve(document, response);
            write!(f, "<tr><td>{}</td><td>{}</td><td>", Escaped(status), Words(&response["description"]))?;
            for (name, header) in fields(&response["headers"]) {
                let header = resolve(document, header);
                let (kind, words) = (Kind(&header["schema"]), Words(&header["description"]));
                write!(f, "<p><code>{}</code> {kind}</p>{words}", Escaped(name))?;
            }
            f.write_str("</td><td>")?;
            contents(f, response)?;
            f.write_str("</td></tr>")?;
        }
        f.write_str("</table></section>\n")
    }

    fn parameters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parameters = items(&self.described["parameters"]).peekable();
        if parameters.peek().is_none() {
            return Ok(());
        }
        f.write_str("<h4>Parameters</h4><table><tr><th>Name</th><th>In</th><th>Is</th><th>What</th></tr>")?;
        for parameter in parameters {
            let required = if parameter["required"] == true { ", required" } else { "" };
            let (name, place) = (Text(&parameter["name"]), Text(&parameter["in"]));
            let (kind, words) = (Kind(&parameter["schema"]), Words(&parameter["description"]));
            write!(
                f,
                "<tr><td><code>{name}</code></td><td>{place}{required}</td><td>{kind}</td><td>{words}</td></tr>"
            )?;
        }
        f.write_str("</table>")
    }
}

/// Each media type of a body: what it holds, and an example.
fn contents(f: &mut fmt::Formatter<'_>, body: &Value) -> fmt::Result {
    for (media, content) in fields(&body["content"]) {
        let schema = &content["schema"];
        write!(f, "<p>{}: {}", Escaped(media), Kind(schema))?;
        let codes: Vec<_> = items(&schema["properties"]["code"]["enum"]).map(Text).collect();
        codes.iter().try_for_each(|code| write!(f, " <code>{code}</code>"))?;
        f.write_str("</p>")?;
        if let Some(example) = content.get("example") {
            let example = Escaped(&format!("{example:#}")).to_string();
            write!(f, "<details><summary>Example</summary><pre>{example}</pre></details>")?;
        }
    }
    Ok(())
}

/// All of a schema that has a place of its own.
struct Shape<'a>(&'a Value);

impl Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(properties) = self.0["properties"].as_object() else {
            return write!(f, "<p>{}</p>", Kind(self.0));
        };
        let required = |name: &str| items(&self.0["required"]).any(|required| required == name);
        f.write_str("<table><tr><th>Field</th><th>Is</th><th>What</th></tr>")?;
        for (name, schema) in properties {
            let always = if required(name) { "" } else { ", or left out" };
            let (kind, words) = (Kind(schema), Words(&schema["description"]));
            write!(
                f,
                "<tr><td><code>{}</code></td><td>{kind}{always}</td><td>{words}</td></tr>",
                Escaped(name)
            )?;
        }
        f.write_str("</table>")
    }
}

/// What a value is, in a few words.
struct Kind<'a>(&'a Value);

impl Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.0;
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            write!(f, "<a href=\"#schema-{0}\">{0}</a>", Escaped(name))?;
            return limits(f, schema);
        }
        if let Some(words) = schema["enum"].as_array() {
            return separated(f, words.iter().map(|word| format!("<code>{}</code>", Text(word))));
        }
        if let Some(forms) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            return separated(f, forms.iter().map(Kind));
        }
        match &schema["type"] {
            Value::String(kind) if kind == "array" => write!(f, "list of {}", Kind(&schema["items"]))?,
            Value::String(kind) if kind == "object" && schema["additionalProperties"].is_object() => {
                write!(f, "object of {}", Kind(&schema["additionalProperties"]))?;
            }
            Value::Array(kinds) => separated(f, kinds.iter().map(Text))?,
            Value::Null => f.write_str("anything")?,
            kind => write!(f, "{}", Text(kind))?,
        }
        limits(f, schema)
    }
}

/// What of its kind it may be.
fn limits(f: &mut fmt::Formatter<'_>, schema: &Value) -> fmt::Result {
    for (key, before, unit) in [
        ("format", " ", ""),
        ("minimum", ", at least ", ""),
        ("maximum", ", at most ", ""),
        ("minLength", ", at least ", " characters"),
        ("maxLength", ", at most ", " characters"),
        ("minItems", ", at least ", " items"),
        ("maxItems", ", at most ", " items"),
        ("minProperties", ", at least ", " fields"),
        ("maxProperties", ", at most ", " fields"),
        ("pattern", ", ", ""),
        ("default", ", otherwise ", ""),
    ] {
        if let Some(value) = schema.get(key) {
            write!(f, "{before}<code>{}</code>{unit}", Text(value))?;
        }
    }
    let (names, values) = (&schema["propertyNames"], &schema["additionalProperties"]);
    if names.is_object() {
        write!(f, "; names: text")?;
        limits(f, names)?;
    }
    // Without a type of their own they say more of what the reference has.
    if values.is_object() && schema.get("$ref").is_some() {
        write!(f, "; values: text")?;
        limits(f, values)?;
    }
    Ok(())
}

fn separated(f: &mut fmt::Formatter<'_>, words: impl Iterator<Item = impl Display>) -> fmt::Result {
    for (index, word) in words.enumerate() {
        let or = if index == 0 { "" } else { " or " };
        write!(f, "{or}{word}")?;
    }
    Ok(())
}

fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#')));
    target.unwrap_or(value)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

/// A value as text.
struct Text<'a>(&'a Value);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => Ok(()),
            Value::String(text) => Escaped(text).fmt(f),
            other => Escaped(&other.to_string()).fmt(f),
        }
    }
}

/// Paragraphs, with `code` between back quotes.
struct Words<'a>(&'a Value);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.as_str().unwrap_or_default();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            f.write_str("<p>")?;
            for (index, part) in paragraph.split('`').enumerate() {
                let part = Escaped(part);
                if index % 2 == 0 { write!(f, "{part}")? } else { write!(f, "<code>{part}</code>")? }
            }
            f.write_str("</p>")?;
        }
        Ok(())
    }
}

struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|sign| match sign {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    fn own(document: &Value) -> Page<'_> {
        Page { document, place: "/api/v1/openapi.json", access: ACCESS }
    }

    #[test]
    fn it_has_every_operation_and_schema_and_no_link_that_leads_nowhere() {
        let document = super::super::openapi();
        let page = own(&document);
        let operations: Vec<String> = page
            .operations()
            .map(|operation| Text(&operation.described["operationId"]).to_string())
            .collect();
        let page = page.to_string();
        let after = |mark: &'static str| {
            page.split(mark).skip(1).map(|rest| rest.split('"').next().unwrap_or_default())
        };
        let places: HashSet<&str> = after(" id=\"").collect();
        let targets: HashSet<&str> = after(" href=\"#").collect();
        assert_eq!(targets.difference(&places).next(), None);
        assert!(!operations.is_empty());
        let missing: Vec<_> = operations.iter().filter(|id| !places.contains(id.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for (name, _) in fields(&document["components"]["schemas"]) {
            assert!(places.contains(format!("schema-{name}").as_str()), "{name}");
        }
        assert!(!page.contains("<script") && !page.contains(" style="), "the policy forbids it");
    }

    /// Nobody should have to open the document beside it.
    #[test]
    fn it_says_all_that_the_document_says_of_requests_and_answers() {
        let document = super::super::openapi();
        let page = own(&document).to_string();
        let of = |id: &str| {
            let (_, section) = page.split_once(&format!("<section id=\"{id}\">")).expect("it is there");
            section.split_once("</section>").expect("it has an end").0
        };
        for (id, parts) in [
            ("get_claim", ["<code>ETag</code>", "&quot;resourceVersion&quot;: &quot;4711&quot;"].as_slice()),
            ("list_tasks", &["<code>Retry-After</code>", "at most <code>1024</code> characters"]),
            ("submit_task", &["<code>Location</code>", "application/json: <a href=\"#schema-SubmitTask\">"]),
            ("put_upload", &["application/octet-stream: string <code>binary</code>"]),
            ("schema-CreateVolume", &["at most <code>4</code> items", "at most <code>54</code> characters"]),
            (
                "schema-SubmitTask",
                &["at most <code>1024</code> fields; names: text, at most <code>253</code>"],
            ),
            (
                "schema-Assign",
                &["schema-Quantities", "at most <code>16</code> fields", "; values: text, <code>^"],
            ),
        ] {
            for part in parts {
                assert!(of(id).contains(part), "{id} has no {part}\n{}", of(id));
            }
        }
        let mut examples = 0;
        for operation in own(&document).operations().map(|operation| operation.described) {
            let answers = fields(&operation["responses"]).map(|(_, answer)| answer);
            let bodies = operation.get("requestBody").into_iter().chain(answers);
            let bodies =
                bodies.map(|body| resolve(&document, body)).flat_map(|body| fields(&body["content"]));
            examples += bodies.filter(|(_, content)| content.get("example").is_some()).count();
        }
        assert_eq!(page.matches("<summary>Example</summary>").count(), examples);
        assert!(100 < examples, "{examples}");
    }

    #[test]
    fn no_text_of_the_document_is_markup() {
        let document = json!({"info": {"title": "<b>&\"", "description": "a `<i>` b\n\nc"}});
        let page = own(&document).to_string();
        assert!(page.contains("&lt;b&gt;&amp;&quot;: API") && !page.contains("<b>"), "{page}");
        assert!(page.contains("<p>a <code>&lt;i&gt;</code> b</p><p>c</p>"), "{page}");
    }
}
