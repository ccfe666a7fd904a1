#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| xmtp_fixtures::fuzz::key_package(input));
