//! The composition root: the command line, and the list of subsystems.

mod cli;
mod demo;
mod serve;
mod subsystems;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
