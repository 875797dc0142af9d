//! Whatever others send is read or refused: no bytes make a reader panic, hang, keep more than it may, or take one thing for
//! another. What is sent comes from clusters, from callers, from files that people bring and from their containers.
//!
//! `cargo test --test fuzz` takes seconds: it reads each file under `__fuzz__/NAME/corpus` as it is, with random changes, and
//! bytes that are random altogether. Guided by what the code reaches, for as long as one likes, with
//! `cargo install cargo-bolero`:
//!
//! ```text
//! cargo bolero test --test fuzz --sanitizer NONE --rustc-bootstrap -T 1h NAME
//! ```
//!
//! What fails is left in `__fuzz__/NAME/crashes`. Once it is mended, keep it as a file of the corpus.

mod edits;
mod readers;

use self::edits::{Edits, Seeds};

/// Longer texts are only more of the same; what bounds sizes has tests of its own.
const LONGEST: usize = 4096;

/// A test for each reader, all of the same form.
macro_rules! readers {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                bolero::check!().with_max_len(LONGEST).for_each(|bytes: &[u8]| readers::$name(bytes));
                if cfg!(not(fuzzing)) {
                    let seeds = Seeds::read(stringify!($name));
                    bolero::check!().with_type::<Edits>().for_each(|edits: &Edits| readers::$name(&seeds.edited(edits)));
                }
            }
        )*
    };
}

readers! {
    admission_review,
    app_wrapper,
    archive,
    cel,
    gzip,
    json_lines,
    kubeconfig,
    log_lines,
    nested_json,
    places_and_ids,
    protobuf,
    proxied_path,
    quantity,
    selector,
    task_file,
    task_request,
}

#[test]
fn each_reader_has_a_corpus_and_each_corpus_a_reader() {
    let mut found: Vec<String> = std::fs::read_dir(edits::folder())
        .expect("the corpora")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    found.sort();
    assert_eq!(found, NAMES);
}
