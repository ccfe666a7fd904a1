//! `Query`: pages of topics above their cursors.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};
use xmtp_protocol::client::QueryServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{
    Cursor, QueryNewestRequest, QueryRequest, QueryResponse, SubscribeStaticRequest,
    Topic as WireTopic, TopicQuery,
};
use xmtp_protocol::{Topic, TopicKind};
use xmtp_server::config::sections::LogLevel;
use xmtp_test_support::eventually;
use xmtp_test_support::payloads::{
    commit_log_entry, group_message, identity_update, topic, welcome,
};

use crate::harness::{Backend, meta_id, query, sequence_id, wire, within};
use crate::raw::{self, frame};
use crate::storage;
use crate::streams::reader::Reader;
use crate::telemetry::watch::Watch;

fn group(identifier: u8) -> Topic {
    topic(TopicKind::GroupMessage, identifier)
}

async fn page(
    backend: &Backend,
    queries: Vec<TopicQuery>,
    limit: u32,
) -> Result<QueryResponse, Status> {
    let request = QueryRequest { queries, limit };
    Ok(backend.queries().query(request).await?.into_inner())
}

fn ids(page: &QueryResponse) -> Vec<u64> {
    page.envelopes.iter().map(sequence_id).collect()
}

fn has_more(page: &QueryResponse) -> bool {
    page.continuation
        .expect("a continuation is always there")
        .has_more
}

/// Asserts that a read is refused, without the detail that only `Publish` has.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>) {
    let status = result.expect_err("the read is refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.details().is_empty());
}

/// Everything that is no topic (TOPIC-003).
pub(crate) fn malformed_topics() -> Vec<Option<WireTopic>> {
    let bytes: [Vec<u8>; 9] = [
        vec![],
        vec![0],
        vec![0; 16],
        vec![0; 18],
        [&[1][..], &[0; 31]].concat(),
        [&[2][..], &[0; 33]].concat(),
        [&[4][..], &[0; 32]].concat(),
        [&[5][..], &[0; 16]].concat(),
        vec![255; 33],
    ];
    let named = bytes.into_iter().map(|bytes| {
        Some(WireTopic {
            topic: bytes.into(),
        })
    });
    std::iter::once(None).chain(named).collect()
}

#[tokio::test]
async fn api_240_a_page_is_the_union_of_its_topics_without_holes() {
    let backend = Backend::start().await;
    // Three topics, their rows interleaved.
    let metas = backend
        .publish((0..12u8).map(|number| group_message(number % 3, [number])))
        .await;
    let ids_of = |wanted: &[usize]| -> Vec<u64> {
        let of = |at: &usize| meta_id(&metas[*at]);
        wanted.iter().map(of).collect()
    };
    let queries = || vec![query(&group(0), 0), query(&group(2), meta_id(&metas[5]))];
    let eligible = ids_of(&[0, 3, 6, 8, 9, 11]);

    // `has_more` is exact around the number of eligible rows.
    for (limit, more) in [(5, true), (6, false), (7, false)] {
        let page = page(&backend, queries(), limit).await.expect("read");
        assert_eq!(has_more(&page), more, "limit {limit}");
        assert_eq!(ids(&page), eligible[..eligible.len().min(limit as usize)]);
    }
    // A loop over small pages ends and sees each row once, in order (ARC-062, API-074).
    for limit in 1..=4 {
        let mut cursors = BTreeMap::from([(group(0), 0), (group(2), meta_id(&metas[5]))]);
        let mut seen = Vec::new();
        loop {
            let queries = cursors.iter().map(|(topic, after)| query(topic, *after));
            let page = page(&backend, queries.collect(), limit)
                .await
                .expect("read");
            for row in &page.envelopes {
                let topic = row.meta.as_ref().and_then(|meta| meta.topic.as_ref());
                let topic = Topic::parse(&topic.expect("set").topic).expect("legal");
                let cursor = cursors.get_mut(&topic).expect("only what was asked for");
                assert!(sequence_id(row) > *cursor);
                *cursor = sequence_id(row);
            }
            seen.extend(ids(&page));
            if !has_more(&page) {
                break;
            }
            assert_eq!(page.envelopes.len(), limit as usize);
        }
        seen.sort_unstable();
        assert_eq!(seen, eligible);
    }
}

