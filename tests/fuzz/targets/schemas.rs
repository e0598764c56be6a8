//! See `rye_fuzz::schemas`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rye_fuzz::schemas(bytes));
