#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xroce_fuzz_checks::operations::check(data));
