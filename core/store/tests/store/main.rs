//! Storage as its callers see it, on a real PostgreSQL.

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
