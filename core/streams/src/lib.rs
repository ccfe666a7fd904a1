//! xmtp-streams
