//! The composition root: the command line, and the list of subsystems.

mod cli;
mod demo;
mod failure;
mod probe;
mod serve;
mod signals;
mod subsystems;
mod tools;

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// Gives back to the system, within seconds, what thousands of closed streams have left. Others keep it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    cli::run()
}
