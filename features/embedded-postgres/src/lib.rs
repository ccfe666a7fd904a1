//! xmtp-embedded-postgres
