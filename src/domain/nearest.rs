//! The word that someone may have meant.

/// The candidate that `word` was most likely meant to be.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer than any key was not meant to be one, and comparing it costs its square.
    if MAX_WORD < word.len() {
        return None;
    }
    let close = 1 + word.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (edits(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= close)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

const MAX_WORD: usize = 64;

/// Levenshtein distance.
fn edits(from: &str, to: &str) -> usize {
    let to = to.chars().collect::<Vec<_>>();
    let mut row = (0..=to.len()).collect::<Vec<_>>();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (column, other) in to.iter().enumerate() {
            let replace = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replace.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_a_far_one_is_not() {
        let keys = ["lostTimeout", "staleAfter", "watchTimeout"];
        assert_eq!(nearest("lostTimout", keys), Some("lostTimeout"));
        assert_eq!(nearest("losttimeout", keys), Some("lostTimeout"));
        assert_eq!(nearest("color", keys), None);
        assert_eq!(nearest(&"lostTimeout".repeat(9), keys), None);
    }
}
