//! xmtp-server
