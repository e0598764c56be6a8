//! Frames of a log, and frames of a payload.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rye_fuzz::frames(bytes);
    rye_fuzz::frames(&rye_fuzz::frame(bytes));
});
