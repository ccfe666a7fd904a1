//! Storage as its callers see it, on a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a test whose own steps fail has failed")]

mod associations;
mod boundary;
mod cancellation;
mod catch_up;
mod faults;
mod fixture;
mod migrations;
mod newest;
mod plans;
mod publish;
mod query;
mod races;
mod secrets;
mod tail;
