//! Keys that are fetched over HTTPS, from a host that misbehaves in every way, by the program itself: which authorities
//! it trusts is a matter of its environment.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tonic::Code;
use xmtp_test_support::{TestDatabase, eventually};

use super::issuer::{Issuer, claims};
use super::{QUERY, bearer};
use crate::process::{self, Process};
use crate::raw::{self, frame};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("it signs itself"))
    }

    /// A file that holds its certificate.
    fn file(&self) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(self.0.pem().as_bytes()).expect("written");
        file
    }

    /// A server that it vouches for under the name `name`, at the moment or no longer.
    fn server(&self, name: &str, is_valid: bool) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        if !is_valid {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::from(key));
        Arc::new(config.expect("the key is that of the certificate"))
    }
}

/// That of a system which trusts these authorities. There is a proxy in it as well, at which nobody listens and which
/// is not asked.
fn environment(authorities: &NamedTempFile) -> [(&str, &str); 3] {
    let path = authorities.path().to_str();
    let proxy = "http://127.0.0.1:1";
    [
        ("SSL_CERT_FILE", path.expect("a temporary path is Unicode")),
        ("HTTPS_PROXY", proxy),
        ("ALL_PROXY", proxy),
    ]
}

/// How a [`Host`] answers.
#[derive(Clone)]
enum Reply {
    /// 200 with this document.
    Document(String),
    /// A status and headers, without a body.
    Head(&'static str),
    /// A body without end.
    Endless,
    /// A body that stops half way.
    Cut,
    /// Nothing.
    Silence,
}

/// Of these entries.
fn jwks(entries: &[Value]) -> Reply {
    Reply::Document(json!({ "keys": entries }).to_string())
}

/// Publishes a JWKS at `https://localhost`.
struct Host {
    address: SocketAddr,
    state: Arc<Mutex<(Arc<ServerConfig>, Reply)>>,
    listening: JoinHandle<()>,
}

impl Host {
    async fn start(identity: Arc<ServerConfig>, reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new((identity, reply)));
        let shared = Arc::clone(&state);
        let listening = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (identity, reply) = shared.lock().expect("no panic").clone();
                // A client that has seen enough hangs up.
                tokio::spawn(answer(connection, identity, reply));
            }
        });
        Self {
            address,
            state,
            listening,
        }
    }

    /// The settings that fetch it every second.
    fn settings(&self) -> String {
        format!(
            "auth.enabled = true
            auth.jwks_url = \"https://localhost:{}/planted-path\"
            auth.jwks_refresh_seconds = 1",
            self.address.port()
        )
    }

    fn identify(&self, identity: Arc<ServerConfig>) {
        self.state.lock().expect("no panic").0 = identity;
    }

    fn reply(&self, reply: Reply) {
        self.state.lock().expect("no panic").1 = reply;
    }
}

async fn answer(
    connection: TcpStream,
    identity: Arc<ServerConfig>,
    reply: Reply,
) -> io::Result<()> {
    let mut connection = TlsAcceptor::from(identity).accept(connection).await?;
    let mut request = [0; 4096];
    let length = connection.read(&mut request).await?;
    assert!(request[..length].starts_with(b"GET /planted-path HTTP/1.1\r\n"));
    let head = match &reply {
        Reply::Document(text) => format!("200 OK\r\ncontent-length: {}", text.len()),
        Reply::Head(head) => format!("{head}\r\ncontent-length: 0"),
        Reply::Endless => "200 OK\r\nconnection: close".to_owned(),
        Reply::Cut => "200 OK\r\ncontent-length: 1000".to_owned(),
        Reply::Silence => return std::future::pending().await,
    };
    let head = format!("HTTP/1.1 {head}\r\n\r\n");
    connection.write_all(head.as_bytes()).await?;
    match reply {
        Reply::Document(text) => connection.write_all(text.as_bytes()).await?,
        Reply::Endless => loop {
            connection.write_all(&[b' '; 8192]).await?;
        },
        Reply::Cut => connection.write_all(b"{\"keys\":[").await?,
        Reply::Head(_) | Reply::Silence => {}
    }
    connection.shutdown().await
}

