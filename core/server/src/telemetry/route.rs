//! The route table: which words stand for the path of a request (OPS section 5).

/// How a method answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// One request, one response; the library's name also for health's Watch.
    Unary,
    /// One request, many responses.
    ServerStream,
    /// Many of both.
    BidiStream,
}

impl RouteKind {
    /// Value of the label `grpc_type`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ServerStream => "server_stream",
            Self::BidiStream => "bidi_stream",
        }
    }
}

/// A row of the route table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    path: &'static str,
    kind: RouteKind,
}

impl Route {
    /// What every path without a row of its own is called.
    pub const UNKNOWN: Self = Self::new("unknown/unknown", RouteKind::Unary);

    /// The row of `path`, which is `/SERVICE/METHOD`.
    pub const fn new(path: &'static str, kind: RouteKind) -> Self {
        Self { path, kind }
    }

    /// The path of a request; for [`Self::UNKNOWN`], words of ours in its place.
    pub const fn path(self) -> &'static str {
        self.path
    }

    /// `SERVICE/METHOD`: the name of its request span.
    pub fn name(self) -> &'static str {
        self.path.trim_start_matches('/')
    }

    /// Value of the label `grpc_service`.
    pub fn service(self) -> &'static str {
        self.name()
            .split_once('/')
            .map_or("", |(service, _)| service)
    }

    /// Value of the label `grpc_method`.
    pub fn method(self) -> &'static str {
        self.name().split_once('/').map_or("", |(_, method)| method)
    }

    /// How it answers.
    pub const fn kind(self) -> RouteKind {
        self.kind
    }

    /// Whether it is of the health service, which is in no request metric and no request log.
    pub fn is_health(self) -> bool {
        self.service() == "grpc.health.v1.Health"
    }
}

/// Path of the bidirectional stream.
pub(crate) const SUBSCRIBE: &str = "/xmtp.backend.v1.SubscriptionService/Subscribe";

/// Path of the static stream.
pub(crate) const SUBSCRIBE_STATIC: &str = "/xmtp.backend.v1.SubscriptionService/SubscribeStatic";

/// The rows of core.
pub(super) const ROUTES: [Route; 11] = [
    Route::new("/xmtp.backend.v1.QueryService/Query", RouteKind::Unary),
    Route::new(
        "/xmtp.backend.v1.QueryService/QueryNewest",
        RouteKind::Unary,
    ),
    Route::new("/xmtp.backend.v1.PublishService/Publish", RouteKind::Unary),
    Route::new(SUBSCRIBE, RouteKind::BidiStream),
    Route::new(SUBSCRIBE_STATIC, RouteKind::ServerStream),
    Route::new(
        "/xmtp.backend.v1.IdentityService/GetInboxIds",
        RouteKind::Unary,
    ),
    Route::new(
        "/xmtp.backend.v1.IdentityService/VerifySmartContractWalletSignatures",
        RouteKind::Unary,
    ),
    Route::new(
        "/xmtp.backend.v1.ConfigurationService/GetConfiguration",
        RouteKind::Unary,
    ),
    Route::new("/grpc.health.v1.Health/Check", RouteKind::Unary),
    Route::new("/grpc.health.v1.Health/Watch", RouteKind::Unary),
    Route::new("/grpc.health.v1.Health/List", RouteKind::Unary),
];