#[tokio::test]
async fn api_240_every_kind_but_key_packages_can_be_read() {
    let backend = Backend::start().await;
    let envelopes = [
        group_message(1, "a"),
        welcome(1, "a"),
        identity_update(1, 1),
        commit_log_entry(1, 1),
    ];
    let metas = backend.publish(envelopes.clone()).await;
    let kinds = [
        TopicKind::GroupMessage,
        TopicKind::Welcome,
        TopicKind::IdentityUpdate,
        TopicKind::CommitLogEntry,
    ];
    let queries = kinds.map(|kind| query(&topic(kind, 1), 0)).into();
    let rows = page(&backend, queries, 0).await.expect("read").envelopes;
    assert_eq!(rows.len(), 4);
    for (row, (meta, envelope)) in rows.iter().zip(metas.iter().zip(&envelopes)) {
        assert_eq!(row.meta.as_ref(), Some(meta));
        assert_eq!(row.envelope.as_ref(), Some(envelope));
    }

    // API-243: a key package topic fails the whole request.
    let queries = [TopicKind::GroupMessage, TopicKind::KeyPackage];
    let queries = queries.map(|kind| query(&topic(kind, 1), 0)).into();
    refused(page(&backend, queries, 0).await);
}

#[tokio::test]
async fn api_241_no_limit_is_the_default_and_a_high_one_is_cut() {
    let backend = Backend::with("limits.default_query_limit = 3\nlimits.max_query_limit = 5").await;
    backend
        .publish((0..7u8).map(|number| group_message(1, [number])))
        .await;
    for (limit, rows) in [(0, 3), (4, 4), (5, 5), (6, 5), (u32::MAX, 5)] {
        let page = page(&backend, vec![query(&group(1), 0)], limit)
            .await
            .expect("never an error");
        assert_eq!(page.envelopes.len(), rows, "limit {limit}");
        assert!(has_more(&page));
    }
}

#[tokio::test]
async fn api_242_a_repeated_topic_is_read_once_from_its_lowest_cursor() {
    let backend = Backend::start().await;
    let metas = backend
        .publish((0..4u8).map(|number| group_message(1, [number])))
        .await;
    let [first, .., last] = &metas[..] else {
        panic!("four receipts")
    };
    let queries = vec![
        query(&group(1), meta_id(last)),
        query(&group(1), meta_id(first)),
        query(&group(1), meta_id(last)),
    ];
    let read = page(&backend, queries, 0).await.expect("read");
    assert_eq!(
        ids(&read),
        metas[1..].iter().map(meta_id).collect::<Vec<_>>()
    );
    // An absent cursor is the start.
    let absent = TopicQuery {
        topic: Some(wire(&group(1))),
        cursor: None,
    };
    let read = page(&backend, vec![query(&group(1), meta_id(last)), absent], 0).await;
    assert_eq!(read.expect("read").envelopes.len(), 4);
}

#[tokio::test]
async fn api_131_entries_are_counted_as_sent_and_before_anything_else() {
    let backend = Backend::with("limits.max_query_topics = 2").await;
    let entry = || query(&group(1), 0);
    page(&backend, vec![entry(); 2], 0)
        .await
        .expect("the limit");
    refused(page(&backend, vec![entry(); 3], 0).await);
    let status = page(&backend, vec![TopicQuery::default(); 3], 0)
        .await
        .expect_err("one past");
    assert_eq!(status.message(), "request exceeds item limit");
}

#[tokio::test]
async fn topic_003_a_malformed_entry_fails_the_whole_query() {
    let backend = Backend::start().await;
    backend.publish([group_message(1, "a")]).await;
    for topic in malformed_topics() {
        let malformed = TopicQuery {
            topic,
            cursor: None,
        };
        refused(page(&backend, vec![query(&group(1), 0), malformed], 0).await);
    }
}

#[tokio::test]
async fn api_004_cursors_end_with_the_signed_range() {
    let backend = Backend::start().await;
    backend.publish([group_message(1, "a")]).await;
    let last = i64::MAX.unsigned_abs();
    // API-015: above the head there is nothing, which is no error.
    for after in [2, last] {
        let page = page(&backend, vec![query(&group(1), after)], 0)
            .await
            .expect("a legal cursor");
        assert_eq!(page.envelopes, []);
        assert!(!has_more(&page));
    }
    for after in [last + 1, u64::MAX] {
        let beyond = TopicQuery {
            topic: Some(wire(&group(1))),
            cursor: Some(Cursor { sequence_id: after }),
        };
        refused(page(&backend, vec![query(&group(1), 0), beyond], 0).await);
    }
}

