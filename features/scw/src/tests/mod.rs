//! The verifier against a real chain, and against providers that do as a test says.

mod chain;
mod providers;
