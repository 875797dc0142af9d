//! What one AppWrapper tolerates: the operator's defaults, changed by annotations within their bounds.

use std::collections::BTreeMap;

use crate::{config::FaultTolerance, duration::GoDuration, names::annotation};

/// Annotations that cannot be read count as absent.
#[derive(Clone, Debug)]
pub struct Tolerance {
    pub admission_grace: GoDuration,
    pub warmup_grace: GoDuration,
    pub failure_grace: GoDuration,
    pub retry_pause: GoDuration,
    pub retry_limit: i32,
    pub forceful_deletion_grace: GoDuration,
    pub deletion_on_failure_grace: GoDuration,
    pub success_ttl: GoDuration,
    pub terminal_exit_codes: Vec<i32>,
    pub retryable_exit_codes: Vec<i32>,
}

impl Tolerance {
    pub fn of(annotations: Option<&BTreeMap<String, String>>, defaults: &FaultTolerance) -> Self {
        let text = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
        let given = |key: &str| text(key).and_then(GoDuration::parse);
        let bounded = |key: &str, default: GoDuration| {
            let maximum = defaults.grace_period_maximum.max(GoDuration::ZERO);
            given(key).unwrap_or(default).clamp(GoDuration::ZERO, maximum)
        };
        let ttl = given(annotation::SUCCESS_TTL)
            .filter(|ttl| GoDuration::ZERO < *ttl && *ttl < defaults.success_ttl);
        Self {
            admission_grace: bounded(annotation::ADMISSION_GRACE, defaults.admission_grace_period),
            warmup_grace: bounded(annotation::WARMUP_GRACE, defaults.warmup_grace_period),
            failure_grace: bounded(annotation::FAILURE_GRACE, defaults.failure_grace_period),
            retry_pause: bounded(annotation::RETRY_PAUSE, defaults.retry_pause_period),
            retry_limit: text(annotation::RETRY_LIMIT)
                .and_then(|limit| limit.parse().ok())
                .unwrap_or(defaults.retry_limit),
            forceful_deletion_grace: bounded(
                annotation::FORCEFUL_DELETION_GRACE,
                defaults.forceful_deletion_grace_period,
            ),
            deletion_on_failure_grace: bounded(annotation::DELETION_ON_FAILURE_GRACE, GoDuration::ZERO),
            success_ttl: ttl.unwrap_or(defaults.success_ttl),
            terminal_exit_codes: codes(text(annotation::TERMINAL_EXIT_CODES)),
            retryable_exit_codes: codes(text(annotation::RETRYABLE_EXIT_CODES)),
        }
    }

    /// Whether a container that ended so ends the AppWrapper, however many retries are left.
    pub fn is_terminal(&self, exit_code: i32) -> bool {
        let retryable =
            self.retryable_exit_codes.is_empty() || self.retryable_exit_codes.contains(&exit_code);
        exit_code != 0 && (self.terminal_exit_codes.contains(&exit_code) || !retryable)
    }
}

fn codes(list: Option<&str>) -> Vec<i32> {
    list.unwrap_or_default().split(',').filter_map(|code| code.parse().ok()).collect()
}