async fn code(server: &Process, issuer: &Issuer) -> Code {
    let header = bearer(&issuer.token(&claims()));
    let headers = [("authorization", header.as_str())];
    raw::native(server.address, QUERY, frame(b""), &headers)
        .await
        .code()
}

/// Waits for a fetch that fails for this reason, and had not yet begun.
async fn fails(server: &Process, cause: &str) {
    let failures = || {
        let line = format!("\"cause\":\"{cause}\"");
        server.log().matches(&line).count()
    };
    // One may have been under way.
    let before = failures();
    eventually(cause, async || (failures() > before + 1).then_some(())).await;
}

#[tokio::test]
async fn auth_015_auth_018_no_answer_of_a_host_over_https_costs_the_keys_that_are_there() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let identity = ours.server("localhost", true);
    let host = Host::start(Arc::clone(&identity), jwks(&[old.jwk()])).await;
    let file = ours.file();
    let database = TestDatabase::create().await;
    let server = Process::serve_where(&database, &host.settings(), &environment(&file)).await;
    assert_eq!(code(&server, &old).await, Code::Ok);

    let entry = json!({ "kty": "oct", "kid": "unusable", "k": "planted" });
    let huge = "x".repeat(262_144);
    for (reply, cause) in [
        (
            Reply::Head("301 Moved\r\nlocation: https://localhost/planted"),
            "redirect",
        ),
        (Reply::Head("500 Broken"), "status"),
        (Reply::Head("404 Missing"), "status"),
        (jwks(&[new.jwk(), json!({ "planted": huge })]), "too_large"),
        (Reply::Endless, "too_large"),
        (Reply::Cut, "interrupted"),
        (
            Reply::Document("<html>planted</html>".to_owned()),
            "not_a_jwks",
        ),
        (jwks(&[]), "no_usable_key"),
        (jwks(&[entry]), "no_usable_key"),
    ] {
        host.reply(reply);
        fails(&server, cause).await;
        assert_eq!(code(&server, &old).await, Code::Ok, "{cause}");
    }
    // Whoever answers is another one, with keys of its own.
    host.reply(jwks(&[new.jwk()]));
    for stranger in [
        theirs.server("localhost", true),
        ours.server("elsewhere.example.org", true),
        ours.server("localhost", false),
    ] {
        host.identify(stranger);
        fails(&server, "connect").await;
        assert_eq!(code(&server, &old).await, Code::Ok);
        assert_eq!(code(&server, &new).await, Code::Unauthenticated);
    }
    host.identify(identity);
    eventually("the new key is accepted", async || {
        (code(&server, &new).await == Code::Ok).then_some(())
    })
    .await;
    assert_eq!(code(&server, &old).await, Code::Unauthenticated);
    host.reply(Reply::Silence);
    eventually("a fetch takes too long", async || {
        server.log().contains("\"cause\":\"timeout\"").then_some(())
    })
    .await;
    host.listening.abort();
    fails(&server, "connect").await;
    assert_eq!(code(&server, &new).await, Code::Ok);

    let log = server.log();
    for word in ["planted", "localhost", "elsewhere", "html"] {
        assert!(!log.contains(word), "{word} is told: {log}");
    }
    server.kill().await;
}

#[tokio::test]
async fn auth_015_auth_017_whoever_is_not_trusted_gives_no_keys_to_start_with() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let issuer = Issuer::new("one");
    let host = Host::start(theirs.server("localhost", true), jwks(&[issuer.jwk()])).await;
    let file = ours.file();
    let database = TestDatabase::create().await;
    let document = process::document(&database, &host.settings());
    let output = process::run_in(&environment(&file), ["serve", "--config", &document]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("text");
    let expected = "auth.jwks_url: no usable signing key after 3 attempts: connect";
    assert!(said.contains(expected), "{said}");
    assert_eq!(said.matches("\"cause\":\"connect\"").count(), 3, "{said}");
    assert!(
        !said.contains("planted") && !said.contains("serving"),
        "{said}"
    );
}
