#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| xmtp_fixtures::fuzz::account_id(input));
