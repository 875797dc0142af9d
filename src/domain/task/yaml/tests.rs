use proptest::prelude::*;

use super::*;

fn refused(text: &str) -> YamlError {
    read_yaml(text.as_bytes()).expect_err(text)
}

fn at(line: u32, column: u32) -> Place {
    Place { line, column }
}

fn only(text: &str) -> Node {
    let mut documents = read_yaml(text.as_bytes()).expect(text);
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

fn entry<'a>(node: &'a Node, key: &str) -> &'a Node {
    let Value::Map(entries) = &node.value else { panic!("a map") };
    &entries.iter().find(|(known, _)| &*known.text == key).expect(key).1
}

fn text(node: &Node) -> &str {
    let Value::Scalar(scalar) = &node.value else { panic!("a scalar") };
    &scalar.text
}

#[test]
fn scalars_keep_their_text_and_their_place() {
    let node = only("a: 012\nb: \"012\"\nc: 1.10\nd: ~\ne: !!str null\n");
    assert_eq!(text(entry(&node, "a")), "012");
    assert_eq!(text(entry(&node, "c")), "1.10");
    assert_eq!(entry(&node, "c").place, Some(at(3, 4)));
    assert!(entry(&node, "d").is_null() && !entry(&node, "e").is_null());
    let Value::Scalar(quoted) = &entry(&node, "b").value else { panic!("a scalar") };
    assert!(!quoted.plain);
}

#[test]
fn empty_documents_are_no_documents() {
    assert!(read_yaml(b"").expect("valid").is_empty());
    assert!(read_yaml(b"# nothing\n---\n---\n").expect("valid").is_empty());
    assert_eq!(read_yaml(b"---\na: 1\n---\nb: 2\n---\n").expect("valid").len(), 2);
}

#[test]
fn aliases_and_merge_keys_are_expanded() {
    let node = only("base: &b {cpus: 4, image: x}\nuse:\n  <<: *b\n  cpus: 8\nagain: *b\n");
    let used = entry(&node, "use");
    assert_eq!((text(entry(used, "cpus")), text(entry(used, "image"))), ("8", "x"));
    assert_eq!(text(entry(entry(&node, "again"), "cpus")), "4");
    assert_eq!(entry(&node, "again").place, Some(at(5, 8)));
    let node = only("a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b]}\n");
    assert_eq!(text(entry(entry(&node, "c"), "x")), "1");
    assert_eq!(text(entry(entry(&node, "c"), "z")), "2");
    assert_eq!(refused("a: {<<: 1}"), YamlError::Merge(at(1, 4)));
}

#[test]
fn a_key_is_there_once_and_is_a_text() {
    assert_eq!(
        refused("run: a\nsetup: b\nrun: c\n"),
        YamlError::DuplicateKey(at(3, 1), "run".to_owned(), at(1, 1))
    );
    assert_eq!(refused("a: 1\n[b]: 2\n"), YamlError::KeyNotText(at(2, 1)));
    assert_eq!(refused("{a: 1}: 2\n"), YamlError::KeyNotText(at(1, 1)));
    assert!(matches!(refused("~: 1\n"), YamlError::KeyNotText(_)));
    assert!(matches!(refused(": 1\n"), YamlError::KeyNotText(_)));
}

#[test]
fn what_is_not_yaml_is_told_with_its_place() {
    let YamlError::Syntax(place, message) = refused("run: a\nsetup: [b\n") else { panic!("syntax") };
    assert!(2 <= place.line && !message.is_empty(), "{place} {message}");
    assert!(matches!(refused("a: *nobody\n"), YamlError::Syntax(..)));
    assert!(matches!(refused("a: !custom b\n"), YamlError::Tag(place, _) if place == at(1, 4)));
    assert_eq!(read_yaml(b"run: a\nb: \xc3\xa9\xff\n").expect_err("no text"), YamlError::NotText(at(2, 5)));
}

#[test]
fn aliases_cannot_blow_up() {
    let line = |level: usize| match level.checked_sub(1) {
        Some(before) => {
            format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", "))
        }
        None => "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
    };
    let bomb = (0..20).map(line).collect::<Vec<_>>().concat();
    assert!(matches!(refused(&bomb), YamlError::TooMuch(Some(_))));
    // Few nodes, much text.
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 1000].join(","));
    assert!(matches!(refused(&long), YamlError::TooMuch(Some(_))));
    assert!(matches!(refused("a: &a [*a]\n"), YamlError::Recursive(_)));
}

#[test]
fn aliases_cannot_nest_without_end() {
    let lines = (1..200).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1));
    let text = format!("a0: &a0 [x]\n{}", lines.collect::<Vec<_>>().concat());
    assert!(matches!(refused(&text), YamlError::TooDeep(Some(_))));
}

#[test]
fn what_is_too_deep_or_too_large_is_refused() {
    for text in ["[".repeat(50_000), "{a: ".repeat(50_000), "- ".repeat(50_000)] {
        assert!(matches!(refused(&text), YamlError::TooDeep(_)), "{}", &text[..4]);
    }
    let large = vec![b'a'; MAX_BYTES + 1];
    assert_eq!(read_yaml(&large).expect_err("too large"), YamlError::TooLarge(MAX_BYTES + 1));
    assert_eq!(read_json(&large).expect_err("too large"), YamlError::TooLarge(MAX_BYTES + 1));
}

#[test]
fn json_gives_the_same_tree() {
    let node = read_json(br#"{"a": "1", "b": 1, "c": null, "d": true, "e": ["x"]}"#).expect("JSON");
    let Value::Scalar(quoted) = &entry(&node, "a").value else { panic!("a scalar") };
    assert!(!quoted.plain && entry(&node, "c").is_null());
    assert_eq!((text(entry(&node, "b")), text(entry(&node, "d"))), ("1", "true"));
    let error = read_json(br#"{"a": 1, "a": 2}"#).expect_err("twice");
    assert!(error.to_string().contains("`a` is in this map twice"), "{error}");
    assert!(matches!(read_json(b"{\n  \"a\": }"), Err(YamlError::Json(place, _)) if place.line == 2));
    assert!(read_json("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn messages_repeat_no_control_characters_and_no_novels() {
    assert_eq!(shown("a\u{1b}[31m"), "a\u{fffd}[31m");
    assert_eq!(shown(&"x".repeat(200)).chars().count(), 61);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(read_yaml(&bytes));
        drop(read_json(&bytes));
    }

    #[test]
    fn no_text_of_yaml_s_own_signs_panics(text in "[-a:{}\\[\\],&*!|>'\"%@`?~<#0 \n\t]{0,80}") {
        if let Ok(documents) = read_yaml(text.as_bytes()) {
            for document in documents {
                prop_assert!(document.depth() <= MAX_DEPTH + 1);
            }
        }
    }
}
