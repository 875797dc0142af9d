//! What is counted, under upstream's names, and who may read it.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PhaseLabels {
    namespace: String,
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    phases: Family<PhaseLabels, Counter>,
    reconciled: Family<ResultLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let (phases, reconciled) = (Family::default(), Family::default());
        registry.register(
            "appwrapper_phase",
            "How often AppWrappers of a namespace entered a phase",
            phases.clone(),
        );
        registry.register(
            "controller_runtime_reconcile",
            "How often an AppWrapper was looked at, by what came of it",
            reconciled.clone(),
        );
        let metrics = Self { registry: Arc::new(Mutex::new(registry)), phases, reconciled };
        // Known from the start, as upstream's are.
        for result in ["success", "error", "requeue_after"] {
            metrics.results(result);
        }
        metrics
    }
}

impl Metrics {
    pub fn entered(&self, namespace: &str, phase: &'static str) {
        let labels = PhaseLabels { namespace: namespace.to_owned(), phase };
        self.phases.get_or_create(&labels).inc();
    }

    pub fn reconciled(&self, result: &'static str) {
        self.results(result).inc();
    }

    fn results(&self, result: &'static str) -> Counter {
        let labels = ResultLabels { controller: "AppWrapper", result };
        self.reconciled.get_or_create(&labels).clone()
    }

    /// In the OpenMetrics text format.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}
