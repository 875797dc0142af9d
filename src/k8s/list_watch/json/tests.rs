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

#[test]
fn a_page_hands_out_its_items_and_where_the_next_begins() {
    let text = format!(
        r#"{{"kind":"QList","metadata":{{"resourceVersion":"7","continue":"abc=="}},"items":[
            {{"metadata":{{"name":"a"}}}}, {{"metadata":{{"name":"large"}},"x":"{}"}}, 5]}}"#,
        "x".repeat(2000)
    );
    let (mut items, mut skipped) = (Vec::new(), Vec::new());
    let end = page(text.as_bytes(), 1000, &mut |item| match item {
        Ok(item) => items.push(String::from_utf8(item.to_vec()).expect("text")),
        Err(item) => skipped.push(item.name),
    })
    .expect("a page");
    assert_eq!((end.version, end.next.as_deref()), (7, Some("abc==")));
    assert_eq!(items, [r#"{"metadata":{"name":"a"}}"#, "5"]);
    assert_eq!(skipped, [Some("large".to_owned())]);
}

#[test]
fn an_empty_page_may_have_null_items() {
    let end = page(br#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#, 10, &mut |_| {});
    assert!(end.is_ok_and(|end| end.next.is_none()));
}

#[test]
fn what_is_not_a_list_is_refused() {
    for text in [
        "",
        "{}",
        "[]",
        r#"{"metadata":{},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[{"a"]}"#,
    ] {
        assert!(page(text.as_bytes(), 10, &mut |_| {}).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(text in "[\\x00-\\x7f\n\"{}:]{0,300}", piece in 1_usize..40) {
        let events = read_watch_quietly(text.as_bytes(), piece);
        prop_assert!(events <= text.len() + 1);
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
