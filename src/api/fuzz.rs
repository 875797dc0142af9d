//! What callers send, whatever it is, for `tests/fuzz`.

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use crate::{task::logs::place::Places, upload::archive};

/// Files of a task. What is taken stays below the folder that it is unpacked in, and is as large as it may be.
pub fn archive(bytes: &[u8], most: u64) {
    if archive::inspect(bytes, most).is_err() {
        return;
    }
    let mut unpacked = Archive::new(MultiGzDecoder::new(bytes));
    let mut total = 0;
    for entry in unpacked.entries().expect("it was read before") {
        let entry = entry.expect("it was read before");
        let path = entry.path_bytes().into_owned();
        assert!(!path.starts_with(b"/") && !path.split(|byte| *byte == b'/').any(|part| part == b".."));
        let kind = entry.header().entry_type();
        assert!(matches!(
            kind,
            EntryType::Regular
                | EntryType::Continuous
                | EntryType::Directory
                | EntryType::Symlink
                | EntryType::XGlobalHeader
        ));
        total += entry.size();
    }
    assert!(total <= most, "{total} bytes");
}

/// Where a stream of logs is to go on.
pub fn log_places(text: &str) {
    if let Ok(places) = text.parse::<Places>() {
        assert_eq!(places.to_string().parse(), Ok(places));
    }
}
