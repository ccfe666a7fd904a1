//! The command line.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tonic::transport::Uri;
use xmtp_server::Server;
use xmtp_server::config::sections::LogLevel;
use xmtp_server::config::{Document, OwnedSchema, Source, example, reference, schema};
use xmtp_server::doctor::Ports;
use xmtp_server::telemetry::Catalogue;
use xmtp_server::telemetry::monitoring::{alert_rules, dashboard};

use crate::failure::Failure;
use crate::signals::CutOff;
use crate::{demo, probe, serve, subsystems, tools};

/// A self-hosted backend for XMTP over PostgreSQL 17 or later.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    /// Ask the running instance whether it is ready; it is found by its configuration. Exits with 0 when it
    /// is, and otherwise with 1 and the reason.
    #[arg(long, required = true)]
    health_probe: bool,
    #[command(flatten)]
    document: SourceArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT, then drain.
    Serve(DocumentArgs),
    /// Serve on this machine with a PostgreSQL of its own and a ready-made configuration.
    Dev(DevArgs),
    /// Publish recorded envelopes to a running server, stream them back, query them, and compare.
    Demo(DemoArgs),
    /// Look at everything that a start depends on, one line a check; fails where a check does.
    Doctor(DoctorArgs),
    /// Count what the database holds, in numbers that name nobody; changes nothing.
    Inspect(InspectArgs),
    /// Check, or describe, the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List the optional subsystems of this build.
    Subsystems,
    /// Describe the metrics of this build, as a page of Markdown.
    Metrics,
    /// Print alert rules for Prometheus.
    Alerts,
    /// Print a dashboard for Grafana.
    Dashboard,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a document and name every problem of it; starts nothing.
    Check(DocumentArgs),
    /// Print every key with the value that applies and where it comes from; secrets are not shown.
    Show(DocumentArgs),
    /// Print the JSON schema of the document.
    Schema,
    /// Print an example document with every key, its meaning and its default.
    Example,
    /// Print a page that describes every key.
    Reference,
}

/// Where the configuration comes from: exactly one of `--config`, the environment variable
/// `XMTP_CONFIG` and `--config-file`.
#[derive(Args)]
struct SourceArgs {
    /// The whole TOML document; also in the environment variable `XMTP_CONFIG`.
    #[arg(long, value_name = "TOML")]
    config: Option<String>,
    /// Path of a TOML file.
    #[arg(long, value_name = "PATH")]
    config_file: Option<PathBuf>,
}

#[derive(Args)]
struct DocumentArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Overrides `server.log_level`: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
}

#[derive(Args)]
struct DoctorArgs {
    #[command(flatten)]
    document: DocumentArgs,
    /// Print one JSON object for each check.
    #[arg(long)]
    json: bool,
    /// The server is running on this machine: its ports should accept, and not be free.
    #[arg(long)]
    serving: bool,
}

