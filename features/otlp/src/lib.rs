//! Sends what the backend tells of itself to an OpenTelemetry collector, over OTLP gRPC: traces, and logs and metrics
//! where they are asked for. Without an endpoint nothing of this runs.
//!
//! `spans` and `logs` are layers of the logging pipeline, which only ever put something into a bounded queue;
//! `exporter` empties the queues from a thread and a runtime of its own. So a collector that is slow, silent or gone
//! costs what it would have got, and serving nothing (OPS-015).
//!
//! The messages are those of the protocol. The OpenTelemetry SDK is not used: it reads a dozen environment variables
//! beside the one that the contract admits, ends a span when it is last left, which for a stream is when it begins,
//! builds the attributes of every span before it asks whether the span is sampled, knows the id of a trace only after
//! the first line that should have it was formatted, and takes no metrics that it has not counted itself.

mod attributes;
mod config;
mod exporter;
mod families;
mod logs;
mod metrics;
mod monitoring;
mod queue;
mod resource;
mod sampler;
mod spans;
mod subsystem;

pub use subsystem::OtlpSubsystem;
