//! See `rye_fuzz::conditions`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rye_fuzz::conditions(bytes));
