//! The backend as its clients see it: real gRPC over sockets, real PostgreSQL.

mod cli;
mod crash;
mod harness;
mod process;
mod smoke;
mod streams;
