//! Providers that are slow, fail or lie (S18).

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::{Value, json};
use tokio::time::{self, Instant, timeout};
use xmtp_https::{Connections, Endpoint};
use xmtp_protocol::identity::{Block, ChainFault, ChainVerifier, ContractSignature};

use crate::route::{MAX_ANSWER_BYTES, MAX_DURATION, MAX_QUESTIONS};
use crate::testing::{Act, CHAIN_ID, Fake, SECRET, block, quantity, signature, verifier};
use crate::verifier::Verifier;

const UNREACHABLE: ChainFault = ChainFault::Unreachable;

/// Moves the clock, which otherwise runs as ever: where it stands, every wait for a socket would look like the end of one.
async fn a_minute_later() {
    time::pause();
    time::advance(Duration::from_secs(61)).await;
    time::resume();
}

async fn valid(
    verifier: &Verifier,
    signatures: &[ContractSignature],
) -> Result<Vec<bool>, ChainFault> {
    let verdicts = verifier.verify(signatures).await?;
    Ok(verdicts.iter().map(|verdict| verdict.is_valid).collect())
}

fn of(fake: &Fake) -> Verifier {
    verifier([(CHAIN_ID, &*fake.url)])
}

#[tokio::test]
async fn s18_every_failure_of_a_provider_is_a_fault_that_passes_and_is_never_kept() {
    let html = "<html>busy</html>".to_owned();
    let answer = |result: &str| json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
    let failures = [
        ("closes", Act::Close),
        ("reverts", Act::Error(3)),
        ("limits", Act::Error(-32005)),
        ("fails", Act::Error(-32603)),
        (
            "limits by status",
            Act::Http("429 Too Many Requests", html.clone()),
        ),
        (
            "refuses large bodies",
            Act::Http("413 Content Too Large", html.clone()),
        ),
        ("unauthorized", Act::Http("401 Unauthorized", html.clone())),
        ("down", Act::Http("503 Service Unavailable", html.clone())),
        (
            "a verdict with a failure",
            Act::Http("500 Internal Server Error", answer("0x01")),
        ),
        ("no JSON", Act::Http("200 OK", html)),
        ("no body", Act::Http("200 OK", String::new())),
        ("no content", Act::Http("204 No Content", String::new())),
        (
            "redirects",
            Act::Http(
                "307 Temporary Redirect\r\nlocation: /elsewhere",
                answer("0x01"),
            ),
        ),
        (
            "redirects for good",
            Act::Http(
                "301 Moved Permanently\r\nlocation: /elsewhere",
                answer("0x01"),
            ),
        ),
        (
            "another id",
            Act::Http(
                "200 OK",
                r#"{"jsonrpc":"2.0","id":7,"result":"0x01"}"#.to_owned(),
            ),
        ),
        ("no bytes", Act::Result(json!(true))),
        ("null", Act::Result(Value::Null)),
        ("odd digits", Act::Result(json!("0x1"))),
        ("digits alone", Act::Result(json!("01"))),
        ("a large X", Act::Result(json!("0X01"))),
        (
            "too long",
            Act::Http("200 OK", answer("0x01") + &" ".repeat(MAX_ANSWER_BYTES)),
        ),
        ("not HTTP", Act::Http("what", String::new())),
    ];
    for (name, failure) in failures {
        let fails = Arc::new(AtomicBool::new(true));
        let fake = Fake::start({
            let fails = fails.clone();
            move |method, _| {
                let is_failing = method == "eth_call" && fails.load(Ordering::Relaxed);
                is_failing.then(|| failure.clone())
            }
        })
        .await;
        let verifier = of(&fake);
        let one = [signature(1, Some(5))];
        for _ in 0..2 {
            assert_eq!(valid(&verifier, &one).await, Err(UNREACHABLE), "{name}");
        }
        fails.store(false, Ordering::Relaxed);
        assert_eq!(valid(&verifier, &one).await, Ok(vec![true]), "{name}");
        // Nothing was asked of whoever a redirect named.
        assert_eq!(fake.count("eth_call"), 3, "{name}");
    }
}

#[tokio::test]
async fn s18_a_provider_that_is_not_there_is_a_fault() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let verifier = verifier([(CHAIN_ID, &*url)]);
    assert_eq!(
        valid(&verifier, &[signature(1, Some(5))]).await,
        Err(UNREACHABLE)
    );
    assert_eq!(verifier.block(CHAIN_ID, None).await, Err(UNREACHABLE));
}