#[tokio::test]
async fn a_query_of_nothing_is_an_empty_page() {
    let backend = Backend::start().await;
    for queries in [vec![], vec![query(&group(1), 0)]] {
        let page = page(&backend, queries, 0).await.expect("read");
        assert_eq!(page.envelopes, []);
        assert!(!has_more(&page));
    }
}

#[tokio::test]
async fn api_283_a_page_that_is_too_long_fails_and_is_never_cut() {
    let backend = Backend::start().await;
    backend
        .publish((0..10u8).map(|number| group_message(1, vec![number; 500])))
        .await;
    let everything = || vec![query(&group(1), 0)];
    let whole = page(&backend, everything(), 0).await.expect("fits");
    let length = whole.encoded_len();
    for (room, fits) in [(length, true), (length - 1, false), (2000, false)] {
        let limits =
            format!("limits.max_envelope_bytes = 1000\nlimits.max_response_bytes = {room}");
        let (_tight, channel) = backend.another(&limits).await;
        let request = QueryRequest {
            queries: everything(),
            limit: 0,
        };
        let answer = QueryServiceClient::new(channel).query(request).await;
        if fits {
            assert_eq!(answer.expect("at the limit").into_inner(), whole);
        } else {
            let status = answer.expect_err("past the limit");
            assert_eq!(status.code(), Code::OutOfRange);
            assert!(status.details().is_empty());
        }
    }
}

/// What answers with envelopes, down to the payload, which stays what it is on the wire.
mod undecoded {
    use bytes::Bytes;

    #[derive(prost::Message)]
    pub(super) struct Row {
        #[prost(bytes = "bytes", tag = "2")]
        pub(super) envelope: Bytes,
    }

    /// Of `QueryResponse` and `SubscribeStaticResponse.Messages`.
    #[derive(prost::Message)]
    pub(super) struct Rows {
        #[prost(message, repeated, tag = "1")]
        pub(super) envelopes: Vec<Row>,
    }

    #[derive(prost::Message)]
    pub(super) struct Frame {
        #[prost(message, optional, tag = "2")]
        pub(super) messages: Option<Rows>,
    }

    #[derive(prost::Message)]
    pub(super) struct Newest {
        #[prost(message, repeated, tag = "1")]
        pub(super) results: Vec<NewestResult>,
    }

    #[derive(prost::Message)]
    pub(super) struct NewestResult {
        #[prost(bytes = "bytes", tag = "3")]
        pub(super) envelope: Bytes,
    }
}

#[tokio::test]
async fn api_211_stored_bytes_leave_as_they_are_and_are_not_encoded_again() {
    const SERVICE: &str = "/xmtp.backend.v1.QueryService";
    let backend = Backend::start().await;
    // With a field that nobody knows: whoever decodes and encodes it loses that.
    let with_field = |text: &str| {
        let mut stored = group_message(1, text).encode_to_vec();
        stored.extend(b"\x7a\x03new");
        Bytes::from(stored)
    };
    let (history, live) = (with_field("history"), with_field("live"));
    storage::store(&backend.database, &group(1), &history).await;

    let request = QueryRequest {
        queries: vec![query(&group(1), 0)],
        limit: 0,
    };
    let body = frame(&request.encode_to_vec());
    let answer = raw::native(backend.address, &format!("{SERVICE}/Query"), body, &[]).await;
    assert_eq!(answer.code(), Code::Ok);
    let rows = undecoded::Rows::decode(answer.messages[0].clone()).expect("a page");
    assert_eq!(rows.envelopes[0].envelope, history);

    let request = QueryNewestRequest {
        topics: vec![wire(&group(1))],
        include_full_envelope: true,
    };
    let body = frame(&request.encode_to_vec());
    let path = format!("{SERVICE}/QueryNewest");
    let answer = raw::native(backend.address, &path, body, &[]).await;
    let newest = undecoded::Newest::decode(answer.messages[0].clone()).expect("heads");
    assert_eq!(newest.results[0].envelope, history);

    let request = SubscribeStaticRequest {
        topics: vec![query(&group(1), 0)],
    };
    let stream = raw::open_web(
        backend.address,
        "/xmtp.backend.v1.SubscriptionService/SubscribeStatic",
        frame(&request.encode_to_vec()),
        &[],
    )
    .await;
    let mut messages = raw::Messages::of(stream);
    let mut next = async || {
        loop {
            let frame = undecoded::Frame::decode(messages.next().await).expect("a frame");
            if let Some(messages) = frame.messages {
                return messages.envelopes[0].envelope.clone();
            }
        }
    };
    assert_eq!(next().await, history);
    storage::store(&backend.database, &group(1), &live).await;
    assert_eq!(next().await, live);
}

