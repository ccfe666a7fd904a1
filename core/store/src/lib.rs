//! xmtp-store