#[tokio::test]
async fn s18_a_silent_provider_is_a_fault_after_ten_seconds() {
    let fake = Fake::start(|method, _| (method == "eth_call").then_some(Act::Hang)).await;
    let verifier = of(&fake);
    let begun = Instant::now();
    let one = [signature(1, Some(5))];
    let mut verdict = pin!(valid(&verifier, &one));
    while fake.count("eth_call") == 0 {
        let early = timeout(Duration::from_millis(10), &mut verdict).await;
        assert!(early.is_err(), "{early:?}");
    }
    // Time now runs to the next thing that waits for it.
    time::pause();
    assert_eq!(verdict.await, Err(UNREACHABLE));
    assert!((MAX_DURATION..2 * MAX_DURATION).contains(&begun.elapsed()));
}

#[tokio::test]
async fn arc_091_no_route_is_a_fault_and_asks_nobody() {
    let fake = Fake::start(|_, _| None).await;
    let verifier = of(&fake);
    let mut elsewhere = signature(1, Some(5));
    elsewhere.account.chain_id = 1;
    let both = [signature(1, Some(5)), elsewhere];
    assert_eq!(valid(&verifier, &both).await, Err(ChainFault::NoRoute));
    assert_eq!(verifier.block(1, None).await, Err(ChainFault::NoRoute));
    assert!(fake.methods().is_empty());
}

#[tokio::test]
async fn ident_061_the_call_is_code_and_its_arguments_at_the_block() {
    let fake = Fake::start(|_, _| None).await;
    let verifier = of(&fake);
    assert_eq!(
        valid(&verifier, &[signature(1, Some(0))]).await,
        Ok(vec![true])
    );
    let last = fake.last();
    let call = last[0].as_object().expect("an object");
    assert_eq!(call.keys().collect::<Vec<_>>(), ["data"]);
    let data = call["data"].as_str().expect("text");
    let code = include_str!("../../contracts/Validator.hex").trim_end();
    let arguments = data.strip_prefix("0x").unwrap().strip_prefix(code).unwrap();
    let word = |text: &str| format!("{text:0>64}");
    let expected = [
        word(&"01".repeat(20)),
        "07".repeat(32),
        word("60"),
        word("41"),
        "01".repeat(65),
        "00".repeat(31),
    ];
    assert_eq!(arguments, expected.concat());
    assert_eq!(last[1], "0x0");
}

#[tokio::test]
async fn ident_061_only_a_verdict_is_one() {
    for (result, expected) in [
        ("0x01", true),
        ("0x00", false),
        ("0x02", false),
        ("0x0001", false),
        (
            "0x0000000000000000000000000000000000000000000000000000000000000001",
            false,
        ),
    ] {
        let fake = Fake::start(move |method, _| {
            (method == "eth_call").then(|| Act::Result(json!(result)))
        })
        .await;
        let verdict = valid(&of(&fake), &[signature(1, Some(5))]).await;
        assert_eq!(verdict, Ok(vec![expected]), "{result}");
    }
}

#[tokio::test]
async fn sec_042_a_verdict_at_a_block_is_kept_and_one_at_the_latest_neither_kept_nor_read() {
    let fake = Fake::start(|_, _| None).await;
    let verifier = of(&fake);
    for _ in 0..3 {
        assert_eq!(
            valid(&verifier, &[signature(1, Some(100))]).await,
            Ok(vec![true])
        );
    }
    assert_eq!(fake.methods(), ["eth_chainId", "eth_call"]);
    for asked in 2..4 {
        let verdicts = verifier.verify(&[signature(1, None)]).await.unwrap();
        assert_eq!(
            (verdicts[0].is_valid, verdicts[0].block_number),
            (true, 100)
        );
        assert_eq!(fake.count("eth_call"), asked);
        assert_eq!(fake.last()[1], "0x64");
    }
    // The head is read once for all that are judged together.
    let together: Vec<_> = (1..=20).map(|byte| signature(byte, None)).collect();
    assert_eq!(valid(&verifier, &together).await, Ok(vec![true; 20]));
    assert_eq!(fake.count("eth_blockNumber"), 3);
}

