//! Storage as its callers see it, on a real PostgreSQL.

mod boundary;
mod cancellation;
mod fixture;
mod plans;
mod publish;
mod races;
