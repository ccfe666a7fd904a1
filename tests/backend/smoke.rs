//! The shortest way through everything: publish, query, stream.

use futures::stream;
use xmtp_protocol::TopicKind;
use xmtp_protocol::proto::xmtp::backend::v1::{
    SubscribeRequest, subscribe_request, subscribe_response::Response,
};
use xmtp_test_support::payloads::{group_message, topic};

use crate::harness::{Backend, meta_id, query, sequence_id};

#[tokio::test]
async fn an_envelope_is_published_queried_and_streamed() {
    let backend = Backend::start().await;
    let group = topic(TopicKind::GroupMessage, 1);
    let metas = backend.publish([group_message(1, "hello")]).await;
    let rows = backend.read(&group).await;
    assert_eq!(
        rows.iter().map(sequence_id).collect::<Vec<_>>(),
        [meta_id(&metas[0])]
    );

    let update = subscribe_request::Update {
        id: 1,
        adds: vec![query(&group, 0)],
        removes: vec![],
    };
    let request = SubscribeRequest {
        request: Some(subscribe_request::Request::Update(update)),
    };
    let inbound = futures::StreamExt::chain(stream::iter([request]), stream::pending());
    let mut frames = backend
        .subscriptions()
        .subscribe(inbound)
        .await
        .expect("admitted")
        .into_inner();
    let mut next = async || {
        frames
            .message()
            .await
            .expect("healthy")
            .expect("open")
            .response
            .expect("set")
    };
    assert!(matches!(next().await, Response::Started(_)));
    assert!(matches!(next().await, Response::Applied(applied) if applied.id == 1));
    let Response::Messages(history) = next().await else {
        panic!("history comes first")
    };
    assert_eq!(history.envelopes.len(), 1);
    let live = backend.publish([group_message(1, "again")]).await;
    let Response::Messages(messages) = next().await else {
        panic!("then live rows")
    };
    assert_eq!(
        messages
            .envelopes
            .iter()
            .map(sequence_id)
            .collect::<Vec<_>>(),
        [meta_id(&live[0])]
    );
    backend.stop().await;
}