#[derive(Args)]
struct InspectArgs {
    #[command(flatten)]
    document: DocumentArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DevArgs {
    /// Folder of the database; created where it is missing.
    #[arg(long, value_name = "PATH", default_value = ".xmtp-dev")]
    folder: PathBuf,
    /// Address of the gRPC port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5050")]
    listen: SocketAddr,
    /// Address of the metrics port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    metrics_listen: SocketAddr,
}

#[derive(Args)]
struct DemoArgs {
    /// Address of the server's gRPC port.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:5050")]
    url: Uri,
    /// Recorded envelopes to use instead of the program's own: one JSON object a line, with topic, hash
    /// and envelope in hex, and `is_commit_or_proposal`.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

/// Parses the arguments and carries out what they say.
pub(crate) fn run() -> ExitCode {
    let Cli {
        command, document, ..
    } = Cli::parse();
    match command {
        Some(command) => match execute(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.tell(io::stderr()),
        },
        // Without a command, the probe is asked for.
        None => match document.probe() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.tell_in_one_line(io::stderr()),
        },
    }
}

fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => {
            let log_level = args.log_level;
            let server = args.source.configure()?;
            Ok(serve::run(server, log_level, |_| Ok(()), tell_cut_off)?)
        }
        Command::Dev(args) => args.serve(),
        Command::Demo(args) => {
            print(demo::run(&args.url, args.file.as_deref())?)?;
            Ok(print("success")?)
        }
        Command::Doctor(args) => {
            let ports = if args.serving {
                Ports::Serving
            } else {
                Ports::Free
            };
            let checks = tools::examine(&args.document.source.configure()?, ports)?;
            print(tools::show_checks(&checks, args.json))?;
            tools::judge(&checks)
        }
        Command::Inspect(args) => {
            let server = args.document.source.configure()?;
            Ok(print(tools::inspect(&server, args.json)?)?)
        }
        Command::Config(ConfigCommand::Show(args)) => args.show(),
        Command::Config(ConfigCommand::Check(args)) => {
            args.source.configure()?;
            Ok(print("the configuration is valid")?)
        }
        Command::Config(ConfigCommand::Schema) => Ok(print(format_args!("{:#}", full_schema()))?),
        Command::Config(ConfigCommand::Example) => {
            let text = example(&full_schema(), &owned_schemas());
            Ok(io::stdout().write_all(text.as_bytes())?)
        }
        Command::Config(ConfigCommand::Reference) => {
            let text = reference(&full_schema(), &owned_schemas());
            Ok(io::stdout().write_all(text.as_bytes())?)
        }
        Command::Metrics => {
            let page = Catalogue::new(&subsystems::all()).markdown();
            Ok(io::stdout().write_all(page.as_bytes())?)
        }
        Command::Alerts => {
            let rules = alert_rules(&subsystems::all());
            Ok(io::stdout().write_all(rules.as_bytes())?)
        }
        Command::Dashboard => {
            let dashboard = dashboard(&subsystems::all());
            Ok(io::stdout().write_all(dashboard.as_bytes())?)
        }
        Command::Subsystems => {
            for subsystem in subsystems::all() {
                print(subsystem.name())?;
            }
            Ok(())
        }
    }
}

impl SourceArgs {
    fn read(self) -> Result<Document, Failure> {
        let variable = std::env::var_os("XMTP_CONFIG");
        parse(&Source::select(self.config, variable, self.config_file)?.read()?)
    }

    fn configure(self) -> Result<Server, Failure> {
        configure(self.read()?)
    }

    /// Opens nothing but the connection to the instance.
    fn probe(self) -> Result<(), Failure> {
        let server = self.configure()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(probe::ask(server.config()))?)
    }
}

impl DocumentArgs {
    /// Only what would be served is shown.
    fn show(self) -> Result<(), Failure> {
        let document = self.source.read()?;
        let settings = document.settings(&full_schema(), &owned_schemas());
        configure(document)?;
        Ok(print(tools::show_settings(&settings, self.log_level))?)
    }
}

impl DevArgs {
    fn serve(self) -> Result<(), Failure> {
        let folder = self.folder.display();
        let url = toml::Value::String(format!("embedded:{folder}"));
        let text = format!(
            "[server]\nidentifier = \"local.xmtp.dev\"\nlisten = \"{}\"\n\
             [telemetry]\nmetrics_listen = \"{}\"\n\
             [database]\nurl = {url}\n",
            self.listen, self.metrics_listen,
        );
        let metrics = self.metrics_listen;
        let announce = |address| {
            print(format_args!(
                "\nThe XMTP backend listens on http://{address} (gRPC and gRPC-Web).\n\
                 Metrics: http://{metrics}/metrics. Data: {folder}.\n\
                 Try it:  xmtp-backend demo --url http://{address}\n\
                 Stop it with Ctrl-C.\n"
            ))
        };
        Ok(serve::run(
            configure(parse(&text)?)?,
            None,
            announce,
            tell_cut_off,
        )?)
    }
}

/// Says why a server is cut off.
fn tell_cut_off(why: CutOff) {
    Failure::from(why).tell(io::stderr());
}

fn parse(text: &str) -> Result<Document, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(Document::parse(text, subsystems::BUILD, variable)?)
}

fn configure(document: Document) -> Result<Server, Failure> {
    Ok(Server::configure(document, &mut subsystems::all())?)
}

fn owned_schemas() -> Vec<OwnedSchema> {
    subsystems::all()
        .iter()
        .flat_map(|subsystem| subsystem.schemas())
        .collect()
}

fn full_schema() -> serde_json::Value {
    schema(&owned_schemas(), subsystems::BUILD.url_schemes)
}

fn print(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
