//! Parts of a timestamp, in UTC, and of a duration.

use jiff::tz::TimeZone;

use super::Called;
use crate::value::Value;

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    let part = match args {
        [Value::Timestamp(at)] => {
            let at = at.to_zoned(TimeZone::UTC);
            match name {
                "getFullYear" => i64::from(at.year()),
                "getMonth" => i64::from(at.month()) - 1,
                "getDayOfYear" => i64::from(at.day_of_year()) - 1,
                "getDayOfMonth" => i64::from(at.day()) - 1,
                "getDate" => i64::from(at.day()),
                "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
                "getHours" => i64::from(at.hour()),
                "getMinutes" => i64::from(at.minute()),
                "getSeconds" => i64::from(at.second()),
                "getMilliseconds" => i64::from(at.millisecond()),
                _ => return None,
            }
        }
        [Value::Duration(duration)] => match name {
            "getHours" => duration.as_hours(),
            "getMinutes" => duration.as_mins(),
            "getSeconds" => duration.as_secs(),
            "getMilliseconds" => i64::from(duration.subsec_millis()),
            _ => return None,
        },
        _ => return None,
    };
    Some(Ok(Value::Int(part)))
}
