//! In which format metrics are told: OpenMetrics or Prometheus' older text, whichever the scraper likes better.

/// What `/metrics` can answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    OpenMetrics,
    /// Of Prometheus, version 0.0.4: what everything reads.
    Text,
}

impl Format {
    /// By the values of `Accept`. Who does not say gets what everything reads.
    pub fn accepted<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut open_metrics, mut text) = (0, 0);
        for range in accept.into_iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut version) = (1000, None);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match key.trim().to_ascii_lowercase().as_str() {
                    "q" => weight = thousandths(value),
                    "version" => version = Some(value),
                    _ => {}
                }
            }
            match (kind.as_str(), version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => {
                    open_metrics = weight.max(open_metrics);
                }
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => text = weight.max(text),
                _ => {}
            }
        }
        if 0 < open_metrics && text <= open_metrics { Self::OpenMetrics } else { Self::Text }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// From OpenMetrics.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => older(&open_metrics),
        }
    }
}

/// A weight as HTTP has it: 0 to 1 with three digits.
fn thousandths(weight: &str) -> u32 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = fraction.bytes().chain(*b"000").take(3);
    let fraction = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit.wrapping_sub(b'0').min(9)));
    if whole == "0" { fraction } else { 1000 }
}

/// Samples are the same in both. The older text names a family as its samples are named, and does not know info.
fn older(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        if let Some(told) = comment.strip_prefix("HELP ") {
            help = told.split_once(' ');
        } else if let Some((name, kind)) = comment.strip_prefix("TYPE ").and_then(|told| told.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_gets_the_format_that_it_likes_best() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1,text/plain;q=0.1", Format::Text),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.6", Format::Text),
            (
                "Application/OpenMetrics-Text;Version=\"1.0.0\";Q=0.61 , text/plain ; q=0.609",
                Format::OpenMetrics,
            ),
            // Prometheus 3: as it is, with OpenMetrics off, and with native histograms.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Format::OpenMetrics,
            ),
            (
                "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::Text,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted([accept]), format, "{accept}");
        }
        let two = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(Format::accepted(two), Format::OpenMetrics, "in two headers");
    }

    #[test]
    fn the_older_text_says_the_same() {
        let open_metrics = "\
# HELP fedq_build Version of this fedqd.
# TYPE fedq_build info
fedq_build_info{version=\"1\"} 1
# HELP fedq_writes Objects \\ written.
# TYPE fedq_writes counter
fedq_writes_total{kind=\"# TYPE a\\nb \\\"c\\\"\"} 1
# HELP fedq_plan_seconds Time.
# TYPE fedq_plan_seconds histogram
# UNIT fedq_plan_seconds seconds
fedq_plan_seconds_sum 0.5
# EOF
";
        let text = "\
# HELP fedq_build_info Version of this fedqd.
# TYPE fedq_build_info gauge
fedq_build_info{version=\"1\"} 1
# HELP fedq_writes_total Objects \\ written.
# TYPE fedq_writes_total counter
fedq_writes_total{kind=\"# TYPE a\\nb \\\"c\\\"\"} 1
# HELP fedq_plan_seconds Time.
# TYPE fedq_plan_seconds histogram
fedq_plan_seconds_sum 0.5
";
        assert_eq!(Format::Text.of(open_metrics.to_owned()), text);
        assert_eq!(Format::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}