#[tokio::test]
async fn sec_042_as_many_verdicts_are_kept_as_configured() {
    let fake = Fake::start(|_, _| None).await;
    let provider = Endpoint::new(fake.url.clone().into(), Connections::Kept).unwrap();
    let routes = [(CHAIN_ID, crate::route::Route::new(CHAIN_ID, provider))];
    let verifier = Verifier::new(routes.into(), std::num::NonZeroUsize::MIN);
    for byte in [1, 1, 2, 1] {
        valid(&verifier, &[signature(byte, Some(5))]).await.unwrap();
    }
    assert_eq!(fake.count("eth_call"), 3);
}

#[tokio::test]
async fn s18_a_provider_of_another_chain_is_asked_nothing_until_it_serves_the_right_one() {
    let chain_id = Arc::new(AtomicU64::new(1));
    let fake = Fake::start({
        let chain_id = chain_id.clone();
        move |method, _| {
            let claimed = quantity(chain_id.load(Ordering::Relaxed));
            (method == "eth_chainId").then_some(Act::Result(claimed))
        }
    })
    .await;
    let verifier = of(&fake);
    let one = [signature(1, Some(5))];
    assert_eq!(valid(&verifier, &one).await, Err(UNREACHABLE));
    assert_eq!(verifier.block(CHAIN_ID, None).await, Err(UNREACHABLE));
    assert_eq!(fake.methods(), ["eth_chainId", "eth_chainId"]);
    chain_id.store(CHAIN_ID, Ordering::Relaxed);
    assert_eq!(valid(&verifier, &one).await, Ok(vec![true]));
    assert!(verifier.block(CHAIN_ID, None).await.is_ok());
    // Once it has said so, it is not asked again.
    assert_eq!(fake.count("eth_chainId"), 3);
}

#[tokio::test]
async fn ident_062_a_block_is_the_one_that_was_asked_for() {
    let fake = Fake::start(|method, parameters| {
        let is_liars = method == "eth_getBlockByNumber" && parameters[0] == "0x5";
        is_liars.then(|| Act::Result(block(6, 900)))
    })
    .await;
    let verifier = of(&fake);
    assert_eq!(verifier.block(CHAIN_ID, Some(5)).await, Err(UNREACHABLE));
    let block = Block {
        number: 7,
        timestamp: 900,
    };
    assert_eq!(verifier.block(CHAIN_ID, Some(7)).await, Ok(block));
    assert_eq!(fake.last(), json!(["0x7", false]));
}

