//! Runs the server of a folder until it is killed: `cargo run -p xmtp-embedded-postgres --example hold FOLDER`.
//! Prints the server's URL once it takes connections.

use std::env;
use std::error::Error;
use std::path::Path;

use secrecy::ExposeSecret;
use xmtp_embedded_postgres::EmbeddedPostgres;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("name a folder")?;
    let mut server = EmbeddedPostgres::start(Path::new(&folder)).await?;
    #[expect(clippy::print_stdout, reason = "it is what this example answers")]
    {
        println!("{}", server.url().expose_secret());
    }
    server.ended().await?;
    Err("the server ended".into())
}
