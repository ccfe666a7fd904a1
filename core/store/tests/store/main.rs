//! Storage as its callers see it, on a real PostgreSQL.

mod boundary;
mod cancellation;
mod catch_up;
mod fixture;
mod newest;
mod plans;
mod publish;
mod query;
mod races;
mod tail;