#[tokio::test]
async fn s18_what_is_no_block_is_a_fault() {
    for answer in [
        Value::Null,
        json!({}),
        json!([]),
        json!("0x5"),
        json!({ "number": "0x5" }),
        json!({ "number": "0x5", "timestamp": "soon" }),
        json!({ "number": Value::Null, "timestamp": "0x1" }),
        json!({ "number": "0x5", "timestamp": "0x10000000000000000" }),
    ] {
        let fake = Fake::start({
            let answer = answer.clone();
            move |method, _| (method == "eth_getBlockByNumber").then(|| Act::Result(answer.clone()))
        })
        .await;
        let verifier = of(&fake);
        for number in [None, Some(5)] {
            assert_eq!(
                verifier.block(CHAIN_ID, number).await,
                Err(UNREACHABLE),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn ident_062_a_head_that_goes_back_stands_for_a_minute() {
    let head = Arc::new(AtomicU64::new(100));
    let fake = Fake::start({
        let head = head.clone();
        move |method, parameters| {
            let is_head = method == "eth_getBlockByNumber" && parameters[0] == "latest";
            let number = head.load(Ordering::Relaxed);
            is_head.then(|| Act::Result(block(number, number * 10)))
        }
    })
    .await;
    let verifier = of(&fake);
    let expect = async |answered, number| {
        head.store(answered, Ordering::Relaxed);
        let timestamp = number * 10;
        let block = Block { number, timestamp };
        assert_eq!(verifier.block(CHAIN_ID, None).await, Ok(block));
    };
    expect(100, 100).await;
    expect(98, 100).await;
    expect(101, 101).await;
    expect(100, 101).await;
    a_minute_later().await;
    expect(99, 99).await;
}

#[tokio::test]
async fn s18_questions_to_one_chain_are_bounded_and_hold_up_no_other() {
    let slow = Fake::start(|method, _| {
        (method == "eth_call").then_some(Act::Late(Duration::from_millis(50), json!("0x01")))
    })
    .await;
    let quick =
        Fake::start(|method, _| (method == "eth_chainId").then(|| Act::Result(quantity(1)))).await;
    let verifier = verifier([(CHAIN_ID, &*slow.url), (1, &*quick.url)]);
    let many: Vec<Vec<_>> = (0..4)
        .map(|batch| {
            (0..25)
                .map(|byte| signature(batch * 25 + byte, Some(5)))
                .collect()
        })
        .collect();
    let mut elsewhere = signature(1, Some(5));
    elsewhere.account.chain_id = 1;
    let all = futures::future::join_all(many.iter().map(|batch| valid(&verifier, batch)));
    let mut all = Box::pin(all);
    let elsewhere = [elsewhere];
    let other = valid(&verifier, &elsewhere);
    tokio::select! {
        biased;
        _ = &mut all => panic!("the other chain was held up"),
        verdicts = other => assert_eq!(verdicts, Ok(vec![true])),
    }
    for verdicts in all.await {
        assert_eq!(verdicts, Ok(vec![true; 25]));
    }
    assert_eq!(slow.most_at_once(), MAX_QUESTIONS);
    assert_eq!(slow.count("eth_call"), 100);
}

#[tokio::test]
async fn ops_016_each_verification_is_counted_once_by_its_result() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let fake = Fake::start(|method, parameters| {
        if method != "eth_call" {
            return None;
        }
        match &parameters[1] {
            block if block == "0x2" => Some(Act::Result(json!("0x00"))),
            block if block == "0x3" => Some(Act::Error(3)),
            // IDENT-061: nothing is an answer, and not the byte 1.
            block if block == "0x4" => Some(Act::Result(json!("0x"))),
            _ => None,
        }
    })
    .await;
    let verifier = of(&fake);
    for number in [1, 1, 2, 2, 2, 3, 4] {
        let _ = verifier.verify(&[signature(1, Some(number))]).await;
    }
    let _ = verifier.verify(&[signature(1, None)]).await;
    let mut elsewhere = signature(1, None);
    elsewhere.account.chain_id = 1;
    let _ = verifier.verify(&[elsewhere.clone()]).await;
    // Without a way to one chain nobody is asked about any: three more errors.
    let mixed = [signature(2, Some(1)), elsewhere, signature(3, Some(1))];
    let _ = verifier.verify(&mixed).await;
    // One fault is the answer for all: what was judged before it, and what gets no verdict after it.
    let mut many: Vec<_> = (0..40).map(|byte| signature(byte, None)).collect();
    many[0].block_number = Some(1);
    many[1].block_number = Some(3);
    let _ = verifier.verify(&many).await;
    let counted = snapshots.snapshot().into_vec();
    let count = |result: &str| {
        let found = counted.iter().find(|(key, ..)| {
            key.key().name() == "xmtp_scw_verifications_total"
                && key.key().labels().any(|label| label.value() == result)
        });
        match found {
            Some((.., DebugValue::Counter(count))) => *count,
            _ => 0,
        }
    };
    let counts = ["valid", "invalid", "error"].map(count);
    assert_eq!(counts[1], 4);
    assert_eq!(counts.iter().sum::<u64>(), 9 + 3 + 40);
    // Questions are put sixteen at a time, so of the forty some twenty were never put.
    assert!(counts[2] > 2 + 3 + 20, "{counts:?}");
}

/// Where the log of a test goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn ops_014_the_log_has_one_line_a_minute_with_a_word_and_no_url() {
    // With one subscriber alone, a thread of another test could silence what this one listens to.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let fake = Fake::start(|method, parameters| {
        if method != "eth_call" {
            return None;
        }
        Some(if parameters[1] == "0x3" {
            Act::Error(3)
        } else {
            Act::Http("503 Service Unavailable", SECRET.to_owned())
        })
    })
    .await;
    let verifier = of(&fake);
    for number in [1, 2, 3, 3] {
        let fault = verifier.verify(&[signature(1, Some(number))]).await;
        assert_eq!(fault, Err(UNREACHABLE));
    }
    a_minute_later().await;
    let fault = verifier.verify(&[signature(1, Some(4))]).await;
    assert_eq!(fault, Err(UNREACHABLE));
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let ours: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" xmtp_scw::"))
        .collect();
    let warned = |line: &&&str| line.contains("WARN");
    assert_eq!(ours.iter().filter(warned).count(), 2, "{text}");
    for line in ours.iter().filter(warned) {
        assert!(line.contains("chain=eip155:8453 cause=status"), "{line}");
    }
    for line in ours {
        assert!(
            !line.contains(SECRET) && !line.contains("127.0.0.1"),
            "{line}"
        );
    }
}
