//! This program, started again for another part.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Starts this program with `arguments`, killed with the value, and returns its first line.
pub(crate) async fn start(arguments: &[&str]) -> (Child, String) {
    run(Command::new(program()).args(arguments)).await
}

/// The same, but of all programs that want to run it comes last.
pub(crate) async fn start_nice(arguments: &[&str]) -> (Child, String) {
    run(Command::new("nice")
        .args(["-n", "19"])
        .arg(program())
        .args(arguments))
    .await
}

fn program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program has a path")
}

async fn run(command: &mut Command) -> (Child, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("this program starts again");
    let output = child.stdout.take().expect("the output is a pipe");
    let mut lines = BufReader::new(output).lines();
    let line = lines.next_line().await.expect("it writes text");
    (child, line.expect("it says something"))
}
