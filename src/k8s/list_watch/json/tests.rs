use proptest::prelude::*;

use super::*;

fn read_watch(text: &str, piece: usize, cap: usize) -> Vec<String> {
    let mut words = Vec::new();
    let mut reader = WatchReader::new(cap);
    for data in text.as_bytes().chunks(piece) {
        reader.feed(data, &mut |event| {
            words.push(match event {
                Event::Set { version, object } => format!("set {} {version}", name(object).expect("a name")),
                Event::Gone { version, object } => {
                    format!("gone {} {version}", name(object).expect("a name"))
                }
                Event::Bookmark { version } => format!("bookmark {version}"),
                Event::Skipped(skipped) => format!("skipped {}", skipped.name.unwrap_or_default()),
                Event::Expired => "expired".to_owned(),
                Event::Failed(error) => format!("failed {error}"),
            });
        });
    }
    words
}

#[test]
fn events_arrive_in_pieces_of_any_size() {
    let padding = "x".repeat(3000);
    let text = format!(
        r#"{{"type":"ADDED","object":{{"kind":"Q","metadata":{{"name":"a","namespace":"n\u0073","resourceVersion":"10"}}}}}}

{{"type":"MODIFIED","object":{{"kind":"Q","metadata":{{"name":"large","namespace":"ns","resourceVersion":"11"}},"x":"{padding}"}}}}
{{"type":"DELETED","object":{{"metadata":{{"name":"a","resourceVersion":"12"}}}}}}
not json
{{"type":"ADDED","object":{{"metadata":{{"name":"b"}}}}}}
{{"type":"ADDED","object":{{"metadata":7}}}}
{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"13"}}}}}}
{{"type":"ERROR","object":{{"kind":"Status","metadata":{{}},"status":"Failure","message":"too old resource version: 310 (312)","reason":"Expired","code":410}}}}
{{"type":"ERROR","object":{{"kind":"Status","metadata":{{}},"status":"Failure","message":"etcd \"is\" gone","code":500}}}}
"#
    );
    let expected = [
        "set ns/a 10",
        "skipped ns/large",
        "gone a 12",
        "skipped ",
        "skipped b",
        "skipped ",
        "bookmark 13",
        "expired",
        "failed etcd \"is\" gone",
    ];
    for piece in [1, 7, 500, 2500, text.len()] {
        assert_eq!(read_watch(&text, piece, 1000), expected, "in pieces of {piece}");
    }
}

#[derive(Debug, Default, PartialEq)]
struct ReadPage {
    items: Vec<String>,
    skipped: Vec<Option<String>>,
    end: Option<(u64, Option<String>)>,
}

fn read_page(text: &str, piece: usize, cap: usize) -> Result<ReadPage, ApiError> {
    let (mut page, mut reader) = (ReadPage::default(), ListReader::new(cap));
    for data in text.as_bytes().chunks(piece) {
        reader.feed(data, &mut |item| match item {
            Ok(item) => page.items.push(String::from_utf8_lossy(item).into_owned()),
            Err(skipped) => page.skipped.push(skipped.name),
        })?;
    }
    let end = reader.finish()?;
    page.end = Some((end.version, end.next));
    Ok(page)
}

#[test]
fn a_page_hands_out_its_items_and_where_the_next_begins() {
    let large = "x".repeat(2000);
    let text = format!(
        r#"{{"kind":"items","apiVersion":"v1","metadata":{{"resourceVersion":"7","continue":"abc=="}},"items":[
            {{"metadata":{{"name":"a"}}}}, {{"metadata":{{"name":"large"}},"x":"{large}"}} , 5,
            {{"items":[{{"b\"":"]}}\\"}}]}}],"more":["items",[1]]}}"#
    );
    for piece in [1, 7, 500, text.len()] {
        let page = read_page(&text, piece, 1000).expect("a page");
        assert_eq!(page.end, Some((7, Some("abc==".to_owned()))));
        assert_eq!(page.items, [r#"{"metadata":{"name":"a"}}"#, r#"{"items":[{"b\"":"]}\\"}]}"#]);
        assert_eq!(page.skipped, [Some("large".to_owned())]);
    }
}

#[test]
fn items_may_come_before_the_version() {
    let page = read_page(r#"{"items":[{"a":1},{"a":2}],"metadata":{"resourceVersion":"7"}}"#, 3, 10);
    assert_eq!(page.expect("a page").items, [r#"{"a":1}"#, r#"{"a":2}"#]);
}

#[test]
fn an_empty_page_may_have_null_items() {
    let page = read_page(r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#, 9, 10);
    assert_eq!(page.expect("a page"), ReadPage { end: Some((7, None)), ..ReadPage::default() });
}

#[test]
fn what_is_not_a_list_is_refused() {
    let endless = format!(r#"{{"metadata":{{"resourceVersion":"7","x":"{}"#, "x".repeat(FRAME));
    for text in [
        "",
        "{}",
        "[]",
        "}",
        r#"{"metadata":{},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[{"a"]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":{}}"#,
        &endless,
    ] {
        assert!(read_page(text, 1000, 10).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(text in "[\\x00-\\x7f\n\"{}:]{0,300}", piece in 1_usize..40) {
        let events = read_watch_quietly(text.as_bytes(), piece);
        prop_assert!(events <= text.len() + 1);
        let _ = read_page(&text, piece, 50);
    }

    #[test]
    fn a_page_gives_what_serde_gives(
        items in prop::collection::vec("[a-z\\\\\"\\[\\]{},: ]{0,20}", 0..5),
        piece in 1_usize..40,
    ) {
        let item = |text: &String| serde_json::json!({"metadata": {"name": text}, "more": [text, {(text.clone()): text}]}).to_string();
        let items: Vec<String> = items.iter().map(item).collect();
        let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#, items.join(" , "));
        let page = read_page(&text, piece, 1000).expect("a page");
        prop_assert_eq!(page.items, items);
    }
}

fn read_watch_quietly(bytes: &[u8], piece: usize) -> usize {
    let mut reader = WatchReader::new(50);
    let mut events = 0;
    for data in bytes.chunks(piece) {
        reader.feed(data, &mut |_| events += 1);
    }
    events
}