#[test]
fn api_5_6_a_stored_row_that_does_not_decode_is_never_sent() {
    const DAMAGED: &[u8] = b"\xff\xff\xff";
    Watch::run(LogLevel::Error, async |watch| {
        let backend = Backend::start().await;
        let metas = backend.publish([group_message(2, "sound")]).await;
        let refused = |code: Code| {
            let errors = watch.value("xmtp_db_errors_total{kind=\"invariant\"}");
            (code, errors.unwrap_or(0))
        };
        // The tailer meets it: its streams end, and it goes on above it.
        let mut follower = Reader::following(&backend, &[(group(2), 0)]).await;
        follower.read_to(&group(2), meta_id(&metas[0])).await;
        storage::store(&backend.database, &group(1), DAMAGED).await;
        let lost = follower.end().await.expect_err("the tailer begins again");
        assert_eq!(lost.code(), Code::Unavailable);
        let mut follower = eventually("streams are admitted again", async || {
            Reader::try_open(&backend).await.ok()
        })
        .await;
        follower.update(&[(group(2), meta_id(&metas[0]))], &[]);
        follower.applied().await;
        let next = backend.publish([group_message(2, "next")]).await;
        follower.read_to(&group(2), meta_id(&next[0])).await;

        let both = vec![query(&group(1), 0), query(&group(2), 0)];
        let status = page(&backend, both.clone(), 0).await.expect_err("damaged");
        assert_eq!(refused(status.code()), (Code::Internal, 1));
        assert_eq!(status.message(), "storage invariant failed");
        let newest = QueryNewestRequest {
            topics: vec![wire(&group(1))],
            include_full_envelope: true,
        };
        let newest = backend.queries().query_newest(newest).await;
        let status = newest.expect_err("damaged");
        assert_eq!(refused(status.code()), (Code::Internal, 2));
        let mut reader = Reader::following(&backend, &[(group(1), 0)]).await;
        let status = reader.end().await.expect_err("damaged");
        assert_eq!(refused(status.code()), (Code::Internal, 3));
        assert_eq!(status.message(), "stored data invariant failed");
        let request = SubscribeStaticRequest { topics: both };
        let mut client = backend.subscriptions();
        let stream = client.subscribe_static(request).await.expect("admitted");
        let mut stream = stream.into_inner();
        let status = loop {
            match within(stream.message()).await {
                Ok(frame) => assert!(frame.is_some(), "it ends with a status"),
                Err(status) => break status,
            }
        };
        assert_eq!(refused(status.code()), (Code::Internal, 4));
        let ended = "xmtp_stream_ended_total{reason=\"database\"}";
        watch.until(ended, 2).await;

        // Who does not ask for it is not concerned.
        assert_eq!(backend.read(&group(2)).await.len(), 2);
        backend.stop().await;
    });
}

#[tokio::test]
async fn ops_002_an_expired_row_is_still_read() {
    let backend = Backend::start().await;
    let metas = backend.publish([group_message(1, "a")]).await;
    backend
        .database
        .execute("UPDATE envelopes SET server_ns = 1, expiry_ns = 2")
        .await;
    let rows = backend.read(&group(1)).await;
    let meta = rows[0].meta.as_ref().expect("set");
    assert_eq!(meta_id(meta), meta_id(&metas[0]));
    assert_eq!((meta.server_ns, meta.expiry_ns), (1, 2));
    // A copy answers what is stored.
    assert_eq!(
        backend.publish([group_message(1, "a")]).await[0],
        meta.clone()
    );
}
