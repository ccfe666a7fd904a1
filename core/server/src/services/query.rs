//! `QueryService`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tonic::{Request, Response, Status};
use xmtp_protocol::proto::xmtp::backend::v1::{self as v1, Continuation, Topic as WireTopic};
use xmtp_protocol::{SequenceId, Topic, TopicKind};
use xmtp_store::{NewestEnvelope, Page, Primary, Reads, StoredEnvelope, TopicPosition};
use xmtp_telemetry::{observed, operation};

use super::xmtp::backend::v1::query_service_server::QueryService;
use super::{decode, too_many, within};
use crate::request::{QueryNewestRequest, QueryRequest};
use crate::status;
use crate::wire::{self, NewestResult, QueryNewestResponse, QueryResponse};

/// Number of the field `QueryRequest.queries`.
const QUERIES: u32 = 1;
/// Number of the field `QueryNewestRequest.topics`.
const TOPICS: u32 = 1;

/// Bounds of queries (API-131), all counted on the request as sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryLimits {
    pub(crate) max_query_topics: usize,
    pub(crate) default_query_limit: u32,
    pub(crate) max_query_limit: u32,
    pub(crate) max_newest_metadata_topics: usize,
    pub(crate) max_newest_full_topics: usize,
    pub(crate) max_response_bytes: usize,
}

/// Serves queries: pages from the primary, newest envelopes from the reads that may lag (OPS-009).
pub(crate) struct QueryEndpoint {
    pub(crate) primary: Primary,
    pub(crate) reads: Reads,
    pub(crate) limits: QueryLimits,
}

#[tonic::async_trait]
impl QueryService for QueryEndpoint {
    async fn query(
        &self,
        request: Request<QueryRequest>,
    ) -> Result<Response<QueryResponse>, Status> {
        let page = self.page(request.into_inner());
        observed(operation!("rpc.query"), page)
            .await
            .map(Response::new)
    }

    async fn query_newest(
        &self,
        request: Request<QueryNewestRequest>,
    ) -> Result<Response<QueryNewestResponse>, Status> {
        let newest = self.newest(request.into_inner());
        observed(operation!("rpc.query_newest"), newest)
            .await
            .map(Response::new)
    }
}

impl QueryEndpoint {
    async fn page(&self, request: QueryRequest) -> Result<QueryResponse, Status> {
        within(&request, QUERIES, self.limits.max_query_topics)?;
        let request = decode(request)?;
        let positions = Self::positions(&request)?;
        let limit = match request.limit {
            0 => self.limits.default_query_limit,
            asked => asked.min(self.limits.max_query_limit),
        };
        if positions.is_empty() {
            return Ok(QueryResponse::default());
        }
        let page = self
            .primary
            .query(&positions, limit.into(), self.limits.max_response_bytes)
            .await
            .map_err(|error| status::store(&error))?;
        match page {
            Page::Rows {
                envelopes,
                has_more,
            } => Ok(QueryResponse {
                envelopes: StoredEnvelope::encode(&envelopes),
                continuation: Continuation { has_more },
            }),
            Page::TooLarge => Err(status::response_too_long()),
        }
    }

    /// Checks every entry, then reads a topic that is named several times from its lowest cursor
    /// (API-242).
    fn positions(request: &v1::QueryRequest) -> Result<Vec<TopicPosition>, Status> {
        let mut positions: Vec<TopicPosition> = Vec::with_capacity(request.queries.len());
        let mut places: HashMap<Topic, usize> = HashMap::with_capacity(request.queries.len());
        for query in &request.queries {
            let topic = topic(query.topic.as_ref())?;
            if topic.kind() == TopicKind::KeyPackage {
                return Err(Status::invalid_argument("key packages require QueryNewest"));
            }
            let after = SequenceId::from_cursor(query.cursor.as_ref())
                .map_err(|_| Status::invalid_argument("cursor exceeds signed 64-bit range"))?;
            match places.entry(topic) {
                Entry::Occupied(place) => {
                    let position = &mut positions[*place.get()];
                    position.after = position.after.min(after);
                }
                Entry::Vacant(place) => {
                    place.insert(positions.len());
                    positions.push(TopicPosition { topic, after });
                }
            }
        }
        Ok(positions)
    }

    async fn newest(&self, request: QueryNewestRequest) -> Result<QueryNewestResponse, Status> {
        let limits = &self.limits;
        let (metadata, full) = (
            limits.max_newest_metadata_topics,
            limits.max_newest_full_topics,
        );
        within(&request, TOPICS, metadata.max(full))?;
        let request = decode(request)?;
        let full = request.include_full_envelope;
        let max = if full {
            limits.max_newest_full_topics
        } else {
            limits.max_newest_metadata_topics
        };
        if request.topics.len() > max {
            return Err(too_many());
        }
        let mut topics: Vec<Topic> = Vec::with_capacity(request.topics.len());
        let mut places: HashMap<Topic, usize> = HashMap::with_capacity(request.topics.len());
        for named in &request.topics {
            let topic = topic(Some(named))?;
            if let Entry::Vacant(place) = places.entry(topic) {
                place.insert(topics.len());
                topics.push(topic);
            }
        }
        if topics.is_empty() {
            return Ok(QueryNewestResponse::default());
        }
        let found = if full {
            self.reads
                .newest_envelopes(&topics, limits.max_response_bytes)
                .await
        } else {
            self.reads.newest_metadata(&topics).await.map(Some)
        };
        let mut newest = found
            .map_err(|error| status::store(&error))?
            .ok_or_else(status::response_too_long)?;
        // Any order would do; that of first mention is the least surprising.
        newest.sort_unstable_by_key(|newest| places.get(&newest.metadata.topic));
        Ok(QueryNewestResponse {
            results: newest.into_iter().map(newest_result).collect(),
        })
    }
}

fn newest_result(newest: NewestEnvelope) -> NewestResult {
    let meta = wire::envelope_meta(&newest.metadata);
    NewestResult {
        topic: meta.topic.clone(),
        meta: Some(meta),
        envelope: newest.payload,
    }
}

fn topic(named: Option<&WireTopic>) -> Result<Topic, Status> {
    let named = named.ok_or_else(|| Status::invalid_argument("topic is absent"))?;
    Topic::parse(&named.topic).map_err(|_| Status::invalid_argument("invalid topic"))
}
