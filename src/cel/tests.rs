//! Against answers recorded from cel-go 0.26 with the libraries of OCM's placement controller 1.2:
//! the same value, the same refusal and the same cost.

use std::fmt::Write as _;

use serde::Deserialize;

use super::{
    value::{Key, Value},
    *,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    expr: String,
    refused: Option<String>,
    value: Option<String>,
    error: Option<String>,
    cost: u64,
}

pub(super) struct Usage(Vec<(Arc<str>, i64)>);

impl Default for Usage {
    fn default() -> Self {
        Self(vec![("gpu".into(), -70), ("cpu".into(), 12)])
    }
}

impl Scores for Usage {
    fn scores(&self, cluster: &str, resource: &str) -> Option<&[(Arc<str>, i64)]> {
        (cluster == "cluster1" && resource == "usage").then_some(&self.0)
    }
}

pub(super) fn cluster() -> Value {
    let json: serde_json::Value = serde_json::from_str(include_str!("tests/cluster.json")).expect("JSON");
    Value::from(&json)
}

pub(super) fn render(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) if value.is_finite() => format!("double({value})"),
        Value::Double(_) => "double(special)".to_owned(),
        Value::String(text) => serde_json::to_string(text.as_ref()).expect("a text is JSON"),
        Value::Bytes(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").expect("a text takes more");
                text
            });
            format!("bytes({hex})")
        }
        Value::List(items) => format!("[{}]", items.iter().map(render).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |(key, value): (&Key, &Value)| format!("{}: {}", render(&key.value()), render(value));
            let mut entries: Vec<_> = entries.iter().map(entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Timestamp(at) => format!("timestamp({})", at.as_nanosecond()),
        Value::Duration(duration) => format!("duration({})", duration.as_nanos()),
        Value::Type(name) => format!("type({name})"),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("some({})", render(value)),
        Value::Ip(ip) => format!("ip({ip})"),
        Value::Cidr(cidr) => format!("cidr({cidr})"),
        Value::Quantity(_) | Value::Semver(_) | Value::Url(_) | Value::Format(_) => value.kind().to_owned(),
    }
}

/// What the checker says of names and types is said word for word; other texts are our own.
fn is_of_the_checker(problem: &str) -> bool {
    ["undeclared reference", "found no matching overload", "expected type"]
        .iter()
        .any(|text| problem.contains(text))
}

