//! What can go wrong, in one line each, without anything of what was sent.

use std::fmt;
use std::io;

use tonic::{Code, Status};
use xmtp_protocol::TopicError;

/// A part of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Configuration,
    Publish,
    Stream,
    Query,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "configuration",
            Self::Publish => "publish",
            Self::Stream => "stream",
            Self::Query => "query",
        })
    }
}

impl Step {
    /// Turns the server's refusal into an error of this step.
    pub(super) fn refused(self) -> impl Fn(Status) -> DemoError {
        move |status| DemoError::Refused {
            step: self,
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("cannot read the file: {}", .0.kind())]
    File(io::Error),
    #[error("line {line} of the recording: {fault}")]
    Recording { line: usize, fault: LineFault },
    #[error("cannot start: {}", .0.kind())]
    Runtime(io::Error),
    #[error("the URL has to begin with http:// (the server's port is plaintext)")]
    Scheme,
    #[error("cannot connect: no server accepts gRPC connections at the URL")]
    Connect,
    #[error("what answers at the URL is no XMTP backend that serves: {0:?} to GetConfiguration")]
    WrongServer(Code),
    #[error("{step}: the server answers {code:?}: {message}")]
    Refused {
        step: Step,
        code: Code,
        message: String,
    },
    #[error("{step}: not done within {} seconds", super::PATIENCE.as_secs())]
    Late { step: Step },
    #[error("stream: the server ended it")]
    StreamEnded,
    #[error("stream: a frame is empty or out of turn")]
    Frame,
    #[error("{step}: an envelope comes without its metadata")]
    NoMetadata { step: Step },
    #[error("{step}: a topic is not in ascending order")]
    Order { step: Step },
    #[error("line {line} of the recording: {fault}")]
    Envelope { line: usize, fault: Fault },
}

/// What is wrong with a line of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineFault {
    #[error("no JSON object with topic, hash, is_commit_or_proposal and envelope")]
    Json,
    #[error("topic, hash or envelope is not hex")]
    Hex,
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("hash has not 32 bytes")]
    Hash,
    #[error("envelope does not decode")]
    Envelope,
    #[error("the envelope is in a line before")]
    Repeated,
}

/// What is wrong with one envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("published, but not with exactly one receipt")]
    ReceiptCount,
    #[error("refused, and there all the same")]
    Stored,
    #[error("the receipt has no cursor")]
    NoCursor,
    #[error("the receipt names another topic")]
    Topic,
    #[error("the receipt names another hash")]
    Hash,
    #[error("the receipt has the wrong commit flag")]
    Flag,
    #[error("{0}: the metadata is not that of the receipt")]
    Metadata(Step),
    #[error("{0}: the envelope is not the one that was sent")]
    Payload(Step),
    #[error("{0}: the envelope is there twice")]
    Twice(Step),
    #[error("{0}: the envelope is missing")]
    Missing(Step),
}
