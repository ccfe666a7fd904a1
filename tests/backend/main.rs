//! The backend as its clients see it: real gRPC over sockets, real PostgreSQL.

mod harness;
mod smoke;
mod streams;
