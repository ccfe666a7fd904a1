//! Speed and memory of a running backend, as ratios against limits that are measured in the same run. Run by
//! `ci/bench`, with the names of parts or, without any, whole. The exit status is 1 when a figure is not as
//! required.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

#[cfg(feature = "auth")]
mod auth;
mod bare;
mod child;
mod clients;
#[cfg(feature = "otlp")]
#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../../tests/backend/otlp/collector.rs"]
mod collector;
mod figures;
#[cfg(feature = "full")]
mod full_build;
mod identity;
mod pgbench;
mod publish;
mod server;
mod start;
mod streams;
mod telemetry;
#[cfg(feature = "otlp")]
mod traces;
mod wire;

use std::process::ExitCode;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use figures::Verdict;
use tikv_jemallocator::Jemalloc;

/// That of the program, for the bare server that it is compared with.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A part: its name, and what measures and prints it.
type Part = (&'static str, fn() -> LocalBoxFuture<'static, Verdict>);

const PARTS: &[Part] = &[
    ("start", || start::measure().boxed_local()),
    ("publish", || publish::measure().boxed_local()),
    ("identity", || identity::measure().boxed_local()),
    ("latency", || streams::latency::measure().boxed_local()),
    ("catch-up", || streams::catch_up::measure().boxed_local()),
    ("fan-out", || streams::fan_out::measure().boxed_local()),
    ("memory", || streams::memory::measure().boxed_local()),
    ("barrier", || streams::barrier::measure().boxed_local()),
    ("hostile", || streams::hostile::measure().boxed_local()),
    ("telemetry", || telemetry::measure().boxed_local()),
    #[cfg(feature = "auth")]
    ("auth", || auth::measure().boxed_local()),
    #[cfg(feature = "otlp")]
    ("tracing", || traces::measure().boxed_local()),
    #[cfg(feature = "full")]
    ("full-build", || full_build::measure().boxed_local()),
];

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    match named.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [bare::ARGUMENT] => {
            runtime.block_on(bare::serve());
            return ExitCode::SUCCESS;
        }
        [streams::hostile::ARGUMENT, attack, address] => {
            runtime.block_on(streams::hostile::attack(attack, address));
            return ExitCode::SUCCESS;
        }
        #[cfg(feature = "auth")]
        [auth::ARGUMENT, attack, address] => {
            runtime.block_on(auth::attack(attack, address));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Some(unknown) = named
        .iter()
        .find(|name| PARTS.iter().all(|(part, _)| part != name))
    {
        println!("no part is called {unknown:?}");
        return ExitCode::FAILURE;
    }
    let mut all = Verdict::Good;
    for (name, measure) in PARTS {
        if named.is_empty() || named.iter().any(|one| one == name) {
            println!("\n== {name}");
            all = all.and(runtime.block_on(measure()));
        }
    }
    match all {
        Verdict::Good => ExitCode::SUCCESS,
        Verdict::Bad => ExitCode::FAILURE,
    }
}
