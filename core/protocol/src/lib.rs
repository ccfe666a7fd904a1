//! xmtp-protocol