#[test]
fn expressions_have_the_answers_of_cel_go() {
    let cluster = cluster();
    let mut wrong = String::new();
    for line in include_str!("tests/recorded.jsonl").lines() {
        let recorded: Recorded = serde_json::from_str(line).expect("a recorded answer");
        let found = match Program::compile(&recorded.expr) {
            Err(CompileError(problem)) if is_of_the_checker(&problem) => format!("refused: {problem}"),
            Err(CompileError(_)) => "refused".to_owned(),
            Ok(program) => {
                let outcome = program.evaluate(&cluster, &Usage::default(), meter::CALL_WORK);
                match outcome.value {
                    Ok(value) => format!("{} for {}", render(&value), outcome.cost),
                    Err(Fault::OverBudget) => "over budget".to_owned(),
                    Err(Fault::Error(_)) => format!("error for {}", outcome.cost),
                }
            }
        };
        let expected = match (&recorded.refused, &recorded.value, &recorded.error) {
            (Some(problem), ..) if is_of_the_checker(problem) => {
                // cel-go tells every problem, we tell the first.
                let first = problem.split("\nERROR").next().unwrap_or(problem);
                format!("refused: {first}")
            }
            (Some(_), ..) => "refused".to_owned(),
            (_, Some(value), _) => format!("{value} for {}", recorded.cost),
            (_, _, Some(error)) if error.starts_with("operation cancelled") => "over budget".to_owned(),
            (_, _, _) => format!("error for {}", recorded.cost),
        };
        if expected != found {
            writeln!(wrong, "{}\n  expected {expected}\n  found    {found}", recorded.expr).expect("a text");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// As the documentation of Kubernetes' library, and Go's `net/url`, have it.
#[test]
fn urls_are_those_of_kubernetes() {
    for (text, is_url) in [
        ("https://user:pass@example.com:80/path?query=val#fragment", true),
        ("/absolute-path", true),
        ("https://a:b:c/", false),
        ("../relative-path", false),
        ("", false),
        ("*", true),
        ("mailto:a@example.com", true),
        ("https://[::1]:80/", true),
        ("https://[::1/", false),
        ("https://[abc]/", false),
        ("https://a:1:2/", false),
        ("//host/path", true),
        ("http://", true),
        ("https://ü/", true),
        ("https://a|b/", false),
        ("https://u ser@h/", false),
        ("https://[fe80::1%25en0]/", true),
        ("https://example.com:8x/", false),
        ("https://example.com:/", true),
        ("https://exa mple.com/", false),
        ("https://example.com/a%2", false),
        ("https://a%41/", false),
        (":no-scheme", false),
        ("1http://example.com", false),
    ] {
        let found = evaluate(&format!("isURL({text:?})")).value;
        assert_eq!(found, Ok(Value::Bool(is_url)), "{text}");
        let found = evaluate(&format!("url({text:?}) == url({text:?})")).value;
        assert_eq!(found.is_ok(), is_url, "{text}");
    }
    for expression in [
        "url('/path').getScheme() == ''",
        "url('HTTPS://example.com/').getScheme() == 'https'",
        "url('https://example.com:80/').getHost() == 'example.com:80'",
        "url('https://example.com/').getHost() == 'example.com'",
        "url('https://u:p@example.com/').getHost() == 'example.com'",
        "url('https://[::1]:80/').getHost() == '[::1]:80'",
        "url('https://[::1]/').getHost() == '[::1]'",
        "url('/path').getHost() == ''",
        "url('https://example.com:80/').getHostname() == 'example.com'",
        "url('https://127.0.0.1:80/').getHostname() == '127.0.0.1'",
        "url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://[::1]/').getHostname() == '::1'",
        "url('/path').getHostname() == ''",
        "url('https://example.com:80/').getPort() == '80'",
        "url('https://example.com/').getPort() == ''",
        "url('/path').getPort() == ''",
        "url('https://example.com/path').getEscapedPath() == '/path'",
        "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
        "url('https://example.com/a%2Fb').getEscapedPath() == '/a%2Fb'",
        "url('https://example.com/ä').getEscapedPath() == '/%C3%A4'",
        "url('https://example.com/a b%2F').getEscapedPath() == '/a%20b/'",
        "url('https://example.com/!()*[%7e').getEscapedPath() == '/!()*[%7e'",
        "url('https://example.com').getEscapedPath() == ''",
        "url('//host/path').getHost() == 'host'",
        "url('https://example.com/path#part').getEscapedPath() == '/path'",
        "url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
        "url('https://example.com/path?key with spaces=value with spaces').getQuery() \
         == {'key with spaces': ['value with spaces']}",
        "url('https://example.com/path?a=b+c%21&d').getQuery() == {'a': ['b c!'], 'd': ['']}",
        "url('https://example.com/path?').getQuery() == {}",
        "url('https://example.com/path').getQuery() == {}",
        "url('/a') != url('/b')",
    ] {
        assert_eq!(evaluate(expression).value, Ok(Value::Bool(true)), "{expression}");
    }
}

#[test]
fn formats_are_those_of_kubernetes() {
    let longest = "a".repeat(63);
    for (format, good, bad) in [
        ("dns1123Label", vec!["my-label-name", "1a", &longest], vec!["", "A", "a-", "-a", "a.b"]),
        ("dns1123Subdomain", vec!["apiextensions.k8s.io", "a"], vec!["a..b", "a.b.", "A.b", "a_b"]),
        ("dns1035Label", vec!["my-label-name", "a1"], vec!["1a", "a-", "a.b", ""]),
        (
            "qualifiedName",
            vec!["apiextensions.k8s.io/v1beta1", "A_b.c", "x"],
            vec!["", "a/b/c", "/a", "a/", "A/b"],
        ),
        ("dns1123LabelPrefix", vec!["my-label-prefix-", "a", "1-"], vec!["-", "Ab-", "a.bc-"]),
        (
            "dns1123SubdomainPrefix",
            vec!["mysubdomain.prefix.a-", "mysubdomain.prefix.-"],
            vec!["A.b-", "-.b-"],
        ),
        ("dns1035LabelPrefix", vec!["my-label-prefix-", "a-"], vec!["1a-", "-a-"]),
        ("labelValue", vec!["", "My_value.1", &longest], vec!["-a", "a b", "a."]),
        ("uri", vec!["http://example.com", "/path"], vec!["example.com", "../a"]),
        (
            "uuid",
            vec!["123e4567-e89b-12d3-a456-426614174000", "123E4567e89b12d3a456426614174000"],
            vec!["", "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-42661417400g"],
        ),
        ("byte", vec!["aGVsbG8=", "aGVs", "aA=="], vec!["", "aGVsbG8", "a===", "aGV_", "===="]),
        ("date", vec!["2021-01-01", "2024-02-29"], vec!["2021-02-29", "2021-1-1", "2021-13-01", "20210101"]),
        (
            "datetime",
            vec!["2021-01-01T00:00:00Z", "2021-01-01t23:59:59.123+01:00", "2021-01-01T00:00:00z"],
            vec!["2021-01-01", "2021-01-01T24:00:00Z", "2021-01-01T00:00:60Z", "2021-01-01T00:00:00"],
        ),
    ] {
        let has = |text: &str| evaluate(&format!("format.{format}().validate({text:?}).hasValue()")).value;
        for text in good {
            assert_eq!(has(text), Ok(Value::Bool(false)), "{format} {text}");
        }
        for text in bad {
            assert_eq!(has(text), Ok(Value::Bool(true)), "{format} {text}");
            let by_name = format!("format.named({format:?}).value().validate({text:?}).value().size() > 0");
            assert_eq!(evaluate(&by_name).value, Ok(Value::Bool(true)), "{format} {text}");
        }
    }
    let long = evaluate(&format!("format.dns1123Label().validate('{longest}a').value()")).value;
    assert!(matches!(&long, Ok(Value::List(problems)) if problems.len() == 1), "{long:?}");
    for expression in [
        "!format.named('unknown').hasValue()",
        "format.uri() == format.named('uri').value()",
        "format.uri() != format.uuid()",
        "'%s'.format(['a']) == 'a'",
    ] {
        assert_eq!(evaluate(expression).value, Ok(Value::Bool(true)), "{expression}");
    }
    assert!(Program::compile("format.unknown()").is_err());
}

fn evaluate(text: &str) -> Outcome {
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    program.evaluate(&cluster(), &Usage::default(), meter::CALL_WORK)
}

#[test]
fn what_nests_too_deep_or_is_too_long_is_refused_on_any_stack() {
    let deep = [
        format!("{}1{}", "(".repeat(2000), ")".repeat(2000)),
        format!("{}1{}", "[".repeat(2000), "]".repeat(2000)),
        format!("{}1{}", "size([".repeat(500), "])".repeat(500)),
        format!("1{}", "+1".repeat(2000)),
        format!("a{}", ".a".repeat(2000)),
        format!("a{}", "[0]".repeat(1300)),
        format!("{}1", "true?1:".repeat(500)),
        format!("{}1", "-(".repeat(1500)),
        format!("{}true", "!(".repeat(1500)),
        "(".repeat(4000),
        "{1:".repeat(1300),
    ];
    for text in deep {
        let start: String = text.chars().take(12).collect();
        let error = Program::compile(&text).expect_err("refused").to_string();
        assert!(error.contains("recursion limit"), "{start}: {error}");
    }
    let error = Program::compile(&" ".repeat(MAX_LENGTH + 1)).expect_err("refused");
    assert_eq!(error.to_string(), "compilation failed: the expression has 4097 bytes, at most 4096");
    // Wide is not deep, and what is in the limits compiles.
    for text in [
        format!("true{}", "&&true".repeat(600)),
        format!("{}true", "!".repeat(4000)),
        format!("{}1{}", "(".repeat(60), ")".repeat(60)),
        format!("1{}", "+1".repeat(60)),
    ] {
        assert!(evaluate(&text).value.is_ok(), "{text}");
    }
}

#[test]
fn what_takes_too_much_ends() {
    let list = format!("[{}0]", "0,".repeat(300));
    let doubled = "[\"0123456789\"]".to_owned() + &".map(s,s+s)".repeat(40);
    let lists_doubled = "[[0]]".to_owned() + &".map(l,l+l)".repeat(40);
    let replaced = "'aaaaaaaaaa'".to_owned() + &".replace('a','aaaaaaaaaa')".repeat(20);
    let pairs = "[1]".to_owned() + &".map(x,[x,x])".repeat(40);
    for text in [
        format!("{list}.all(a,{list}.all(b,{list}.all(c,{list}.all(d,true))))"),
        format!("[{list}].map(l,l.map(a,l.map(b,l.map(c,l)))).size()==0"),
        doubled,
        lists_doubled,
        replaced,
        format!("{pairs} == {pairs}"),
        format!("{pairs} in [{pairs}]"),
        format!("[{pairs}].indexOf({pairs}) == 0"),
        format!("{{'a':{pairs}}} != {{'a':{pairs}}}"),
        format!("'%s'.format([{pairs}])"),
        format!("['0123456789']{}.join('x')", ".map(s,[s,s,s,s].join(s))".repeat(14)),
        "'aaaaaaaaaaaaaaaaaaaa'.matches('(((a{30}){30}){30})')".to_owned(),
        "[1,2,3,4,5,6,7,8,9].map(x,'a'.matches('(a|b|c){1,'+string(x*100)+'}')).map(x,[1,2,3,4,5,6,7,8,9].map(y,'a'.matches('x{1,'+string(y)+'}')))"
            .to_owned(),
        "'{\"a\":[1,2,3,4]}'.parseJSON() == dyn([1])".to_owned(),
    ] {
        let outcome = evaluate(&text);
        assert!(outcome.work <= meter::CALL_WORK, "{text}: {}", outcome.work);
    }
}

/// Read as JSON, the text in the annotation would be read as JSON again and again, and take more stack than there is.
#[test]
fn json_that_is_to_be_read_again_is_refused() {
    let mut json: serde_json::Value = serde_json::from_str(include_str!("tests/cluster.json")).expect("JSON");
    json["metadata"]["annotations"]["data"] = fedq_values::nested::nest(300).into();
    let program =
        Program::compile("managedCluster.metadata.annotations.data.parseJSON() != null").expect("CEL");
    let outcome = program.evaluate(&Value::from(&json), &Usage::default(), meter::CALL_WORK);
    let Err(Fault::Error(told)) = outcome.value else { panic!("{:?}", outcome.value) };
    assert!(told.contains("failed to parse json: it holds JSON as text"), "{told}");
}

#[test]
fn long_texts_are_paid_for_each_time_that_they_are_read() {
    // 262,144 characters that differ in the last one.
    let long = "'0123456789012345678901234567890123456789012345678901234567890123'";
    let grown = |end: &str| format!("{long}.replace('', {long}).replace('0', 'x') + '{end}'");
    let items = format!("[{}]", vec!["a"; 200].join(","));
    for text in [
        format!("[{}].map(a, {items}.map(t, [t]).map(m, [{}] in [m])).size() == 1", grown("a"), grown("b")),
        format!("[{}].map(a, {items}.max()).size() == 1", grown("a")),
        format!("[{}].map(a, {items}.isSorted()).size() == 1", grown("a")),
        format!(
            "[{}].map(a, {items}.map(t, {{t: 1}}).map(m, m == {{{}: 1}})).size() == 1",
            grown("a"),
            grown("b")
        ),
    ] {
        let outcome = evaluate(&text);
        let read = 200 * 4_000 / 8;
        assert!(read < outcome.work, "{text}: {} {:?}", outcome.work, outcome.value);
        assert!(outcome.work <= meter::CALL_WORK, "{text}: {}", outcome.work);
    }
}

/// An error of lower layers must not reach the process: whatever the text, there is an answer or a refusal.
mod properties {
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&str; 44] = [
        "managedCluster",
        ".metadata",
        ".labels",
        ".status",
        "[\"env\"]",
        "[0]",
        ".?x",
        "[?1]",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        "==",
        "<",
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        " in ",
        "1",
        "2u",
        "1.5",
        "\"a\"",
        "'b'",
        "b'x'",
        "true",
        "null",
        ".size()",
        ".map(x, x)",
        ".all(x, x == 1)",
        ".filter(y, y)",
        ".matches(\"a+\")",
        "quantity(\"1\")",
        "x",
        ".format([1])",
    ];

    fn text() -> impl Strategy<Value = String> {
        let words = prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..24);
        prop_oneof![4 => words.prop_map(|words| words.concat()), 1 => "\\PC{0,40}"]
    }

    proptest! {
        #[test]
        fn any_text_is_answered_within_its_limits(text in text()) {
            if let Ok(program) = Program::compile(&text) {
                let first = program.evaluate(&cluster(), &Usage::default(), 10_000);
                prop_assert!(first.cost <= meter::CALL_COST + 1_000);
                prop_assert_eq!(&first.cost, &program.evaluate(&cluster(), &Usage::default(), 10_000).cost);
            }
        }
    }
}
