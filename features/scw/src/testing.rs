//! Providers that do as a test says, and signatures to ask them about.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use xmtp_fixtures::signers::{ContractWallet, Wallet};
use xmtp_https::{Connections, Endpoint};
use xmtp_protocol::identity::{ContractSignature, EvmAccount};
use xmtp_test_support::Anvil;
use xmtp_test_support::contracts::Owned;

use crate::route::Route;
use crate::verifier::Verifier;

/// A credential in the URL of every fake, which nothing may show.
pub(crate) const SECRET: &str = "planted-credential";

/// The chain that fakes serve.
pub(crate) const CHAIN_ID: u64 = 8453;

/// What a fake does with a question.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answers with this result.
    Result(Value),
    /// Answers with an error object.
    Error(i64),
    /// Answers with this status and body, and headers that may be more.
    Http(&'static str, String),
    /// Closes the connection.
    Close,
    /// Reads the question and stays silent.
    Hang,
    /// Answers with this result after a while.
    Late(Duration, Value),
}

type Script = Arc<dyn Fn(&str, &Value) -> Option<Act> + Send + Sync>;

/// A provider on the loopback interface. It ends with the test's runtime.
pub(crate) struct Fake {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    most_at_once: Arc<Mutex<(usize, usize)>>,
}

impl Fake {
    /// One that does as `script` says, and where that says nothing, as a sound one: its head is block 100, and every
    /// signature is valid.
    pub(crate) async fn start(
        script: impl Fn(&str, &Value) -> Option<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v2/{SECRET}", listener.local_addr().unwrap());
        let fake = Self {
            url,
            asked: Arc::default(),
            most_at_once: Arc::default(),
        };
        let (script, asked): (Script, _) = (Arc::new(script), fake.asked.clone());
        let at_once = fake.most_at_once.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (script, asked) = (script.clone(), asked.clone());
                tokio::spawn(serve(connection, script, asked, at_once.clone()));
            }
        });
        fake
    }

    /// The methods that were asked for so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(method, _)| method.clone()).collect()
    }

    /// How often a method was asked for.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|it| *it == method).count()
    }

    /// The parameters of the last question.
    pub(crate) fn last(&self) -> Value {
        let asked = self.asked.lock().unwrap();
        asked.last().expect("something was asked").1.clone()
    }

    /// Most questions that waited for an answer at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most_at_once.lock().unwrap().1
    }
}

async fn serve(
    mut connection: TcpStream,
    script: Script,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    at_once: Arc<Mutex<(usize, usize)>>,
) {
    while let Some(question) = read(&mut connection).await {
        let question: Value = serde_json::from_slice(&question).unwrap();
        let method = question["method"].as_str().unwrap().to_owned();
        let parameters = question["params"].clone();
        let act = script(&method, &parameters).unwrap_or_else(|| sound(&method, &parameters));
        asked.lock().unwrap().push((method, parameters));
        {
            let mut at_once = at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.0.max(at_once.1);
        }
        let result = |result| json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
        let (head, body) = match act {
            Act::Result(value) => ("200 OK", result(value)),
            Act::Error(code) => {
                let error = json!({ "code": code, "message": SECRET, "data": "0x01" });
                let body = json!({ "jsonrpc": "2.0", "id": 1, "error": error });
                ("200 OK", body.to_string())
            }
            Act::Http(head, body) => (head, body),
            Act::Close => return,
            Act::Hang => std::future::pending().await,
            Act::Late(after, value) => {
                tokio::time::sleep(after).await;
                ("200 OK", result(value))
            }
        };
        at_once.lock().unwrap().0 -= 1;
        let answer = format!(
            "HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if connection.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The body of the next request; `None` at the end of the connection.
async fn read(connection: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (start, length) = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            break (end + 4, length.unwrap().parse::<usize>().unwrap());
        }
        more(connection, &mut bytes).await?;
    };
    while bytes.len() < start + length {
        more(connection, &mut bytes).await?;
    }
    Some(bytes.split_off(start))
}

async fn more(connection: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut part = [0; 4096];
    let length = connection.read(&mut part).await.ok()?;
    bytes.extend_from_slice(&part[..length]);
    (length > 0).then_some(())
}

/// What a sound provider answers.
fn sound(method: &str, parameters: &Value) -> Act {
    Act::Result(match method {
        "eth_chainId" => quantity(CHAIN_ID),
        "eth_blockNumber" => quantity(100),
        "eth_getBlockByNumber" if parameters[0] == "latest" => block(100, 1000),
        "eth_getBlockByNumber" => {
            let mut block = block(0, 900);
            block["number"] = parameters[0].clone();
            block
        }
        "eth_call" => json!("0x01"),
        _ => panic!("{method} is not asked for"),
    })
}

pub(crate) fn quantity(number: u64) -> Value {
    format!("{number:#x}").into()
}

/// A block as nodes write it, as far as it matters.
pub(crate) fn block(number: u64, timestamp: u64) -> Value {
    json!({
        "number": quantity(number),
        "timestamp": quantity(timestamp),
        "hash": format!("0x{}", "ab".repeat(32)),
        "transactions": [format!("0x{}", "cd".repeat(32))],
    })
}

/// A verifier with these providers, by chain id.
pub(crate) fn verifier<'a>(providers: impl IntoIterator<Item = (u64, &'a str)>) -> Verifier {
    let providers: BTreeMap<u64, &str> = providers.into_iter().collect();
    let routes: HashMap<u64, Route> = providers
        .into_iter()
        .map(|(chain_id, url)| {
            let provider = Endpoint::new(url.into(), Connections::Kept).expect("an endpoint");
            (chain_id, Route::new(chain_id, provider))
        })
        .collect();
    Verifier::new(routes, NonZeroUsize::new(1000).expect("not zero"))
}

/// A verifier that asks one chain.
pub(crate) fn verifier_of(chain: &Anvil) -> Verifier {
    verifier([(chain.chain_id(), &*chain.url())])
}

/// The signature of some wallet on the chain of fakes.
pub(crate) fn signature(byte: u8, block_number: Option<u64>) -> ContractSignature {
    ContractSignature {
        account: EvmAccount {
            chain_id: CHAIN_ID,
            address: [byte; 20],
        },
        hash: [7; 32],
        signature: vec![byte; 65].into(),
        block_number,
    }
}

/// A wallet of `owner` on a chain.
pub(crate) fn owned(chain: &Anvil, address: [u8; 20], owner: &str) -> Owned {
    Owned {
        account: ContractWallet {
            chain_id: chain.chain_id(),
            address,
            block_number: 0,
        },
        owner: Wallet::new(owner),
        factory: None,
    }
}

/// What `signer` signs as its wallet, judged at a block.
pub(crate) fn signed(signer: &Owned, block_number: Option<u64>) -> ContractSignature {
    let hash = [9; 32];
    ContractSignature {
        account: EvmAccount {
            chain_id: signer.account.chain_id,
            address: signer.account.address,
        },
        hash,
        signature: signer.sign_hash(hash).into(),
        block_number,
    }
}
