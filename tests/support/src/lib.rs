//! xmtp-test-support
