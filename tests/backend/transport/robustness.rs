//! Any bytes at all: the server answers, and answers truly.

use bytes::Bytes;
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::test_runner::Config;
use proptest::{prop_oneof, proptest};
use prost::Message;
use tokio::runtime::Runtime;
use tonic::Code;
use xmtp_protocol::ParsedEnvelope;
use xmtp_protocol::proto::grpc::health::v1::{HealthCheckRequest, HealthListRequest};
use xmtp_protocol::proto::xmtp::backend::v1::{
    GetConfigurationRequest, PublishRequest, QueryNewestRequest, QueryRequest,
};
use xmtp_test_support::payloads::recorded;

use crate::harness::Backend;
use crate::raw::{self, frame};

/// Each unary method, and whether a body could be right for it.
type Plausible = fn(&[u8]) -> bool;
const METHODS: [(&str, Plausible); 6] = [
    (crate::publish::PATH, |body| {
        PublishRequest::decode(body).is_ok_and(|request| {
            let mut envelopes = request.envelopes.into_iter();
            envelopes.all(|envelope| ParsedEnvelope::parse(envelope).is_ok())
        })
    }),
    ("/xmtp.backend.v1.QueryService/Query", |body| {
        QueryRequest::decode(body).is_ok()
    }),
    ("/xmtp.backend.v1.QueryService/QueryNewest", |body| {
        QueryNewestRequest::decode(body).is_ok()
    }),
    (super::CONFIGURATION, |body| {
        GetConfigurationRequest::decode(body).is_ok()
    }),
    ("/grpc.health.v1.Health/Check", |body| {
        HealthCheckRequest::decode(body).is_ok()
    }),
    ("/grpc.health.v1.Health/List", |body| {
        HealthListRequest::decode(body).is_ok()
    }),
];

/// Noise, and recorded requests with a few bytes of noise inside.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let damaged = (
        prop::sample::select(recorded()),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    )
        .prop_map(|(recorded, damage)| {
            let request = PublishRequest {
                envelopes: vec![recorded.decode()],
            };
            let mut body = request.encode_to_vec();
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            body
        });
    prop_oneof![any::<Vec<u8>>(), damaged, Just(Vec::new())]
}

/// Whole HTTP bodies: framed, cut short, or noise.
fn http_bodies() -> impl Strategy<Value = Bytes> {
    let framed = bodies().prop_map(|body| frame(&body));
    let cut = (bodies(), any::<prop::sample::Index>()).prop_map(|(body, at)| {
        let whole = frame(&body);
        whole.slice(..at.index(whole.len()))
    });
    prop_oneof![framed, cut, any::<Vec<u8>>().prop_map(Bytes::from)]
}

#[test]
fn api_281_arbitrary_messages_are_answered_and_never_wrongly_accepted() {
    let runtime = Runtime::new().expect("a runtime");
    let backend = runtime.block_on(Backend::start());
    proptest!(Config::with_cases(64), |(body in bodies(), web in any::<bool>())| {
        for (path, plausible) in METHODS {
            let code = runtime.block_on(async {
                if web {
                    raw::web(backend.address, path, frame(&body), &[]).await.code()
                } else {
                    raw::native(backend.address, path, frame(&body), &[]).await.code()
                }
            });
            match code {
                Code::Ok => assert!(plausible(&body), "{path}"),
                Code::Internal | Code::InvalidArgument | Code::NotFound => {}
                // A contract wallet's signature: no chain is configured.
                Code::Unavailable if path.ends_with("/Publish") => {}
                other => panic!("{path}: {other}"),
            }
        }
    });
    runtime.block_on(async { drop(backend) });
}

#[test]
fn api_281_arbitrary_bodies_never_keep_the_server_from_answering() {
    let runtime = Runtime::new().expect("a runtime");
    let backend = runtime.block_on(Backend::start());
    proptest!(Config::with_cases(64), |(body in http_bodies())| {
        for (path, _) in METHODS {
            let answer = runtime.block_on(raw::native(backend.address, path, body.clone(), &[]));
            assert_eq!(answer.http, 200);
            if answer.code() == Code::Ok {
                assert_eq!(answer.messages.len(), 1);
            }
        }
    });
    runtime.block_on(async {
        backend.publish([recorded()[0].decode()]).await;
        drop(backend);
    });
}
