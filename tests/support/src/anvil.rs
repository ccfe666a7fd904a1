//! An Ethereum chain of a test's own: Anvil, a node for development, in a process that ends with the value.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::{env, io};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::{PATIENCE, eventually};

/// The variable that names Anvil's program.
const VARIABLE: &str = "XMTP_ANVIL";

/// Gas of every transaction: more than any of a test needs.
const GAS: &str = "0x4c4b40";

/// A running chain, of which each transaction is a block.
pub struct Anvil {
    address: SocketAddr,
    chain_id: u64,
    sender: String,
    node: Child,
}

/// A block of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub number: u64,
    /// Its time, in Unix seconds.
    pub timestamp: u64,
}

impl Anvil {
    /// Starts the chain `eip155:<chain_id>` on a port of its own. `None`, with a line on standard error, where no Anvil is
    /// named: `ci/test` names one.
    pub async fn start(chain_id: u64) -> Option<Self> {
        Self::start_on(0, chain_id).await
    }

    /// Starts a chain that knows nothing of an earlier one, on a port of choice.
    ///
    /// # Panics
    /// Where the named program does not say in time that it listens.
    pub async fn start_on(port: u16, chain_id: u64) -> Option<Self> {
        let Some(program) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
            // Not captured, as the macro's output would be.
            writeln!(io::stderr(), "skipped: no Anvil").expect("standard error is open");
            return None;
        };
        let mut node = Command::new(program)
            .args(["--host", "127.0.0.1", "--accounts", "1"])
            .args(["--port", &port.to_string()])
            .args(["--chain-id", &chain_id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program that XMTP_ANVIL names starts");
        let mut lines = BufReader::new(node.stdout.take().expect("it is piped")).lines();
        let address = async {
            loop {
                let line = lines.next_line().await.expect("the node writes text");
                let line = line.expect("the node says where it listens");
                if let Some(address) = line.strip_prefix("Listening on ") {
                    return address.parse().expect("an address");
                }
            }
        };
        let address = timeout(PATIENCE, address).await.expect("the node starts");
        // It must not be stopped by a pipe that is full.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut anvil = Self {
            address,
            chain_id,
            sender: String::new(),
            node,
        };
        let accounts = anvil.ask("eth_accounts", json!([])).await;
        accounts[0]
            .as_str()
            .expect("an address")
            .clone_into(&mut anvil.sender);
        Some(anvil)
    }

    /// Where its JSON-RPC is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port on the loopback interface.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its chain id.
    pub const fn chain_id(&self) -> u64 {
        self.chain_id
    }

    /// Stops it, and waits until it is gone.
    ///
    /// # Panics
    /// Where it cannot be stopped.
    pub async fn stop(mut self) {
        self.node.kill().await.expect("the node can be stopped");
    }

    /// Asks it something, which has to have an answer.
    ///
    /// # Panics
    /// Where it has none, or an error.
    pub async fn ask(&self, method: &str, parameters: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters });
        let body = body.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            Ipv4Addr::LOCALHOST,
            body.len()
        );
        let exchange = async {
            let mut connection = TcpStream::connect(self.address).await?;
            connection.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = timeout(PATIENCE, exchange).await;
        let answer = answer.expect("the node answers").expect("over HTTP");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        let mut answer: Value = serde_json::from_str(body).expect("JSON");
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Deploys a contract, and answers its address.
    pub async fn deploy(&self, code: &[u8]) -> [u8; 20] {
        let receipt = self.transact(None, code).await;
        address(&receipt["contractAddress"])
    }

    /// Calls a contract in a transaction.
    pub async fn send(&self, to: [u8; 20], data: &[u8]) {
        self.transact(Some(to), data).await;
    }

    /// What a contract answers, without a transaction.
    pub async fn call(&self, to: [u8; 20], data: &[u8]) -> Vec<u8> {
        let call = json!({ "to": hexadecimal(&to), "data": hexadecimal(data) });
        let answer = self.ask("eth_call", json!([call, "latest"])).await;
        bytes(&answer)
    }

    /// The latest block.
    pub async fn head(&self) -> Head {
        let head = self
            .ask("eth_getBlockByNumber", json!(["latest", false]))
            .await;
        Head {
            number: number(&head["number"]),
            timestamp: number(&head["timestamp"]),
        }
    }

    /// Adds blocks, this many seconds apart.
    pub async fn mine(&self, blocks: u64, seconds: u64) {
        let parameters = json!([format!("{blocks:#x}"), format!("{seconds:#x}")]);
        self.ask("anvil_mine", parameters).await;
    }

    async fn transact(&self, to: Option<[u8; 20]>, data: &[u8]) -> Value {
        let mut transaction = json!({ "from": self.sender, "data": hexadecimal(data), "gas": GAS });
        if let Some(to) = to {
            transaction["to"] = hexadecimal(&to).into();
        }
        let hash = self.ask("eth_sendTransaction", json!([transaction])).await;
        // It answers before the block is there.
        let receipt = eventually("the transaction is in a block", async || {
            let receipt = self.ask("eth_getTransactionReceipt", json!([hash])).await;
            (!receipt.is_null()).then_some(receipt)
        })
        .await;
        assert_eq!(receipt["status"], "0x1", "the transaction succeeds");
        receipt
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    hex::decode(digits.expect("hexadecimal digits")).expect("hexadecimal digits")
}

fn address(value: &Value) -> [u8; 20] {
    bytes(value).try_into().expect("an address")
}

fn number(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    u64::from_str_radix(digits.expect("a quantity"), 16).expect("a quantity")
}
