//! What fedq can do beyond OCM, each by an annotation on the Placement. Without them, decisions are
//! OCM's to the letter.

use std::collections::BTreeMap;

use super::Problem;

/// A cluster that is chosen yields only to one whose total is more than this ahead.
pub const HYSTERESIS: &str = "fedq.dev/hysteresis";
/// `"true"`: `spec.spreadPolicy` is obeyed, which OCM does not do yet.
pub const SPREAD: &str = "fedq.dev/spread";
/// `"true"`: a score that ran out or is missing counts as the lowest there is, not as 0 (which beats
/// every negative score), and the Placement is evaluated again when a score runs out.
pub const EXPIRING_SCORES: &str = "fedq.dev/expiring-scores";

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    pub hysteresis: i64,
    pub spread: bool,
    pub expiring_scores: bool,
}

/// More would outweigh any difference of scores there can be.
const MAX_HYSTERESIS: i64 = 1_000_000;

pub fn read(annotations: &BTreeMap<String, String>) -> Result<Options, Problem> {
    let flag = |name: &str| match annotations.get(name).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            Err(Problem::misconfigured(name, format!("{other:?} is neither \"true\" nor \"false\"")))
        }
    };
    let hysteresis = match annotations.get(HYSTERESIS) {
        None => 0,
        Some(text) => {
            let points = text.parse().ok().filter(|points| (0..=MAX_HYSTERESIS).contains(points));
            points.ok_or_else(|| {
                Problem::misconfigured(HYSTERESIS, format!("{text:?} is not a number of points, 0 or more"))
            })?
        }
    };
    Ok(Options { hysteresis, spread: flag(SPREAD)?, expiring_scores: flag(EXPIRING_SCORES)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(name: &str, value: &str) -> Result<Options, Problem> {
        read(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn nothing_is_on_unless_it_is_asked_for() {
        assert_eq!(read(&BTreeMap::new()), Ok(Options::default()));
        assert_eq!(read_one(SPREAD, "false"), Ok(Options::default()));
        assert_eq!(read_one(HYSTERESIS, "5").map(|options| options.hysteresis), Ok(5));
        assert_eq!(read_one(EXPIRING_SCORES, "true").map(|options| options.expiring_scores), Ok(true));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (name, value) in [
            (HYSTERESIS, "-1"),
            (HYSTERESIS, "much"),
            (HYSTERESIS, "9223372036854775808"),
            (HYSTERESIS, "1000001"),
            (SPREAD, "yes"),
            (EXPIRING_SCORES, ""),
        ] {
            let problem = read_one(name, value).expect_err(value);
            assert!(matches!(problem, Problem::Misconfigured { plugin, .. } if plugin == name), "{value}");
        }
    }
}
