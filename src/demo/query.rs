//! The query's side. Key packages are asked for by `QueryNewest`, since `Query` refuses them.

use tonic::transport::Channel;
use xmtp_protocol::client::QueryServiceClient;
use xmtp_protocol::proto::xmtp::backend::v1::{
    Cursor, QueryNewestRequest, QueryRequest, ServerEnvelope, Topic as WireTopic, TopicQuery,
};
use xmtp_protocol::{Topic, TopicKind};

use super::error::{DemoError, Fault, Step};
use super::recording::Recording;
use super::{Receipt, place, position};

/// Reads every topic. The answer is in the recording's order; `None` stands for a key package that is
/// not the newest of its topic, which no query shows, and for what was refused.
pub(super) async fn run(
    channel: &Channel,
    recording: &Recording,
    receipts: &[Receipt],
) -> Result<Vec<Option<ServerEnvelope>>, DemoError> {
    let mut client = QueryServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let mut found: Vec<Option<ServerEnvelope>> = vec![None; recording.envelopes.len()];
    for topic in recording.topics() {
        let rows = if topic.kind() == TopicKind::KeyPackage {
            newest(&mut client, &topic).await?
        } else {
            all(&mut client, &topic).await?
        };
        let mut head = 0;
        for row in rows {
            let (key, position) = place(&row, Step::Query)?;
            if key.0 != topic || position <= head {
                return Err(DemoError::Order { step: Step::Query });
            }
            head = position;
            if let Some(index) = recording.find(&key) {
                found[index] = Some(row);
            }
        }
        for (index, recorded) in recording.envelopes.iter().enumerate() {
            let Ok(receipt) = &receipts[index] else {
                continue;
            };
            // What is newer than ours is somebody else's, and hides ours legitimately.
            let hidden = topic.kind() == TopicKind::KeyPackage
                && position(receipt).is_some_and(|ours| ours < head);
            if recorded.topic == topic && found[index].is_none() && !hidden {
                return Err(DemoError::Envelope {
                    line: recorded.line,
                    fault: Fault::Missing(Step::Query),
                });
            }
        }
    }
    Ok(found)
}

async fn all(
    client: &mut QueryServiceClient<Channel>,
    topic: &Topic,
) -> Result<Vec<ServerEnvelope>, DemoError> {
    let mut rows: Vec<ServerEnvelope> = Vec::new();
    loop {
        let after = match rows.last() {
            Some(row) => place(row, Step::Query)?.1,
            None => 0,
        };
        let request = QueryRequest {
            queries: vec![TopicQuery {
                topic: Some(wire(topic)),
                cursor: Some(Cursor { sequence_id: after }),
            }],
            limit: 0,
        };
        let answer = client.query(request).await;
        let page = answer.map_err(Step::Query.refused())?.into_inner();
        let has_more =
            page.continuation.is_some_and(|it| it.has_more) && !page.envelopes.is_empty();
        rows.extend(page.envelopes);
        if !has_more {
            return Ok(rows);
        }
    }
}

async fn newest(
    client: &mut QueryServiceClient<Channel>,
    topic: &Topic,
) -> Result<Vec<ServerEnvelope>, DemoError> {
    let request = QueryNewestRequest {
        topics: vec![wire(topic)],
        include_full_envelope: true,
    };
    let answer = client.query_newest(request).await;
    let results = answer.map_err(Step::Query.refused())?.into_inner().results;
    Ok(results
        .into_iter()
        .map(|result| ServerEnvelope {
            meta: result.meta,
            envelope: result.envelope,
        })
        .collect())
}

fn wire(topic: &Topic) -> WireTopic {
    WireTopic {
        topic: topic.as_bytes().to_vec().into(),
    }
}
