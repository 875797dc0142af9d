// The CustomResourceDefinitions of Prometheus' operator, for what the chart has for it. Nothing of it is built.
module fedq.dev/tests/real/tools/prometheus_operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
