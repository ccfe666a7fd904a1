//! How a stream ends: once, for one cause (contract of streams, section 10).

/// Why a stream ended. The texts are constant and free of request data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The client half-closed, cancelled or went away: no error.
    #[error("ended by the client")]
    Client,
    /// A malformed frame or a bad update.
    #[error("{0}")]
    Invalid(&'static str),
    /// An inbound frame above the request limit.
    #[error("{0}")]
    TooLong(&'static str),
    /// An inbound frame that is no protobuf message.
    #[error("request frame cannot be decoded")]
    Undecodable,
    /// A token bucket was empty.
    #[error("{0}")]
    RateLimited(&'static str),
    /// Live rows or a control frame that cannot be queued.
    #[error("stream output capacity exceeded")]
    Backpressure,
    /// Required state that cannot be kept within its bound.
    #[error("{0}")]
    Capacity(&'static str),
    /// The matching Pong did not come.
    #[error("matching pong not received")]
    Keepalive,
    /// Stream recovery: the tailer lost its connection or its state, or the boundary task its database.
    #[error("stream recovery in progress")]
    Tailer,
    /// A read of this stream failed.
    #[error("{0}")]
    Database(&'static str),
    /// A stored row that does not decode.
    #[error("stored data invariant failed")]
    Corrupt,
    /// The server drains.
    #[error("server is shutting down")]
    Shutdown,
}

impl End {
    /// An update whose id does not grow, or with too many adds or removes.
    pub const UPDATE_REFUSED: Self = Self::Invalid("invalid update id or item count");
    /// A static stream of no topic or of too many.
    pub const STATIC_REFUSED: Self = Self::Invalid("invalid static topic count");
    /// A stored envelope above the bound of a frame, which was stored under other settings.
    pub(crate) const OVERSIZED: Self = Self::Capacity("stored envelope exceeds delivery capacity");

    /// Whether a frame of the client is the cause.
    pub(crate) const fn is_mistake(self) -> bool {
        matches!(
            self,
            Self::Invalid(_) | Self::TooLong(_) | Self::Undecodable | Self::RateLimited(_)
        )
    }

    /// Value of the `reason` label of `xmtp_stream_ended_total`.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Invalid(_) | Self::TooLong(_) | Self::Undecodable => "invalid",
            Self::RateLimited(_) => "rate_limited",
            Self::Backpressure => "backpressure",
            Self::Capacity(_) => "capacity",
            Self::Keepalive => "keepalive",
            Self::Tailer => "tailer",
            Self::Database(_) | Self::Corrupt => "database",
            Self::Shutdown => "shutdown",
        }
    }
}
